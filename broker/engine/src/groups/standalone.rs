//! Offsets of groups from outside of their members: an operator's look and reset, and consumers that only store their
//! offsets here.

use std::sync::Arc;

use levada_coordinator::Committed;
use levada_extension::TopicPartition;
use levada_model::{GroupName, Offset, Operation, Principal, Resource, Timestamp, TopicName};

use super::own::refuse_internal;
use super::terms::{CommittedOffset, GroupError, OffsetCommit};
use crate::catalog::Topic;
use crate::engine::Core;
use crate::fetch::Reading;
use crate::partition::Partition;
use crate::{Engine, Isolation};

impl Engine {
    /// Offsets that a group has committed, by topic and partition; those of deleted topics are left out.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn group_offsets(&self, who: &Principal, group: &GroupName) -> Result<Vec<CommittedOffset>, GroupError> {
        self.core.authorize(who, Operation::Read, Resource::Group(group))?;
        let not_found = || GroupError::NotFound(group.clone());
        let coordinator = self.core.groups.coordinator(group).ok_or_else(not_found)?;
        let committed = coordinator.look(|machine| machine.committed(group)).await?.ok_or_else(not_found)?;
        Ok(self.core.stand(committed).into_iter().map(|(offset, _, _)| offset).collect())
    }

    /// Commits offsets, durably, all in one batch; with `dry_run` only says what would be committed. Refused while the
    /// group has members.
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
        self.core.authorize(who, Operation::Write, Resource::Group(group))?;
        refuse_internal(group)?;
        for commit in &offsets {
            self.core.authorize(who, Operation::Read, Resource::Topic(&commit.topic))?;
        }
        let now = self.core.directory.now();
        let mut commits = Vec::with_capacity(offsets.len());
        let mut faults = Vec::new();
        for (place, commit) in offsets.into_iter().enumerate() {
            match self.core.judge(commit).await {
                Ok(commit) => commits.push(commit),
                Err(fault) => faults.push((place, fault)),
            }
        }
        if !faults.is_empty() {
            return Err(GroupError::Offsets(faults));
        }
        let answer =
            commits.iter().map(|c| stands(c.topic.name().clone(), &c.partition, c.offset, now)).collect::<Vec<_>>();
        if dry_run || commits.is_empty() {
            self.core.refuse_active(group).await?;
        } else {
            self.core.commit_standalone(group, commits, now).await?;
        }
        Ok(answer)
    }
}

/// A commit that may be done.
struct Commit {
    topic: Arc<Topic>,
    partition: Arc<Partition>,
    offset: Offset,
}

impl Core {
    /// Committed offsets as they stand, by topic and partition, each with where it is; those of deleted topics and
    /// dropped partitions are left out.
    pub(super) fn stand(
        &self,
        offsets: Vec<(TopicPartition, Committed)>,
    ) -> Vec<(CommittedOffset, Arc<Topic>, Arc<Partition>)> {
        let topics = self.catalog.topics();
        let place = |(at, committed): (TopicPartition, Committed)| {
            let topic = topics.by_id(at.topic)?;
            let partition = topic.state().partition(at.partition)?.clone();
            let offset = stands(topic.name().clone(), &partition, committed.offset, committed.committed_at);
            Some((offset, topic.clone(), partition))
        };
        let mut stand: Vec<_> = offsets.into_iter().filter_map(place).collect();
        stand.sort_by(|(a, ..), (b, ..)| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        stand
    }

    /// The offset that a commit means, if it may be done.
    async fn judge(&self, commit: OffsetCommit) -> Result<Commit, String> {
        let topic = self.catalog.get(&commit.topic).ok_or_else(|| format!("there is no topic {}", commit.topic))?;
        let partition = topic.state().partition(commit.partition).cloned();
        let partition =
            partition.ok_or_else(|| format!("topic {} has no partition {}", commit.topic, commit.partition))?;
        let reading = Reading { core: self, topic: &topic, partition: &partition, isolation: Isolation::ReadCommitted };
        let offset = reading.resolve(commit.offset).await.map_err(|error| error.to_string())?;
        let end = partition.high_watermark();
        if offset > end {
            return Err(format!("offset {offset} is beyond the end {end}"));
        }
        Ok(Commit { topic, partition, offset })
    }

    async fn refuse_active(self: &Arc<Self>, group: &GroupName) -> Result<(), GroupError> {
        let Some(coordinator) = self.groups.coordinator(group) else { return Ok(()) };
        let members = coordinator.look(|machine| machine.group(group).map_or(0, |view| view.members.len())).await?;
        if members > 0 { Err(GroupError::Active(members)) } else { Ok(()) }
    }

    async fn commit_standalone(
        self: &Arc<Self>,
        group: &GroupName,
        commits: Vec<Commit>,
        now: Timestamp,
    ) -> Result<(), GroupError> {
        let commit = |commit: Commit| {
            let at = TopicPartition { topic: commit.topic.id(), partition: commit.partition.index() };
            let committed = Committed {
                offset: commit.offset,
                leader_epoch: commit.partition.leader_epoch(),
                committed_at: now,
                metadata: String::new(),
            };
            (at, committed)
        };
        self.commit_own(group, commits.into_iter().map(commit).collect()).await
    }
}

fn stands(topic: TopicName, partition: &Partition, committed: Offset, committed_at: Timestamp) -> CommittedOffset {
    CommittedOffset {
        topic,
        partition: partition.index(),
        committed,
        high_watermark: partition.high_watermark(),
        lag: partition.last_stable_offset().0.saturating_sub(committed.0),
        committed_at,
    }
}
