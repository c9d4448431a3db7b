//! The registry of modules: names, versions by digest, their bytes on disk, what uses them; and modules on the record's way
//! (partitioner, validator, filter).
//!
//! Not here: how a module runs (the host behind `levada_extension::ModuleHost`).

mod blobs;
mod calls;
mod changes;
mod dry_run;
mod extension;
mod group_trial;
mod judging;
mod registry;
mod terms;
mod turns;
mod uses;

pub use terms::{
    DryRun, DryRunInput, DryRunMember, DryRunOutput, DryRunRecord, DryRunReport, DryRunSide, DryRunTopic, ModuleError,
    ModuleInfo, ModuleUse, ModuleVersionInfo, PutModule, RecordFilter,
};

pub(crate) use changes::CheckedModules;
pub(crate) use extension::{Extension, Made, run};
pub(crate) use judging::{Front, judge, judge_front};
pub(crate) use registry::{Modules, start};
pub(crate) use turns::Turn;
pub(crate) use uses::{PARTITIONER, VALIDATOR, module_uses, topic_modules};
