//! Random events against the naive model, with invariants after every step.

mod events;
mod pending;

use std::collections::{BTreeMap, BTreeSet};

use levada_coordinator::{
    AssignmentEpoch, Committed, GroupState, Holding, MemberCommit, MemberError, MemberView, NewMember, Refusal,
    TopicsView,
};
use levada_extension::{AssignorFault, TopicPartition};
use levada_model::{InstanceId, LeaderEpoch, MemberId, Offset, TopicName};
use proptest::prelude::{ProptestConfig, proptest};

use self::events::{Change, Epoch, Event, How, events};
use crate::kit::{self, Answers, World, group, instance_id, member, topic};
use crate::model::{self, Model};

/// Milliseconds of one step of the clock; all times are multiples of it.
const STEP_MS: u64 = 500;
const ASSIGNORS: [&str; 3] = ["cooperative-sticky", "range", "module:mine"];

/// The coordinator and the model side by side.
struct Both {
    real: World,
    model: Model,
    joined: Vec<MemberId>,
    next_topic_id: u128,
    /// The last holding of each partition.
    last: BTreeMap<TopicPartition, (MemberId, u32)>,
    rebalances: usize,
}

impl Both {
    fn new() -> Self {
        let mut real = World::new(2);
        real.answers = Answers::ByHand;
        let mut both = Self {
            real,
            model: Model::default(),
            joined: Vec::new(),
            next_topic_id: 100,
            last: BTreeMap::new(),
            rebalances: 0,
        };
        both.model.tick = both.real.tick().0;
        both.model.wall = both.real.now().wall.0;
        both.run();
        both
    }

    fn apply(&mut self, event: &Event) {
        let undecided = self.model.undecided();
        self.real.changed.clear();
        match event {
            Event::Join { instance, topics, assignor } => self.join(*instance, *topics, *assignor),
            Event::Poll { who, again } => self.each(*who, |both, id| both.poll(id, *again)),
            Event::Heartbeat { who } => self.each(*who, Self::heartbeat),
            Event::Commit { who, partition, offset, epoch } => {
                self.commit_some(*who, *partition, *offset, *epoch);
            }
            Event::Leave { who } => self.each(*who, Self::leave),
            Event::Pass { steps } => (0..*steps).for_each(|_| self.step()),
            Event::Everybody { fetches } => {
                for id in self.model.members.keys().cloned().collect::<Vec<_>>() {
                    if *fetches { self.poll(&id, false) } else { self.heartbeat(&id) }
                }
            }
            Event::Answer { how } => self.answer(*how),
            Event::CommitStandalone { partition, offset } => self.commit_standalone(*partition, *offset),
            Event::Add { producer, epoch, who, partition, offset } => {
                self.add(*producer, *epoch, *who, *partition, *offset);
            }
            Event::End { producer, epoch, coordinator_epoch, outcome } => {
                self.end(*producer, *epoch, *coordinator_epoch, *outcome);
            }
            Event::Delete => {
                let deleted = self.real.delete().is_ok();
                assert_eq!(deleted, self.model.is_shown() && self.model.members.is_empty());
                if deleted {
                    self.model.delete();
                }
            }
            Event::Topic { which, change } => self.change_topic(*which, *change),
            Event::SetWall { millis } => {
                self.model.wall += millis;
                self.real.set_wall(self.model.wall);
            }
            Event::Restart => {
                self.real.restart();
                self.model.restart();
            }
        }
        if matches!(event, Event::Commit { .. } | Event::End { .. }) {
            self.check_news(&undecided);
        }
        self.compare();
        self.check_holdings();
        self.real.check_replays();
    }

    /// The last step decided partitions: their holders are told to look, and nobody else.
    fn check_news(&self, before: &BTreeMap<TopicPartition, MemberId>) {
        let after = self.model.undecided();
        let decided = before.iter().filter(|(partition, _)| !after.contains_key(partition));
        assert_eq!(self.real.changed, decided.map(|(_, holder)| holder.clone()).collect());
    }

