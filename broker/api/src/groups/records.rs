//! What a member's fetch and heartbeat are answered. The records themselves are written by `record_out`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{GroupPartition, MemberState};
use crate::record_schema::{GapCause, GroupRecord};

/// Records of the partitions that a member holds.
#[derive(Debug, ToSchema)]
pub struct GroupRecords {
    /// The records, in order within each partition.
    pub records: Vec<GroupRecord>,
    /// Offsets skipped on the way; absent where there are none.
    #[schema(nullable = false)]
    pub gaps: Option<Vec<GroupGap>>,
    /// Partitions in which the member did not go on where it stood; absent where there are none.
    #[schema(nullable = false)]
    pub resets: Option<Vec<OffsetReset>>,
    /// Behind the records: for the next fetch, and to commit them by.
    pub cursor: String,
    /// The group's generation.
    pub generation: u32,
    /// What the member holds and keeps.
    pub assignment: Vec<GroupPartition>,
    /// What the member has to give up: its next fetch does so.
    pub revoked: Vec<GroupPartition>,
    /// When what is to be given up is taken from it, in milliseconds since 1970; null where there is none.
    #[schema(required = true)]
    pub revoke_deadline_ms: Option<i64>,
    /// How the member stands.
    pub state: MemberState,
}

/// How a member stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupHeartbeat {
    /// The group's generation.
    pub generation: u32,
    /// What the member holds and keeps.
    pub assignment: Vec<GroupPartition>,
    /// What the member has to give up: its next fetch does so.
    pub revoked: Vec<GroupPartition>,
    /// When what is to be given up is taken from it, in milliseconds since 1970; null where there is none.
    #[schema(required = true)]
    pub revoke_deadline_ms: Option<i64>,
    /// How the member stands.
    pub state: MemberState,
}

/// Offsets of a topic of the group that cannot be read any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupGap {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// First offset that is missing.
    pub from: u64,
    /// The offset after the last one that is missing.
    pub to: u64,
    /// Why.
    pub cause: GapCause,
}

/// A partition in which a member did not go on where it stood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OffsetReset {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// Where it goes on.
    pub offset: u64,
    /// Why.
    pub cause: ResetCause,
}

/// Why a member did not go on where it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResetCause {
    /// The group's commit has expired, so that the member's `start` was applied.
    Expired,
    /// The log start has passed its place; it goes on there.
    BelowStart,
    /// Its place was beyond the end, so that the member's `start` was applied.
    BeyondEnd,
}
