//! Which member of a consumer group reads which partition.
//!
//! Not here: generations, revocation and time. The coordinator turns an assignment into reality, step by step.

mod board;
mod check;
mod range;
mod round_robin;
mod sticky;

use std::sync::Arc;

use levada_model::{InstanceId, MemberId, PartitionIndex, TopicId, TopicName};
use thiserror::Error;

pub use check::{AssignmentError, check_assignment, read_assignment};
pub use range::RangeAssignor;
pub use round_robin::RoundRobinAssignor;
pub use sticky::{CooperativeStickyAssignor, StickyAssignor};

/// Shares the partitions of topics out to the members of a group.
///
/// Duties: every partition of a topic that some member subscribes to is in exactly one list, that of a member which
/// subscribes to it, and nothing else is in any list; equal inputs have equal answers; the call returns promptly, since
/// the group waits. What members say they own may be wrong in every way. Whoever asks checks the answer with
/// [`check_assignment`] and falls back to [`CooperativeStickyAssignor`].
pub trait Assignor: Send + Sync {
    /// The name that members ask for it by.
    fn name(&self) -> &str;

    /// The assignment.
    ///
    /// # Errors
    /// When there is no answer: a module trapped, or took too long. The native ones always answer.
    fn assign(&self, input: &AssignorInput) -> Result<Assignment, AssignorFault>;
}

/// Partitions by member, in the order of the input's members. An empty list: the member is idle.
pub type Assignment = Vec<Vec<TopicPartition>>;

/// Why an assignor gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct AssignorFault {
    /// For people.
    pub reason: String,
}

/// A partition of a topic, as an assignor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// Its topic.
    pub topic: TopicId,
    /// Its number there.
    pub partition: PartitionIndex,
}

/// What is to be assigned, and to whom. [`new`](Self::new) puts everything into the order that the built-in assignors
/// take for given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssignorInput {
    /// Static members by instance id, then the others by member id: a static one keeps its place over restarts.
    pub members: Vec<AssignorMember>,
    /// Those that a member subscribes to and that exist, by name.
    pub topics: Vec<AssignorTopic>,
}

/// A member of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignorMember {
    /// Its id.
    pub member_id: MemberId,
    /// Its identity over restarts, if it has one.
    pub instance_id: Option<InstanceId>,
    /// Topics that it reads; ids that the input does not list count for nothing.
    pub subscribed: Vec<TopicId>,
    /// What it says it owns.
    pub owned: Vec<TopicPartition>,
}

/// A topic that a member subscribes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignorTopic {
    /// Its identity.
    pub topic: TopicId,
    /// Its name.
    pub name: TopicName,
    /// In order of number, retiring ones included while they hold records.
    pub partitions: Vec<AssignorPartition>,
}

/// A partition of a topic that a member subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignorPartition {
    /// Its number.
    pub partition: PartitionIndex,
    /// Records between the group's committed offset and the end, where that is known. The built-in assignors take no
    /// notice.
    pub lag: Option<u64>,
}

impl AssignorInput {
    /// An input in order.
    #[must_use]
    pub fn new(mut members: Vec<AssignorMember>, mut topics: Vec<AssignorTopic>) -> Self {
        members.sort_by(|a, b| a.rank().cmp(&b.rank()));
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        for topic in &mut topics {
            topic.partitions.sort_by_key(|partition| partition.partition);
        }
        Self { members, topics }
    }
}

impl AssignorMember {
    fn rank(&self) -> (bool, Option<&InstanceId>, &MemberId) {
        (self.instance_id.is_none(), self.instance_id.as_ref(), &self.member_id)
    }
}

/// The names of the built-in assignors, as [`native_assignor`] takes them.
pub const NATIVE_ASSIGNORS: [&str; 4] =
    [range::NAME, round_robin::NAME, sticky::STICKY_NAME, sticky::COOPERATIVE_STICKY_NAME];

/// The built-in assignor of this name, if there is one.
#[must_use]
pub fn native_assignor(name: &str) -> Option<Arc<dyn Assignor>> {
    match name {
        range::NAME => Some(Arc::new(RangeAssignor)),
        round_robin::NAME => Some(Arc::new(RoundRobinAssignor)),
        sticky::STICKY_NAME => Some(Arc::new(StickyAssignor)),
        sticky::COOPERATIVE_STICKY_NAME => Some(Arc::new(CooperativeStickyAssignor)),
        _ => None,
    }
}