    fn join(&mut self, instance: Option<u8>, topics: u8, assignor: u8) {
        let names = [(1, "t"), (2, "u")].into_iter().filter(|(bit, _)| topics & bit != 0).map(|(_, name)| topic(name));
        let topics: Vec<TopicName> = names.filter(|name| self.world().contains_key(name)).collect();
        if topics.is_empty() || self.model.members.len() == 5 {
            return;
        }
        let id = member(&format!("m{:03}", self.joined.len()));
        let instance: Option<InstanceId> = instance.map(|instance| instance_id(&format!("i{instance}")));
        let assignor = ASSIGNORS[usize::from(assignor)];
        let new = model::Member::new(instance.clone(), topics.iter().cloned().collect(), assignor);
        let view = self.real.join(NewMember {
            member_id: id.clone(),
            instance_id: instance,
            client: "test".to_owned(),
            topics,
            assignor: assignor.into(),
            session_timeout_ms: new.session,
            rebalance_timeout_ms: new.rebalance,
            max_poll_interval_ms: new.max_poll,
            start: new.start,
        });
        self.model.join(id.clone(), new);
        self.joined.push(id.clone());
        self.same_view(&id, &view.expect("the topics are there"));
    }

    /// Does something as a member, or as one that once was.
    fn each(&mut self, who: usize, act: impl FnOnce(&mut Self, &MemberId)) {
        let member = self.model.members.keys().nth(who);
        let once = || self.joined.iter().rev().nth(who.saturating_sub(5));
        if let Some(id) = member.or_else(once).cloned() {
            act(self, &id);
        }
    }

    /// A member commits; often the one that holds the partition.
    fn commit_some(&mut self, who: usize, place: usize, offset: u64, epoch: Epoch) {
        let Some(partition) = self.partition(place) else { return };
        let holder = self.model.hold.get(&partition).map(|(holder, _)| holder.clone());
        match holder.filter(|_| who < 4) {
            Some(holder) => self.commit(&holder, partition, offset, epoch),
            None => self.each(who, |both, id| both.commit(id, partition, offset, epoch)),
        }
    }

    /// What a request of a member is answered if it is none any more.
    fn refusal(&self, id: &MemberId) -> Option<MemberError> {
        if self.model.members.contains_key(id) {
            return None;
        }
        let fenced = self.model.fenced_by(id).map(|instance_id| MemberError::FencedInstance { instance_id });
        Some(fenced.unwrap_or_else(|| MemberError::UnknownMember(id.clone())))
    }

    fn poll(&mut self, id: &MemberId, again: bool) {
        let answer = if again { self.real.look(id.as_str()) } else { self.real.poll(id.as_str()) };
        if let Some(refusal) = self.refusal(id) {
            return assert_eq!(answer, Err(refusal));
        }
        self.model.poll(id, again);
        self.model.tell(id);
        self.same_view(id, &answer.expect("a member"));
    }

    fn heartbeat(&mut self, id: &MemberId) {
        let answer = self.real.heartbeat(id.as_str());
        if let Some(refusal) = self.refusal(id) {
            return assert_eq!(answer, Err(refusal));
        }
        self.model.alive(id, false);
        self.model.tell(id);
        self.same_view(id, &answer.expect("a member"));
    }

    fn leave(&mut self, id: &MemberId) {
        let answer = self.real.leave(id.as_str());
        if let Some(refusal) = self.refusal(id) {
            return assert_eq!(answer, Err(refusal));
        }
        self.model.remove(id);
    }

    fn commit(&mut self, id: &MemberId, partition: TopicPartition, offset: u64, epoch: Epoch) {
        let epoch = match epoch {
            Epoch::Explicit => None,
            Epoch::Current => self.model.hold.get(&partition).map(|(_, epoch)| *epoch),
            Epoch::Other(epoch) => Some(epoch),
        };
        let before = self.model.offsets.get(&partition).copied();
        let answer = self.real.commit_at(id.as_str(), partition, offset, epoch);
        if let Some(refusal) = self.refusal(id) {
            return assert_eq!(answer, Err(refusal));
        }
        let expected = self.model.commit(id, partition, offset, epoch);
        assert_eq!(answer, Ok(expected));
        if let (Some(model::Offset::Committed { offset: before, .. }), Some(_), Ok(stands)) = (before, epoch, expected)
        {
            assert!(stands >= before, "a commit from a cursor never goes back");
        }
    }

    fn commit_standalone(&mut self, place: usize, offset: u64) {
        let Some(partition) = self.partition(place) else { return };
        let committed = Committed {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(0),
            committed_at: self.real.now().wall,
            metadata: String::new(),
        };
        let accepted = self.real.commit_standalone_at(partition, committed).is_ok();
        assert_eq!(accepted, self.model.members.is_empty());
        if accepted {
            self.model.commit_standalone(partition, offset);
        }
    }

