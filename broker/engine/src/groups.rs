//! Committed offsets of consumer groups: records in the internal topic `__consumer_offsets`, and the view of them.

use levada_model::{Denied, GroupName, Offset, PartitionIndex, Principal, Timestamp, TopicName};
use thiserror::Error;

use crate::{Engine, From};

/// A commit of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionIndex,
    /// Next to read.
    pub offset: From,
}

/// A committed offset as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionIndex,
    /// Next to read.
    pub committed: Offset,
    /// The partition's high watermark.
    pub high_watermark: Offset,
    /// Last stable offset less committed (not below 0).
    pub lag: u64,
    /// When it was committed.
    pub committed_at: Timestamp,
}

/// Why a commit or a look-up was refused; nothing was committed.
#[derive(Debug, Error)]
pub enum GroupError {
    /// Not allowed.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The group has committed nothing.
    #[error("there is no group {0}")]
    NotFound(GroupName),
    /// Offsets were wrong, each at its place.
    #[error("{} of the offsets are wrong", .0.len())]
    Offsets(Vec<(usize, String)>),
    /// The offsets cannot be written now; whether they may be on the disk all the same.
    #[error("offsets cannot be committed now: {reason}")]
    Unavailable {
        /// What happened.
        reason: String,
        /// Whether the commit may hold all the same.
        possible: bool,
    },
    /// The group's partition of `__consumer_offsets` is being loaded; try again.
    #[error("the group's offsets are being loaded")]
    CoordinatorLoading,
}

impl Engine {
    /// Offsets that a group has committed, by topic and partition; those of deleted topics are left out.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn group_offsets(&self, who: &Principal, group: &GroupName) -> Result<Vec<CommittedOffset>, GroupError> {
        let _ = (who, group);
        todo!()
    }

    /// Commits offsets, durably, all in one batch; with `dry_run` only says what would be committed.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn commit_group_offsets(
        &self,
        who: &Principal,
        group: &GroupName,
        offsets: Vec<OffsetCommit>,
        dry_run: bool,
    ) -> Result<Vec<CommittedOffset>, GroupError> {
        let _ = (who, group, offsets, dry_run);
        todo!()
    }
}
