//! Processors: records of topics through steps into a topic, with their positions as committed offsets.
//!
//! Not here: windows and aggregates (they come later), how a module runs (the host).

mod calls;
mod checking;
mod dry_run;
mod halt;
mod input;
mod ledger;
mod letters;
mod parts;
mod pipeline;
mod plan;
mod positions;
mod progress;
mod registry;
mod runner;
mod task;
mod terms;
mod trouble;

pub use terms::{
    FailedRecord, Guarantee, OnError, ProcessorDryRun, ProcessorError, ProcessorInfo, ProcessorReset, ProcessorSpec,
    ProcessorState, ProcessorStep, ProcessorTask, ProcessorWaiting, SourceSpec, Then,
};

pub(crate) use registry::{Processors, start};
