//! The registry of modules: names, versions by digest, their bytes on disk, what uses them; and modules on the record's way
//! (partitioner, validator, filter).
//!
//! Not here: how a module runs (the host behind `levada_extension::ModuleHost`).

mod calls;
mod terms;

pub use terms::{
    DryRun, DryRunInput, DryRunOutput, DryRunRecord, DryRunReport, DryRunSide, ModuleError, ModuleInfo, ModuleUse,
    ModuleVersionInfo, PutModule, RecordFilter,
};
