//! The place of one coordinator: a state machine of `levada_coordinator`, loaded from its partition's log, whose every
//! step is in the log before it is answered.
//!
//! A step runs under the place's lock, and its entry is handed to the partition's owner under the same lock, so the
//! order of the log is the order of the states. Each batch expects the offset behind the one before: where one is not
//! stored, none behind it is. Then, and when a step panics, the coordinator is forgotten and loaded anew. Nobody is
//! answered before everything is durable that the machine had taken in when it answered.
//!
//! What only follows from what is durable already, so that a machine that is loaded comes to it by itself, may be
//! [deferred](super::place::SameMachine::step_deferred): it is stored with the next entry, or after a while, and nobody waits for it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_coordinator::{CoordinatorRecord, Now, TopicsView};
use levada_model::{Offset, Tick, Timestamp};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::entry::Entry;
use super::fault::CoordinatorFault;
use super::kind::{Kind, Parts};
use super::loading::{self, LoadFault, Loading};
use super::place::{Place, hand_over_later};
use super::places::Coordinators;
use super::progress::{Landing, Progress, Receipt};
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
/// Bytes that are deferred at most.
const DEFERRED_BYTES_MAX: usize = 1 << 20;

/// The place of one coordinator.
pub(super) struct Slot<K: Kind> {
    state: Mutex<State<K>>,
    /// How often it had to be loaded anew since a batch was stored.
    reloads: AtomicU32,
    /// Requests that wait for news.
    watches: Arc<Watches<K::Watched>>,
}

impl<K: Kind> Default for Slot<K> {
    fn default() -> Self {
        Self { state: Mutex::default(), reloads: AtomicU32::new(0), watches: Arc::default() }
    }
}

/// What there is of a coordinator.
enum State<K: Kind> {
    /// The log says all. What the one before has handed to the owner has to be answered first.
    Unloaded { before: Option<Arc<Progress>> },
    /// It is being read.
    Loading(Loading),
    /// It is there.
    Loaded(Box<Loaded<K>>),
}

impl<K: Kind> Default for State<K> {
    fn default() -> Self {
        Self::Unloaded { before: None }
    }
}

impl<K: Kind> State<K> {
    fn is_of(&self, progress: &Arc<Progress>) -> bool {
        matches!(self, Self::Loaded(loaded) if Arc::ptr_eq(&loaded.progress, progress))
    }
}

/// A coordinator at work.
pub(super) struct Loaded<K: Kind> {
    pub(super) machine: K::Machine,
    partition: Arc<Partition>,
    /// Where its next batch goes.
    next_offset: Offset,
    pub(super) progress: Arc<Progress>,
    /// To the task that hears what became of its batches, in order.
    landings: mpsc::UnboundedSender<Landing>,
    /// The topics that its machine has seen.
    topics_version: u64,
    /// Records to be stored in front of the next entry.
    deferred: Vec<CoordinatorRecord>,
    /// Whether a task is going to hand them over.
    has_timer: bool,
    /// Where its tasks run.
    pub(super) runtime: Handle,
}

/// What a step gave, with what holds it on its way to the disk.
pub(crate) struct Stepped<T> {
    pub(crate) answer: T,
    /// To wait until all is durable that the machine had taken in, but for what is deferred.
    pub(crate) receipt: Receipt,
    /// Whether the step itself has something stored.
    pub(crate) has_entry: bool,
}

/// When the entry of a step is handed to the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handing {
    Now,
    /// With the next one.
    Later,
}

impl<K: Kind> Slot<K> {
    /// Requests that wait for news.
    pub(super) fn watches(&self) -> &Arc<Watches<K::Watched>> {
        &self.watches
    }

