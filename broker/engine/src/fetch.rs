//! Records on their way out: one read for everyone, with waiters, bounded by the high watermark or the last stable
//! offset.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levada_extension::ModuleFault;
use levada_log::{ReadChunk, ReadError, StorageError};
use levada_model::{Denied, ModuleRef, Offset, Operation, PartitionIndex, Principal, Resource, Timestamp, TopicName};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

mod counting;
mod fetched;
mod filtering;

pub(crate) use counting::unpacking_bytes;
pub use fetched::{Fetched, FetchedRecords, Filtered};
pub(crate) use filtering::{Room, call_section, filter, section};

use crate::catalog::Topic;
use crate::engine::Core;
use crate::partition::{Bound, Partition, blocking};
use crate::{Engine, RecordFilter};

/// So many reads without a record that counts are made for one answer, also where nobody waits.
pub(crate) const IDLE_READS_MIN: u32 = 64;
/// The same where a module looks at all that is read.
const IDLE_FILTERED_READS_MIN: u32 = 8;

/// How long a reader leaves a filter alone that has no room; longer each time, up to the most.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(20);
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Where a read begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// Only what is committed, up to the last stable offset.
    #[default]
    ReadCommitted,
    /// Everything up to the high watermark.
    ReadUncommitted,
}

/// One read of one partition.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// Where to begin.
    pub from: From,
    /// Most records.
    pub max_records: usize,
    /// Most bytes, of stored batches or, where one batch is larger, of its records; the first record comes whatever its
    /// size.
    pub max_bytes: usize,
    /// How long to wait while there is nothing.
    pub wait: Duration,
    /// What to see.
    pub isolation: Isolation,
    /// What passes on the way. Positions move on over what does not, and what is in the place of a record has its offset.
    pub filter: Option<RecordFilter>,
    /// Whether batches are wanted as they are stored: then control batches are something too, and where there is nothing
    /// else they are the answer. Else such a read goes on behind them. A filter leaves none.
    pub as_stored: bool,
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
    /// The positions belong to another topic, or to one of the same name that was deleted.
    #[error("the positions belong to another topic than {topic}, or to one of this name that was deleted")]
    OtherTopic {
        /// The name.
        topic: TopicName,
    },
    /// The filter has no usable answer for what was read.
    #[error("filter {module} gave no answer{}: {fault}", .at.as_ref().map_or_else(String::new, |at| format!(" for {at}")))]
    Filter {
        /// The filter.
        module: ModuleRef,
        /// The record over which it failed, where there is one; all before it was given.
        at: Option<Box<FilteredAt>>,
        /// What happened; [`ModuleFault::Busy`] where it has no room now.
        fault: ModuleFault,
    },
    /// The file system said no.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The engine is closing.
    #[error("the engine is closing")]
    Closing,
}

/// A record that a filter fails over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilteredAt {
    /// Its topic.
    pub topic: TopicName,
    /// Its partition.
    pub partition: PartitionIndex,
    /// Its offset.
    pub offset: Offset,
}

impl fmt::Display for FilteredAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, partition, offset } = self;
        write!(f, "offset {offset} of partition {partition} of topic {topic}")
    }
}

