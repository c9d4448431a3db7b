//! The extension points of the broker as traits, each with its native implementation, the checks of every answer, and
//! one conformance suite that all implementations run. No I/O and no WebAssembly: the module host implements these
//! traits elsewhere.

mod assignor;
pub mod conformance;
mod partitioner;

pub use assignor::{
    Assignment, AssignmentError, Assignor, AssignorFault, AssignorInput, AssignorMember, AssignorPartition,
    AssignorTopic, CooperativeStickyAssignor, NATIVE_ASSIGNORS, RangeAssignor, RoundRobinAssignor, StickyAssignor,
    TopicPartition, check_assignment, native_assignor,
};
pub use partitioner::{Murmur2, PartitionFault, Partitioner, check_partitions, murmur2};