    /// Sees to it that the coordinator is being loaded; none if it is there. The reading goes on though nobody waits.
    ///
    /// What makes it lose its place may last, and a load reads much: again and again it is loaded only after a pause,
    /// which all who ask meanwhile wait for.
    pub(super) fn begin_load(
        self: &Arc<Self>,
        coordinators: &Arc<Coordinators<K>>,
        partition: &Arc<Partition>,
    ) -> Option<Loading> {
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
            coordinators: Arc::downgrade(coordinators),
            slot: self.clone(),
            partition: Arc::downgrade(partition),
            machine: coordinators.kind().machine(partition),
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
        coordinators: &Arc<Coordinators<K>>,
        machine: K::Machine,
        partition: Arc<Partition>,
        end: Offset,
    ) -> Result<(), LoadFault> {
        let progress = Arc::new(Progress::new(end));
        let (landings, landed) = mpsc::unbounded_channel();
        let runtime = Handle::current();
        let (slot, weak) = (Arc::downgrade(self), Arc::downgrade(coordinators));
        let follow = progress.clone().follow(landed, {
            let (slot, progress) = (slot.clone(), progress.clone());
            move |stored| {
                let Some(slot) = slot.upgrade() else { return };
                if stored { slot.reloads.store(0, Ordering::Relaxed) } else { slot.unload(&progress) }
            }
        });
        runtime.spawn(async move {
            follow.await;
            // It was given up, since something failed or panicked. Whoever waits for its news asks again.
            if let Some(slot) = slot.upgrade() {
                slot.watches.wake_all();
            }
            if let Some(coordinators) = weak.upgrade()
                && coordinators.refuses_changes().is_none()
            {
                coordinators.load_all();
            }
        });
        let mut loaded = Box::new(Loaded {
            machine,
            partition,
            next_offset: end,
            progress,
            landings,
            topics_version: 0,
            deferred: Vec::new(),
            has_timer: false,
            runtime,
        });
        let mut state = self.state.lock();
        if coordinators.refuses_changes().is_some() {
            // What was can still be seen; what damage to the log would have to be settled with records is not.
            drop(K::loaded(&mut loaded.machine, coordinators.now()));
            *state = State::Loaded(loaded);
        } else {
            *state = State::Loaded(loaded);
            let begun = self.step(coordinators, &mut state, Handing::Now, |machine, now, _| K::loaded(machine, now));
            begun.expect("it is loaded").map_err(LoadFault::Append)?;
        }
        drop(state);
        self.watches.wake_all();
        coordinators.due.notify_one();
        Ok(())
    }

    /// Forgets the coordinator whose progress this is, if it is still there.
    fn unload(&self, progress: &Arc<Progress>) {
        let mut state = self.state.lock();
        if state.is_of(progress) {
            *state = State::Unloaded { before: Some(progress.clone()) };
        }
    }

    /// A step, if the coordinator is loaded; `step` is taken then.
    pub(super) fn try_step<T>(
        self: &Arc<Self>,
        coordinators: &Arc<Coordinators<K>>,
        step: &mut Option<impl FnOnce(&mut K::Machine, Now, &Catalog) -> K::Step<T>>,
    ) -> Option<Result<Stepped<T>, CoordinatorFault>> {
        let mut state = self.state.lock();
        let State::Loaded(loaded) = &*state else { return None };
        if let Some(refused) = coordinators.refuses_changes() {
            return Some(Err(refused));
        }
        if loaded.landings.is_closed() {
            // The runtime in which it was loaded has ended.
            *state = State::Unloaded { before: Some(loaded.progress.clone()) };
            return None;
        }
        if !loaded.partition.has_room() {
            return Some(Err(CoordinatorFault::Overloaded));
        }
        let step = step.take().expect("a step is taken once");
        let stepped = self.step(coordinators, &mut state, Handing::Now, step)?;
        Some(stepped.map_err(CoordinatorFault::from))
    }

    pub(super) fn try_look<T>(&self, look: impl Fn(&K::Machine) -> T) -> Option<(T, Receipt)> {
        match &*self.state.lock() {
            State::Loaded(loaded) => Some((look(&loaded.machine), loaded.receipt())),
            State::Unloaded { .. } | State::Loading(_) => None,
        }
    }

    /// What is seen at this moment, durable or not, if the coordinator is loaded.
    pub(super) fn peek<T>(&self, look: impl FnOnce(&K::Machine) -> T) -> Option<T> {
        match &*self.state.lock() {
            State::Loaded(loaded) => Some(look(&loaded.machine)),
            State::Unloaded { .. } | State::Loading(_) => None,
        }
    }

