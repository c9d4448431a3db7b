//! The shares of members that subscribe to different topics.
//!
//! Members and topics form a graph: a member can hand a partition of a topic that it holds on to any other subscriber of
//! it. Shares are even once no chain of such steps leads from a member to one with at least two partitions less
//! (Harvey, Ladner, Lovász, Tamir: Semi-matchings for bipartite graphs and load balancing, 2006). The search looks at
//! topics, not at partitions, so that its graph stays small.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use crate::assignor::board::{Board, Member, Place, Topic};

/// The owner of each partition; none for those of topics without subscribers.
pub(super) fn share(board: &Board, claims: &[Option<Member>]) -> Vec<Option<Member>> {
    let nobodys = vec![None; claims.len()];
    let mut fresh = Shares::new(board, &nobodys);
    fresh.place_the_free();

    let mut shares = Shares::new(board, claims);
    shares.release_above(fresh.loads.iter().copied().max().unwrap_or(0));
    shares.place_the_free();
    shares.even_out();
    while shares.send_home() {}
    shares.owners
}

/// An assignment in the making.
struct Shares<'a> {
    board: &'a Board,
    claims: &'a [Option<Member>],
    owners: Vec<Option<Member>>,
    loads: Vec<usize>,
    held: Vec<BTreeMap<Topic, Held>>,
}

/// What a member holds of a topic.
#[derive(Default)]
struct Held {
    /// What it owned before.
    kept: Vec<Place>,
    /// The rest: nothing is lost when it goes elsewhere.
    loose: Vec<Place>,
}

/// One partition of `topic` goes from a member to another.
#[derive(Clone, Copy)]
struct Step {
    from: Member,
    topic: Topic,
    to: Member,
}

impl<'a> Shares<'a> {
    /// Everyone has what it owned before.
    fn new(board: &'a Board, claims: &'a [Option<Member>]) -> Self {
        let mut shares = Self {
            board,
            claims,
            owners: vec![None; board.partitions()],
            loads: vec![0; board.members()],
            held: (0..board.members()).map(|_| BTreeMap::new()).collect(),
        };
        for (place, claim) in claims.iter().enumerate() {
            if let Some(member) = claim {
                shares.give(place, *member);
            }
        }
        shares
    }

    /// Takes from everyone what it has above `load`, topics with many subscribers first. With the highest load of any
    /// assignment for `load`, that much has to go in the end; to place it all at once is much faster than step by step.
    fn release_above(&mut self, load: usize) {
        for member in 0..self.board.members() {
            let mut topics: Vec<Topic> = self.held[member].keys().copied().collect();
            topics.sort_by_key(|topic| Reverse(self.board.subscribers(*topic).len()));
            let mut topics = topics.into_iter().peekable();
            while let Some(topic) = topics.peek().filter(|_| self.loads[member] > load) {
                match self.held[member].get(topic).and_then(|held| held.kept.last()) {
                    Some(place) => self.take(*place, member),
                    None => drop(topics.next()),
                }
            }
        }
    }

    /// What nobody has goes to the subscribers that have least, topics with few subscribers first.
    fn place_the_free(&mut self) {
        let board = self.board;
        let mut topics: Vec<Topic> =
            (0..board.topics()).filter(|topic| !board.subscribers(*topic).is_empty()).collect();
        topics.sort_by_key(|topic| board.subscribers(*topic).len());
        for topic in topics {
            let ranked = board.subscribers(topic).iter().map(|member| Reverse((self.loads[*member], *member)));
            let mut ranked: BinaryHeap<_> = ranked.collect();
            for place in board.places_of(topic).iter().copied() {
                if self.owners[place].is_none() {
                    let Reverse((load, member)) = ranked.pop().expect("the topic has subscribers");
                    self.give(place, member);
                    ranked.push(Reverse((load + 1, member)));
                }
            }
        }
    }

    /// Takes from those that have most, until no chain of steps leads to a member that has at least two less.
    fn even_out(&mut self) {
        let mut search = Search::new(self.board);
        let mut ranked: BTreeSet<(usize, Member)> = self.loads.iter().copied().zip(0..).collect();
        while let Some((load, member)) = ranked.last().copied() {
            match search.chain(self, member, Steps::Any, |loads, other| loads[other] + 2 <= load) {
                Some(chain) => {
                    let end = chain.last().map_or(member, |step| step.to);
                    ranked.remove(&(self.loads[member], member));
                    ranked.remove(&(self.loads[end], end));
                    self.walk(&chain);
                    ranked.insert((self.loads[member], member));
                    ranked.insert((self.loads[end], end));
                }
                // No chain leads out of what was reached, and all of it has at most one less than the highest load: no
                // later chain, from a member with no more than that, can gain by entering it.
                None => search.settle(|settled| {
                    ranked.remove(&(self.loads[settled], settled));
                }),
            }
        }
    }

    /// Gives partitions back to those who owned them, where that can be done by steps that cost no other member what it
    /// owned, and leaves the shares as even as they are. True if it did: that may have opened a way for others.
    fn send_home(&mut self) -> bool {
        let is_lost = |place: &Place| self.claims[*place].is_some() && self.owners[*place] != self.claims[*place];
        let mut lost: Vec<Place> = (0..self.board.partitions()).filter(is_lost).collect();
        lost.sort_by_key(|place| self.claims[*place]);

        let mut search = Search::new(self.board);
        let mut sent = false;
        // The last search that found nothing: from where, and for less than which load.
        let mut vain = None;
        for place in lost {
            let (Some(owner), Some(home)) = (self.owners[place], self.claims[place]) else { continue };
            let load = self.loads[owner];
            let is_vain = vain.is_some_and(|(from, than)| from == home && load <= than) && !search.has_reached(owner);
            if owner == home || is_vain {
                continue;
            }
            match search.chain(self, home, Steps::Loose, |loads, other| other == owner || loads[other] < load) {
                Some(chain) => {
                    self.take(place, owner);
                    self.give(place, home);
                    self.walk(&chain);
                    (sent, vain) = (true, None);
                }
                None => vain = Some((home, load)),
            }
        }
        sent
    }

