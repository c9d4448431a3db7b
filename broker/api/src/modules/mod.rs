//! Modules on the wire: what is told of one, its log and numbers, trials, and the contract that they are written against.
//!
//! Not here: a module's bytes, which are a body of their own.

mod dry_run;
mod fare;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use dry_run::{
    DryRunDifference, DryRunGroup, DryRunMember, DryRunModule, DryRunOutput, DryRunSide, DryRunTopic, DryRunVerdict,
    ModuleDryRun, VerdictWord,
};
pub use fare::{ModuleLog, ModuleLogLevel, ModuleLogLine, ModuleStats};

/// What a module can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorldWord {
    /// It places records that name no partition.
    Partitioner,
    /// It shares partitions out to the members of a group.
    Assignor,
    /// It judges records: as a filter, a validator or a step.
    Transform,
    /// It folds records of groups.
    Aggregator,
}

/// What became of an upload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PutModule {
    /// The module.
    pub name: String,
    /// The version that has these bytes.
    pub version: u32,
    /// `sha256:` and 64 hex digits, of the bytes.
    pub digest: String,
    /// What it can be.
    pub worlds: Vec<WorldWord>,
    /// A JSON Schema of its config; null accepts every config.
    #[schema(required = true, value_type = Option<Object>)]
    pub config_schema: Option<Value>,
    /// Of the bytes.
    pub size_bytes: u64,
    /// The version that the module's name alone means.
    pub active_version: u32,
}

/// A page of modules, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModuleList {
    /// The modules.
    pub modules: Vec<Module>,
    /// `cursor` of the next page; null on the last.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// A module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Module {
    /// Its name.
    pub name: String,
    /// Who put its first version.
    pub owner: String,
    /// The version that its name alone means.
    pub active_version: u32,
    /// All versions, by number.
    pub versions: Vec<ModuleVersion>,
    /// Who uses it, whichever version.
    pub used_by: Vec<ModuleUse>,
}

/// One version of a module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModuleVersion {
    /// Its number, from 1.
    pub version: u32,
    /// `sha256:` and 64 hex digits, of the bytes.
    pub digest: String,
    /// What it can be.
    pub worlds: Vec<WorldWord>,
    /// A JSON Schema of its config; null accepts every config.
    #[schema(required = true, value_type = Option<Object>)]
    pub config_schema: Option<Value>,
    /// Of the bytes.
    pub size_bytes: u64,
    /// When it was put, in milliseconds since 1970.
    pub created_at: i64,
}

/// A use of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModuleUse {
    /// As what.
    pub kind: ModuleUseKind,
    /// The topic, processor or group.
    pub name: String,
}

/// As what a module is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModuleUseKind {
    /// A topic's `partitioner`.
    Partitioner,
    /// A topic's `validator`.
    Validator,
    /// A step of a processor.
    Processor,
    /// The assignor that members of a group ask for.
    Assignor,
}

/// The contract between broker and modules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WitPackage {
    /// Name and version of the WIT package.
    pub package: String,
    /// Its files, the layouts of the bytes that cross, and test vectors for these.
    pub files: Vec<WitFile>,
}

/// A file of the contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WitFile {
    /// Its name.
    pub name: String,
    /// Where it is served alone.
    pub path: String,
    /// All of it.
    pub text: String,
}

impl WorldWord {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Transform, Self::Partitioner, Self::Assignor, Self::Aggregator];

    /// The word as it is sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Partitioner => "partitioner",
            Self::Assignor => "assignor",
            Self::Transform => "transform",
            Self::Aggregator => "aggregator",
        }
    }
}

impl ModuleUseKind {
    /// The word as it is sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Partitioner => "partitioner",
            Self::Validator => "validator",
            Self::Processor => "processor",
            Self::Assignor => "assignor",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_that_serde_writes() {
        for world in WorldWord::ALL {
            assert_eq!(serde_json::to_value(world).expect("a word"), world.as_str());
        }
        for kind in
            [ModuleUseKind::Partitioner, ModuleUseKind::Validator, ModuleUseKind::Processor, ModuleUseKind::Assignor]
        {
            assert_eq!(serde_json::to_value(kind).expect("a word"), kind.as_str());
        }
    }
}