impl FetchError {
    /// Whether the filter has no room now, which passes by itself.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Filter { fault: ModuleFault::Busy(_), .. })
    }
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
        let topic = self.readable(who, topic)?;
        let missing = || FetchError::NoPartition { topic: topic.name().clone(), partition };
        let partition = topic.state().partition(partition).cloned().ok_or_else(missing)?;
        let reading = Reading { core: &self.core, topic: &topic, partition: &partition, isolation: request.isolation };
        let mut from = reading.resolve(request.from).await?;
        // A number that was asked for must be there; a place that was looked up moves with the log start.
        let mut exact = matches!(request.from, From::Offset(_));
        let filter = request.filter.as_ref();
        let room = Room { records: request.max_records.max(1), bytes: request.max_bytes };
        let mut asked = if filter.is_some() { room.within_a_call() } else { room };
        let mut deadline = Deadline::new(request.wait, filter.is_some());
        let (reader, mut pause) = (Arc::new(Notify::new()), PAUSE_MIN);
        loop {
            let read = match filter {
                Some(by) if partition.bound(request.isolation) > from => {
                    let read = reading.filtered(by, from, asked, room).await;
                    asked = asked.doubled();
                    read
                }
                _ => reading.read(from, asked.records, asked.bytes).await,
            };
            match read {
                Err(error) if error.is_busy() && deadline.pause(&mut pause).await => {}
                Err(FetchError::BelowStart { log_start_offset, .. }) if !exact => from = log_start_offset,
                Err(error) => return Err(error),
                Ok(fetched) if !fetched.is_empty() => return Ok(fetched.keep_bytes(room.bytes).await),
                Ok(fetched) if request.as_stored && !fetched.batches.is_empty() => return Ok(fetched),
                // All that was there does not count; what comes behind it may.
                Ok(fetched) if fetched.next_offset > from && deadline.allows_another() => {
                    (from, exact) = (fetched.next_offset, false);
                }
                Ok(fetched) if fetched.next_offset > from => return Ok(fetched),
                Ok(fetched) => {
                    let _waiter = partition.waiters().register(bound_of(request.isolation), from, &reader);
                    let more = partition.bound(request.isolation) > from || reading.gone().is_some();
                    if !more && !deadline.wait(&reader).await {
                        return Ok(fetched);
                    }
                }
            }
        }
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
        let topic = self.readable(who, topic)?;
        let state = topic.state_full();
        let mut offsets = Vec::with_capacity(state.partitions.len());
        for partition in state.partitions() {
            let end = partition.last_stable_offset();
            let found = offset_for_time(partition, time, end, Isolation::ReadCommitted).await?;
            offsets.push(TimeOffset {
                partition: partition.index(),
                offset: found.map_or(end, |(offset, _)| offset),
                timestamp: found.map(|(_, timestamp)| timestamp),
            });
        }
        Ok(offsets)
    }

    /// The topic, if `who` may read it.
    pub(crate) fn readable(&self, who: &Principal, name: &TopicName) -> Result<Arc<Topic>, FetchError> {
        self.core.authorize(who, Operation::Read, Resource::Topic(name))?;
        if self.core.is_closing() {
            return Err(FetchError::Closing);
        }
        self.core.catalog.get(name).ok_or_else(|| FetchError::NotFound(name.clone()))
    }
}

/// One reader's look at one partition.
pub(crate) struct Reading<'a> {
    pub(crate) core: &'a Core,
    pub(crate) topic: &'a Topic,
    pub(crate) partition: &'a Arc<Partition>,
    pub(crate) isolation: Isolation,
}

impl Reading<'_> {
    /// The offset of a place, within what there is now.
    pub(crate) async fn resolve(&self, from: From) -> Result<Offset, FetchError> {
        let end = self.partition.bound(self.isolation);
        let log_start = self.partition.log_start();
        Ok(match from {
            From::Offset(offset) => offset,
            From::Earliest => log_start,
            From::Latest => end,
            From::Tail(count) => Offset(end.0.saturating_sub(count)).max(log_start),
            From::Time(time) => {
                let found = offset_for_time(self.partition, time, end, self.isolation).await?;
                found.map_or(end, |(offset, _)| offset)
            }
        })
    }

    /// What there is from an offset on, now.
    pub(crate) async fn read(&self, from: Offset, max_records: usize, max_bytes: usize) -> Result<Fetched, FetchError> {
        if let Some(gone) = self.gone() {
            return Err(gone);
        }
        let (partition, bound) = (self.partition, self.partition.bound(self.isolation));
        let high_watermark = partition.high_watermark();
        if from > high_watermark {
            return Err(FetchError::BeyondEnd { partition: partition.index(), requested: from, high_watermark });
        }
        let chunk = if from < bound {
            partition.read(from, max_bytes, bound, self.isolation).await
        } else if from < partition.log_start() {
            Err(ReadError::BelowStart { requested: from, log_start: partition.log_start() })
        } else {
            Ok(ReadChunk { batches: Vec::new(), gaps: Vec::new(), next_offset: from, aborted: Vec::new() })
        };
        match chunk {
            Ok(chunk) => Ok(self.fetched(from, max_records, chunk).await),
            Err(ReadError::BelowStart { requested, log_start }) => {
                Err(FetchError::BelowStart { partition: partition.index(), requested, log_start_offset: log_start })
            }
            Err(ReadError::BeyondEnd { requested, end }) => {
                Err(FetchError::BeyondEnd { partition: partition.index(), requested, high_watermark: end })
            }
            // A file that fails may be that of a topic that was deleted meanwhile.
            Err(ReadError::Storage(error)) => Err(self.gone().unwrap_or(FetchError::Storage(error))),
        }
    }

    /// What a filter leaves of a read.
    async fn filtered(&self, by: &RecordFilter, from: Offset, asked: Room, room: Room) -> Result<Fetched, FetchError> {
        let turn = by.turn().await?;
        let fetched = self.read(from, asked.records, asked.bytes).await?;
        let mut filtered = filter(by, vec![(self.topic.name().clone(), fetched)], room, turn).await?;
        Ok(filtered.pop().expect("there is room for a first one"))
    }

    /// Why a reader that holds the topic reads no more.
    pub(crate) fn gone(&self) -> Option<FetchError> {
        if self.topic.is_deleted() {
            return Some(FetchError::NotFound(self.topic.name().clone()));
        }
        self.core.is_closing().then_some(FetchError::Closing)
    }

    async fn fetched(&self, from: Offset, max_records: usize, chunk: ReadChunk) -> Fetched {
        let ReadChunk { batches, gaps, next_offset: end, mut aborted } = chunk;
        let batches = counting::without_aborted(batches, &aborted);
        let (batches, next_offset) = counting::keep_records(batches, from, max_records, end).await;
        aborted.retain(|aborted| aborted.first_offset < next_offset);
        let gaps = gaps.into_iter().filter(|gap| gap.from < next_offset).collect();
        // In this order, so that it is not beyond the high watermark.
        let last_stable_offset = self.partition.last_stable_offset();
        Fetched {
            partition: self.partition.index(),
            batches,
            filtered: None,
            aborted,
            from,
            max_records,
            gaps,
            next_offset,
            high_watermark: self.partition.high_watermark(),
            last_stable_offset,
            log_start_offset: self.partition.log_start(),
            leader_epoch: self.partition.leader_epoch(),
        }
    }
}

