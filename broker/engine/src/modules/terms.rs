//! What the calls on modules take and give, and why they are refused.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use levada_extension::{
    LogLine, ModuleConfigError, ModuleDigest, ModuleFault, ModuleRefusal, ModuleWorld, Transform, Verdict,
};
use levada_log::StorageError;
use levada_model::{
    Denied, GroupName, InstanceId, MemberId, ModuleName, ModuleRef, PartitionIndex, Principal, ProcessorName, Record,
    Timestamp, TopicName,
};
use serde_json::Value;
use thiserror::Error;

use super::turns::Turns;
use super::{Extension, Modules};
use crate::{FetchError, From};

/// A module of the registry.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleInfo {
    /// Its name.
    pub name: ModuleName,
    /// Who put its first version.
    pub owner: Principal,
    /// The version that its name alone means.
    pub active_version: u32,
    /// By number.
    pub versions: Vec<ModuleVersionInfo>,
    /// Who uses it, whichever version.
    pub used_by: Vec<ModuleUse>,
}

/// One version of a module.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleVersionInfo {
    /// Its number, from 1.
    pub version: u32,
    /// Of its bytes.
    pub digest: ModuleDigest,
    /// Of its bytes.
    pub size_bytes: u64,
    /// What it can be.
    pub worlds: Vec<ModuleWorld>,
    /// A JSON Schema of its config; none accepts every config.
    pub config_schema: Option<Value>,
    /// When it was put.
    pub created_at: Timestamp,
}

/// A use of a module, which keeps it from being deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModuleUse {
    /// A topic's `partitioner`.
    Partitioner(TopicName),
    /// A topic's `validator`.
    Validator(TopicName),
    /// A step of a processor.
    Processor(ProcessorName),
    /// The assignor of members of a group.
    Assignor(GroupName),
}

/// What became of an upload.
#[derive(Clone, Debug, PartialEq)]
pub struct PutModule {
    /// The module as it is now.
    pub module: ModuleInfo,
    /// The version that has these bytes.
    pub version: u32,
    /// Whether it is new.
    pub created: bool,
}

/// A filter of a read: a transform with its config. It follows the active version where the reference names none.
#[derive(Clone)]
pub struct RecordFilter {
    /// Which module.
    pub module: ModuleRef,
    pub(crate) extension: Arc<Extension<dyn Transform>>,
    pub(crate) modules: Arc<Modules>,
    pub(crate) turns: Turns,
}

impl fmt::Debug for RecordFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordFilter").field("module", &self.module).finish_non_exhaustive()
    }
}

/// A trial of a version on records, without any effect.
#[derive(Clone, Debug)]
pub struct DryRun {
    /// Which world is tried.
    pub world: ModuleWorld,
    /// Which version; none: the active one.
    pub version: Option<u32>,
    /// Its config as JSON text.
    pub config: String,
    /// On what.
    pub input: DryRunInput,
    /// A version to compare with.
    pub compare_with: Option<u32>,
    /// Partitions, for a partitioner; none: those of the topic, or 12.
    pub partition_count: Option<u32>,
}

/// What a trial is given.
#[derive(Clone, Debug)]
pub enum DryRunInput {
    /// These records.
    Records(Vec<(Timestamp, Record)>),
    /// Stored records.
    Topic {
        /// Of which topic.
        topic: TopicName,
        /// From where, in each partition.
        from: From,
        /// Most records.
        max_records: usize,
    },
    /// A group, for an assignor.
    Group {
        /// Its members, each once.
        members: Vec<DryRunMember>,
        /// The topics that they read, each once.
        topics: Vec<DryRunTopic>,
    },
}

/// A member that an assignor is tried with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRunMember {
    /// Its id.
    pub member_id: MemberId,
    /// Its identity over restarts, if it has one.
    pub instance_id: Option<InstanceId>,
    /// What it reads; none: all topics.
    pub topics: Option<Vec<TopicName>>,
    /// What it says it owns.
    pub owned: Vec<(TopicName, PartitionIndex)>,
}

