//! One partition's log: the writer with its segments, and the readers that share them.
//!
//! One owner holds the [`PartitionLog`] and calls `stage` for each batch, `write` once for all that was staged, and
//! `sync` where durability asks for it; readers hold [`LogReader`]s and never wait for the owner.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use levada_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use thiserror::Error;

use crate::{Batch, BatchBuf, Storage, StorageError};

/// Settings of one partition's log; all but `producer_expiration_ms` may change while it runs.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Roll before the active segment grows beyond this.
    pub segment_bytes: u64,
    /// Roll when the active segment's first append is older.
    pub segment_ms: i64,
    /// Remove oldest segments while all hold more; none is unbounded.
    pub retention_bytes: Option<u64>,
    /// Remove segments whose largest timestamp and last append are both older; none is for ever.
    pub retention_ms: Option<i64>,
    /// Forget a producer this long after its last append.
    pub producer_expiration_ms: i64,
    /// Write zeros ahead of small synced groups (DESIGN.md §2); off for page-cache topics.
    pub write_ahead_zeros: bool,
}

/// The marks of a partition as its log knows them. The high watermark is the engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// First readable offset.
    pub log_start: Offset,
    /// The offset after the last one written.
    pub log_end: Offset,
    /// All before this is known to be synced.
    pub synced_end: Offset,
}

/// A stretch of offsets whose bytes are damaged below the recovery point: lost, reported, and skipped by readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// First offset lost.
    pub from: Offset,
    /// The offset after the last one lost.
    pub to: Offset,
}

/// What opening a log found and did.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Whether the clean-shutdown marker spared the scan.
    pub clean: bool,
    /// Bytes that were read to find the end.
    pub scanned_bytes: u64,
    /// Bytes cut off behind the last valid batch (zeros written ahead do not count).
    pub cut_bytes: u64,
    /// Damage below the recovery point that the scan met.
    pub damage: Vec<Damage>,
}

/// How an append's producer sequence is to be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceCheck {
    /// Kafka's rule: contiguous per producer and epoch, the last five batches are recognised as duplicates.
    Producer,
    /// An `Idempotency-Key`: the id is derived from the key, epoch and sequence are the body's digest. The first
    /// append with the id wins; the same digest again is a duplicate, another one [`AppendError::KeyReused`].
    Key,
}

/// One batch on its way into the log.
#[derive(Debug)]
pub struct Append {
    /// The batch; its producer id, epoch and sequence are in its head.
    pub batch: BatchBuf,
    /// How to judge its sequence; ignored without a producer id.
    pub check: SequenceCheck,
    /// Store only if this is the next offset.
    pub expected_offset: Option<Offset>,
}

/// What became of a staged batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It has its place and will be written by the next [`PartitionLog::write`]; the stamped batch is for the tail cache.
    Stored(Batch),
    /// It was stored before.
    Duplicate {
        /// Offset of its first record then.
        base_offset: Offset,
        /// When it was appended then, by the broker's clock (after a recovery: its largest timestamp).
        timestamp: Timestamp,
    },
}

/// Why a batch was refused; nothing of it was stored.
#[derive(Debug, Error)]
pub enum AppendError {
    /// A gap, or a repeat older than five batches.
    #[error("sequence {got} of producer {producer_id} is out of order; {expected} is next")]
    OutOfOrderSequence {
        /// Who.
        producer_id: ProducerId,
        /// What came.
        got: Sequence,
        /// What would have been right.
        expected: Sequence,
    },
    /// A newer epoch of the producer has written.
    #[error("producer {producer_id} with epoch {got} is fenced by epoch {current}")]
    ProducerFenced {
        /// Who.
        producer_id: ProducerId,
        /// What came.
        got: ProducerEpoch,
        /// The epoch in force.
        current: ProducerEpoch,
    },
    /// The idempotency key came before with another body.
    #[error("the idempotency key was used before with another body")]
    KeyReused,
    /// The expected offset is not the next.
    #[error("the next offset is {next_offset}")]
    OffsetMismatch {
        /// The offset that would have been right.
        next_offset: Offset,
    },
    /// A batch larger than a segment can address.
    #[error("a batch of {size_bytes} bytes is larger than the limit of {limit_bytes}")]
    TooLarge {
        /// Its size.
        size_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The log failed before and takes no more.
    #[error("the log takes no writes since: {0}")]
    Poisoned(Arc<StorageError>),
}

/// Why a log could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file system said no.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// What lies there contradicts itself in a way that only a person can judge; nothing was changed.
    #[error("{path}: {detail}")]
    Inconsistent {
        /// Where.
        path: String,
        /// What is wrong and what to do.
        detail: String,
    },
}

/// Why a read gave nothing.
#[derive(Debug, Error)]
pub enum ReadError {
    /// Below the log start.
    #[error("offset {requested} is below the log start {log_start}")]
    BelowStart {
        /// What was asked for.
        requested: Offset,
        /// The first offset there is.
        log_start: Offset,
    },
    /// Beyond the bound.
    #[error("offset {requested} is beyond the end {end}")]
    BeyondEnd {
        /// What was asked for.
        requested: Offset,
        /// The bound.
        end: Offset,
    },
    /// The file system said no.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// What a read gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadChunk {
    /// Whole batches in order, from the one that holds the wanted offset; none starts at or beyond the bound.
    pub batches: Vec<Batch>,
    /// Damage that was skipped on the way.
    pub gaps: Vec<Damage>,
    /// Where to go on.
    pub next_offset: Offset,
}

