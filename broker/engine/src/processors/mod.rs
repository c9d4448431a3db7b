//! Processors: records of topics through steps into a topic, with their positions as committed offsets.
//!
//! Not here: windows and aggregates (they come later), how a module runs (the host).

mod calls;
mod terms;

pub use terms::{
    Guarantee, OnError, ProcessorDryRun, ProcessorError, ProcessorInfo, ProcessorReset, ProcessorSpec, ProcessorState,
    ProcessorStep, ProcessorTask, SourceSpec, Then,
};
