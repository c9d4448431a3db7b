//! The coordinators of the partitions of `__consumer_offsets`: each a state machine of `levada_coordinator`, loaded from
//! its partition's log, whose every step is in the log before it is answered.
//!
//! A step runs under the partition's lock, and its records are handed to the partition's owner under the same lock, so
//! the order of the log is the order of the states. Each batch expects the offset behind the one before: where one is
//! not stored, none behind it is. Then, and when a step panics, the coordinator is forgotten and loaded anew. Nobody is
//! answered before everything is durable that the machine had taken in when it answered.

use std::sync::{Arc, Weak};

use levada_coordinator::{AssignTask, Coordinator, CoordinatorOptions, CoordinatorRecord, Now, Step, TopicsView};
use levada_extension::{Assignment, AssignorFault, murmur2};
use levada_log::{BatchBuilder, NewBatch, SequenceCheck};
use levada_model::{GroupName, Offset, PartitionIndex, Record, Tick, Timestamp, limits};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};

use super::assignors;
use super::loading::{self, LoadFault, Loading};
use super::offsets_topic::offsets_topic;
use super::progress::{Landing, Progress, Receipt};
use super::terms::{GroupError, GroupOptions};
use super::watches::Watches;
use crate::AppendFault;
use crate::catalog::{Catalog, Topic};
use crate::engine::Core;
use crate::partition::{NewAppend, Partition};

/// The coordinators, by the number of their partition.
pub(crate) struct Groups {
    slots: Vec<Arc<Slot>>,
    options: CoordinatorOptions,
    /// Notified when something is due earlier than the ticker knows.
    due: Arc<Notify>,
}

/// The place of one coordinator.
#[derive(Default)]
pub(super) struct Slot {
    state: Mutex<State>,
    /// Fetches that wait for news of their member.
    pub(super) watches: Arc<Watches>,
}

/// What there is of a coordinator.
enum State {
    /// The log says all. What the one before has handed to the owner has to be answered first.
    Unloaded { before: Option<Arc<Progress>> },
    /// It is being read.
    Loading(Loading),
    /// It is there.
    Loaded(Box<Loaded>),
}

impl Default for State {
    fn default() -> Self {
        Self::Unloaded { before: None }
    }
}

/// A coordinator at work.
struct Loaded {
    machine: Coordinator,
    partition: Arc<Partition>,
    /// Where its next batch goes.
    next_offset: Offset,
    progress: Arc<Progress>,
    /// To the task that hears what became of its batches, in order.
    landings: mpsc::UnboundedSender<Landing>,
    /// The topics that its machine has seen.
    topics_version: u64,
    /// Where its tasks run.
    runtime: Handle,
}

/// A handle to one coordinator.
#[derive(Clone)]
pub(super) struct CoordinatorHandle {
    core: Arc<Core>,
    slot: Arc<Slot>,
    partition: Arc<Partition>,
}

impl Groups {
    pub(crate) fn new(options: &GroupOptions) -> Self {
        let millis = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            slots: (0..limits::CONSUMER_OFFSETS_PARTITIONS).map(|_| Arc::default()).collect(),
            options: CoordinatorOptions {
                initial_rebalance_delay_ms: millis(options.initial_rebalance_delay),
                rebalance_interval_ms: millis(options.rebalance_interval),
                offsets_retention_ms: millis(options.offsets_retention),
            },
            due: Arc::default(),
        }
    }

    /// Notified when something is due earlier than was said before; for the ticker alone.
    pub(super) fn due(&self) -> &Arc<Notify> {
        &self.due
    }

    /// Lets everyone who waits look again.
    pub(crate) fn wake_all(&self) {
        self.slots.iter().for_each(|slot| slot.watches.wake_all());
    }
}

impl Core {
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

    fn coordinator_of(self: &Arc<Self>, partition: Arc<Partition>) -> CoordinatorHandle {
        let slot = self.groups.slots[partition.index().0 as usize].clone();
        CoordinatorHandle { core: self.clone(), slot, partition }
    }

