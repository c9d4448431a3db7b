//! Committed offsets of consumer groups: records in the internal topic `__consumer_offsets`, and the view of them.

mod key;
mod members;
mod terms;
mod value;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_extension::murmur2;
use levada_log::{BatchBuilder, NewBatch, SequenceCheck};
use levada_model::{
    GroupName, Offset, Operation, PartitionIndex, Principal, Record, Resource, Timestamp, TopicName, limits,
};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::catalog::Topic;
use crate::engine::Core;
use crate::fetch::Reading;
use crate::partition::{NewAppend, Partition};
use crate::produce::landing;
use crate::{AppendFault, CreateTopic, Engine, Isolation, TopicError};
pub use terms::{
    AssignorName, CommitWhat, CommittedOffset, GroupCommitted, GroupCursor, GroupDescription, GroupError, GroupFetch,
    GroupFetched, GroupMember, GroupOffset, GroupOptions, GroupPart, GroupPosition, GroupSummary, JoinGroup,
    Membership, OffsetCommit, OffsetReset, RejectRecords, ResetCause, UnknownAssignor,
};

use key::OffsetKey;
use value::OffsetValue;
use view::View;

/// The views of the partitions of `__consumer_offsets`, each loaded when it is first asked for.
pub(crate) struct Groups(Vec<OnceCell<View>>);

impl Default for Groups {
    fn default() -> Self {
        Self((0..limits::CONSUMER_OFFSETS_PARTITIONS).map(|_| OnceCell::new()).collect())
    }
}

impl Engine {
    /// Offsets that a group has committed, by topic and partition; those of deleted topics are left out.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn group_offsets(&self, who: &Principal, group: &GroupName) -> Result<Vec<CommittedOffset>, GroupError> {
        self.core.authorize(who, Operation::Read, Resource::Group(group))?;
        let not_found = || GroupError::NotFound(group.clone());
        let topic = self.core.catalog.get(&offsets_topic()).ok_or_else(not_found)?;
        let view = self.core.view(&topic, group).await?;
        let offsets = view.group(group).ok_or_else(not_found)?;
        let topics = self.core.catalog.topics();
        let mut committed: Vec<_> = offsets
            .into_iter()
            .filter_map(|(id, index, value)| {
                let topic = topics.by_id(id)?;
                let partition = topic.state().partition(index)?.clone();
                Some(stands(topic.name().clone(), &partition, value.offset, value.committed_at))
            })
            .collect();
        committed.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        Ok(committed)
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
        self.core.authorize(who, Operation::Write, Resource::Group(group))?;
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
        if !dry_run && !commits.is_empty() {
            let (core, group) = (self.core.clone(), group.clone());
            // On a task of its own, so that the view learns of what the log took though the request is gone.
            let commit = tokio::spawn(async move { core.commit(group, commits, now).await });
            match commit.await.map_err(tokio::task::JoinError::try_into_panic) {
                Ok(committed) => committed?,
                Err(Ok(panic)) => std::panic::resume_unwind(panic),
                // Nobody aborts it, so the runtime ends, and this future with it.
                Err(Err(_)) => std::future::pending().await,
            }
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

    /// Appends the commits to the group's partition and, once they are durable, shows them in the view.
    async fn commit(
        self: &Arc<Self>,
        group: GroupName,
        commits: Vec<Commit>,
        now: Timestamp,
    ) -> Result<(), GroupError> {
        let topic = self.offsets_topic().await?;
        let view = self.view(&topic, &group).await?;
        let mut builder = BatchBuilder::new(NewBatch::default(), 0);
        let mut entries = Vec::with_capacity(commits.len());
        for commit in commits {
            let key = OffsetKey { group: group.clone(), topic: commit.topic.id(), partition: commit.partition.index() };
            let value = OffsetValue {
                offset: commit.offset,
                leader_epoch: commit.partition.leader_epoch(),
                committed_at: now,
                metadata: String::new(),
            };
            builder.push(now, &Record { key: Some(key.encode()), value: Some(value.encode()), headers: Vec::new() });
            entries.push((key, value));
        }
        let batch = builder.finish().expect("compressing nothing does not fail");
        let append = NewAppend { batches: vec![batch], check: SequenceCheck::Producer, expected_offset: None };
        let partition = partition_of(&topic, &group);
        let answer = partition.push(append).map_err(|fault| refused(&fault))?;
        let landed = landing(answer).await.map_err(|fault| refused(&fault))?;
        for (i, (key, value)) in (0..).zip(entries) {
            view.put(landed.base_offset.advance(i), key, Some(value));
        }
        Ok(())
    }

    /// The view of the group's partition, loaded if it is not yet.
    async fn view(&self, topic: &Topic, group: &GroupName) -> Result<&View, GroupError> {
        let partition = partition_of(topic, group);
        let view = self.groups.0[partition.index().0 as usize].get_or_try_init(|| View::load(&partition));
        view.await.map_err(GroupError::Storage)
    }

    /// The topic of committed offsets, created by the first commit.
    async fn offsets_topic(self: &Arc<Self>) -> Result<Arc<Topic>, GroupError> {
        // Its records are kept for ever until topics are compacted.
        let config = BTreeMap::from([("retention.ms".to_owned(), json!(-1))]);
        let new = CreateTopic { name: offsets_topic(), partitions: limits::CONSUMER_OFFSETS_PARTITIONS, config };
        self.ensure_topic(new).await.map_err(|error| match error {
            TopicError::Closing => GroupError::Closing,
            TopicError::OutOfFiles => GroupError::Overloaded,
            // A topic without a commit says nothing of any group.
            TopicError::Fenced { reason, .. } => GroupError::Fenced { reason, possible: false },
            other => unreachable!("the broker's own topic is valid and never deleted: {other}"),
        })
    }
}

fn offsets_topic() -> TopicName {
    TopicName::new("__consumer_offsets").expect("the name keeps the rule")
}

/// The partition of `__consumer_offsets` that a group belongs to.
fn partition_of(topic: &Topic, group: &GroupName) -> Arc<Partition> {
    let hash = murmur2(group.as_str().as_bytes()) & 0x7fff_ffff;
    let index = PartitionIndex(hash % limits::CONSUMER_OFFSETS_PARTITIONS);
    topic.state().partition(index).expect("the topic's partitions are never changed").clone()
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

fn refused(fault: &AppendFault) -> GroupError {
    match fault {
        AppendFault::Closing => GroupError::Closing,
        AppendFault::Overloaded(_) | AppendFault::OutOfFiles(_) => GroupError::Overloaded,
        AppendFault::Fenced { reason, possible } => GroupError::Fenced { reason: reason.clone(), possible: *possible },
        AppendFault::Refused(_) | AppendFault::TopicDeleted | AppendFault::Retiring(_) => {
            unreachable!("a commit has no sequence, and its topic's partitions are never changed: {fault}")
        }
    }
}
