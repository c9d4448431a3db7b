//! Consumer groups as a kind of coordinators: their machine, their topic, and the assignments that it asks for.

use std::sync::Arc;
use std::time::Duration;

use levada_coordinator::{
    AssignTask, Coordinator, CoordinatorOptions, GroupState, Now, OffsetsMarker, Step, TransactionalAppend,
};
use levada_log::{CoordinatorEpoch, Marker};
use levada_model::{GroupName, MemberId, Tick, TopicName, limits};

use super::assignors;
use super::terms::GroupOptions;
use crate::catalog::{Catalog, Topic};
use crate::coordinators::{CoordinatorHandle, Coordinators, Entry, Kind, Parts, Place, Stored, end_of, outcome_of};
use crate::directory::Directory;
use crate::engine::GroupStats;
use crate::modules::Modules;
use crate::partition::Partition;

/// The kind of the coordinators of groups.
pub(crate) struct GroupKind {
    options: CoordinatorOptions,
    /// Where assignors are found that are modules.
    modules: Arc<Modules>,
}

/// The coordinators of groups.
pub(crate) type Groups = Coordinators<GroupKind>;

/// A handle to one of them.
pub(super) type GroupCoordinator = CoordinatorHandle<GroupKind>;

impl Kind for GroupKind {
    type Machine = Coordinator;
    type Step<T> = Step<T>;
    type Watched = MemberId;
    type Effects = Vec<AssignTask>;

    const WHAT: &'static str = "consumer groups";
    const PARTITIONS: u32 = limits::CONSUMER_OFFSETS_PARTITIONS;
    const FOLLOWS_TOPICS: bool = true;

    fn topic() -> TopicName {
        TopicName::new("__consumer_offsets").expect("the name keeps the rule")
    }

    fn machine(&self, _: &Partition) -> Coordinator {
        Coordinator::new(self.options.clone())
    }

    fn replay(machine: &mut Coordinator, stored: Stored<'_>) -> Result<(), String> {
        match stored {
            Stored::Record { transaction: None, key, value, .. } => machine.replay(key, value),
            Stored::Record { transaction: Some(producer), key, value, .. } => {
                machine.replay_transactional(producer, key, value)
            }
            Stored::Marker { producer, marker: Marker { end, coordinator_epoch }, .. } => {
                let (coordinator_epoch, outcome) = (coordinator_epoch.0, outcome_of(end));
                machine.replay_marker(OffsetsMarker { producer, coordinator_epoch, outcome });
                Ok(())
            }
        }
    }

    fn loaded(machine: &mut Coordinator, now: Now) -> Step<()> {
        machine.loaded(now)
    }

    fn next_due(machine: &Coordinator) -> Option<Tick> {
        machine.next_due()
    }

    fn tick(machine: &mut Coordinator, now: Now, topics: &Catalog) -> Step<()> {
        machine.tick(now, topics)
    }

    fn parts<T>(step: Step<T>) -> Parts<T, Self> {
        // Replies go to classic members, for whom there is no face yet.
        let Step { answer, records, transactional, changed, assign, replies: _ } = step;
        let entry = if let Some(transactional) = transactional {
            // One batch is one or the other.
            assert!(records.is_empty(), "a step is plain, or part of a transaction");
            Some(entry(transactional))
        } else {
            (!records.is_empty()).then_some(Entry::Records(records))
        };
        Parts { answer, entry, news: changed.into_iter().map(|(_, member)| member).collect(), effects: assign }
    }

    fn follow(place: &Place<'_, Self>, assign: Vec<AssignTask>) {
        place.coordinators().counters().group_rebalances.add(assign.len() as u64);
        for task in assign {
            compute(place, task);
        }
    }
}

impl Groups {
    /// The coordinators of all groups.
    pub(crate) fn of(
        options: &GroupOptions,
        modules: Arc<Modules>,
        catalog: Arc<Catalog>,
        directory: Arc<Directory>,
    ) -> Self {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let options = CoordinatorOptions {
            initial_rebalance_delay_ms: millis(options.initial_rebalance_delay),
            rebalance_interval_ms: millis(options.rebalance_interval),
            offsets_retention_ms: millis(options.offsets_retention),
        };
        Self::new(GroupKind { options, modules }, catalog, directory)
    }

    /// The coordinator of a group; none while `__consumer_offsets` is not there.
    pub(super) fn coordinator(self: &Arc<Self>, group: &GroupName) -> Option<GroupCoordinator> {
        self.by_key(group.as_str())
    }

    /// The coordinator of a group.
    pub(super) fn coordinator_in(self: &Arc<Self>, topic: &Topic, group: &GroupName) -> GroupCoordinator {
        self.by_key_in(topic, group.as_str())
    }

    /// The groups that are known now; waits for no load.
    pub(crate) fn stats(&self) -> GroupStats {
        let mut stats = GroupStats::default();
        for summary in self.peek(Coordinator::groups).flatten() {
            stats.members += summary.members as u64;
            *match summary.state {
                GroupState::Empty => &mut stats.empty,
                GroupState::Assigning => &mut stats.assigning,
                GroupState::Reconciling => &mut stats.reconciling,
                GroupState::Stable => &mut stats.stable,
            } += 1;
        }
        stats
    }
}

/// What a step does in a transaction, as its coordinator's log takes it.
fn entry(transactional: TransactionalAppend) -> Entry {
    match transactional {
        TransactionalAppend::Offsets { producer, records } => Entry::Transactional { producer, records },
        TransactionalAppend::Marker(OffsetsMarker { producer, coordinator_epoch, outcome }) => {
            let marker = Marker { end: end_of(outcome), coordinator_epoch: CoordinatorEpoch(coordinator_epoch) };
            Entry::Marker { producer, marker }
        }
    }
}

/// Has an assignment computed and given to the machine, if it is still the same one then.
fn compute(place: &Place<'_, GroupKind>, task: AssignTask) {
    let AssignTask { group, token, assignor, input } = task;
    let committed = place.machine().committed(&group).unwrap_or_default();
    let input = assignors::with_lags(input, &committed, &place.coordinators().catalog().topics());
    let machine = place.same_machine();
    let modules = place.coordinators().kind().modules.clone();
    place.runtime().spawn(async move {
        let answer = assignors::assign(&modules, &assignor, input).await;
        machine.step(|machine, now, _| machine.assigned(now, &group, token, answer)).await;
    });
}

#[cfg(test)]
mod tests {
    use levada_coordinator::{CoordinatorRecord, Outcome, Producer};
    use levada_model::{ProducerEpoch, ProducerId};

    use super::*;

    #[test]
    #[should_panic(expected = "a step is plain, or part of a transaction")]
    fn a_step_that_is_both_plain_and_part_of_a_transaction_is_not_stored_by_half() {
        let producer = Producer { id: ProducerId(1), epoch: ProducerEpoch(1) };
        let marker = OffsetsMarker { producer, coordinator_epoch: 0, outcome: Outcome::Commit };
        let record = CoordinatorRecord { key: "k".into(), value: None };
        let step = Step {
            answer: (),
            records: vec![record],
            transactional: Some(TransactionalAppend::Marker(marker)),
            changed: Vec::new(),
            assign: Vec::new(),
            replies: Vec::new(),
        };
        drop(GroupKind::parts(step));
    }
}
