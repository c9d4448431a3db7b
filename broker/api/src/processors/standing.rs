//! How processors stand, where they are set back to, and what trials of them gave.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::ProcessorDocument;
use crate::record_schema::ReadRecord;

/// A page of processors, by name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProcessorList {
    /// The processors.
    pub processors: Vec<Processor>,
    /// `cursor` of the next page; null on the last.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// A processor.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Processor {
    /// Its name.
    pub name: String,
    /// Who put it.
    pub owner: String,
    /// Counts its documents from 1.
    pub version: u64,
    /// The document word for word as it was put.
    #[schema(value_type = ProcessorDocument)]
    pub document: Box<RawValue>,
    /// How it stands.
    pub state: ProcessorState,
    /// Of one that failed: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub failure: Option<ProcessorFailure>,
    /// One for each partition of its sources; none while its positions are being loaded.
    pub tasks: Vec<ProcessorTask>,
}

/// How a processor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessorState {
    /// It runs.
    Running,
    /// Somebody paused it.
    Paused,
    /// It stands still over a record or fault.
    Failed,
}

/// Why a processor stands still.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProcessorFailure {
    /// Why.
    pub reason: String,
    /// The topic of the record, if it is one record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub topic: Option<String>,
    /// Its partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub partition: Option<u32>,
    /// Its offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub offset: Option<u64>,
    /// What it is, as a read shows it; not there where it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<ReadRecord>)]
    pub record: Option<Box<RawValue>>,
}

/// A partition of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessorTask {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// Next to process.
    pub position: u64,
    /// How many offsets are left up to the end.
    pub lag: u64,
    /// Highest time of a record that it has seen, in milliseconds since 1970.
    #[schema(required = true)]
    pub stream_time: Option<i64>,
    /// Records that came too late for their window; none without windows.
    pub dropped_late: u64,
    /// Records passed over.
    pub skipped: u64,
    /// Offsets that were gone before they were processed: expired, deleted, or lost to damage.
    pub lost: u64,
    /// Records that failed.
    pub errors: u64,
    /// Records that came in.
    pub records_in: u64,
    /// Records that went out.
    pub records_out: u64,
    /// What it waits for, if it cannot go on now; the processor runs all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub waiting: Option<TaskWaiting>,
}

/// What a task waits for that cannot go on now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskWaiting {
    /// Why it cannot go on.
    pub reason: String,
    /// The record that is tried again, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub offset: Option<u64>,
    /// How often that was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub attempts: Option<u32>,
}

/// Where a processor that stands still is to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"start": "earliest", "dry_run": true}))]
pub struct ResetProcessor {
    /// `earliest`, `latest`, `time:MS`, `tail:N` or `offset:N`, in each partition of its sources.
    pub start: String,
    /// Only say where that is.
    #[serde(default)]
    pub dry_run: bool,
}

/// Where a processor goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessorReset {
    /// Whether nothing was set.
    pub dry_run: bool,
    /// The tasks with their positions.
    pub tasks: Vec<ProcessorTask>,
}

/// What a trial of a processor gave.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProcessorDryRun {
    /// Records read.
    pub records_in: u64,
    /// The records that would go to the sink. Each has partition and offset of the one that it came from.
    #[schema(value_type = Vec<ReadRecord>)]
    pub rows: Vec<Box<RawValue>>,
    /// Records that failed.
    pub failed: Vec<DryRunFailure>,
    /// Whether more came out than is answered (32 MiB), so that the trial ended there.
    pub truncated: bool,
}

/// A record that failed in a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DryRunFailure {
    /// Its partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// Why.
    pub reason: String,
}

impl ProcessorState {
    /// The word as it is sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Failed => "failed",
        }
    }
}
