//! Processors on the wire: their documents, how they stand, resets and trials.

mod document;
mod standing;

pub use document::{
    DryRunProcessor, FilterStep, GuaranteeWord, OnError, ProcessorDocument, ProcessorSink, ProcessorSource,
    ProcessorStep, ProcessorTime, RecordWord, ThenWord, TransformStep,
};
pub use standing::{
    DryRunFailure, Processor, ProcessorDryRun, ProcessorFailure, ProcessorList, ProcessorReset, ProcessorState,
    ProcessorTask, ResetProcessor, TaskWaiting,
};