    /// Begins to load what is not loaded, since sessions end and offsets expire also in groups that nobody asks for.
    pub(crate) fn load_groups(self: &Arc<Self>) {
        for coordinator in self.coordinators() {
            coordinator.begin_load();
        }
    }

    /// Does what is due in all coordinators; answers when something is due next.
    pub(crate) fn tick_groups(self: &Arc<Self>) -> Option<Tick> {
        let next = self.groups.slots.iter().filter_map(|slot| slot.tick(self));
        next.min()
    }

    pub(super) fn now(&self) -> Now {
        Now { tick: self.directory.tick(), wall: self.directory.now() }
    }

    /// Why nothing can be changed now, if so.
    fn refuses_changes(&self) -> Option<GroupError> {
        if self.is_closing() {
            return Some(GroupError::Closing);
        }
        let reason = self.directory.fenced()?.to_owned();
        Some(GroupError::Fenced { reason, possible: false })
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
            if let Some(stepped) = self.slot.try_step(&self.core, &mut step) {
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
        &self.slot.watches
    }

    /// Comes back when the coordinator is loaded.
    async fn load(&self) -> Result<(), GroupError> {
        match self.begin_load() {
            Some(mut loading) => loading.outcome().await.map_err(GroupError::from),
            None => Ok(()),
        }
    }

    /// Sees to it that the coordinator is being loaded; none if it is there. The reading goes on though nobody waits.
    fn begin_load(&self) -> Option<Loading> {
        let mut state = self.slot.state.lock();
        let before = match &mut *state {
            State::Loaded(_) => return None,
            State::Loading(loading) if !loading.has_failed() => return Some(loading.clone()),
            State::Loading(_) => None,
            State::Unloaded { before } => before.take(),
        };
        let (outcome, loading) = loading::begin();
        *state = State::Loading(loading.clone());
        let read = Reader {
            core: Arc::downgrade(&self.core),
            slot: self.slot.clone(),
            partition: self.partition.clone(),
            machine: Coordinator::new(self.core.groups.options.clone()),
        };
        Handle::current().spawn(async move { outcome.send(read.run(before).await) });
        Some(loading)
    }
}

/// Reads a coordinator's log. It holds no engine while it waits: one that is dropped meanwhile is gone.
struct Reader {
    core: Weak<Core>,
    slot: Arc<Slot>,
    partition: Arc<Partition>,
    machine: Coordinator,
}

impl Reader {
    async fn run(mut self, before: Option<Arc<Progress>>) -> Result<(), LoadFault> {
        if let Some(before) = before {
            before.until_ended().await;
        }
        let end = loading::replay(&self.partition, &mut self.machine).await?;
        let core = self.core.upgrade().ok_or(LoadFault::Closing)?;
        self.slot.put(&core, self.machine, self.partition, end)
    }
}

impl Slot {
    /// Puts a machine in that has read its log up to `end`, and lets it begin.
    fn put(
        self: &Arc<Self>,
        core: &Arc<Core>,
        machine: Coordinator,
        partition: Arc<Partition>,
        end: Offset,
    ) -> Result<(), LoadFault> {
        let progress = Arc::new(Progress::new(end));
        let (landings, landed) = mpsc::unbounded_channel();
        let runtime = Handle::current();
        let (slot, weak) = (Arc::downgrade(self), Arc::downgrade(core));
        let follow = progress.clone().follow(landed, {
            let (slot, progress) = (slot.clone(), progress.clone());
            move || slot.upgrade().into_iter().for_each(|slot| slot.unload(&progress))
        });
        runtime.spawn(async move {
            follow.await;
            // It was given up, since something failed or panicked.
            if let (Some(core), Some(_)) = (weak.upgrade(), slot.upgrade())
                && core.refuses_changes().is_none()
            {
                core.load_groups();
            }
        });
        let mut loaded =
            Box::new(Loaded { machine, partition, next_offset: end, progress, landings, topics_version: 0, runtime });
        let mut state = self.state.lock();
        if core.refuses_changes().is_some() {
            // What was can still be seen; what damage to the log would have to be settled with records is not.
            drop(loaded.machine.loaded(core.now()));
            *state = State::Loaded(loaded);
        } else {
            *state = State::Loaded(loaded);
            let begun = self.step(core, &mut state, |machine, now, _| machine.loaded(now));
            begun.expect("it is loaded").map_err(LoadFault::Append)?;
        }
        drop(state);
        self.watches.wake_all();
        core.groups.due.notify_one();
        Ok(())
    }

