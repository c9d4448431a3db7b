//! The coordinators of the partitions of `__consumer_offsets`, one each, and handles to them.
//!
//! They hold nothing of the engine that a task of theirs would keep alive: an engine that is dropped is gone at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_coordinator::{Coordinator, CoordinatorOptions, GroupState, Now, Step};
use levada_extension::murmur2;
use levada_model::{GroupName, PartitionIndex, Tick, limits};
use tokio::sync::Notify;

use super::offsets_topic::offsets_topic;
use super::slot::Slot;
use super::terms::{GroupError, GroupOptions};
use super::watches::Watches;
use crate::catalog::{Catalog, Topic};
use crate::counters::Counters;
use crate::directory::Directory;
use crate::engine::GroupStats;
use crate::partition::Partition;

/// The coordinators, by the number of their partition, and what they work with.
pub(crate) struct Groups {
    slots: Vec<Arc<Slot>>,
    pub(super) options: CoordinatorOptions,
    pub(super) catalog: Arc<Catalog>,
    directory: Arc<Directory>,
    closing: AtomicBool,
    /// Notified when something is due earlier than the ticker knows.
    pub(super) due: Arc<Notify>,
}

/// A handle to one coordinator.
#[derive(Clone)]
pub(super) struct CoordinatorHandle {
    groups: Arc<Groups>,
    slot: Arc<Slot>,
    partition: Arc<Partition>,
}

