//! Log compaction: of each key only the newest record stays, at its offset and in its order (Kafka's cleaner).
//!
//! A pass has three steps. The owner plans it ([`PartitionLog::plan_compaction`]), a thread of its own reads sealed
//! segments and writes what is left of them beside the log ([`CompactionPlan::run`]), and the owner puts that in their
//! place ([`PartitionLog::install_compacted`]). What is kept and how the swap survives a power cut:
//! `broker/docs/formats/log-directory.md` and `broker/docs/decisions/0021-compacted-segments-stay-dense.md`. Not here:
//! when a pass is begun and what a damaged log means for others, which is the engine's.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use levada_model::{Offset, Timestamp};
use thiserror::Error;

use super::reader::LogReader;
use super::terms::Damage;
use super::{PartitionLog, ReadError};
use crate::StorageError;

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
pub struct CompactionPlan {}

/// What a pass wrote, waiting to be put in place. Dropped, it removes what it wrote.
pub struct Compacted {}

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

impl PartitionLog {
    /// Plans the next pass over sealed segments that end at or below `bound` (the last stable offset); none if nothing
    /// is due ([`LogReader::compaction_state`] tells why), if the log is not compacted, or while an earlier plan is
    /// still there. Rolls the active segment when its first record is older than `max_compaction_lag_ms`. `forced` rolls
    /// it anyway, and cleans whatever may be cleaned, also what is clean; only `min_compaction_lag_ms` and `bound` hold.
    ///
    /// # Errors
    /// When the file system fails; the log then takes no more writes. When no file descriptor is free
    /// ([`StorageError::is_out_of_files`]), nothing was changed and the log goes on.
    pub fn plan_compaction(
        &mut self,
        now: Timestamp,
        bound: Offset,
        forced: bool,
    ) -> Result<Option<CompactionPlan>, Arc<StorageError>> {
        let _ = (now, bound, forced);
        todo!("the next commit")
    }

    /// Puts what a pass wrote in place of its sources, durably. None if these have changed meanwhile (retention,
    /// truncation): what was written is then removed.
    ///
    /// # Errors
    /// When the file system fails; the log then takes no more writes, and the next open finishes what was begun.
    pub fn install_compacted(&mut self, compacted: Compacted) -> Result<Option<CompactionPass>, Arc<StorageError>> {
        let _ = compacted;
        todo!("the next commit")
    }
}

impl CompactionPlan {
    /// Reads the segments and writes what stays of them beside the log. Long work, for a thread that may block; the log
    /// goes on meanwhile. Set `stop` to end it early.
    ///
    /// # Errors
    /// See [`CompactionError`]; nothing of the log was changed, and what was written is removed.
    pub fn run(self, stop: &AtomicBool) -> Result<Compacted, CompactionError> {
        let _ = stop;
        todo!("the next commit")
    }
}

impl LogReader {
    /// How far the log is compacted and why the rest is not; none if it is not to be compacted.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn compaction_state(&self, now: Timestamp, bound: Offset) -> Result<Option<CompactionState>, StorageError> {
        let _ = (now, bound);
        todo!("the next commit")
    }

    /// The first record from `from` on and below `below` that has no key; none if all have one. Reads all that lies
    /// between, and skips what is damaged or was removed.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn first_keyless(&self, from: Offset, below: Offset) -> Result<Option<Offset>, ReadError> {
        let _ = (from, below);
        todo!("the next commit")
    }
}