    /// What is due, and when something is due next.
    pub(super) fn tick(self: &Arc<Self>, coordinators: &Arc<Coordinators<K>>) -> Option<Tick> {
        /// Until there is room again.
        const PAUSE_MS: u64 = 10;
        let mut state = self.state.lock();
        let State::Loaded(loaded) = &mut *state else { return None };
        let now = coordinators.now();
        let topics_version = coordinators.catalog.version();
        let is_due = K::next_due(&loaded.machine).is_some_and(|due| due <= now.tick);
        if coordinators.refuses_changes().is_some() {
            return None;
        }
        if is_due || (K::FOLLOWS_TOPICS && loaded.topics_version != topics_version) {
            if !loaded.partition.has_room() {
                return Some(Tick(now.tick.0 + PAUSE_MS));
            }
            loaded.topics_version = topics_version;
            let ticked = self.step(coordinators, &mut state, Handing::Now, K::tick)?;
            if let Err(fault) = ticked {
                tracing::warn!(%fault, "what was due in {} is done when they are loaded anew", K::WHAT);
            }
        }
        match &*state {
            State::Loaded(loaded) => K::next_due(&loaded.machine),
            State::Unloaded { .. } | State::Loading(_) => None,
        }
    }

    /// A step, with its entry handed to the owner; none if the coordinator is not loaded. Unless all of it succeeds the
    /// coordinator is forgotten.
    fn step<T>(
        self: &Arc<Self>,
        coordinators: &Arc<Coordinators<K>>,
        state: &mut State<K>,
        handing: Handing,
        step: impl FnOnce(&mut K::Machine, Now, &Catalog) -> K::Step<T>,
    ) -> Option<Result<Stepped<T>, Arc<AppendFault>>> {
        let State::Loaded(loaded) = &*state else { return None };
        let forgotten = State::Unloaded { before: Some(loaded.progress.clone()) };
        let State::Loaded(mut loaded) = std::mem::replace(state, forgotten) else { unreachable!("looked at above") };
        let due_before = K::next_due(&loaded.machine);
        let now = coordinators.now();
        let Parts { answer, entry, news, effects } = K::parts(step(&mut loaded.machine, now, &coordinators.catalog));
        let has_entry = entry.is_some();
        let handed = match (entry, handing) {
            (None, _) => Ok(()),
            (Some(Entry::Records(records)), Handing::Later) => self.defer(coordinators, &mut loaded, records, now),
            (Some(entry), _) => loaded.push(entry, now.wall),
        };
        if let Err(fault) = handed {
            self.watches.wake_all();
            return Some(Err(Arc::new(fault)));
        }
        for watched in &news {
            self.watches.wake(watched);
        }
        K::follow(&Place { coordinators, slot: self, loaded: &loaded }, effects);
        let due = K::next_due(&loaded.machine);
        if due.is_some() && (due_before.is_none() || due < due_before) {
            coordinators.due.notify_one();
        }
        let receipt = loaded.receipt();
        *state = State::Loaded(loaded);
        Some(Ok(Stepped { answer, receipt, has_entry }))
    }

    /// Keeps records for the next entry. They get one of their own when they are much or have waited for long.
    fn defer(
        self: &Arc<Self>,
        coordinators: &Arc<Coordinators<K>>,
        loaded: &mut Loaded<K>,
        records: Vec<CoordinatorRecord>,
        now: Now,
    ) -> Result<(), AppendFault> {
        loaded.deferred.extend(records);
        if size_bytes(&loaded.deferred) > DEFERRED_BYTES_MAX {
            return loaded.push(Entry::Records(Vec::new()), now.wall);
        }
        if !std::mem::replace(&mut loaded.has_timer, true) {
            let (coordinators, slot) = (Arc::downgrade(coordinators), Arc::downgrade(self));
            loaded.runtime.spawn(hand_over_later(coordinators, slot, loaded.progress.clone()));
        }
        Ok(())
    }

    /// Hands what is deferred to the owner, if there is room for it, when the timer of the machine has run out that has this
    /// progress; answers whether that is done.
    pub(super) fn timer_ran_out(
        self: &Arc<Self>,
        coordinators: &Arc<Coordinators<K>>,
        progress: &Arc<Progress>,
    ) -> bool {
        let mut state = self.state.lock();
        if !state.is_of(progress) {
            return true;
        }
        let is_done = Self::hand_over_of(coordinators, &mut state);
        if let State::Loaded(loaded) = &mut *state {
            loaded.has_timer = !is_done;
        }
        is_done
    }

    /// Hands what is deferred to the owner, if there is room for it.
    pub(super) fn hand_over(&self, coordinators: &Arc<Coordinators<K>>) {
        Self::hand_over_of(coordinators, &mut self.state.lock());
    }

