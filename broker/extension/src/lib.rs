//! The extension points of the broker as traits, each with its native implementation, the checks of every answer, and
//! one conformance suite that all implementations run, and the layouts in which calls cross to a module. No I/O and no
//! WebAssembly: the module host implements these traits elsewhere.

mod aggregator;
mod assignor;
mod call;
pub mod conformance;
mod fields;
mod json;
mod layout;
mod module;
mod partitioner;
mod transform;

pub use aggregator::{Aggregator, Group, GroupWindow, Groups, NativeAggregator};
pub use assignor::{
    Assignment, AssignmentError, Assignor, AssignorFault, AssignorInput, AssignorMember, AssignorPartition,
    AssignorTopic, CooperativeStickyAssignor, NATIVE_ASSIGNORS, RangeAssignor, RoundRobinAssignor, StickyAssignor,
    TopicPartition, check_assignment, native_assignor, read_assignment,
};
pub use call::{
    CallBatch, CallHeader, CallRecord, CallRecords, CallSection, MalformedRecord, ModuleFault, Moment, StopCause,
};
pub use fields::Fields;
pub use json::{JsonPointer, JsonPointerError};
pub use layout::{
    AnswerError, AnswerLimits, JsonFormError, KeyRecord, Keys, LAYOUT_VERSION, check_verdicts, decode_accumulators,
    decode_json_verdicts, decode_values, decode_verdicts, encode_json,
};
pub use module::{
    HostUsage, LogLevel, LogLine, LogPage, ModuleBusy, ModuleConfigError, ModuleDescription, ModuleDigest,
    ModuleDigestError, ModuleHost, ModuleJob, ModuleRefusal, ModuleStats, ModuleVersion, ModuleWorld,
};
pub use partitioner::{Murmur2, PartitionFault, Partitioner, check_partitions, murmur2};
pub use transform::{
    EmittedRecord, JsonFilter, JsonTest, OutputRoom, Part, Transform, Verdict, Verdicts, check_outputs,
};