/// What a retention pass removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Segments removed.
    pub segments: usize,
    /// Bytes removed.
    pub bytes: u64,
}

/// The writer of one partition's log.
pub struct PartitionLog {}

impl PartitionLog {
    /// Opens the log in `dir`, or creates it there; recovers as DESIGN.md §2 says. `trust_clean_marker` is whether the
    /// directory as a whole was shut down cleanly (the engine consumes that marker before it opens any log).
    ///
    /// # Errors
    /// When the file system fails, or what lies there needs a person.
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: &Path,
        options: LogOptions,
        now: Timestamp,
        trust_clean_marker: bool,
    ) -> Result<(Self, Recovery), OpenError> {
        let _ = (storage, PathBuf::from(dir), options, now, trust_clean_marker);
        todo!()
    }

    /// A reader that shares the segments.
    #[must_use]
    pub fn reader(&self) -> LogReader {
        todo!()
    }

    /// The marks now.
    #[must_use]
    pub fn marks(&self) -> Marks {
        todo!()
    }

    /// Changes what may change.
    pub fn set_options(&mut self, options: LogOptions) {
        let _ = options;
        todo!()
    }

    /// Judges a batch (producer, expected offset), gives it its place and keeps it for the next [`write`](Self::write).
    /// Batches staged later see it.
    ///
    /// # Errors
    /// When it is refused; the log is as it was.
    pub fn stage(
        &mut self,
        append: Append,
        leader_epoch: LeaderEpoch,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        let _ = (append, leader_epoch, now);
        todo!()
    }

    /// Writes all that was staged with as few calls as there are segments, rolling where needed. Afterwards
    /// `log_end` includes it and readers with that bound may see it.
    ///
    /// # Errors
    /// When the file system fails: the log then takes no more writes, and `log_end` stays.
    pub fn write(&mut self, now: Timestamp) -> Result<(), Arc<StorageError>> {
        let _ = now;
        todo!()
    }

    /// Makes all that was written durable; `synced_end` becomes `log_end` and the recovery point is noted.
    ///
    /// # Errors
    /// When the file system fails: never retried, the log takes no more writes, `synced_end` stays.
    pub fn sync(&mut self) -> Result<(), Arc<StorageError>> {
        todo!()
    }

    /// Writes zeros ahead of the end if the last groups were small and little is left. Call after the acks went out.
    /// A full disk is not an error here.
    pub fn prepare_ahead(&mut self) {
        todo!()
    }

    /// Housekeeping, called every now and then: rolls an old active segment, removes what retention lets go (never the
    /// active segment, never at or beyond `removable_end`), forgets expired producers, and after enough appends writes
    /// a producer snapshot and moves the recovery point, so that a scan after a crash stays short.
    ///
    /// # Errors
    /// When the file system fails; the log then takes no more writes.
    pub fn maintain(&mut self, now: Timestamp, removable_end: Offset) -> Result<Retained, Arc<StorageError>> {
        let _ = (now, removable_end);
        todo!()
    }

    /// Moves the log start up to `before` (at most `log_end`), durably, and removes whole segments below it.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn truncate_front(&mut self, before: Offset) -> Result<Offset, Arc<StorageError>> {
        let _ = before;
        todo!()
    }

    /// Syncs everything, cuts zeros written ahead, writes index, snapshot and checkpoint. The next
    /// [`open`](Self::open) with the clean marker scans nothing.
    ///
    /// # Errors
    /// When the file system fails; the next open then recovers.
    pub fn close(self) -> Result<(), Arc<StorageError>> {
        todo!()
    }
}

/// A reader of one partition's log; cheap to clone. Calls read files and so may block.
#[derive(Clone)]
pub struct LogReader {}

impl LogReader {
    /// Reads whole batches from the one that holds `from`, at least one if there is one below `bound`, else at most
    /// `max_bytes` of stored bytes. A batch's CRC is checked; damage is skipped and reported, never served.
    ///
    /// # Errors
    /// When `from` is below the log start or beyond `bound`, or the file system fails.
    pub fn read(&self, from: Offset, max_bytes: usize, bound: Offset) -> Result<ReadChunk, ReadError> {
        let _ = (from, max_bytes, bound);
        todo!()
    }

    /// Offset and timestamp of the first record below `bound` whose timestamp is `time` or later (Kafka's
    /// `offsetsForTimes`); none if there is none.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn offset_for_time(&self, time: Timestamp, bound: Offset) -> Result<Option<(Offset, Timestamp)>, ReadError> {
        let _ = (time, bound);
        todo!()
    }

    /// First readable offset now.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        todo!()
    }

    /// Bytes of all log segments (valid bytes, without zeros written ahead or indexes).
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        todo!()
    }

    /// The leader epoch in force at `offset`, or none before the first (KIP-101).
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let _ = offset;
        todo!()
    }

    /// Damage known so far.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        todo!()
    }
}