    fn hand_over_of(coordinators: &Arc<Coordinators<K>>, state: &mut State<K>) -> bool {
        let State::Loaded(loaded) = &mut *state else { return true };
        if loaded.deferred.is_empty() || coordinators.refuses_changes().is_some() {
            return true;
        }
        if !loaded.partition.has_room() {
            return false;
        }
        if let Err(fault) = loaded.push(Entry::Records(Vec::new()), coordinators.now().wall) {
            tracing::warn!(%fault, "{} are loaded anew", K::WHAT);
            let before = loaded.progress.clone();
            *state = State::Unloaded { before: Some(before) };
        }
        true
    }

    /// A step of the machine that has this progress, which is taken if there is room; none if it is no longer there.
    pub(super) fn step_of<T>(
        self: &Arc<Self>,
        coordinators: &Arc<Coordinators<K>>,
        progress: &Arc<Progress>,
        handing: Handing,
        step: &mut Option<impl FnOnce(&mut K::Machine, Now, &Catalog) -> K::Step<T>>,
    ) -> Option<(Option<T>, Receipt)> {
        let mut state = self.state.lock();
        let State::Loaded(loaded) = &*state else { return None };
        if !Arc::ptr_eq(&loaded.progress, progress) || coordinators.refuses_changes().is_some() {
            return None;
        }
        if !loaded.partition.has_room() {
            return Some((None, loaded.receipt()));
        }
        let stepped = self.step(coordinators, &mut state, handing, step.take()?);
        stepped?.ok().map(|Stepped { answer, receipt, .. }| (Some(answer), receipt))
    }
}

/// Reads a coordinator's log. It holds neither coordinators nor the log while it waits.
struct Reader<K: Kind> {
    coordinators: Weak<Coordinators<K>>,
    slot: Arc<Slot<K>>,
    partition: Weak<Partition>,
    machine: K::Machine,
}

impl<K: Kind> Reader<K> {
    #[expect(clippy::disallowed_methods, reason = "a load that comes again and again is held back")]
    async fn run(mut self, before: Option<Arc<Progress>>, pause: Duration) -> Result<(), LoadFault> {
        if let Some(before) = before {
            before.until_ended().await;
        }
        if !pause.is_zero() {
            sleep(pause).await;
        }
        let partition = self.partition.upgrade().ok_or(LoadFault::Closing)?;
        let end = loading::replay::<K>(&partition, &mut self.machine).await?;
        let coordinators = self.coordinators.upgrade().ok_or(LoadFault::Closing)?;
        self.slot.put(&coordinators, self.machine, partition, end)
    }
}

impl<K: Kind> Loaded<K> {
    /// Hands an entry to the owner, as one batch behind all that was handed over before.
    fn push(&mut self, mut entry: Entry, now: Timestamp) -> Result<(), AppendFault> {
        match &mut entry {
            Entry::Records(records) => {
                let deferred = std::mem::take(&mut self.deferred);
                records.splice(0..0, deferred);
            }
            Entry::Transactional { .. } | Entry::Marker { .. } => {
                assert!(self.deferred.is_empty(), "who defers records has no other entries");
            }
        }
        let (batch, check) = entry.batch(now);
        let count = u64::from(batch.header().record_count);
        let expected_offset = Some(self.next_offset);
        let append = NewAppend { batches: vec![batch], check, expected_offset, keyless: false };
        let answer = self.partition.push(append)?;
        self.next_offset = self.next_offset.advance(count);
        // Its task ends only with the runtime, and everyone who waits then with it.
        drop(self.landings.send(Landing { answer, end: self.next_offset }));
        Ok(())
    }

    /// To wait for everything that was handed over up to now.
    pub(super) fn receipt(&self) -> Receipt {
        self.progress.receipt(self.next_offset)
    }
}

fn size_bytes(records: &[CoordinatorRecord]) -> usize {
    records.iter().map(|record| record.key.len() + record.value.as_ref().map_or(0, |value| value.len())).sum()
}

/// The pause before a load that comes after so many others in a row.
fn pause(reloads: u32) -> Duration {
    let doublings = reloads.min(PAUSE_DOUBLINGS_MAX + 1);
    let millis = doublings.checked_sub(1).map_or(0, |doublings| (PAUSE_MS_MIN << doublings).min(PAUSE_MS_MAX));
    Duration::from_millis(millis)
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