    /// Forgets the coordinator whose progress this is, if it is still there.
    fn unload(&self, progress: &Arc<Progress>) {
        let mut state = self.state.lock();
        if let State::Loaded(loaded) = &*state
            && Arc::ptr_eq(&loaded.progress, progress)
        {
            *state = State::Unloaded { before: Some(progress.clone()) };
        }
    }

    /// A step, if the coordinator is loaded; `step` is taken then.
    fn try_step<T>(
        self: &Arc<Self>,
        core: &Arc<Core>,
        step: &mut Option<impl FnOnce(&mut Coordinator, Now, &Catalog) -> Step<T>>,
    ) -> Option<Result<(T, Receipt), GroupError>> {
        let mut state = self.state.lock();
        let State::Loaded(loaded) = &*state else { return None };
        if let Some(refused) = core.refuses_changes() {
            return Some(Err(refused));
        }
        if !loaded.partition.has_room() {
            return Some(Err(GroupError::Overloaded));
        }
        let step = step.take().expect("a step is taken once");
        let stepped = self.step(core, &mut state, step)?;
        Some(stepped.map_err(|fault| refused(&fault)))
    }

    fn try_look<T>(&self, look: impl Fn(&Coordinator) -> T) -> Option<(T, Receipt)> {
        match &*self.state.lock() {
            State::Loaded(loaded) => Some((look(&loaded.machine), loaded.receipt())),
            State::Unloaded { .. } | State::Loading(_) => None,
        }
    }

    /// What is due, and when something is due next.
    fn tick(self: &Arc<Self>, core: &Arc<Core>) -> Option<Tick> {
        /// Until there is room again.
        const PAUSE_MS: u64 = 10;
        let mut state = self.state.lock();
        let State::Loaded(loaded) = &mut *state else { return None };
        let now = core.now();
        let topics_version = core.catalog.version();
        let is_due = loaded.machine.next_due().is_some_and(|due| due <= now.tick);
        if core.refuses_changes().is_some() {
            return None;
        }
        if is_due || loaded.topics_version != topics_version {
            if !loaded.partition.has_room() {
                return Some(Tick(now.tick.0 + PAUSE_MS));
            }
            loaded.topics_version = topics_version;
            let ticked = self.step(core, &mut state, |machine, now, topics| machine.tick(now, topics))?;
            if let Err(fault) = ticked {
                tracing::warn!(%fault, "what was due in consumer groups is done when they are loaded anew");
            }
        }
        match &*state {
            State::Loaded(loaded) => loaded.machine.next_due(),
            State::Unloaded { .. } | State::Loading(_) => None,
        }
    }

    /// A step, with its records handed to the owner; none if the coordinator is not loaded. Unless all of it succeeds
    /// the coordinator is forgotten.
    fn step<T>(
        self: &Arc<Self>,
        core: &Arc<Core>,
        state: &mut State,
        step: impl FnOnce(&mut Coordinator, Now, &Catalog) -> Step<T>,
    ) -> Option<Result<(T, Receipt), Arc<AppendFault>>> {
        let State::Loaded(loaded) = &*state else { return None };
        let forgotten = State::Unloaded { before: Some(loaded.progress.clone()) };
        let State::Loaded(mut loaded) = std::mem::replace(state, forgotten) else { unreachable!("looked at above") };
        let due_before = loaded.machine.next_due();
        let now = core.now();
        let Step { answer, records, changed, assign } = step(&mut loaded.machine, now, &core.catalog);
        if let Err(fault) = loaded.push(records, now.wall) {
            self.watches.wake_all();
            return Some(Err(Arc::new(fault)));
        }
        for (_, member) in &changed {
            self.watches.wake(member);
        }
        for task in assign {
            self.assign(core, &loaded, task);
        }
        let due = loaded.machine.next_due();
        if due.is_some() && (due_before.is_none() || due < due_before) {
            core.groups.due.notify_one();
        }
        let receipt = loaded.receipt();
        *state = State::Loaded(loaded);
        Some(Ok((answer, receipt)))
    }

