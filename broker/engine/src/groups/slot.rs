//! The place of one coordinator: a state machine of `levada_coordinator`, loaded from its partition's log, whose every
//! step is in the log before it is answered.
//!
//! A step runs under the place's lock, and its records are handed to the partition's owner under the same lock, so the
//! order of the log is the order of the states. Each batch expects the offset behind the one before: where one is not
//! stored, none behind it is. Then, and when a step panics, the coordinator is forgotten and loaded anew. Nobody is
//! answered before everything is durable that the machine had taken in when it answered.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_coordinator::{AssignTask, Coordinator, CoordinatorRecord, GroupSummary, Now, Step, TopicsView};
use levada_extension::{Assignment, AssignorFault};
use levada_log::{AppendError, BatchBuilder, NewBatch, SequenceCheck};
use levada_model::{GroupName, Offset, Record, Tick, Timestamp};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::assignors;
use super::coordinators::Groups;
use super::loading::{self, LoadFault, Loading};
use super::progress::{Landing, Progress, Receipt};
use super::terms::GroupError;
use super::watches::Watches;
use crate::AppendFault;
use crate::catalog::Catalog;
use crate::partition::{NewAppend, Partition};

/// Pause before the second load in a row; it doubles with each further one.
const PAUSE_MS_MIN: u64 = 50;
/// Longest pause before a load.
const PAUSE_MS_MAX: u64 = 5_000;
/// After so many doublings the pause is the longest anyway.
const PAUSE_DOUBLINGS_MAX: u32 = 7;

/// The place of one coordinator.
#[derive(Default)]
pub(super) struct Slot {
    state: Mutex<State>,
    /// How often it had to be loaded anew since a batch was stored.
    reloads: AtomicU32,
    /// Fetches that wait for news of their member.
    watches: Arc<Watches>,
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

impl Slot {
    /// Fetches that wait for news of their member.
    pub(super) fn watches(&self) -> &Arc<Watches> {
        &self.watches
    }

    /// Sees to it that the coordinator is being loaded; none if it is there. The reading goes on though nobody waits.
    ///
    /// What makes it lose its place may last, and a load reads much: again and again it is loaded only after a pause,
    /// which all who ask meanwhile wait for.
    pub(super) fn begin_load(self: &Arc<Self>, groups: &Arc<Groups>, partition: &Arc<Partition>) -> Option<Loading> {
        let mut state = self.state.lock();
        let (before, is_again) = match &mut *state {
            State::Loaded(_) => return None,
            State::Loading(loading) if !loading.has_failed() => return Some(loading.clone()),
            State::Loading(_) => (None, true),
            State::Unloaded { before } => {
                let before = before.take();
                let is_again = before.is_some();
                (before, is_again)
            }
        };
        let pause = if is_again { pause(self.reloads.fetch_add(1, Ordering::Relaxed)) } else { Duration::ZERO };
        let (outcome, loading) = loading::begin();
        *state = State::Loading(loading.clone());
        let read = Reader {
            groups: Arc::downgrade(groups),
            slot: self.clone(),
            partition: Arc::downgrade(partition),
            machine: Coordinator::new(groups.options.clone()),
        };
        Handle::current().spawn(async move { outcome.send(read.run(before, pause).await) });
        Some(loading)
    }

