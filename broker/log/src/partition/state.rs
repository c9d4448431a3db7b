//! What the writer and the readers of one partition share: segments, marks, epochs and the damage that was met.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use levada_model::Offset;
use parking_lot::{Mutex, RwLock};

use super::compaction::Progress;
use super::epochs::Epochs;
use super::segment::Segment;
use super::terms::{Damage, PlantedFaults};
use crate::Storage;

/// Most sealed segments of a partition whose file and index stay open.
pub(super) const WARM_SEGMENTS_MAX: usize = 4;
/// Most bytes between two entries of an index.
const INDEX_INTERVAL_BYTES_MAX: u64 = 64 << 10;
/// Fewest bytes between two entries of an index.
const INDEX_INTERVAL_BYTES_MIN: u64 = 256;
/// A small segment has small stretches: this part of it.
const INDEX_INTERVALS_PER_SEGMENT: u64 = 16;

/// The shared state of one partition's log.
pub(super) struct State {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) dir: PathBuf,
    pub(super) plants: PlantedFaults,
    /// Rising, the last one is active.
    segments: RwLock<Arc<Vec<Arc<Segment>>>>,
    log_start: AtomicU64,
    log_end: AtomicU64,
    last_stable: AtomicU64,
    synced_stable: AtomicU64,
    index_interval_bytes: AtomicU64,
    epochs: RwLock<Epochs>,
    compaction: Mutex<Progress>,
    /// Rising, without overlaps.
    damage: Mutex<Vec<Damage>>,
    /// Sealed segments that are open, the one used last in front.
    warm: Mutex<VecDeque<Arc<Segment>>>,
}

impl State {
    pub(super) fn new(storage: Arc<dyn Storage>, dir: PathBuf, plants: PlantedFaults) -> Self {
        Self {
            storage,
            dir,
            plants,
            segments: RwLock::default(),
            log_start: AtomicU64::new(0),
            log_end: AtomicU64::new(0),
            last_stable: AtomicU64::new(0),
            synced_stable: AtomicU64::new(0),
            index_interval_bytes: AtomicU64::new(INDEX_INTERVAL_BYTES_MAX),
            epochs: RwLock::default(),
            compaction: Mutex::default(),
            damage: Mutex::default(),
            warm: Mutex::default(),
        }
    }

    /// The segments now; a reader keeps the list while the writer goes on.
    pub(super) fn segments(&self) -> Arc<Vec<Arc<Segment>>> {
        self.segments.read().clone()
    }

    pub(super) fn set_segments(&self, segments: Vec<Arc<Segment>>) {
        *self.segments.write() = Arc::new(segments);
    }

    pub(super) fn push_segment(&self, segment: Arc<Segment>) {
        Arc::make_mut(&mut *self.segments.write()).push(segment);
    }

    /// Takes the segments that lie wholly below `start` out of the list.
    pub(super) fn take_segments_below(&self, start: Offset) -> Vec<Arc<Segment>> {
        let mut segments = self.segments.write();
        let sealed = segments.len().saturating_sub(1);
        let count = segments[..sealed].iter().take_while(|segment| segment.next_offset() <= start).count();
        let removed: Vec<_> = Arc::make_mut(&mut *segments).drain(..count).collect();
        self.warm.lock().retain(|warm| removed.iter().all(|gone| !Arc::ptr_eq(gone, warm)));
        removed
    }

    /// Puts a segment in place of some that lie one after another in the list.
    pub(super) fn replace_segments(&self, old: &[Arc<Segment>], new: Arc<Segment>) {
        let mut segments = self.segments.write();
        let first = segments.binary_search_by_key(&new.base_offset(), |segment| segment.base_offset());
        let first = first.expect("the new segment begins where the first old one does");
        Arc::make_mut(&mut *segments).splice(first..first + old.len(), [new]);
        self.warm.lock().retain(|warm| old.iter().all(|gone| !Arc::ptr_eq(gone, warm)));
    }

