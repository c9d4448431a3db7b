//! What producers and look-ups by time are answered. Not here: the records themselves.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::Problem;
use crate::strict::Whole;

/// Where a record was stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Placed {
    /// Its partition.
    pub partition: u32,
    /// Its offset; absent with `acks=none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub offset: Option<u64>,
    /// Its time as stored, in milliseconds since 1970.
    pub timestamp: i64,
}

/// What became of one record of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Placement {
    /// It was stored.
    Placed(Placed),
    /// It was not (207 only).
    Failed {
        /// Why.
        problem: Box<Problem>,
    },
}

/// The answer to a produce of several records, in the request's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProduceAnswer {
    /// One place a record.
    pub records: Vec<Placement>,
    /// Whether a producer's sequence told that all of it was stored before; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// The answer to a produce of one raw body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RawAnswer {
    /// The record's partition.
    pub partition: u32,
    /// Its offset; absent with `acks=none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub offset: Option<u64>,
    /// Its time as stored, in milliseconds since 1970.
    pub timestamp: i64,
    /// Whether a producer's sequence told that it was stored before; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

impl From<RawAnswer> for Placed {
    fn from(answer: RawAnswer) -> Self {
        Self { partition: answer.partition, offset: answer.offset, timestamp: answer.timestamp }
    }
}

/// A line of the answer to an NDJSON produce: one for each line sent (see `results`), and at last the sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum LineAnswer {
    /// A line was stored.
    Stored {
        /// Its number, from 1; empty lines count.
        line: u64,
        /// The record's partition.
        partition: u32,
        /// Its offset; absent with `acks=none`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        offset: Option<u64>,
    },
    /// A line was refused.
    Refused {
        /// Its number, from 1; empty lines count.
        line: u64,
        /// Why.
        problem: Box<Problem>,
    },
    /// The end.
    Done {
        /// Whether all lines came; if not, the body broke off and `problem` says how.
        done: bool,
        /// Lines stored.
        accepted: u64,
        /// Lines refused.
        refused: u64,
        /// What was wrong with the stream as a whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        problem: Option<Box<Problem>>,
    },
}

/// A request for a producer id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"transactional_id": "billing-1", "timeout_ms": 60_000}))]
pub struct ProducerRequest {
    /// The identity that a producer of transactions keeps over its restarts; null: a producer without transactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub transactional_id: Option<String>,
    /// After how long its transactions are aborted, from their beginning on; null: 60,000, as in Kafka. Not taken without
    /// a `transactional_id`.
    #[serde(default, deserialize_with = "timeout", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 900_000)]
    pub timeout_ms: Option<u64>,
}

/// A producer id with its epoch: without a transactional id one that was never given out before; with one that of its
/// next transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Producer {
    /// For the header `Producer-Id`, and to begin transactions.
    pub producer_id: i64,
    /// For the header `Producer-Epoch`, and to begin the next transaction.
    pub producer_epoch: i16,
}

/// The offsets of a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Offsets {
    /// One a partition, by number.
    pub offsets: Vec<PartitionOffset>,
}

/// The offset of a time in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartitionOffset {
    /// The partition.
    pub partition: u32,
    /// First offset whose record has this time or a later one; the end where there is none.
    pub offset: u64,
    /// That record's time; null where there is none.
    pub timestamp: Option<i64>,
}

/// An integer or null. Its bounds are the coordinator's to judge.
fn timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Whole<u64>>::deserialize(deserializer)?.map(|Whole(timeout)| timeout))
}
