//! How modules fare: their logs, their statistics, and what all of them use.

use std::collections::BTreeMap;
use std::time::Duration;

use levada_model::Timestamp;

/// How much a line of a module's log matters, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// For the module's author.
    Debug,
    /// Worth knowing; standard output.
    Info,
    /// Worth a look; standard error.
    Warn,
    /// Something is wrong.
    Error,
}

/// A line of a module's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Counts from 0 and never repeats while the host runs.
    pub number: u64,
    /// When it was written.
    pub time: Timestamp,
    /// How much it matters.
    pub level: LogLevel,
    /// At most `MODULE_LOG_LINE_BYTES_MAX` bytes; what was longer is cut.
    pub message: String,
}

/// A part of a module's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// In order.
    pub lines: Vec<LogLine>,
    /// From where to go on.
    pub next: u64,
    /// Lines so far that nobody can read: a call wrote too many, or newer ones took their place.
    pub dropped: u64,
}

/// What a module did since it was loaded, in all its instances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleStats {
    /// Calls, also those that failed.
    pub calls: u64,
    /// Records (keys, members' partitions) given to it.
    pub records: u64,
    /// CPU time of its calls, and of setting its instances up.
    pub cpu: Duration,
    /// CPU time of a call that 99 of 100 do not exceed, to one digit or two.
    pub call_p99: Duration,
    /// Most memory that one instance held, tables included.
    pub memory_peak_bytes: u64,
    /// Calls and first steps of instances in which it trapped or wanted too much memory.
    pub traps: u64,
    /// Calls and first steps of instances that took too long.
    pub deadlines: u64,
    /// Answers that were refused.
    pub refused_answers: u64,
    /// Calls of partitioner and assignor without a usable answer, for each of which the native twin answers.
    pub fallbacks: u64,
    /// Instances set up.
    pub instances: u64,
    /// Instructions, where they are counted: in a dry run. What the host is asked to do costs some too.
    pub instructions: Option<u64>,
    /// The module's own counters.
    pub counters: BTreeMap<String, u64>,
    /// Counts that found no place among them.
    pub counters_dropped: u64,
}

/// What all modules of a host use now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostUsage {
    /// Instances alive.
    pub instances: u64,
    /// Memory that they hold.
    pub memory_bytes: u64,
    /// Memory that they may hold.
    pub memory_bytes_max: u64,
    /// Jobs that run.
    pub running: u64,
    /// Jobs that wait.
    pub waiting: u64,
}