    fn answer(&mut self, how: How) {
        let Some(task) = self.real.tasks.first() else { return };
        let well = kit::well_or_built_in(task);
        let mut assignment = well.clone().expect("it always answers");
        let answer = match how {
            How::Well => well,
            How::Fault => Err(AssignorFault { reason: "no".to_owned() }),
            How::Twice => {
                let all: Vec<_> = assignment.iter().flatten().copied().collect();
                assignment.iter_mut().for_each(|list| list.extend(&all));
                Ok(assignment)
            }
            How::Nobody => Ok(vec![Vec::new(); assignment.len()]),
            How::Rotated => {
                assignment.rotate_left(1);
                Ok(assignment)
            }
            How::WrongToken => return self.real.answer_wrongly(),
        };
        let open = self.model.task.as_ref().map(|(open, _, _)| open.token);
        if open == Some(task.token) {
            self.model.answer(&answer);
            self.real.answer(answer);
        } else {
            self.real.answer(answer);
            assert_eq!(self.real.written, 0, "an answer that comes too late changes nothing");
        }
    }

    fn change_topic(&mut self, which: u8, change: Change) {
        let name = ["t", "u"][usize::from(which)];
        let known = self.real.topics.id(name);
        self.next_topic_id += 1;
        match (change, known) {
            (Change::Set(partitions), Some(id)) => self.real.topics.set(name, id, partitions),
            (Change::Set(partitions), None) | (Change::Recreate(partitions), _) => {
                self.real.topics.set(name, self.next_topic_id, partitions);
            }
            (Change::Delete, _) => self.real.topics.delete(name),
        }
    }

    /// Lets one step of time pass.
    fn step(&mut self) {
        let due = self.real.coordinator.next_due();
        self.real.advance(STEP_MS);
        self.model.tick += STEP_MS;
        self.model.wall += i64::try_from(STEP_MS).expect("small");
        let quiet =
            due.is_none_or(|due| due > self.real.tick()) && self.model.looked == Some(self.real.topics.version());
        let written = self.run();
        assert!(!quiet || written == 0, "nothing is done before it is due");
        self.compare();
    }

    /// Both do what is due. How many records were written.
    fn run(&mut self) -> usize {
        let (version, world) = (self.real.topics.version(), self.world());
        self.real.run();
        let written = self.real.written;
        self.model.run(version, &world);
        while std::mem::take(&mut self.model.asks) {
            let task = self.real.tasks.last().expect("the coordinator asks too").clone();
            self.rebalances += 1;
            let owned: BTreeMap<_, BTreeSet<_>> = task
                .input
                .members
                .iter()
                .map(|member| (member.member_id.clone(), member.owned.iter().copied().collect()))
                .collect();
            let held = |id: &MemberId| self.model.hold.iter().filter(|(_, at)| at.0 == *id).map(|(p, _)| *p).collect();
            assert_eq!(owned, self.model.members.keys().map(|id| (id.clone(), held(id))).collect());
            let late = self.model.tick + levada_model::limits::ASSIGN_MS_MAX;
            self.model.task = Some((task, false, late));
            self.model.run(version, &world);
        }
        written
    }

    fn world(&self) -> model::World {
        self.real.topics.all()
    }

    /// A partition that is there.
    fn partition(&self, place: usize) -> Option<TopicPartition> {
        let world = self.world();
        let name = ["t", "u"][place / 3];
        world.get(&topic(name))?.get(place % 3).copied()
    }

    fn same_view(&self, id: &MemberId, view: &MemberView) {
        let mut held: Vec<_> = self.model.hold.iter().filter(|(_, (holder, _))| holder == id).collect();
        held.sort_by_key(|(partition, _)| **partition);
        let revoking = self.model.revoking(id);
        let mut holdings: Vec<&Holding> = view.holdings.iter().collect();
        holdings.sort_by_key(|holding| holding.partition);
        assert_eq!(holdings.len(), held.len(), "{id}");
        for (holding, (partition, (_, epoch))) in holdings.into_iter().zip(held) {
            assert_eq!((holding.partition, holding.epoch), (*partition, AssignmentEpoch(*epoch)));
            assert_eq!(holding.revoked, revoking.contains(partition));
            let (committed, expired) = match self.model.offsets.get(partition) {
                Some(model::Offset::Committed { offset, .. }) => (Some(Offset(*offset)), false),
                Some(model::Offset::Expired { .. }) => (None, true),
                None => (None, false),
            };
            assert_eq!((holding.committed, holding.expired), (committed, expired));
            assert_eq!(holding.undecided, self.model.is_undecided(partition));
        }
        assert_eq!(view.generation.0, self.model.generation);
        assert_eq!(view.state, self.model.member_state(id));
        let deadline = revoking.iter().map(|partition| self.model.deadline[partition]).min();
        assert_eq!(view.revoke_deadline.map(|deadline| deadline.0), deadline);
    }

