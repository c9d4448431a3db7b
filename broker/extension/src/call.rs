//! What one call of a transform or an aggregator is given: records in batches, the time and the seed.
//!
//! Everything is owned or shared, since calls wait in queues and run on other threads. Not here: the bytes that cross to a
//! module (`layout`).

mod records;
mod varint;

use bytes::Bytes;
use levada_model::{Offset, PartitionIndex, Record, Timestamp, TimestampType, TopicName};
use thiserror::Error;

pub(crate) use records::put_raw;
pub use records::{CallHeader, CallRecord, CallRecords, MalformedRecord};

/// The clock and the randomness of one call. They stay the same when the call is repeated, whole or in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub time: Timestamp,
    /// Any number.
    pub seed: u64,
}

/// The records of one call, gathered from any number of stored batches. A record's *place* counts from 0 over all sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallBatch {
    /// Time and seed.
    pub moment: Moment,
    /// Each with at least one record.
    pub sections: Vec<CallSection>,
}

/// Records of one partition that follow one another in one stored batch, or that are not stored yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSection {
    /// Their topic.
    pub topic: TopicName,
    /// Their partition.
    pub partition: PartitionIndex,
    /// What their offset deltas count from.
    pub base_offset: Offset,
    /// What their timestamp deltas count from; under [`TimestampType::LogAppendTime`] the time of them all.
    pub base_timestamp: Timestamp,
    /// Whose time they carry.
    pub timestamp_type: TimestampType,
    /// How many they are.
    pub record_count: u32,
    /// They themselves: the record section of a batch of version 2 (KIP-98), unpacked; no control records.
    pub records: Bytes,
}

/// Why a transform or an aggregator gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModuleFault {
    /// It does not offer this call.
    #[error("the module does not offer this call")]
    Unsupported,
    /// It says so itself.
    #[error("{reason}")]
    Failed {
        /// In its words.
        reason: String,
    },
    /// It was stopped, and what was called is gone.
    #[error("{reason}")]
    Stopped {
        /// What for.
        cause: StopCause,
        /// For people.
        reason: String,
    },
    /// It answered what no module may answer.
    #[error(transparent)]
    Answer(#[from] crate::AnswerError),
    /// It answered partitions that cannot be.
    #[error(transparent)]
    Partitions(#[from] crate::PartitionFault),
    /// It was not asked: the host has no room for the call now.
    #[error(transparent)]
    Busy(#[from] crate::ModuleBusy),
    /// It was not asked: the call is larger than any may be. Smaller ones may succeed.
    #[error("the call has {bytes} bytes, and {bytes_max} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The cap.
        bytes_max: usize,
    },
}

/// What a module was stopped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// It trapped.
    Trap,
    /// It took too long.
    Deadline,
    /// It wanted too much memory.
    Memory,
}

impl CallBatch {
    /// How many records there are.
    #[must_use]
    pub fn record_count(&self) -> usize {
        self.sections.iter().map(|section| section.record_count as usize).sum()
    }

    /// The records before `place`, and those from there on, in two batches of the same moment; they share the bytes. So a
    /// batch that fails is halved until the record is found that it fails for.
    ///
    /// # Errors
    /// When a record before `place` is malformed.
    pub fn split_at(&self, place: usize) -> Result<(Self, Self), MalformedRecord> {
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        let mut first = 0;
        for section in &self.sections {
            let count = section.record_count as usize;
            match place.saturating_sub(first) {
                0 => behind.push(section.clone()),
                here if here >= count => before.push(section.clone()),
                here => {
                    let (front, back) = section.split_at(here)?;
                    before.push(front);
                    behind.push(back);
                }
            }
            first += count;
        }
        let moment = self.moment;
        Ok((Self { moment, sections: before }, Self { moment, sections: behind }))
    }

    /// The records in order.
    pub fn records(&self) -> CallRecords<'_> {
        CallRecords::new(&self.sections)
    }
}

impl CallSection {
    /// Records that are not stored yet, with offsets from 0.
    ///
    /// # Panics
    /// When there are more than `u32::MAX` of them, or when one is larger than a batch may be.
    #[must_use]
    pub fn unstored(topic: TopicName, partition: PartitionIndex, records: &[(Timestamp, Record)]) -> Self {
        let base_timestamp = records.first().map_or(Timestamp(0), |(timestamp, _)| *timestamp);
        let mut bytes = Vec::new();
        for (place, (timestamp, record)) in records.iter().enumerate() {
            let timestamp_delta = timestamp.0.wrapping_sub(base_timestamp.0);
            records::put(&mut bytes, timestamp_delta, place, record);
        }
        Self {
            topic,
            partition,
            base_offset: Offset(0),
            base_timestamp,
            timestamp_type: TimestampType::CreateTime,
            record_count: u32::try_from(records.len()).expect("a request holds fewer records"),
            records: bytes.into(),
        }
    }

    /// Records at these offsets, which do not fall; some may be the same.
    ///
    /// # Panics
    /// When there is none, more than `u32::MAX`, or one that is larger than a batch may be.
    #[must_use]
    pub fn at_offsets(topic: TopicName, partition: PartitionIndex, records: &[(Offset, Timestamp, Record)]) -> Self {
        let (base_offset, base_timestamp, _) = records.first().expect("a section has a record");
        let mut bytes = Vec::new();
        for (offset, timestamp, record) in records {
            let timestamp_delta = timestamp.0.wrapping_sub(base_timestamp.0);
            let place = usize::try_from(offset.0 - base_offset.0).expect("offsets of one read are near each other");
            records::put(&mut bytes, timestamp_delta, place, record);
        }
        Self {
            base_offset: *base_offset,
            base_timestamp: *base_timestamp,
            records: bytes.into(),
            record_count: u32::try_from(records.len()).expect("a call holds fewer records"),
            ..Self::unstored(topic, partition, &[])
        }
    }

    /// The first `count` records, of which there are more, and the others.
    fn split_at(&self, count: usize) -> Result<(Self, Self), MalformedRecord> {
        let mut records = CallRecords::new(std::slice::from_ref(self));
        records.by_ref().take(count).try_for_each(|record| record.map(drop))?;
        let (bytes, front_count) = records.position();
        let front = Self { record_count: front_count, records: self.records.slice(..bytes), ..self.clone() };
        let back_count = self.record_count - front_count;
        Ok((front, Self { record_count: back_count, records: self.records.slice(bytes..), ..self.clone() }))
    }
}

impl From<MalformedRecord> for ModuleFault {
    fn from(error: MalformedRecord) -> Self {
        Self::Failed { reason: error.to_string() }
    }
}
