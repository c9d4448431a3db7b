//! Every order of events of two producers with two transactions each over one partition, by a model checker: offsets, plain
//! commits, deletions, ends that come late or twice, and a coordinator that is loaded anew from a log that was compacted.

use levada_coordinator::{Committed, Coordinator, CoordinatorOptions, Now, OffsetsMarker, Outcome, Step};
use levada_model::{LeaderEpoch, Offset, Tick, Timestamp};
use stateright::{Model, Property};

use crate::kit::{group, next, partition, producer};
use crate::log::{COMPACTIONS, Log};
use crate::printed::{Printed, explore};

const OPTIONS: CoordinatorOptions =
    CoordinatorOptions { initial_rebalance_delay_ms: 0, rebalance_interval_ms: 1, offsets_retention_ms: 1_000 };

/// Fewer states would mean that little was tried.
const STATES_MIN: usize = 2_000;
/// How much is explored.
#[derive(Clone, Copy)]
struct Small {
    /// Of the one producer and the other.
    transactions: [i16; 2],
    /// Of each transaction.
    adds: u8,
    plain: u8,
    deletes: u8,
    /// Ends and offsets of earlier transactions that come late.
    lates: u8,
    restarts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Add(usize),
    End(usize, Outcome),
    Plain,
    Delete,
    /// The last end comes once more, or as another than it was.
    LateEnd(usize, Outcome),
    /// An offset of the transaction before.
    LateAdd(usize),
    Restart(usize),
}

#[derive(Clone, Debug)]
struct State {
    coordinator: Coordinator,
    log: Log,
    /// The epoch of each producer, and the offsets of its transaction.
    producers: [(i16, u8); 2],
    /// The next offset that is committed, so that no two are the same.
    offset: u64,
    plain: u8,
    deletes: u8,
    lates: u8,
    restarts: u8,
    /// A commit of an offset changed nothing.
    has_lost: bool,
    broken: Option<&'static str>,
}

impl State {
    const NOW: Now = Now { tick: Tick(0), wall: Timestamp(0) };

    fn take<T>(&mut self, step: Step<T>) -> T {
        self.log.append(&step);
        step.answer
    }

    fn committed(&mut self) -> Committed {
        self.offset += 1;
        Committed {
            offset: Offset(self.offset),
            leader_epoch: LeaderEpoch(0),
            committed_at: Timestamp(0),
            metadata: String::new(),
        }
    }

    fn add(&mut self, of: usize, epoch: i16) -> bool {
        let commits = vec![(partition(0), self.committed())];
        let producer = producer(of as i64, epoch);
        let step = self.coordinator.add_transaction_offsets(Self::NOW, &group(), None, producer, commits);
        self.take(step).is_ok()
    }

    fn end(&mut self, of: usize, epoch: i16, outcome: Outcome) -> bool {
        let marker = OffsetsMarker { producer: next(producer(of as i64, epoch)), coordinator_epoch: 0, outcome };
        let step = self.coordinator.end_transaction(Self::NOW, marker);
        self.take(step).is_ok()
    }

    fn expect(&mut self, holds: bool, what: &'static str) {
        if !holds {
            self.broken.get_or_insert(what);
        }
    }

    fn next(&mut self, action: Action) {
        match action {
            Action::Add(of) => {
                let taken = self.add(of, self.producers[of].0);
                self.producers[of].1 += 1;
                self.expect(taken, "an offset of an open transaction is taken");
            }
            Action::End(of, outcome) => {
                let before = self.coordinator.records();
                let taken = self.end(of, self.producers[of].0, outcome);
                let is_commit = outcome == Outcome::Commit && self.producers[of].1 > 0;
                self.has_lost |= is_commit && before == self.coordinator.records();
                self.producers[of] = (self.producers[of].0 + 1, 0);
                self.expect(taken, "the end of an open transaction is taken");
            }
            Action::Plain => {
                self.plain += 1;
                let commits = vec![(partition(0), self.committed())];
                let step = self.coordinator.commit_standalone(Self::NOW, &group(), commits);
                let taken = self.take(step).is_ok();
                self.expect(taken, "a plain commit is taken");
            }
            Action::Delete => {
                self.deletes += 1;
                let step = self.coordinator.delete(Self::NOW, &group());
                drop(self.take(step));
                let is_gone = self.coordinator.group(&group()).is_none();
                self.expect(is_gone, "a deleted group is gone");
            }
            Action::LateEnd(of, outcome) => {
                self.lates += 1;
                let written = self.log.0.len();
                let before = self.log.last_marker(producer(of as i64, 0).id).map(|marker| marker.outcome);
                let taken = self.end(of, self.producers[of].0 - 1, outcome);
                let is_same = before.is_none_or(|before| before == outcome);
                self.expect(taken == is_same, "the same end is answered the same, and the other is refused");
                self.expect(self.log.0.len() == written, "a late end changes nothing");
            }
            Action::LateAdd(of) => {
                self.lates += 1;
                let taken = self.add(of, self.producers[of].0 - 1);
                self.expect(!taken, "what comes after its transaction is fenced");
            }
            Action::Restart(how) => {
                self.restarts += 1;
                if let Some(how) = COMPACTIONS.get(how) {
                    self.log = self.log.compacted(*how);
                }
                self.coordinator = self.log.replayed(&OPTIONS);
                let loaded = self.coordinator.loaded(Self::NOW);
                self.expect(loaded.records.is_empty(), "an undamaged log is consistent");
            }
        }
    }