    /// How often it had to be loaded anew since a batch was stored.
    #[cfg(test)]
    pub(super) fn reloads(&self) -> u32 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// Puts a machine in that has read its log up to `end`, and lets it begin.
    fn put(
        self: &Arc<Self>,
        groups: &Arc<Groups>,
        machine: Coordinator,
        partition: Arc<Partition>,
        end: Offset,
    ) -> Result<(), LoadFault> {
        let progress = Arc::new(Progress::new(end));
        let (landings, landed) = mpsc::unbounded_channel();
        let runtime = Handle::current();
        let (slot, weak) = (Arc::downgrade(self), Arc::downgrade(groups));
        let follow = progress.clone().follow(landed, {
            let (slot, progress) = (slot.clone(), progress.clone());
            move |stored| {
                let Some(slot) = slot.upgrade() else { return };
                if stored { slot.reloads.store(0, Ordering::Relaxed) } else { slot.unload(&progress) }
            }
        });
        runtime.spawn(async move {
            follow.await;
            // It was given up, since something failed or panicked.
            if let Some(groups) = weak.upgrade()
                && groups.refuses_changes().is_none()
            {
                groups.load_all();
            }
        });
        let mut loaded =
            Box::new(Loaded { machine, partition, next_offset: end, progress, landings, topics_version: 0, runtime });
        let mut state = self.state.lock();
        if groups.refuses_changes().is_some() {
            // What was can still be seen; what damage to the log would have to be settled with records is not.
            drop(loaded.machine.loaded(groups.now()));
            *state = State::Loaded(loaded);
        } else {
            *state = State::Loaded(loaded);
            let begun = self.step(groups, &mut state, |machine, now, _| machine.loaded(now));
            begun.expect("it is loaded").map_err(LoadFault::Append)?;
        }
        drop(state);
        self.watches.wake_all();
        groups.due.notify_one();
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
    pub(super) fn try_step<T>(
        self: &Arc<Self>,
        groups: &Arc<Groups>,
        step: &mut Option<impl FnOnce(&mut Coordinator, Now, &Catalog) -> Step<T>>,
    ) -> Option<Result<(T, Receipt), GroupError>> {
        let mut state = self.state.lock();
        let State::Loaded(loaded) = &*state else { return None };
        if let Some(refused) = groups.refuses_changes() {
            return Some(Err(refused));
        }
        if loaded.landings.is_closed() {
            // The runtime in which it was loaded has ended.
            *state = State::Unloaded { before: Some(loaded.progress.clone()) };
            return None;
        }
        if !loaded.partition.has_room() {
            return Some(Err(GroupError::Overloaded));
        }
        let step = step.take().expect("a step is taken once");
        let stepped = self.step(groups, &mut state, step)?;
        Some(stepped.map_err(|fault| refused(&fault)))
    }

    pub(super) fn try_look<T>(&self, look: impl Fn(&Coordinator) -> T) -> Option<(T, Receipt)> {
        match &*self.state.lock() {
            State::Loaded(loaded) => Some((look(&loaded.machine), loaded.receipt())),
            State::Unloaded { .. } | State::Loading(_) => None,
        }
    }

    /// The groups that are known, if the coordinator is loaded.
    pub(super) fn summaries(&self) -> Vec<GroupSummary> {
        match &*self.state.lock() {
            State::Loaded(loaded) => loaded.machine.groups(),
            State::Unloaded { .. } | State::Loading(_) => Vec::new(),
        }
    }

    /// What is due, and when something is due next.
    pub(super) fn tick(self: &Arc<Self>, groups: &Arc<Groups>) -> Option<Tick> {
        /// Until there is room again.
        const PAUSE_MS: u64 = 10;
        let mut state = self.state.lock();
        let State::Loaded(loaded) = &mut *state else { return None };
        let now = groups.now();
        let topics_version = groups.catalog.version();
        let is_due = loaded.machine.next_due().is_some_and(|due| due <= now.tick);
        if groups.refuses_changes().is_some() {
            return None;
        }
        if is_due || loaded.topics_version != topics_version {
            if !loaded.partition.has_room() {
                return Some(Tick(now.tick.0 + PAUSE_MS));
            }
            loaded.topics_version = topics_version;
            let ticked = self.step(groups, &mut state, |machine, now, topics| machine.tick(now, topics))?;
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
        groups: &Arc<Groups>,
        state: &mut State,
        step: impl FnOnce(&mut Coordinator, Now, &Catalog) -> Step<T>,
    ) -> Option<Result<(T, Receipt), Arc<AppendFault>>> {
        let State::Loaded(loaded) = &*state else { return None };
        let forgotten = State::Unloaded { before: Some(loaded.progress.clone()) };
        let State::Loaded(mut loaded) = std::mem::replace(state, forgotten) else { unreachable!("looked at above") };
        let due_before = loaded.machine.next_due();
        let now = groups.now();
        // Replies go to classic members, for whom there is no face yet.
        let Step { answer, records, changed, assign, replies: _ } = step(&mut loaded.machine, now, &groups.catalog);
        if let Err(fault) = loaded.push(records, now.wall) {
            self.watches.wake_all();
            return Some(Err(Arc::new(fault)));
        }
        for (_, member) in &changed {
            self.watches.wake(member);
        }
        groups.counters().group_rebalances.add(assign.len() as u64);
        for task in assign {
            self.assign(groups, &loaded, task);
        }
        let due = loaded.machine.next_due();
        if due.is_some() && (due_before.is_none() || due < due_before) {
            groups.due.notify_one();
        }
        let receipt = loaded.receipt();
        *state = State::Loaded(loaded);
        Some(Ok((answer, receipt)))
    }

    /// Has an assignment computed and given to the machine, if it is still the same one then.
    fn assign(self: &Arc<Self>, groups: &Arc<Groups>, loaded: &Loaded, task: AssignTask) {
        let AssignTask { group, token, assignor, input } = task;
        let committed = loaded.machine.committed(&group).unwrap_or_default();
        let input = assignors::with_lags(input, &committed, &groups.catalog.topics());
        let (groups, slot, progress) = (Arc::downgrade(groups), Arc::downgrade(self), loaded.progress.clone());
        loaded.runtime.spawn(async move {
            let mut answer = Some(assignors::assign(&assignor, input).await);
            loop {
                let (Some(groups), Some(slot)) = (groups.upgrade(), slot.upgrade()) else { return };
                let Some(receipt) = slot.give_assignment(&groups, &progress, &group, token, &mut answer) else {
                    return;
                };
                drop((groups, slot));
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
        groups: &Arc<Groups>,
        progress: &Arc<Progress>,
        group: &GroupName,
        token: u64,
        answer: &mut Option<Result<Assignment, AssignorFault>>,
    ) -> Option<Receipt> {
        let mut state = self.state.lock();
        let State::Loaded(loaded) = &*state else { return None };
        if !Arc::ptr_eq(&loaded.progress, progress) || groups.refuses_changes().is_some() {
            return None;
        }
        if !loaded.partition.has_room() {
            return Some(loaded.receipt());
        }
        let answer = answer.take()?;
        let stepped = self.step(groups, &mut state, |machine, now, _| machine.assigned(now, group, token, answer));
        stepped?.ok().map(|((), receipt)| receipt)
    }
}

/// Reads a coordinator's log. It holds neither coordinators nor the log while it waits.
struct Reader {
    groups: Weak<Groups>,
    slot: Arc<Slot>,
    partition: Weak<Partition>,
    machine: Coordinator,
}

impl Reader {
    #[expect(clippy::disallowed_methods, reason = "a load that comes again and again is held back")]
    async fn run(mut self, before: Option<Arc<Progress>>, pause: Duration) -> Result<(), LoadFault> {
        if let Some(before) = before {
            before.until_ended().await;
        }
        if !pause.is_zero() {
            sleep(pause).await;
        }
        let partition = self.partition.upgrade().ok_or(LoadFault::Closing)?;
        let end = loading::replay(&partition, &mut self.machine).await?;
        let groups = self.groups.upgrade().ok_or(LoadFault::Closing)?;
        self.slot.put(&groups, self.machine, partition, end)
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
        let append =
            NewAppend { batches: vec![batch], check: SequenceCheck::Producer, expected_offset, keyless: false };
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

/// The pause before a load that comes after so many others in a row.
fn pause(reloads: u32) -> Duration {
    let doublings = reloads.min(PAUSE_DOUBLINGS_MAX + 1);
    let millis = doublings.checked_sub(1).map_or(0, |doublings| (PAUSE_MS_MIN << doublings).min(PAUSE_MS_MAX));
    Duration::from_millis(millis)
}

/// The refusal of a request whose records, or those before them, were not stored.
pub(super) fn refused(fault: &AppendFault) -> GroupError {
    match fault {
        AppendFault::Closing => GroupError::Closing,
        AppendFault::Overloaded(_) | AppendFault::OutOfFiles(_) => GroupError::Overloaded,
        AppendFault::Fenced { reason, possible } => GroupError::Fenced { reason: reason.clone(), possible: *possible },
        // A batch before it was not stored.
        AppendFault::Refused(AppendError::OffsetMismatch { .. }) => GroupError::Loading,
        // It is larger than a log takes.
        AppendFault::Refused(AppendError::TooLarge { .. }) => {
            tracing::error!(%fault, "a change of consumer groups cannot be stored");
            GroupError::Overloaded
        }
        AppendFault::Refused(_)
        | AppendFault::Transaction(_)
        | AppendFault::TopicDeleted
        | AppendFault::Retiring(_)
        | AppendFault::Keyless(_) => {
            unreachable!("it has keys and no sequence, and its topic's partitions are never changed: {fault}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_in_a_row_come_after_pauses_that_double() {
        let millis: Vec<_> = (0..4).chain([7, 8, 9, u32::MAX]).map(|reloads| pause(reloads).as_millis()).collect();
        assert_eq!(millis, [0, 50, 100, 200, 3_200, 5_000, 5_000, 5_000]);
    }
}