    /// Has an assignment computed and given to the machine, if it is still the same one then.
    fn assign(self: &Arc<Self>, core: &Arc<Core>, loaded: &Loaded, task: AssignTask) {
        let (core, slot, progress) = (Arc::downgrade(core), Arc::downgrade(self), loaded.progress.clone());
        loaded.runtime.spawn(async move {
            let AssignTask { group, token, assignor, input } = task;
            let mut answer = Some(assignors::assign(&assignor, input).await);
            loop {
                let (Some(core), Some(slot)) = (core.upgrade(), slot.upgrade()) else { return };
                let Some(receipt) = slot.give_assignment(&core, &progress, &group, token, &mut answer) else { return };
                drop((core, slot));
                if answer.is_none() {
                    return;
                }
                // There is no room for its records; what was handed to the owner makes room.
                drop(receipt.durable().await);
            }
        });
    }

    /// Gives the machine an assignment, which is taken if there is room; none if it is no longer the same machine.
    fn give_assignment(
        self: &Arc<Self>,
        core: &Arc<Core>,
        progress: &Arc<Progress>,
        group: &GroupName,
        token: u64,
        answer: &mut Option<Result<Assignment, AssignorFault>>,
    ) -> Option<Receipt> {
        let mut state = self.state.lock();
        let State::Loaded(loaded) = &*state else { return None };
        if !Arc::ptr_eq(&loaded.progress, progress) || core.refuses_changes().is_some() {
            return None;
        }
        if !loaded.partition.has_room() {
            return Some(loaded.receipt());
        }
        let answer = answer.take()?;
        let stepped = self.step(core, &mut state, |machine, now, _| machine.assigned(now, group, token, answer));
        stepped?.ok().map(|((), receipt)| receipt)
    }
}

impl Loaded {
    /// Hands records to the owner, as one batch behind all that was handed over before.
    fn push(&mut self, records: Vec<CoordinatorRecord>, now: Timestamp) -> Result<(), AppendFault> {
        if records.is_empty() {
            return Ok(());
        }
        let count = records.len() as u64;
        let mut builder = BatchBuilder::new(NewBatch::default(), 0);
        for CoordinatorRecord { key, value } in records {
            builder.push(now, &Record { key: Some(key), value, headers: Vec::new() });
        }
        let batch = builder.finish().expect("compressing nothing does not fail");
        let expected_offset = Some(self.next_offset);
        let append = NewAppend { batches: vec![batch], check: SequenceCheck::Producer, expected_offset };
        let answer = self.partition.push(append)?;
        self.next_offset = self.next_offset.advance(count);
        // Its task ends only with the runtime, and everyone who waits then with it.
        drop(self.landings.send(Landing { answer, end: self.next_offset }));
        Ok(())
    }

    /// To wait for everything that was handed over up to now.
    fn receipt(&self) -> Receipt {
        self.progress.receipt(self.next_offset)
    }
}

/// The refusal of a request whose records, or those before them, were not stored.
pub(super) fn refused(fault: &AppendFault) -> GroupError {
    match fault {
        AppendFault::Closing => GroupError::Closing,
        AppendFault::Overloaded(_) | AppendFault::OutOfFiles(_) => GroupError::Overloaded,
        AppendFault::Fenced { reason, possible } => GroupError::Fenced { reason: reason.clone(), possible: *possible },
        // A batch before it was not stored.
        AppendFault::Refused(levada_log::AppendError::OffsetMismatch { .. }) => GroupError::Loading,
        AppendFault::Refused(_) | AppendFault::TopicDeleted | AppendFault::Retiring(_) => {
            unreachable!("it has no sequence, and its topic's partitions are never changed: {fault}")
        }
    }
}