    fn compare(&self) {
        let Some(view) = self.real.coordinator.group(&group()) else {
            return assert!(!self.model.is_shown(), "the coordinator knows nothing of it");
        };
        assert!(self.model.is_shown(), "the coordinator knows something of it");
        assert_eq!(view.state, self.model.state());
        assert_eq!(view.generation.0, self.model.generation);
        assert_eq!(view.assignor.as_deref(), self.model.assignor.as_deref());
        assert_eq!(view.fallback.map(|fallback| fallback.generation.0), self.model.fallback);
        let ids: Vec<_> = view.members.iter().map(|member| member.view.member_id.clone()).collect();
        assert_eq!(ids, self.model.members.keys().cloned().collect::<Vec<_>>());
        view.members.iter().for_each(|member| self.same_view(&member.view.member_id, &member.view));
        let offsets: BTreeMap<_, _> = view.offsets.iter().map(|(p, committed)| (*p, committed.offset.0)).collect();
        let expected = self.model.offsets.iter().filter_map(|(partition, offset)| match offset {
            model::Offset::Committed { offset, .. } => Some((*partition, *offset)),
            model::Offset::Expired { .. } => None,
        });
        assert_eq!(offsets, expected.collect());
    }

    /// Of all members, a commit of a partition counts for one at most; and holdings of a partition rise in their epochs.
    fn check_holdings(&mut self) {
        let mut copy = self.real.coordinator.clone();
        let now = self.real.now();
        let newest: Vec<_> = self.joined.iter().rev().take(12).collect();
        for partition in (0..6).filter_map(|place| self.partition(place)) {
            let counts = newest.iter().filter(|id| {
                let commit = MemberCommit { partition, offset: Offset(0), leader_epoch: LeaderEpoch(0), epoch: None };
                let answer = copy.commit(now, &group(), id, vec![commit]).answer;
                answer.is_ok_and(|answer| answer[0] != Err(Refusal::NotHeld))
            });
            assert!(counts.count() <= 1, "two could both commit {partition:?}");
        }
        if self.model.generation == 0 {
            self.last.clear();
        }
        for (partition, (holder, epoch)) in &self.model.hold {
            if let Some((before, last)) = self.last.get(partition).filter(|(before, _)| before != holder) {
                let took_over = self.model.members[holder].replaced.contains(before);
                assert!(epoch > last || (took_over && epoch == last), "{partition:?}: {last} and then {epoch}");
            }
            self.last.insert(*partition, (holder.clone(), *epoch));
        }
    }

    /// Everybody lives and fetches, and assignors answer: the group comes to rest, and stays there.
    fn come_to_rest(&mut self) {
        let before = self.model.generation;
        let mut quiet = 0;
        for _ in 0..20 {
            self.apply(&Event::Answer { how: How::Well });
            self.apply(&Event::Everybody { fetches: true });
            quiet = if self.model.state() == GroupState::Stable { quiet + 1 } else { 0 };
            self.apply(&Event::Pass { steps: 1 });
        }
        if self.model.members.is_empty() {
            return;
        }
        assert!(quiet >= 8, "it rests");
        assert!(self.model.generation <= before + 3, "after few rebalances");
        let held: BTreeSet<_> = self.model.hold.keys().copied().collect();
        assert_eq!(held, self.model.subscribed(), "everything subscribed is held");
        let rebalances = self.rebalances;
        (0..10).for_each(|_| {
            self.apply(&Event::Everybody { fetches: true });
            self.apply(&Event::Pass { steps: 4 });
        });
        assert_eq!(self.rebalances, rebalances, "no rebalance without a reason");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn the_coordinator_does_what_the_naive_model_does(events in proptest::collection::vec(events(), 1..90)) {
        let mut both = Both::new();
        events.iter().for_each(|event| both.apply(event));
        both.come_to_rest();
    }
}
