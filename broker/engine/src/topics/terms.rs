//! What the calls on topics take and give, and why they are refused.

use std::collections::BTreeMap;

use levada_model::{ConfigError, Denied, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName};
use serde_json::Value;
use thiserror::Error;

use crate::ModuleError;

/// A topic to be.
#[derive(Clone, Debug)]
pub struct CreateTopic {
    /// Its name.
    pub name: TopicName,
    /// How many partitions, at least 1.
    pub partitions: u32,
    /// Settings that differ from the defaults.
    pub config: BTreeMap<String, Value>,
}

/// A change of a topic.
#[derive(Clone, Debug, Default)]
pub struct AlterTopic {
    /// Active partitions there shall be: more are added at once, surplus ones retire.
    pub partitions: Option<u32>,
    /// Settings to set, or (none) to put back to their default.
    pub config: BTreeMap<String, Option<Value>>,
    /// Change only if the topic is at this version.
    pub if_version: Option<u64>,
}

/// A topic as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicDescription {
    /// Its name.
    pub name: TopicName,
    /// Its identity.
    pub id: TopicId,
    /// Whether it is the broker's own.
    pub internal: bool,
    /// Counts its changes; the ETag.
    pub version: u64,
    /// Active partitions.
    pub partition_count: u32,
    /// All partitions, also retiring ones, by number.
    pub partitions: Vec<PartitionDescription>,
    /// What was set.
    pub config: BTreeMap<String, Value>,
    /// All that holds.
    pub effective_config: BTreeMap<String, Value>,
    /// How often since the start murmur2 stood in for the module that is the partitioner.
    pub partitioner_fallbacks: u64,
    /// Why it did the last time.
    pub partitioner_fault: Option<String>,
}

/// A partition as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionDescription {
    /// Its number.
    pub partition: PartitionIndex,
    /// The node that leads it.
    pub leader: NodeId,
    /// The leader's term.
    pub leader_epoch: LeaderEpoch,
    /// Nodes that hold it.
    pub replicas: Vec<NodeId>,
    /// Those that are in sync.
    pub isr: Vec<NodeId>,
    /// First readable offset.
    pub log_start_offset: Offset,
    /// The offset before which readers may read.
    pub high_watermark: Offset,
    /// The offset before which `read_committed` readers may read.
    pub last_stable_offset: Offset,
    /// Bytes of its log segments.
    pub size_bytes: u64,
    /// Whether it takes writes.
    pub state: PartitionState,
}

/// Whether a partition takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionState {
    /// It does.
    Active,
    /// It does not; it is dropped when retention has emptied it.
    Retiring,
}

/// A page of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicPage {
    /// The topics, by name.
    pub topics: Vec<TopicDescription>,
    /// The last name, if there are more.
    pub next_after: Option<TopicName>,
}

/// What a truncation left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// The partition.
    pub partition: PartitionIndex,
    /// Its log start now.
    pub log_start_offset: Offset,
}

/// Why a topic call was refused; nothing was changed.
#[derive(Debug, Error)]
pub enum TopicError {
    /// Not allowed.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// There is none of that name.
    #[error("there is no topic {0}")]
    NotFound(TopicName),
    /// There is one of that name.
    #[error("topic {0} exists")]
    Exists(TopicName),
    /// The name is kept for the broker's own topics.
    #[error("names that begin with __ are kept for the broker; {0} does")]
    Reserved(TopicName),
    /// The call may not be done to the broker's own topics.
    #[error("{0} is the broker's own topic and cannot be changed")]
    Internal(TopicName),
    /// A setting was wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A topic has 1 to `PARTITIONS_MAX` partitions.
    #[error("a topic has 1 to {max} partitions, not {got}")]
    PartitionCount {
        /// What was asked for.
        got: u32,
        /// The most there may be.
        max: u32,
    },
    /// The topic is at another version than asked for.
    #[error("topic {name} is at version {version}")]
    VersionMismatch {
        /// The topic.
        name: TopicName,
        /// Its version.
        version: u64,
    },
    /// There is no such partition.
    #[error("topic {topic} has no partition {partition}")]
    NoPartition {
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: PartitionIndex,
    },
    /// The same partition was named twice.
    #[error("partition {0} is named twice")]
    Repeated(PartitionIndex),
    /// Truncation beyond the end.
    #[error("offset {before} of partition {partition} is beyond its end {high_watermark}")]
    BeyondEnd {
        /// The partition.
        partition: PartitionIndex,
        /// What was asked for.
        before: Offset,
        /// Its high watermark.
        high_watermark: Offset,
    },
    /// It is to be compacted and holds a record without a key.
    #[error(
        "partition {partition} of topic {topic} holds a record without a key at offset {offset}, so the topic cannot be compacted; truncate what has no key, or let retention remove it"
    )]
    Keyless {
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: PartitionIndex,
        /// Where the first such record of the partition lies.
        offset: Offset,
    },
    /// Its `cleanup.policy` does not compact.
    #[error("the cleanup.policy of topic {0} does not compact it")]
    NotCompacted(TopicName),
    /// A partition could not be compacted; its log is as it was, and other partitions may be compacted.
    #[error("partition {partition} of topic {topic} could not be compacted: {reason}")]
    CompactionFailed {
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: PartitionIndex,
        /// What happened.
        reason: String,
    },
    /// A setting names a module that is not there, cannot be that, or does not take its config.
    #[error("{setting}: {error}")]
    Module {
        /// The setting.
        setting: &'static str,
        /// What is wrong.
        error: Box<ModuleError>,
    },
    /// What the topic holds could not be read.
    #[error(transparent)]
    Storage(#[from] levada_log::StorageError),
    /// The engine is closing.
    #[error("the engine is closing")]
    Closing,
    /// No file can be opened; nothing of this partition or topic was changed, try again.
    #[error("the broker has as many files open as it may, so this is not done now")]
    OutOfFiles,
    /// The disk fails.
    #[error("no changes are taken now: {reason}")]
    Fenced {
        /// What happened.
        reason: String,
        /// Whether the change, or a part of it, may hold all the same.
        possible: bool,
    },
}
