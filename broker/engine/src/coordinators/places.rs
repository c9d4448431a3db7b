//! The coordinators of one kind, one for each partition of its topic, and handles to them.
//!
//! They hold nothing of the engine that a task of theirs would keep alive: an engine that is dropped is gone at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use levada_coordinator::Now;
use levada_extension::murmur2;
use levada_model::{PartitionIndex, Tick};
use tokio::sync::Notify;

use super::fault::CoordinatorFault;
use super::kind::Kind;
use super::slot::{Slot, Stepped};
use super::watches::Watches;
use crate::catalog::{Catalog, Topic};
use crate::counters::Counters;
use crate::directory::Directory;
use crate::partition::Partition;

/// The coordinators, by the number of their partition, and what they work with.
pub(crate) struct Coordinators<K: Kind> {
    kind: K,
    slots: Vec<Arc<Slot<K>>>,
    pub(super) catalog: Arc<Catalog>,
    directory: Arc<Directory>,
    closing: AtomicBool,
    /// Notified when something is due earlier than the ticker knows.
    pub(super) due: Arc<Notify>,
}

/// A handle to one coordinator.
pub(crate) struct CoordinatorHandle<K: Kind> {
    coordinators: Arc<Coordinators<K>>,
    slot: Arc<Slot<K>>,
    partition: Arc<Partition>,
}

impl<K: Kind> Clone for CoordinatorHandle<K> {
    fn clone(&self) -> Self {
        Self { coordinators: self.coordinators.clone(), slot: self.slot.clone(), partition: self.partition.clone() }
    }
}

impl<K: Kind> Coordinators<K> {
    pub(crate) fn new(kind: K, catalog: Arc<Catalog>, directory: Arc<Directory>) -> Self {
        Self {
            kind,
            slots: (0..K::PARTITIONS).map(|_| Arc::default()).collect(),
            catalog,
            directory,
            closing: AtomicBool::new(false),
            due: Arc::default(),
        }
    }

    /// Begins to load what is not loaded, since there are things that come due though nobody asks.
    pub(crate) fn load_all(self: &Arc<Self>) {
        for coordinator in self.all() {
            coordinator.slot.begin_load(self, &coordinator.partition);
        }
    }

    /// Does what is due in all coordinators; answers when something is due next.
    pub(crate) fn tick(self: &Arc<Self>) -> Option<Tick> {
        self.tick_each(|slot| slot.tick(self))
    }

    /// Where one panics the others go on: that coordinator is forgotten and loaded anew.
    fn tick_each(&self, tick: impl Fn(&Arc<Slot<K>>) -> Option<Tick>) -> Option<Tick> {
        let guarded = |slot| match catch_unwind(AssertUnwindSafe(|| tick(slot))) {
            Ok(next) => next,
            Err(_) => {
                tracing::error!("what was due in {} panicked; they are loaded anew", K::WHAT);
                None
            }
        };
        self.slots.iter().filter_map(guarded).min()
    }

    /// What is seen in those that are loaded, durable or not.
    pub(crate) fn peek<T>(&self, look: impl Fn(&K::Machine) -> T) -> impl Iterator<Item = T> {
        self.slots.iter().filter_map(move |slot| slot.peek(&look))
    }

    /// Changes nothing any more, and lets everyone who waits look again.
    pub(crate) fn close(self: &Arc<Self>) {
        // Where there is no room it is done again after the next start.
        for slot in &self.slots {
            slot.hand_over(self);
        }
        self.closing.store(true, Ordering::Release);
        self.slots.iter().for_each(|slot| slot.watches().wake_all());
        self.due.notify_one();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// The coordinator of what is called so; none while the topic is not there.
    pub(crate) fn by_key(self: &Arc<Self>, key: &str) -> Option<CoordinatorHandle<K>> {
        let topic = self.catalog.get(&K::topic())?;
        Some(self.by_key_in(&topic, key))
    }

    /// The coordinator of what is called so.
    pub(crate) fn by_key_in(self: &Arc<Self>, topic: &Topic, key: &str) -> CoordinatorHandle<K> {
        let hash = murmur2(key.as_bytes()) & 0x7fff_ffff;
        let index = PartitionIndex(hash % K::PARTITIONS);
        let partition = topic.state().partition(index).expect("the topic's partitions are never changed").clone();
        self.in_partition(partition)
    }

    /// The coordinator in this partition, if the topic and the partition are there.
    pub(crate) fn by_index(self: &Arc<Self>, index: PartitionIndex) -> Option<CoordinatorHandle<K>> {
        let partition = self.catalog.get(&K::topic())?.state().partition(index)?.clone();
        Some(self.in_partition(partition))
    }

    /// Those that may know something.
    pub(crate) fn all(self: &Arc<Self>) -> Vec<CoordinatorHandle<K>> {
        let Some(topic) = self.catalog.get(&K::topic()) else { return Vec::new() };
        let state = topic.state();
        let partitions = state.partitions().filter(|partition| partition.high_watermark() > partition.log_start());
        partitions.map(|partition| self.in_partition(partition.clone())).collect()
    }

    pub(crate) fn kind(&self) -> &K {
        &self.kind
    }

    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    pub(crate) fn now(&self) -> Now {
        Now { tick: self.directory.tick(), wall: self.directory.now() }
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.directory.counters()
    }

    /// Why nothing can be changed now, if so.
    pub(super) fn refuses_changes(&self) -> Option<CoordinatorFault> {
        if self.is_closing() {
            return Some(CoordinatorFault::Closing);
        }
        let reason = self.directory.fenced()?.to_owned();
        Some(CoordinatorFault::Fenced { reason, possible: false })
    }

    fn in_partition(self: &Arc<Self>, partition: Arc<Partition>) -> CoordinatorHandle<K> {
        let slot = self.slots[partition.index().0 as usize].clone();
        CoordinatorHandle { coordinators: self.clone(), slot, partition }
    }
}

impl<K: Kind> CoordinatorHandle<K> {
    /// Has the machine take a step, and answers once that and everything before it is durable. Only the wait for that
    /// can be given up: the step is whole or not at all.
    pub(crate) async fn step<T>(
        &self,
        step: impl FnOnce(&mut K::Machine, Now, &Catalog) -> K::Step<T>,
    ) -> Result<T, CoordinatorFault> {
        let Stepped { answer, receipt, .. } = self.take_step(step).await?;
        receipt.durable().await.map(|()| answer)
    }

