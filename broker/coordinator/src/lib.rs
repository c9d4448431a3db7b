//! The coordinators as state machines: groups (members, assignments and committed offsets) of one partition of
//! `__consumer_offsets`, and transactions of one partition of `__transaction_state`. Events in, effects out, time is an
//! argument.
//!
//! Not here: I/O, waiting, reading of records, and which assignor a name means at this moment (the engine's).

mod classic;
mod coordinator;
mod group;
mod offsets;
mod producers;
mod records;
mod terms;
mod timers;
mod tracked;
mod transactions;

pub use classic::{
    ClassicAnswer, ClassicCaller, ClassicCommit, ClassicError, ClassicJoin, ClassicJoined, ClassicPeer,
    ClassicProtocol, ClassicReply,
};
pub use coordinator::Coordinator;
pub use offsets::{MarkerError, OffsetsMarker, PendingError, TransactionalAppend};
pub use terms::{
    AssignTask, AssignmentEpoch, AssignorFallback, CommitAnswer, Committed, CoordinatorOptions, CoordinatorRecord,
    DeleteError, Generation, GroupState, GroupSummary, GroupView, Holding, JoinError, MemberCommit, MemberError,
    MemberState, MemberSummary, MemberView, NewMember, Now, Refusal, StandaloneError, Start, Step, TopicInfo,
    TopicsView,
};
pub use transactions::{
    AddError, BeginError, BodyDigest, EndError, ExecuteError, Executing, HandleError, InitError, Outcome, Participants,
    Producer, Progress, TransactionCoordinator, TransactionCounts, TransactionError, TransactionHandle,
    TransactionOptions, TransactionState, TransactionStep, TransactionView, WriteMarkers,
};