    fn printed(self) -> Printed<Self> {
        Printed::new(self, |state| {
            let Self { producers, plain, deletes, lates, restarts, has_lost, broken, .. } = state;
            let counts = (producers, plain, deletes, lates, restarts, has_lost, broken);
            format!("{:?}", (&state.coordinator, &state.log, counts))
        })
    }
}

impl Model for Small {
    type State = Printed<State>;
    type Action = Action;

    fn init_states(&self) -> Vec<Printed<State>> {
        let state = State {
            coordinator: Coordinator::new(OPTIONS),
            log: Log::default(),
            producers: [(0, 0); 2],
            offset: 0,
            plain: 0,
            deletes: 0,
            lates: 0,
            restarts: 0,
            has_lost: false,
            broken: None,
        };
        vec![state.printed()]
    }

    fn actions(&self, state: &Printed<State>, actions: &mut Vec<Action>) {
        for (of, (epoch, adds)) in state.producers.iter().enumerate() {
            if *epoch < self.transactions[of] {
                actions.extend((*adds < self.adds).then_some(Action::Add(of)));
                // An end of nothing is explored for one producer, and once.
                let is_end = *adds > 0 || (of == 0 && *epoch == 0);
                actions.extend(
                    [Outcome::Commit, Outcome::Abort]
                        .into_iter()
                        .filter(|_| is_end)
                        .map(|outcome| Action::End(of, outcome)),
                );
            }
            if *epoch > 0 && state.lates < self.lates {
                actions.push(Action::LateAdd(of));
                actions.extend([Outcome::Commit, Outcome::Abort].map(|outcome| Action::LateEnd(of, outcome)));
            }
        }
        actions.extend((state.plain < self.plain).then_some(Action::Plain));
        actions.extend((state.deletes < self.deletes).then_some(Action::Delete));
        if state.restarts < self.restarts {
            actions.extend((0..=COMPACTIONS.len()).map(Action::Restart));
        }
    }

    fn next_state(&self, before: &Printed<State>, action: Action) -> Option<Printed<State>> {
        let mut state = State::clone(before);
        state.next(action);
        Some(state.printed())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing went wrong", |_, state: &Printed<State>| state.broken.is_none()),
            Property::always("what stands is what the log says", |_, state: &Printed<State>| {
                let known = state.coordinator.records().into_iter();
                let known = known.map(|record| (record.key, record.value.expect("a value"))).collect();
                state.log.visible() == known
            }),
            Property::always("whatever a compaction leaves of the log says the same", |_, state: &Printed<State>| {
                state.log.check_replays(&state.coordinator, State::NOW, &OPTIONS);
                true
            }),
            Property::sometimes("an offset whose transaction ends last loses", |_, state: &Printed<State>| {
                state.has_lost
            }),
        ]
    }
}

#[test]
fn in_every_order_of_events_what_stands_is_what_the_log_says() {
    explore(Small { transactions: [2, 1], adds: 1, plain: 1, deletes: 0, lates: 0, restarts: 0 }, STATES_MIN);
}

#[test]
fn in_every_order_of_events_with_a_deletion_what_stands_is_what_the_log_says() {
    explore(Small { transactions: [1, 1], adds: 1, plain: 1, deletes: 1, lates: 0, restarts: 1 }, STATES_MIN);
}

#[test]
fn in_every_order_of_events_what_is_late_changes_nothing() {
    explore(Small { transactions: [2, 1], adds: 1, plain: 0, deletes: 0, lates: 1, restarts: 1 }, STATES_MIN);
}
