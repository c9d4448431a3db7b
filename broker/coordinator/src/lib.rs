//! The group coordinator: members, assignments and committed offsets of the groups of one partition of
//! `__consumer_offsets`, as a state machine. Events in, effects out, time is an argument.
//!
//! Not here: I/O, waiting, reading of records, and which assignor a name means at this moment (the engine's).

mod coordinator;
mod group;
mod records;
mod terms;
mod timers;
mod tracked;

pub use coordinator::Coordinator;
pub use terms::{
    AssignTask, AssignmentEpoch, AssignorFallback, CommitAnswer, CommitError, Committed, CoordinatorOptions,
    CoordinatorRecord, DeleteError, Generation, GroupState, GroupSummary, GroupView, Holding, JoinError, Joined,
    MemberCommit, MemberError, MemberState, MemberSummary, MemberView, NewMember, Now, Refusal, StandaloneError, Start,
    Step, TopicInfo, TopicsView,
};