    fn walk(&mut self, chain: &[Step]) {
        for step in chain {
            let place = self.held[step.from][&step.topic].best_for(step.to, self.claims);
            self.take(place, step.from);
            self.give(place, step.to);
        }
    }

    fn give(&mut self, place: Place, member: Member) {
        let held = self.held[member].entry(self.board.topic_of(place)).or_default();
        if self.claims[place] == Some(member) {
            held.kept.push(place)
        } else {
            held.loose.push(place)
        }
        self.owners[place] = Some(member);
        self.loads[member] += 1;
    }

    fn take(&mut self, place: Place, member: Member) {
        let topic = self.board.topic_of(place);
        let held = self.held[member].get_mut(&topic).expect("the member holds the partition");
        let list = if self.claims[place] == Some(member) { &mut held.kept } else { &mut held.loose };
        // The search is from the end, where `best_for` mostly points.
        let at = list.iter().rposition(|other| *other == place).expect("the member holds the partition");
        list.remove(at);
        if held.kept.is_empty() && held.loose.is_empty() {
            self.held[member].remove(&topic);
        }
        self.owners[place] = None;
        self.loads[member] -= 1;
    }
}

impl Held {
    /// The partition to hand on to `to`: its own, else one that nothing is lost with.
    fn best_for(&self, to: Member, claims: &[Option<Member>]) -> Place {
        let own = self.loose.iter().rfind(|place| claims[**place] == Some(to));
        *own.or(self.loose.last()).or(self.kept.last()).expect("what is held of a topic is not empty")
    }
}

/// Which steps a chain may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Steps {
    /// All, but those that take from a member what it owned only where there is no other way.
    Any,
    /// Those that take from nobody what it owned.
    Loose,
}

/// The search for chains: breadth first, with steps that cost nothing before those that cost something.
struct Search<'a> {
    board: &'a Board,
    /// Members that no search needs to look at again.
    settled: Vec<bool>,
    /// By member, how it was reached.
    via: Vec<Option<Step>>,
    seen: Vec<bool>,
    reached: Vec<Member>,
    looked_at: Vec<Topic>,
}

impl<'a> Search<'a> {
    fn new(board: &'a Board) -> Self {
        Self {
            board,
            settled: vec![false; board.members()],
            via: vec![None; board.members()],
            seen: vec![false; board.topics()],
            reached: Vec::new(),
            looked_at: Vec::new(),
        }
    }

    /// The chain of steps from a member to one that is a `goal`; empty if it is one itself.
    fn chain(
        &mut self,
        shares: &Shares,
        from: Member,
        steps: Steps,
        goal: impl Fn(&[usize], Member) -> bool,
    ) -> Option<Vec<Step>> {
        self.forget();
        self.reached.push(from);
        if goal(&shares.loads, from) {
            return Some(Vec::new());
        }
        let mut open = VecDeque::new();
        self.open(shares, from, steps, &mut open);
        while let Some((holder, topic)) = open.pop_front() {
            if self.seen[topic] {
                continue;
            }
            self.seen[topic] = true;
            self.looked_at.push(topic);
            let new = self.board.subscribers(topic).iter().copied().filter(|to| self.is_new(*to, from));
            let goals = new.filter(|member| goal(&shares.loads, *member));
            if let Some(end) = goals.min_by_key(|member| shares.loads[*member]) {
                let mut chain = self.trace(from, holder);
                chain.push(Step { from: holder, topic, to: end });
                return Some(chain);
            }
            for to in self.board.subscribers(topic).iter().copied() {
                if self.is_new(to, from) {
                    self.via[to] = Some(Step { from: holder, topic, to });
                    self.reached.push(to);
                    self.open(shares, to, steps, &mut open);
                }
            }
        }
        None
    }

    /// Whether the last search came by a member, other than where it began and ended.
    fn has_reached(&self, member: Member) -> bool {
        self.via[member].is_some()
    }

    /// Ends all searches through the members that the last one reached.
    fn settle(&mut self, mut each: impl FnMut(Member)) {
        for member in &self.reached {
            self.settled[*member] = true;
            each(*member);
        }
    }

    fn is_new(&self, member: Member, from: Member) -> bool {
        member != from && self.via[member].is_none() && !self.settled[member]
    }

    fn open(&self, shares: &Shares, holder: Member, steps: Steps, open: &mut VecDeque<(Member, Topic)>) {
        for (topic, held) in shares.held[holder].iter().filter(|(topic, _)| !self.seen[**topic]) {
            match (held.loose.is_empty(), steps) {
                (false, _) => open.push_front((holder, *topic)),
                (true, Steps::Any) => open.push_back((holder, *topic)),
                (true, Steps::Loose) => {}
            }
        }
    }

    fn trace(&self, from: Member, end: Member) -> Vec<Step> {
        let mut chain = Vec::new();
        let mut at = end;
        while at != from {
            let step = self.via[at].expect("reached by a step");
            chain.push(step);
            at = step.from;
        }
        chain.reverse();
        chain
    }

    fn forget(&mut self) {
        self.reached.drain(..).for_each(|member| self.via[member] = None);
        self.looked_at.drain(..).for_each(|topic| self.seen[topic] = false);
    }
}
