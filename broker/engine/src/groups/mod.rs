//! Consumer groups: their coordinators with clock and topics, and what members and operators ask of them.
//!
//! Not here: the rules of groups (`levada_coordinator`'s), how a coordinator lives in its log (`coordinators`), and what a
//! cursor looks like as text (the server's).

mod assignors;
mod dead_letters;
mod fetch;
mod kind;
mod members;
mod operators;
mod own;
mod pending;
mod rejected;
mod standalone;
mod standing;
mod terms;

pub(crate) use assignors::AssignorVote;
pub(crate) use kind::{GroupKind, Groups};
pub(crate) use pending::{EndOffsetsError, PendingOffsets};
pub(crate) use rejected::Origin;
pub use terms::{
    AssignorName, CommitWhat, CommittedOffset, GroupCommitted, GroupCursor, GroupDescription, GroupError, GroupFetch,
    GroupFetched, GroupMember, GroupOffset, GroupOptions, GroupPart, GroupPosition, JoinGroup, Membership,
    OffsetCommit, OffsetReset, RejectRecords, ResetCause,
};