/// The first record of a time or later below `bound`, which must be the mark of the isolation. Reads files, so it runs on a thread that may block.
async fn offset_for_time(
    partition: &Partition,
    time: Timestamp,
    bound: Offset,
    isolation: Isolation,
) -> Result<Option<(Offset, Timestamp)>, FetchError> {
    let reader = partition.reader().clone();
    let find = move || match isolation {
        Isolation::ReadCommitted => reader.committed_offset_for_time(time, bound),
        Isolation::ReadUncommitted => reader.offset_for_time(time, bound),
    };
    match blocking(find).await {
        Ok(found) => Ok(found),
        Err(ReadError::Storage(error)) => Err(error.into()),
        Err(ReadError::BelowStart { .. } | ReadError::BeyondEnd { .. }) => Ok(None),
    }
}

/// The mark that bounds a reader of this isolation.
pub(crate) fn bound_of(isolation: Isolation) -> Bound {
    match isolation {
        Isolation::ReadCommitted => Bound::LastStable,
        Isolation::ReadUncommitted => Bound::HighWatermark,
    }
}

/// When a reader stops waiting.
pub(crate) struct Deadline {
    /// None when it never does.
    at: Option<Instant>,
    reads_left: u32,
}

impl Deadline {
    pub(crate) fn new(wait: Duration, filters: bool) -> Self {
        let reads_left = if filters { IDLE_FILTERED_READS_MIN } else { IDLE_READS_MIN };
        Self { at: Instant::now().checked_add(wait), reads_left }
    }

    /// Whether a reader that found nothing that counts may look behind it. After some reads only while there is time:
    /// then it is better to say how far it came.
    pub(crate) fn allows_another(&mut self) -> bool {
        self.reads_left = self.reads_left.saturating_sub(1);
        self.reads_left > 0 || self.at.is_none_or(|at| Instant::now() < at)
    }

    /// Whether the time is over.
    pub(crate) fn is_over(&self) -> bool {
        self.at.is_some_and(|at| at <= Instant::now())
    }

    /// Waits for room at a filter, a while longer each time; false when the time is over.
    pub(crate) async fn pause(&self, pause: &mut Duration) -> bool {
        if self.is_over() {
            return false;
        }
        let end = Instant::now() + *pause;
        sleep_until(self.at.map_or(end, |at| at.min(end))).await;
        *pause = PAUSE_MAX.min(*pause * 2);
        true
    }

    /// Waits to be notified; false when the time is over.
    pub(crate) async fn wait(&self, reader: &Notify) -> bool {
        match self.at {
            Some(deadline) => timeout_at(deadline, reader.notified()).await.is_ok(),
            None => {
                reader.notified().await;
                true
            }
        }
    }
}
