//! The engine's words of groups as the interface's, and back.

use levada_api::{CommittedGroup, GroupHeartbeat, GroupPartition, GroupPlace, GroupState, MemberState, RefusedCommit};
use levada_engine::{GroupCommitted, Membership};
use levada_model::{Offset, PartitionIndex, TopicName};

pub(super) fn partitions(held: &[(TopicName, PartitionIndex)]) -> Vec<GroupPartition> {
    let partition = |(topic, partition): &(TopicName, PartitionIndex)| GroupPartition {
        topic: topic.to_string(),
        partition: partition.0,
    };
    held.iter().map(partition).collect()
}

pub(super) fn places(places: Vec<(TopicName, PartitionIndex, Offset)>) -> Vec<GroupPlace> {
    let place = |(topic, partition, offset): (TopicName, PartitionIndex, Offset)| GroupPlace {
        topic: topic.into(),
        partition: partition.0,
        offset: offset.0,
    };
    places.into_iter().map(place).collect()
}

/// What became of a commit.
pub(crate) fn committed(committed: GroupCommitted) -> CommittedGroup {
    CommittedGroup { committed: places(committed.committed), refused: refused(committed.refused) }
}

pub(super) fn refused(refused: Vec<(TopicName, PartitionIndex, String)>) -> Vec<RefusedCommit> {
    let refused_commit = |(topic, partition, reason): (TopicName, PartitionIndex, String)| RefusedCommit {
        topic: topic.into(),
        partition: partition.0,
        reason,
    };
    refused.into_iter().map(refused_commit).collect()
}

pub(crate) fn heartbeat(membership: &Membership) -> GroupHeartbeat {
    GroupHeartbeat {
        generation: membership.generation,
        assignment: partitions(&membership.assignment),
        revoked: partitions(&membership.revoked),
        revoke_deadline_ms: membership.revoke_deadline.map(|deadline| deadline.0),
        state: member_state(membership.state),
    }
}

pub(super) fn member_state(state: levada_engine::MemberState) -> MemberState {
    match state {
        levada_engine::MemberState::Assigning => MemberState::Assigning,
        levada_engine::MemberState::Reconciling => MemberState::Reconciling,
        levada_engine::MemberState::Stable => MemberState::Stable,
        levada_engine::MemberState::Idle => MemberState::Idle,
    }
}

pub(super) fn group_state(state: levada_engine::GroupState) -> GroupState {
    match state {
        levada_engine::GroupState::Empty => GroupState::Empty,
        levada_engine::GroupState::Assigning => GroupState::Assigning,
        levada_engine::GroupState::Reconciling => GroupState::Reconciling,
        levada_engine::GroupState::Stable => GroupState::Stable,
    }
}
