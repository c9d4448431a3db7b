//! Consumer groups on the wire: joining, reading, committing and rejecting as a member, and groups as a whole.
//!
//! Not here: how a cursor is written (the server's matter; to everybody else it is opaque text).

mod commit;
mod describe;
mod join;
mod offsets;
mod place;
mod records;
mod reject;

pub use commit::{CommitGroup, CommittedGroup, RefusedCommit};
pub use describe::{
    AssignorFallback, GroupDescription, GroupLag, GroupList, GroupMember, GroupState, GroupSummary, MemberState,
};
pub use join::{AssignorConfig, AssignorWord, JoinGroup, JoinedGroup};
pub use offsets::{GroupOffset, GroupOffsets, OffsetPlace, SetGroupOffset, SetGroupOffsets, SetGroupOffsetsResult};
pub use place::{GroupPartition, GroupPlace, GroupStart};
pub use records::{GroupGap, GroupHeartbeat, GroupRecords, OffsetReset, ResetCause};
pub use reject::{DeadLetters, RejectRecords};