    /// Notes that a sealed segment was used; the one that was not used for longest is let go.
    pub(super) fn warmed(&self, segment: &Arc<Segment>) {
        let segments = self.segments();
        let sealed = &segments[..segments.len().saturating_sub(1)];
        // One that retention or compaction took meanwhile is let go by its last reader.
        let place = sealed.binary_search_by_key(&segment.base_offset(), |other| other.base_offset());
        if place.is_err() || place.is_ok_and(|place| !Arc::ptr_eq(&sealed[place], segment)) {
            return;
        }
        let mut warm = self.warm.lock();
        warm.retain(|other| !Arc::ptr_eq(other, segment));
        warm.push_front(segment.clone());
        if warm.len() > WARM_SEGMENTS_MAX
            && let Some(cold) = warm.pop_back()
        {
            drop(warm);
            cold.cool();
        }
    }

    /// Lets go of all sealed segments that are open.
    pub(super) fn cool_sealed(&self) {
        let warm = std::mem::take(&mut *self.warm.lock());
        warm.iter().for_each(|segment| segment.cool());
    }

    pub(super) fn log_start(&self) -> Offset {
        Offset(self.log_start.load(Ordering::Acquire))
    }

    pub(super) fn set_log_start(&self, start: Offset) {
        self.log_start.store(start.0, Ordering::Release);
        self.damage.lock().retain(|damage| damage.to > start);
    }

    pub(super) fn log_end(&self) -> Offset {
        Offset(self.log_end.load(Ordering::Acquire))
    }

    pub(super) fn set_log_end(&self, end: Offset) {
        self.log_end.store(end.0, Ordering::Release);
    }

    /// The last stable offset of what is written.
    pub(super) fn last_stable(&self) -> Offset {
        Offset(self.last_stable.load(Ordering::Acquire))
    }

    /// The last stable offset of what is synced.
    pub(super) fn synced_stable(&self) -> Offset {
        Offset(self.synced_stable.load(Ordering::Acquire))
    }

    /// Moves the last stable offset up to `stable`: it never goes back.
    pub(super) fn raise_last_stable(&self, stable: Offset) {
        self.last_stable.fetch_max(stable.0, Ordering::AcqRel);
    }

    /// Moves that of what is synced up to `stable`.
    pub(super) fn raise_synced_stable(&self, stable: Offset) {
        self.synced_stable.fetch_max(stable.0, Ordering::AcqRel);
    }

    pub(super) fn index_interval_bytes(&self) -> u64 {
        self.index_interval_bytes.load(Ordering::Relaxed)
    }

    /// Fits the index to the size of segments.
    pub(super) fn set_segment_bytes(&self, segment_bytes: u64) {
        let interval = segment_bytes / INDEX_INTERVALS_PER_SEGMENT;
        let interval = interval.clamp(INDEX_INTERVAL_BYTES_MIN, INDEX_INTERVAL_BYTES_MAX);
        self.index_interval_bytes.store(interval, Ordering::Relaxed);
    }

    pub(super) fn epochs(&self) -> Epochs {
        self.epochs.read().clone()
    }

    pub(super) fn with_epochs<T>(&self, change: impl FnOnce(&mut Epochs) -> T) -> T {
        change(&mut self.epochs.write())
    }

    /// How far the log is compacted, and how it is to be.
    pub(super) fn compaction(&self) -> Progress {
        *self.compaction.lock()
    }

    pub(super) fn with_compaction<T>(&self, change: impl FnOnce(&mut Progress) -> T) -> T {
        change(&mut self.compaction.lock())
    }

    pub(super) fn damage_count(&self) -> usize {
        self.damage.lock().len()
    }

    /// Damage known so far.
    pub(super) fn damage(&self) -> Vec<Damage> {
        self.damage.lock().clone()
    }

    /// Notes damage; what is known already is not noted twice.
    pub(super) fn report(&self, new: Damage) {
        let mut all = self.damage.lock();
        if all.iter().any(|old| old.from <= new.from && new.to <= old.to) {
            return;
        }
        tracing::error!(dir = %self.dir.display(), from = %new.from, to = %new.to, "records are lost: their bytes are damaged");
        all.push(new);
        all.sort_unstable_by_key(|damage| damage.from);
        let mut merged: Vec<Damage> = Vec::with_capacity(all.len());
        for damage in all.drain(..) {
            match merged.last_mut() {
                Some(last) if damage.from <= last.to => last.to = last.to.max(damage.to),
                _ => merged.push(damage),
            }
        }
        *all = merged;
    }
}