/// A topic that an assignor is tried with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRunTopic {
    /// Its name.
    pub topic: TopicName,
    /// How many partitions it has.
    pub partitions: u32,
    /// What is left to read of each, as far as it is known.
    pub lags: Vec<u64>,
}

/// What a trial gave.
#[derive(Clone, Debug)]
pub struct DryRunReport {
    /// How many records, or members, were given.
    pub inputs: usize,
    /// The records that were given, in the order of the outputs.
    pub records: Vec<DryRunRecord>,
    /// The version that was tried.
    pub tried: DryRunSide,
    /// The version that it was compared with.
    pub compared: Option<DryRunSide>,
    /// Places of records, or members, for which both differ.
    pub differences: Vec<usize>,
}

/// A record that a trial was given.
#[derive(Clone, Debug, PartialEq)]
pub struct DryRunRecord {
    /// Its place in the log, if it is stored.
    pub place: Option<(levada_model::PartitionIndex, levada_model::Offset)>,
    /// Its time.
    pub timestamp: Timestamp,
    /// The record.
    pub record: Record,
}

/// What one version did in a trial.
#[derive(Clone, Debug)]
pub struct DryRunSide {
    /// Which version.
    pub version: u32,
    /// What it answered; an error is the fault of the first part that could not be answered.
    pub output: Result<DryRunOutput, ModuleFault>,
    /// What it logged.
    pub logs: Vec<LogLine>,
    /// Instructions; the same every time.
    pub instructions: u64,
    /// Most memory of an instance.
    pub memory_peak_bytes: u64,
    /// Time it took here.
    pub elapsed: Duration,
}

/// What a module answered in a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum DryRunOutput {
    /// Of a transform: one for each record.
    Verdicts(Vec<Verdict>),
    /// Of an assignor: the partitions of each member.
    Assignment(Vec<Vec<(TopicName, PartitionIndex)>>),
    /// Of a partitioner.
    Partitions(Vec<levada_model::PartitionIndex>),
    /// Of an aggregator: the value of all the records with one key, by key.
    Values(Vec<(Option<bytes::Bytes>, Option<bytes::Bytes>)>),
}

/// Why a call on modules was refused; nothing was changed, if nothing else is said.
#[derive(Debug, Error)]
pub enum ModuleError {
    /// Not allowed.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// There is no such module.
    #[error("there is no module {0}")]
    NotFound(ModuleName),
    /// The module has no such version.
    #[error("module {name} has no version {version}")]
    NoVersion {
        /// The module.
        name: ModuleName,
        /// The version.
        version: u32,
    },
    /// It is no usable module.
    #[error("this is no usable module: {0}")]
    Invalid(ModuleRefusal),
    /// The config, or the world, is not one of the module's.
    #[error("module {module}: {error}")]
    Config {
        /// Which module.
        module: ModuleRef,
        /// What is wrong.
        error: ModuleConfigError,
    },
    /// It is in use.
    #[error("module {name} is in use")]
    InUse {
        /// Which.
        name: ModuleName,
        /// By whom.
        by: Vec<ModuleUse>,
    },
    /// Its bytes are more than a module may have.
    #[error("a module has at most {limit} bytes")]
    TooLarge {
        /// The cap.
        limit: usize,
    },
    /// A config is longer than one may be.
    #[error("a config has at most {limit} bytes")]
    ConfigTooLong {
        /// The cap.
        limit: usize,
    },
    /// Versions or modules beyond a cap.
    #[error("{what}: at most {limit}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The cap.
        limit: u64,
    },
    /// A trial asks for what cannot be tried.
    #[error("{0}")]
    DryRun(String),
    /// The records of a trial cannot be read.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The host has no room now; try again.
    #[error("{0}")]
    Busy(String),
    /// This broker runs no modules.
    #[error("this broker runs no modules")]
    NoHost,
    /// The engine is closing.
    #[error("the engine is closing")]
    Closing,
    /// The disk fails.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The metadata takes no changes.
    #[error("modules cannot be changed now: {reason}")]
    Fenced {
        /// What happened.
        reason: String,
        /// Whether the change may hold all the same.
        possible: bool,
    },
}
