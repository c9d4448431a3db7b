//! How a module fares: its log and its numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A part of the log of one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModuleLog {
    /// Of which version.
    pub version: u32,
    /// The lines, in order.
    pub lines: Vec<ModuleLogLine>,
    /// `from` of the lines behind these.
    pub next: u64,
    /// Lines so far that nobody can read: a call wrote too many, or newer ones took their place.
    pub dropped: u64,
}

/// A line of a module's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModuleLogLine {
    /// The version that wrote it.
    pub version: u32,
    /// Counts from 0, for as long as the broker runs.
    pub number: u64,
    /// When it was written, in milliseconds since 1970.
    pub timestamp: i64,
    /// How much it matters.
    pub level: ModuleLogLevel,
    /// What it says; what is longer than a KiB is cut.
    pub message: String,
}

/// How much a line of a module's log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModuleLogLevel {
    /// For the module's author.
    Debug,
    /// Worth knowing; standard output.
    Info,
    /// Worth a look; standard error.
    Warn,
    /// Something is wrong.
    Error,
}

impl ModuleLogLevel {
    /// The word as it is sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// What a version did since it was loaded, in all its instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModuleStats {
    /// Which version.
    pub version: u32,
    /// Calls, also those that failed.
    pub calls: u64,
    /// Records (keys, partitions of members) given to it.
    pub records: u64,
    /// CPU time of its calls, in microseconds.
    pub cpu_us: u64,
    /// CPU time that 99 of 100 calls do not exceed, in microseconds.
    pub call_p99_us: u64,
    /// Most memory that one instance held.
    pub memory_peak_bytes: u64,
    /// Calls in which it trapped or wanted too much memory.
    pub traps: u64,
    /// Calls that took too long.
    pub deadlines: u64,
    /// Answers that were refused.
    pub refused_answers: u64,
    /// Calls of partitioner and assignor without a usable answer, for each of which the broker's own answered.
    pub fallbacks: u64,
    /// Instances set up.
    pub instances: u64,
    /// The module's own counters.
    pub counters: BTreeMap<String, u64>,
    /// Counts that found no place among them.
    pub counters_dropped: u64,
}
