//! Groups as they are.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AssignorConfig, GroupPartition};

/// A page of groups, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupList {
    /// The groups.
    pub groups: Vec<GroupSummary>,
    /// Where the next page begins; null on the last.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// A group in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupSummary {
    /// Its name.
    pub group: String,
    /// How it stands.
    pub state: GroupState,
    /// How many members it has.
    pub members: usize,
}

/// How a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GroupState {
    /// Without members; its offsets are kept for a while.
    Empty,
    /// A new assignment is due.
    Assigning,
    /// Members give up and take over partitions.
    Reconciling,
    /// Every member holds what it shall.
    Stable,
}

impl GroupState {
    /// The word as it stands in an answer.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Assigning => "assigning",
            Self::Reconciling => "reconciling",
            Self::Stable => "stable",
        }
    }
}

/// How a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MemberState {
    /// A rebalance that includes it is due.
    Assigning,
    /// It has to give up, or waits for, partitions.
    Reconciling,
    /// It holds all that it shall.
    Stable,
    /// There is no partition for it: the group has more members than partitions.
    Idle,
}

impl MemberState {
    /// The word as it stands in an answer.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Assigning => "assigning",
            Self::Reconciling => "reconciling",
            Self::Stable => "stable",
            Self::Idle => "idle",
        }
    }
}

/// A group as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupDescription {
    /// Its name.
    pub group: String,
    /// How it stands.
    pub state: GroupState,
    /// Its generation.
    pub generation: u32,
    /// The assignor in use; null for a group that never had a member.
    #[schema(required = true)]
    pub assignor: Option<String>,
    /// The config that it was given; absent where it was given none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Object>)]
    pub assignor_config: Option<AssignorConfig>,
    /// Why the assignment in force comes from the built-in assignor and not from the one that was asked for; absent
    /// where that is not so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub fallback: Option<AssignorFallback>,
    /// Its members, by id.
    pub members: Vec<GroupMember>,
    /// What it has committed, by topic and partition.
    pub offsets: Vec<GroupLag>,
}

/// An assignor whose answer could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AssignorFallback {
    /// The generation.
    pub generation: u32,
    /// The assignor that was asked for.
    pub assignor: String,
    /// What was wrong.
    pub reason: String,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupMember {
    /// Its id.
    pub member_id: String,
    /// The identity that it keeps over restarts, if it has one.
    #[schema(required = true)]
    pub instance_id: Option<String>,
    /// Who it said that it is (`User-Agent`).
    pub client: String,
    /// What it reads.
    pub topics: Vec<String>,
    /// What it holds and keeps.
    pub assignment: Vec<GroupPartition>,
    /// What it has to give up.
    pub revoked: Vec<GroupPartition>,
    /// How it stands.
    pub state: MemberState,
}

/// Where a group stands in one partition, and how far behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupLag {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// The offset to read next.
    pub committed: u64,
    /// The end of the partition.
    pub high_watermark: u64,
    /// Offsets between `committed` and the last stable offset.
    pub lag: u64,
    /// Milliseconds since the time of the record to read next; 0 where there is none, null where it cannot be told.
    #[schema(required = true)]
    pub lag_ms: Option<u64>,
    /// When it was committed, in milliseconds since 1970.
    pub committed_at: i64,
}