impl Groups {
    pub(crate) fn new(options: &GroupOptions, catalog: Arc<Catalog>, directory: Arc<Directory>) -> Self {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            slots: (0..limits::CONSUMER_OFFSETS_PARTITIONS).map(|_| Arc::default()).collect(),
            options: CoordinatorOptions {
                initial_rebalance_delay_ms: millis(options.initial_rebalance_delay),
                rebalance_interval_ms: millis(options.rebalance_interval),
                offsets_retention_ms: millis(options.offsets_retention),
            },
            catalog,
            directory,
            closing: AtomicBool::new(false),
            due: Arc::default(),
        }
    }

    /// Begins to load what is not loaded, since sessions end and offsets expire also in groups that nobody asks for.
    pub(crate) fn load_all(self: &Arc<Self>) {
        for coordinator in self.coordinators() {
            coordinator.slot.begin_load(self, &coordinator.partition);
        }
    }

    /// Does what is due in all coordinators; answers when something is due next.
    pub(crate) fn tick(self: &Arc<Self>) -> Option<Tick> {
        self.slots.iter().filter_map(|slot| slot.tick(self)).min()
    }

    /// The groups that are known now; waits for no load.
    pub(crate) fn stats(&self) -> GroupStats {
        let mut stats = GroupStats::default();
        for summary in self.slots.iter().flat_map(|slot| slot.summaries()) {
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

    /// Changes nothing any more, and lets everyone who waits look again.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.slots.iter().for_each(|slot| slot.watches().wake_all());
        self.due.notify_one();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// The coordinator of a group; none while `__consumer_offsets` is not there.
    pub(super) fn coordinator(self: &Arc<Self>, group: &GroupName) -> Option<CoordinatorHandle> {
        let topic = self.catalog.get(&offsets_topic())?;
        Some(self.coordinator_in(&topic, group))
    }

    /// The coordinator of a group.
    pub(super) fn coordinator_in(self: &Arc<Self>, topic: &Topic, group: &GroupName) -> CoordinatorHandle {
        let hash = murmur2(group.as_str().as_bytes()) & 0x7fff_ffff;
        let index = PartitionIndex(hash % limits::CONSUMER_OFFSETS_PARTITIONS);
        let partition = topic.state().partition(index).expect("the topic's partitions are never changed").clone();
        self.coordinator_of(partition)
    }

    /// Those coordinators that may know a group.
    pub(super) fn coordinators(self: &Arc<Self>) -> Vec<CoordinatorHandle> {
        let Some(topic) = self.catalog.get(&offsets_topic()) else { return Vec::new() };
        let state = topic.state();
        let partitions = state.partitions().filter(|partition| partition.high_watermark() > partition.log_start());
        partitions.map(|partition| self.coordinator_of(partition.clone())).collect()
    }

    pub(super) fn now(&self) -> Now {
        Now { tick: self.directory.tick(), wall: self.directory.now() }
    }

    pub(super) fn counters(&self) -> &Counters {
        self.directory.counters()
    }

    /// Why nothing can be changed now, if so.
    pub(super) fn refuses_changes(&self) -> Option<GroupError> {
        if self.is_closing() {
            return Some(GroupError::Closing);
        }
        let reason = self.directory.fenced()?.to_owned();
        Some(GroupError::Fenced { reason, possible: false })
    }

    fn coordinator_of(self: &Arc<Self>, partition: Arc<Partition>) -> CoordinatorHandle {
        let slot = self.slots[partition.index().0 as usize].clone();
        CoordinatorHandle { groups: self.clone(), slot, partition }
    }
}

impl CoordinatorHandle {
    /// Has the machine take a step, and answers once that and everything before it is durable. Only the wait for that
    /// can be given up: the step is whole or not at all.
    pub(super) async fn step<T>(
        &self,
        step: impl FnOnce(&mut Coordinator, Now, &Catalog) -> Step<T>,
    ) -> Result<T, GroupError> {
        let mut step = Some(step);
        loop {
            self.load().await?;
            if let Some(stepped) = self.slot.try_step(&self.groups, &mut step) {
                let (answer, receipt) = stepped?;
                return receipt.durable().await.map(|()| answer);
            }
        }
    }

    /// Looks at the machine, and answers once everything that is seen there is durable.
    pub(super) async fn look<T>(&self, look: impl Fn(&Coordinator) -> T) -> Result<T, GroupError> {
        loop {
            self.load().await?;
            if let Some((seen, receipt)) = self.slot.try_look(&look) {
                return receipt.durable().await.map(|()| seen);
            }
        }
    }

    /// Fetches that wait for news of their member.
    pub(super) fn watches(&self) -> &Arc<Watches> {
        self.slot.watches()
    }

    /// Comes back when the coordinator is loaded.
    async fn load(&self) -> Result<(), GroupError> {
        match self.slot.begin_load(&self.groups, &self.partition) {
            Some(mut loading) => loading.outcome().await.map_err(GroupError::from),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use levada_log::SimStorage;
    use levada_model::{AllowAll, ManualClock, MemberId, Principal, Timestamp, TopicName};

    use super::*;
    use crate::{CreateTopic, Engine, EngineOptions, GroupStart, JoinGroup};

    fn open() -> Engine {
        let clock = Arc::new(ManualClock::at(Timestamp(1)));
        let options = EngineOptions {
            storage: Arc::new(SimStorage::new(clock.clone())),
            data_dir: "data".into(),
            clock,
            authorizer: Arc::new(AllowAll),
            auto_create_topics: false,
            producer_expiration: Duration::from_secs(60),
            maintenance_interval: Duration::from_secs(60),
            compaction_memory_bytes: 1 << 20,
            linger: Duration::ZERO,
            groups: GroupOptions::default(),
        };
        Engine::open(options).expect("it opens")
    }

    async fn joined(engine: &Engine, who: &Principal, group: &GroupName) -> MemberId {
        let topic = TopicName::new("t").expect("a name");
        let new = CreateTopic { name: topic.clone(), partitions: 1, config: Default::default() };
        engine.create_topic(who, new).await.expect("created");
        let join = JoinGroup {
            topics: vec![topic],
            assignor: crate::AssignorName::Range,
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 10_000,
            max_poll_interval_ms: 10_000,
            start: GroupStart::Earliest,
            instance_id: None,
            client: String::new(),
        };
        engine.join_group(who, group, join).await.expect("it joins").member_id
    }

    #[tokio::test]
    async fn a_step_that_panics_half_way_leaves_nothing_in_memory_that_is_not_in_the_log() {
        let engine = open();
        let (who, group) = (Principal::anonymous(), GroupName::new("g").expect("a name"));
        let member = joined(&engine, &who, &group).await;
        let coordinator = engine.core.groups.coordinator(&group).expect("the topic is there");
        let breaks = tokio::spawn({
            let (coordinator, group, member) = (coordinator.clone(), group.clone(), member.clone());
            async move {
                let step = coordinator.step(|machine, now, _| -> Step<()> {
                    drop(machine.leave(now, &group, &member));
                    panic!("a planted bug")
                });
                step.await
            }
        });
        assert!(breaks.await.expect_err("it panics").is_panic());
        engine.heartbeat(&who, &group, &member).await.expect("it never left");
    }

    #[tokio::test]
    async fn coordinators_outlive_the_runtime_in_which_they_were_loaded() {
        let (who, group) = (Principal::anonymous(), GroupName::new("g").expect("a name"));
        let (engine, member) = tokio::task::spawn_blocking({
            let (who, group) = (who.clone(), group.clone());
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(async {
                    let engine = open();
                    let member = joined(&engine, &who, &group).await;
                    (engine, member)
                })
            }
        })
        .await
        .expect("no panic");
        engine.heartbeat(&who, &group, &member).await.expect("a member");
        engine.leave_group(&who, &group, &member).await.expect("it leaves");
    }
}
