//! What goes into a partition's log and what comes out of it: options, marks, appends and answers.

use levada_model::{Offset, ProducerEpoch, ProducerId, Timestamp};

use super::compaction::CompactionOptions;
use crate::{Batch, BatchBuf, BatchHeader};

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
    /// Keep of each key the newest record only (`cleanup.policy=compact`); none is not to.
    pub compaction: Option<CompactionOptions>,
    /// Whether `retention_bytes` and `retention_ms` hold (`cleanup.policy=delete`, alone or beside `compact`).
    pub retains: bool,
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
    /// The last stable offset of what is written: the first offset of the earliest transaction that is open, else
    /// `log_end`; never below `log_start`. For a high watermark of `log_end` (`page-cache` topics).
    pub last_stable: Offset,
    /// The same of what is synced: a marker that a power cut could take back ends nothing. At most `synced_end`; for a
    /// high watermark of `synced_end` (`fsync` topics).
    pub synced_stable: Offset,
}

/// A transaction of which a partition holds records and not yet the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Whose it is.
    pub producer_id: ProducerId,
    /// The epoch of its batches.
    pub producer_epoch: ProducerEpoch,
    /// Its first offset here.
    pub first_offset: Offset,
}

/// A transaction that was aborted. Its batches are the transactional ones of its producer from its first offset up to its
/// marker, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AbortedTransaction {
    /// Its first offset here.
    pub first_offset: Offset,
    /// Its marker's offset.
    pub last_offset: Offset,
    /// Whose it was.
    pub producer_id: ProducerId,
}

impl AbortedTransaction {
    /// Whether a batch's records are of this transaction. A marker's are not: it has none.
    #[must_use]
    pub fn holds(&self, header: &BatchHeader) -> bool {
        header.is_transactional()
            && !header.is_control()
            && header.producer_id == Some(self.producer_id)
            && self.first_offset <= header.base_offset
            && header.base_offset <= self.last_offset
    }
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
    /// append with the id wins; the same digest again is a duplicate, another one
    /// [`AppendError::KeyReused`](crate::AppendError::KeyReused).
    Key,
    /// A batch of a transaction that has no sequence of its own: the partition gives it the next of its producer and
    /// epoch, which is written into its head. So it is never a repeat, and those that come with sequences go on behind it.
    Assigned,
    /// A coordinator's marker, the one kind of control batch that is taken, and taken by this check alone. Its epoch must
    /// be higher than the producer's, and is the producer's from then on (KIP-890, KIP-1228). The same end by the same
    /// epoch again is a duplicate. Where no transaction is open it is stored too: it fences.
    Marker,
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
    /// It has its place and will be written by the next [`PartitionLog::write`](crate::PartitionLog::write); the
    /// stamped batch is for the tail cache.
    Stored(Batch),
    /// It was stored before.
    Duplicate {
        /// Offset of its first record then.
        base_offset: Offset,
        /// When it was appended then, by the broker's clock (after a recovery: its largest timestamp).
        timestamp: Timestamp,
    },
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
    /// The aborted transactions that may have records among these, by their first offsets; none unless committed records
    /// were asked for ([`LogReader::read_committed`](crate::LogReader::read_committed)). Their batches are still here: see
    /// [`AbortedTransaction::holds`].
    pub aborted: Vec<AbortedTransaction>,
}

/// What a retention pass removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Segments removed.
    pub segments: usize,
    /// Bytes removed.
    pub bytes: u64,
}

/// Mistakes that tests plant, to show that they are found. All are false where the feature `sim` is off.
#[cfg_attr(not(feature = "sim"), expect(unreachable_pub, reason = "only tests can plant"))]
#[derive(Clone, Copy, Debug, Default)]
pub struct PlantedFaults {
    /// An index entry is taken without a look at the log.
    pub trust_index: bool,
    /// A head of zeros passes as a batch of one record.
    #[cfg(feature = "sim")]
    pub zeros_are_a_batch: bool,
    /// The recovery point is noted before the sync.
    pub recovery_point_ahead: bool,
    /// A sync is answered and not made.
    pub skip_sync: bool,
    /// After a restart no transaction is known to have been aborted before.
    pub forget_aborted: bool,
    /// A producer's old epoch is as good as its newest.
    pub ignore_epoch: bool,
}