    /// Has the machine take a step, and leaves it to the caller to wait until its answer may be given.
    pub(crate) async fn take_step<T>(
        &self,
        step: impl FnOnce(&mut K::Machine, Now, &Catalog) -> K::Step<T>,
    ) -> Result<Stepped<T>, CoordinatorFault> {
        let mut step = Some(step);
        loop {
            self.load().await?;
            if let Some(stepped) = self.slot.try_step(&self.coordinators, &mut step) {
                return stepped;
            }
        }
    }

    /// Looks at the machine, and answers once everything that is seen there is durable.
    pub(crate) async fn look<T>(&self, look: impl Fn(&K::Machine) -> T) -> Result<T, CoordinatorFault> {
        loop {
            self.load().await?;
            if let Some((seen, receipt)) = self.slot.try_look(&look) {
                return receipt.durable().await.map(|()| seen);
            }
        }
    }

    /// What is seen once it is loaded, durable or not.
    pub(crate) async fn glance<T>(&self, look: impl Fn(&K::Machine) -> T) -> Result<T, CoordinatorFault> {
        loop {
            self.load().await?;
            if let Some(seen) = self.slot.peek(&look) {
                return Ok(seen);
            }
        }
    }

    /// What is seen at this moment, durable or not; none while it is not loaded.
    pub(crate) fn peek<T>(&self, look: impl FnOnce(&K::Machine) -> T) -> Option<T> {
        self.slot.peek(look)
    }

    /// Requests that wait for news.
    pub(crate) fn watches(&self) -> &Arc<Watches<K::Watched>> {
        self.slot.watches()
    }

    /// Comes back when the coordinator is loaded.
    async fn load(&self) -> Result<(), CoordinatorFault> {
        match self.slot.begin_load(&self.coordinators, &self.partition) {
            Some(mut loading) => loading.outcome().await.map_err(CoordinatorFault::from),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use levada_coordinator::{Coordinator, Step, TopicsView};
    use levada_model::{GroupName, MemberId, Principal, TopicName, limits};

    use super::*;
    use crate::testing::open;
    use crate::{AlterTopic, CreateTopic, Engine, GroupStart, JoinGroup};

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
        let coordinator = engine.core.groups.by_key(group.as_str()).expect("the topic is there");
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
    async fn a_tick_that_panics_ends_neither_the_others_nor_the_ones_to_come() {
        let engine = open();
        let (who, group) = (Principal::anonymous(), GroupName::new("g").expect("a name"));
        let member = joined(&engine, &who, &group).await;
        let groups = &engine.core.groups;
        let broken = groups.by_key(group.as_str()).expect("the topic is there").slot;
        let visited = std::cell::Cell::new(0);
        groups.tick_each(|slot| {
            visited.set(visited.get() + 1);
            if Arc::ptr_eq(slot, &broken) {
                let step = |machine: &mut Coordinator, now: Now, _: &Catalog| -> Step<()> {
                    drop(machine.leave(now, &group, &member));
                    panic!("a planted bug")
                };
                drop(slot.try_step(groups, &mut Some(step)));
            }
            slot.tick(groups)
        });
        assert_eq!(visited.get(), limits::CONSUMER_OFFSETS_PARTITIONS);
        engine.heartbeat(&who, &group, &member).await.expect("it never left");
        assert_eq!(broken.reloads(), 1);
        groups.tick().expect("its session is watched again");
        engine.leave_group(&who, &group, &member).await.expect("it leaves");
        assert_eq!(broken.reloads(), 0, "a batch was stored");
    }

    #[tokio::test]
    async fn groups_look_at_topics_only_when_partitions_or_topics_come_or_go() {
        let engine = open();
        let who = Principal::anonymous();
        let topic = TopicName::new("t").expect("a name");
        let version = || engine.core.catalog.version();
        let new = CreateTopic { name: topic.clone(), partitions: 2, config: Default::default() };
        let before = version();
        engine.create_topic(&who, new).await.expect("created");
        let created = version();
        assert!(created > before);
        let setting = ("retention.ms".to_owned(), Some(serde_json::json!(1_000)));
        let settings = AlterTopic { config: [setting].into(), ..AlterTopic::default() };
        engine.alter_topic(&who, &topic, settings).await.expect("changed");
        assert_eq!(version(), created, "settings are no business of theirs");
        let more = AlterTopic { partitions: Some(3), ..AlterTopic::default() };
        engine.alter_topic(&who, &topic, more).await.expect("changed");
        assert!(version() > created);
        let grown = version();
        engine.delete_topic(&who, &topic).await.expect("deleted");
        assert!(version() > grown);
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
