//! Log compaction: of each key only the newest record stays, at its offset and in its order (Kafka's cleaner).
//!
//! A pass has three steps. The owner plans it ([`PartitionLog::plan_compaction`]), a thread of its own reads sealed
//! segments and writes what is left of them beside the log ([`CompactionPlan::run`]), and the owner puts that in their
//! place ([`PartitionLog::install_compacted`]). What is kept and how the swap survives a power cut:
//! `broker/docs/formats/log-directory.md` and `broker/docs/decisions/0021-compacted-segments-stay-dense.md`. Not here:
//! when a pass is begun and what a damaged log means for others, which is the engine's.

mod map;
mod output;
mod plan;
mod rewrite;
mod swap;
mod transactions;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use levada_model::{Offset, Timestamp};
use thiserror::Error;

use self::rewrite::Outcome;
use super::errors::ReadError;
use super::reader::LogReader;
use super::segment::Segment;
use super::state::State;
use super::terms::Damage;
use crate::StorageError;

pub(super) use output::Written;
pub(super) use plan::{Cleanable, Progress};
pub(super) use swap::{commit, finish, finish_all};

/// Bytes that a search for records without a key reads at once.
const KEY_SEARCH_BYTES: usize = 1 << 20;

/// Settings of a log that is compacted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactionOptions {
    /// Most memory that a pass takes for the keys it knows; about 30 bytes each. What does not fit is left to the next.
    pub memory_bytes: usize,
    /// A pass is due when the dirty part of what may be cleaned is more than this, from 0 to 1.
    pub min_cleanable_dirty_ratio: f64,
    /// A segment stays as it is for so long after its newest record.
    pub min_compaction_lag_ms: i64,
    /// A pass is due when the oldest dirty record is older; `i64::MAX` is never.
    pub max_compaction_lag_ms: i64,
    /// How long a tombstone (a record without a value) stays after the first pass that met it.
    pub delete_retention_ms: i64,
}

/// What a pass is going to clean. While it, or what it wrote, is there, no other pass of the log is planned; close no
/// log before it is gone.
pub struct CompactionPlan {
    pub(super) state: Arc<State>,
    /// Sealed segments from the first on, without gaps; one at least.
    pub(super) sources: Vec<Arc<Segment>>,
    pub(super) first_dirty: Offset,
    pub(super) options: CompactionOptions,
    pub(super) segment_bytes: u64,
    pub(super) now: Timestamp,
    /// First offsets of the batches that a repeat is recognised by, rising.
    pub(super) remembered: Vec<Offset>,
    pub(super) _permit: Permit,
}

/// What a pass wrote, waiting to be put in place. Dropped, it removes what it wrote.
pub struct Compacted {
    // Dropped in this order: the files go while no other pass can write them.
    pub(super) outcome: Outcome,
    pub(super) next_dirty: Offset,
    plan: CompactionPlan,
}

/// What one pass did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionPass {
    /// Bytes of the segments that were looked at, before.
    pub before_bytes: u64,
    /// The same after.
    pub after_bytes: u64,
    /// Records in them before.
    pub before_records: u64,
    /// The same after.
    pub after_records: u64,
    /// All below it is clean.
    pub next_dirty: Offset,
    /// False if another pass is needed now, since not all keys fitted into the memory.
    pub is_done: bool,
}

/// Why a pass came to nothing. The log is as it was.
#[derive(Debug, Error)]
pub enum CompactionError {
    /// The file system said no while the pass wrote beside the log. What it wrote is gone; it may be tried again, in
    /// files of their own, whatever failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A segment is damaged; to write the rest of it anew would hide that.
    #[error("offsets {} to {} are damaged", .0.from, .0.to)]
    Damaged(Damage),
    /// It was told to stop.
    #[error("stopped")]
    Cancelled,
}

/// How far a log is compacted.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionState {
    /// All below it is clean: of each key it holds the newest record only.
    pub first_dirty: Offset,
    /// Bytes of segments that are clean.
    pub clean_bytes: u64,
    /// Bytes of segments that a pass could clean now.
    pub dirty_bytes: u64,
    /// The dirty bytes' part of both, from 0 to 1.
    pub dirty_ratio: f64,
    /// What is not compacted yet, in order, without gaps from `first_dirty` to the log end.
    pub uncompacted: Vec<Uncompacted>,
}

