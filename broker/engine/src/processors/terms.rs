//! What the calls on processors take and give, and why they are refused.

use levada_extension::JsonFilter;
use levada_log::StorageError;
use levada_model::{
    Denied, ModuleName, ModuleRef, Offset, PartitionIndex, Principal, ProcessorName, Record, Timestamp, TopicName,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::From;

/// A processor as its document says. `document` is the JSON text that a user put, kept word for word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorSpec {
    /// At least one.
    pub sources: Vec<SourceSpec>,
    /// A JSON pointer to the time of a record; none: the record's own.
    pub timestamp: Option<String>,
    /// In order.
    pub steps: Vec<ProcessorStep>,
    /// Where records go.
    pub sink: TopicName,
    /// What becomes of records that fail.
    pub on_error: OnError,
    /// Whether outputs and positions are one transaction.
    pub guarantee: Guarantee,
    /// How often positions are committed, in milliseconds.
    pub commit_interval_ms: u64,
    /// The document, JSON text.
    pub document: String,
}

impl ProcessorSpec {
    /// The modules of its steps, in order.
    pub(crate) fn modules(&self) -> impl Iterator<Item = &ModuleRef> {
        self.steps.iter().filter_map(|step| match step {
            ProcessorStep::Transform { module, .. } => Some(module),
            ProcessorStep::Filter(_) => None,
        })
    }

    /// The configs of those steps that follow the active version of this module.
    pub(crate) fn configs_of<'a>(&'a self, name: &'a ModuleName) -> impl Iterator<Item = &'a str> {
        self.steps.iter().filter_map(move |step| match step {
            ProcessorStep::Transform { module, config } if module.name == *name && module.version.is_none() => {
                Some(&**config)
            }
            ProcessorStep::Transform { .. } | ProcessorStep::Filter(_) => None,
        })
    }
}

/// A topic that a processor reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// The topic.
    pub topic: TopicName,
    /// Where it begins in partitions of which nothing is committed.
    pub start: From,
}

/// A step of a processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessorStep {
    /// Built in: records that pass go on.
    Filter(JsonFilter),
    /// A module.
    Transform {
        /// Which.
        module: ModuleRef,
        /// Its config as JSON text.
        config: String,
    },
}

/// What becomes of a record that fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnError {
    /// How often it is tried, at least once.
    pub attempts: u32,
    /// And then.
    pub then: Then,
}

/// What becomes of a record that failed as often as it may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// It goes to this topic; none: `TOPIC.dead-letter` of its own.
    DeadLetter(Option<TopicName>),
    /// It is passed over, and counted.
    Skip,
    /// The processor stands still and says why.
    Pause,
}

/// What a processor promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// Outputs and positions commit as one transaction.
    #[default]
    ExactlyOnce,
    /// Outputs, then positions.
    AtLeastOnce,
}

/// A processor as it is.
#[derive(Clone, Debug)]
pub struct ProcessorInfo {
    /// Its name.
    pub name: ProcessorName,
    /// Who put it.
    pub owner: Principal,
    /// Counts its documents from 1.
    pub version: u64,
    /// Its document, JSON text.
    pub document: String,
    /// How it stands.
    pub state: ProcessorState,
    /// One for each source partition; none while its positions are being loaded.
    pub tasks: Vec<ProcessorTask>,
}

/// How a processor stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessorState {
    /// It runs.
    Running,
    /// Somebody paused it.
    Paused,
    /// It stands still over a record or fault.
    Failed {
        /// Why.
        reason: String,
        /// The record, if it is one.
        at: Option<Box<FailedRecord>>,
    },
}

/// A record over which a processor stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRecord {
    /// Its topic.
    pub topic: TopicName,
    /// Its partition.
    pub partition: PartitionIndex,
    /// Its offset.
    pub offset: Offset,
    /// Its time and what it is; none where the stored batch cannot be read.
    pub record: Option<(Timestamp, Record)>,
}

/// What a task waits for that cannot go on now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessorWaiting {
    /// Why it cannot go on.
    pub reason: String,
    /// The record that is tried again, if it is one.
    pub offset: Option<Offset>,
    /// How often that was tried.
    pub attempts: Option<u32>,
}

/// One partition of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessorTask {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionIndex,
    /// Next to process.
    pub position: Offset,
    /// Last stable offset less position.
    pub lag: u64,
    /// Highest time of a record that it has seen.
    pub stream_time: Option<Timestamp>,
    /// Records passed over by `then: skip`, or without what a step needs.
    pub skipped: u64,
    /// Offsets that were gone before they were processed: expired, deleted, or lost to damage.
    pub lost: u64,
    /// Records that failed.
    pub errors: u64,
    /// Records that came in.
    pub records_in: u64,
    /// Records that went out.
    pub records_out: u64,
    /// What it waits for, if it cannot go on now.
    pub waiting: Option<ProcessorWaiting>,
}

/// Where a processor is set back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorReset {
    /// Where.
    pub start: From,
    /// Only say where that is.
    pub dry_run: bool,
}

/// What a trial of a processor gave: the records that would go to the sink.
#[derive(Clone, Debug, Default)]
pub struct ProcessorDryRun {
    /// Each with where it came from.
    pub rows: Vec<(PartitionIndex, Offset, Timestamp, Record)>,
    /// Records that failed, each with the reason.
    pub failed: Vec<(PartitionIndex, Offset, String)>,
    /// Records read.
    pub records_in: u64,
    /// Whether more came out than a trial answers, so that it ended there.
    pub truncated: bool,
}

/// Why a call on processors was refused; nothing was changed, if nothing else is said.
#[derive(Debug, Error)]
pub enum ProcessorError {
    /// Not allowed.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// There is no such processor.
    #[error("there is no processor {0}")]
    NotFound(ProcessorName),
    /// The document names what is not there or cannot be: JSON pointers, each with what is wrong.
    #[error("{} fields of the document are wrong", .0.len())]
    Document(Vec<(String, String)>),
    /// Only done to one that stands still.
    #[error("the processor runs; pause it first")]
    Running,
    /// There are too many processors.
    #[error("there are {limit} processors already")]
    TooMany {
        /// The cap.
        limit: usize,
    },
    /// This broker runs no modules, and the document names some.
    #[error("this broker runs no modules")]
    NoHost,
    /// Its coordinator is loading, the host is busy, or its tasks take their time; try again.
    #[error("{reason}")]
    Busy {
        /// What it is.
        reason: String,
        /// Whether the change may hold all the same.
        possible: bool,
    },
    /// The engine is closing.
    #[error("the engine is closing")]
    Closing,
    /// The disk fails.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The metadata takes no changes.
    #[error("processors cannot be changed now: {reason}")]
    Fenced {
        /// What happened.
        reason: String,
        /// Whether the change may hold all the same.
        possible: bool,
    },
}

impl ProcessorError {
    /// Something else is in the way now, and nothing was changed.
    pub(super) fn busy(reason: impl ToString) -> Self {
        Self::Busy { reason: reason.to_string(), possible: false }
    }

    /// The same of a change that may hold all the same.
    pub(super) fn possible(self) -> Self {
        match self {
            Self::Busy { reason, .. } => Self::Busy { reason, possible: true },
            other => other,
        }
    }
}
