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
mod pipeline;
mod plan;
mod positions;
mod progress;
mod registry;
mod runner;
mod task;
mod terms;

pub use terms::{
    Guarantee, OnError, ProcessorDryRun, ProcessorError, ProcessorInfo, ProcessorReset, ProcessorSpec, ProcessorState,
    ProcessorStep, ProcessorTask, SourceSpec, Then,
};

pub(crate) use registry::{Processors, start};