/// A stretch that is not compacted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncompacted {
    /// Its first offset.
    pub from: Offset,
    /// The offset after its last.
    pub to: Offset,
    /// Why it is not.
    pub reason: UncompactedReason,
}

/// Why a stretch is not compacted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UncompactedReason {
    /// The next pass takes it.
    Due,
    /// Too little of the log is dirty (`min_cleanable_dirty_ratio`).
    Ratio,
    /// It is too young (`min_compaction_lag_ms`), or comes behind what is.
    Lag,
    /// It reaches to or beyond the last stable offset.
    Bound,
    /// It is in the segment that is written to.
    Active,
}

impl CompactionPlan {
    /// Reads the segments and writes what stays of them beside the log. Long work, for a thread that may block; the log
    /// goes on meanwhile. Set `stop` to end it early.
    ///
    /// # Errors
    /// See [`CompactionError`]; nothing of the log was changed, and what was written is removed.
    pub fn run(self, stop: &AtomicBool) -> Result<Compacted, CompactionError> {
        let (map, next_dirty) = rewrite::map_dirty(&self, stop)?;
        let outcome = rewrite::rewrite(&self, &map, next_dirty, stop)?;
        Ok(Compacted { outcome, next_dirty, plan: self })
    }

    /// The offset behind all that it takes.
    fn end(&self) -> Offset {
        self.sources.last().expect("a plan has a segment").next_offset()
    }
}

impl Compacted {
    /// Whether all its sources are still segments of the log.
    pub(super) fn is_current(&self) -> bool {
        let segments = self.plan.state.segments();
        let is_there = |source: &Arc<Segment>| segments.iter().any(|segment| Arc::ptr_eq(segment, source));
        self.outcome.written.iter().flat_map(|written| &written.sources).all(is_there)
    }

    pub(super) fn pass(&self) -> CompactionPass {
        let Outcome { before_bytes, after_bytes, before_records, after_records, .. } = self.outcome;
        let is_done = self.next_dirty == self.plan.end();
        CompactionPass {
            before_bytes,
            after_bytes,
            before_records,
            after_records,
            next_dirty: self.next_dirty,
            is_done,
        }
    }
}

impl LogReader {
    /// How far the log is compacted and why the rest is not; none if it is not to be compacted.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn compaction_state(&self, now: Timestamp, bound: Offset) -> Result<Option<CompactionState>, StorageError> {
        let state = self.state();
        let Some(options) = state.compaction().options else { return Ok(None) };
        Ok(Some(Cleanable::now(state, &options, now, bound.min(state.synced_stable()))?.told(state)))
    }

    /// The first record from `from` on and below `below` that has no key; none if all have one. Reads all that lies
    /// between, and skips what is damaged or was removed.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn first_keyless(&self, from: Offset, below: Offset) -> Result<Option<Offset>, ReadError> {
        let mut at = from.max(self.log_start());
        loop {
            let chunk = match self.read(at, KEY_SEARCH_BYTES, below.max(at)) {
                // Retention was faster.
                Err(ReadError::BelowStart { log_start, .. }) => {
                    at = log_start;
                    continue;
                }
                other => other?,
            };
            for batch in chunk.batches.iter().filter(|batch| !batch.header().is_control()) {
                if let Some(found) = rewrite::first_keyless(batch, at..below) {
                    return Ok(Some(found));
                }
            }
            if chunk.next_offset <= at {
                return Ok(None);
            }
            at = chunk.next_offset;
        }
    }
}

/// The right to run a pass over a log; there is one at a time.
pub(super) struct Permit(Arc<State>);

impl Permit {
    pub(super) fn take(state: &Arc<State>) -> Option<Self> {
        let is_free = state.with_compaction(|progress| !std::mem::replace(&mut progress.is_planned, true));
        is_free.then(|| Self(state.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.with_compaction(|progress| progress.is_planned = false);
    }
}
