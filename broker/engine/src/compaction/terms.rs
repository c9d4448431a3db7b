//! What the calls about compaction answer.

use std::sync::Arc;

use levada_log::{CompactionPass, CompactionState, Uncompacted};
use levada_model::{Offset, PartitionIndex, Timestamp};

use crate::partition::Failure;

/// What came of a forced compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactedTopic {
    /// The partitions that are done.
    pub partitions: Vec<CompactedPartition>,
    /// Whether these are all; if not, the others go on.
    pub is_done: bool,
}

/// What a forced pass made of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactedPartition {
    /// The partition.
    pub partition: PartitionIndex,
    /// Bytes of the segments that the pass looked at: all, but for those that `min.compaction.lag.ms` keeps from it.
    pub before_bytes: u64,
    /// The same after.
    pub after_bytes: u64,
    /// Records in them before.
    pub before_records: u64,
    /// The same after.
    pub after_records: u64,
}

/// How far a partition is compacted.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionCompaction {
    /// Bytes that a pass could clean now.
    pub dirty_bytes: u64,
    /// Their part of what is clean or could be cleaned, from 0 to 1.
    pub dirty_ratio: f64,
    /// Below it each key's newest record alone is left.
    pub cleaned_to: Offset,
    /// What is not compacted yet, in order, and why.
    pub uncompacted: Vec<Uncompacted>,
    /// That the last pass failed, if it did.
    pub failure: Option<CompactionFailure>,
}

/// A pass that failed; the log is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionFailure {
    /// What happened.
    pub reason: Arc<str>,
    /// When it happened first, without a pass that succeeded since.
    pub since: Timestamp,
    /// When it is tried again.
    pub retry_at: Timestamp,
}

impl CompactedPartition {
    /// None is a partition in which there was nothing to look at.
    pub(crate) fn new(partition: PartitionIndex, pass: Option<CompactionPass>) -> Self {
        let of = |field: fn(&CompactionPass) -> u64| pass.as_ref().map_or(0, field);
        Self {
            partition,
            before_bytes: of(|pass| pass.before_bytes),
            after_bytes: of(|pass| pass.after_bytes),
            before_records: of(|pass| pass.before_records),
            after_records: of(|pass| pass.after_records),
        }
    }
}

impl PartitionCompaction {
    pub(crate) fn new(state: CompactionState, failure: Option<CompactionFailure>) -> Self {
        Self {
            dirty_bytes: state.dirty_bytes,
            dirty_ratio: state.dirty_ratio,
            cleaned_to: state.first_dirty,
            uncompacted: state.uncompacted,
            failure,
        }
    }

    /// Where not even that can be read.
    pub(crate) fn unknown(failure: CompactionFailure) -> Self {
        Self {
            dirty_bytes: 0,
            dirty_ratio: 0.0,
            cleaned_to: Offset(0),
            uncompacted: Vec::new(),
            failure: Some(failure),
        }
    }
}

impl From<Failure> for CompactionFailure {
    fn from(failure: Failure) -> Self {
        Self { reason: failure.reason, since: failure.since, retry_at: failure.retry_at }
    }
}
