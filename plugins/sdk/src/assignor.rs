//! Assignors: which member of a consumer group reads which partition.

use crate::{Fault, Module};

pub use crate::bindings::assignor::exports::levada::plugin::assignor::{
    Input as AssignorInput, Member, Partition, Topic, TopicPartition,
};

/// Shares the partitions of topics out to the members of a group.
pub trait Assignor: Module {
    /// The partitions of each member, in the order of `input.members`. Every partition of a topic that somebody subscribes
    /// to goes to exactly one member that subscribes to the topic. Equal inputs have equal answers.
    ///
    /// # Errors
    /// When there is no answer; the broker then assigns by itself.
    fn assign(&self, input: &AssignorInput) -> Result<Vec<Vec<TopicPartition>>, Fault>;
}
