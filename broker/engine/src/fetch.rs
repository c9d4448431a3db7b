//! Records on their way out: one read for everyone, with waiters, bounded by the high watermark or the last stable
//! offset.

use std::time::Duration;

use levada_log::{Batch, Damage, RecordRef, RecordsError, StorageError};
use levada_model::{Denied, LeaderEpoch, Offset, PartitionIndex, Principal, Timestamp, TopicId, TopicName};
use thiserror::Error;

use crate::Engine;

/// Where a read begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum From {
    /// At an offset.
    Offset(Offset),
    /// At the log start.
    #[default]
    Earliest,
    /// At the end for the isolation asked for.
    Latest,
    /// At the first record of this time or later; where there is none, at the end.
    Time(Timestamp),
    /// This many offsets before the end (not before the log start).
    Tail(u64),
}

/// What a reader may see of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Only what is decided: up to the last stable offset.
    #[default]
    ReadCommitted,
    /// Everything up to the high watermark.
    ReadUncommitted,
}

/// One read of one partition.
#[derive(Clone, Copy, Debug)]
pub struct FetchRequest {
    /// Where to begin.
    pub from: From,
    /// Most records.
    pub max_records: usize,
    /// Most stored bytes; the first batch comes whatever its size.
    pub max_bytes: usize,
    /// How long to wait while there is nothing.
    pub wait: Duration,
    /// What to see.
    pub isolation: Isolation,
}

/// What a read gave, with the marks of the same moment.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The partition.
    pub partition: PartitionIndex,
    /// Stored batches that hold the records; the first may begin before `from`.
    pub batches: Vec<Batch>,
    /// First offset that counts.
    pub from: Offset,
    /// Most records that count.
    pub max_records: usize,
    /// Offsets lost to damage on the way.
    pub gaps: Vec<Damage>,
    /// Where to go on after all records that count.
    pub next_offset: Offset,
    /// The high watermark.
    pub high_watermark: Offset,
    /// The last stable offset.
    pub last_stable_offset: Offset,
    /// The log start.
    pub log_start_offset: Offset,
    /// The leader's term.
    pub leader_epoch: LeaderEpoch,
}

impl Fetched {
    /// The records that count, in order: from `from` on, at most `max_records`, without control records.
    pub fn records(&self) -> impl Iterator<Item = Result<RecordRef, RecordsError>> + '_ {
        std::iter::empty()
    }
}

/// Why a read was refused.
#[derive(Debug, Error)]
pub enum FetchError {
    /// Not allowed.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// There is no such topic (also: it was deleted while the reader waited).
    #[error("there is no topic {0}")]
    NotFound(TopicName),
    /// There is no such partition.
    #[error("topic {topic} has no partition {partition}")]
    NoPartition {
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: PartitionIndex,
    },
    /// Below the log start.
    #[error("offset {requested} is below the log start {log_start_offset}")]
    BelowStart {
        /// The partition.
        partition: PartitionIndex,
        /// What was asked for.
        requested: Offset,
        /// The first offset there is.
        log_start_offset: Offset,
    },
    /// Beyond the end.
    #[error("offset {requested} is beyond the high watermark {high_watermark}")]
    BeyondEnd {
        /// The partition.
        partition: PartitionIndex,
        /// What was asked for.
        requested: Offset,
        /// The end.
        high_watermark: Offset,
    },
    /// The positions belong to a topic that was deleted; one of the same name was created anew.
    #[error("the positions belong to a topic {topic} that was deleted")]
    OtherTopic {
        /// The name.
        topic: TopicName,
    },
    /// The file system said no.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The engine is closing.
    #[error("the engine is closing")]
    Closing,
}

/// A position in every partition of a topic: what a cursor holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions {
    /// Which topic.
    pub topic_id: TopicId,
    /// Next offset to read, by partition.
    pub next: Vec<(PartitionIndex, Offset)>,
}

/// Where a reader of a whole topic begins.
#[derive(Clone, Debug)]
pub enum TopicStart {
    /// The same place in every partition.
    From(From),
    /// Where an earlier reader stopped; partitions that are new since begin at their start.
    Positions(Positions),
}

/// A partition's answer to a look-up by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOffset {
    /// The partition.
    pub partition: PartitionIndex,
    /// First offset of the time or later; the end where there is none.
    pub offset: Offset,
    /// That record's time, where there is one.
    pub timestamp: Option<Timestamp>,
}

/// What a step of a topic reader gave: reads of those partitions that had something.
#[derive(Clone, Debug, Default)]
pub struct TopicChunk {
    /// One read a partition, none of them empty of both records and gaps.
    pub parts: Vec<Fetched>,
}

/// Reads a whole topic, partition by partition in turn; sees partitions that are added.
pub struct TopicReader {}

impl TopicReader {
    /// Reads on; waits at most `wait` for something (then the chunk is empty). Positions move over what is returned.
    /// A position below a log start that moved meanwhile is reported as a gap and moves up.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn next(
        &mut self,
        max_records: usize,
        max_bytes: usize,
        wait: Duration,
    ) -> Result<TopicChunk, FetchError> {
        let _ = (max_records, max_bytes, wait);
        todo!()
    }

    /// Where it stands, behind everything that was returned.
    #[must_use]
    pub fn positions(&self) -> Positions {
        todo!()
    }
}

impl Engine {
    /// Reads a partition; waits at most `request.wait` while there is nothing.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn fetch(
        &self,
        who: &Principal,
        topic: &TopicName,
        partition: PartitionIndex,
        request: FetchRequest,
    ) -> Result<Fetched, FetchError> {
        let _ = (who, topic, partition, request);
        todo!()
    }

    /// A reader of all partitions.
    ///
    /// # Errors
    /// See [`FetchError`]; also when a position is out of range.
    pub async fn topic_reader(
        &self,
        who: &Principal,
        topic: &TopicName,
        start: TopicStart,
        isolation: Isolation,
    ) -> Result<TopicReader, FetchError> {
        let _ = (who, topic, start, isolation);
        todo!()
    }

    /// The offsets of a time, in every partition.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn offsets_for_time(
        &self,
        who: &Principal,
        topic: &TopicName,
        time: Timestamp,
    ) -> Result<Vec<TimeOffset>, FetchError> {
        let _ = (who, topic, time);
        todo!()
    }
}
