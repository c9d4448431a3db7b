//! The group coordinator: members, assignments and committed offsets of the groups of one partition of
//! `__consumer_offsets`, as a state machine. Events in, effects out, time is an argument.
//!
//! Not here: I/O, waiting, reading of records, and which assignor a name means at this moment (the engine's).

mod classic;
mod coordinator;
mod group;
mod records;
mod terms;
mod timers;
mod tracked;

pub use classic::{
    ClassicAnswer, ClassicCaller, ClassicCommit, ClassicError, ClassicJoin, ClassicJoined, ClassicPeer,
    ClassicProtocol, ClassicReply,
};
pub use coordinator::Coordinator;
pub use terms::{
    AssignTask, AssignmentEpoch, AssignorFallback, CommitAnswer, Committed, CoordinatorOptions, CoordinatorRecord,
    DeleteError, Generation, GroupState, GroupSummary, GroupView, Holding, JoinError, MemberCommit, MemberError,
    MemberState, MemberSummary, MemberView, NewMember, Now, Refusal, StandaloneError, Start, Step, TopicInfo,
    TopicsView,
};
