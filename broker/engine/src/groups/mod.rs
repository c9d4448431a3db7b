//! Consumer groups: the coordinators of `levada_coordinator` with their log, clock and topics, and what members and
//! operators ask of them.
//!
//! Not here: the rules of groups (the coordinator's), and what a cursor looks like as text (the server's).

mod assignors;
mod coordinators;
mod dead_letters;
mod fetch;
mod loading;
mod members;
mod offsets_topic;
mod operators;
mod progress;
mod rejected;
mod slot;
mod standalone;
mod standing;
mod terms;
mod ticker;
mod watches;

pub(crate) use coordinators::Groups;
pub(crate) use offsets_topic::bring_up_to_date;
pub use terms::{
    AssignorName, CommitWhat, CommittedOffset, GroupCommitted, GroupCursor, GroupDescription, GroupError, GroupFetch,
    GroupFetched, GroupMember, GroupOffset, GroupOptions, GroupPart, GroupPosition, JoinGroup, Membership,
    OffsetCommit, OffsetReset, RejectRecords, ResetCause,
};
pub(crate) use ticker::start as start_ticker;
