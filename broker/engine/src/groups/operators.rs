//! Groups as an operator sees them: list, describe, delete.

use std::collections::BTreeSet;
use std::sync::Arc;

use levada_coordinator::{AssignorFallback, DeleteError, GroupSummary, GroupView, MemberSummary};
use levada_model::{GroupName, Operation, Principal, Resource, TopicId, TopicName};
use tokio::task::JoinSet;

use super::own::refuse_internal;
use super::terms::{AssignorName, CommittedOffset, GroupDescription, GroupError, GroupMember, GroupOffset};
use crate::catalog::Topic;
use crate::engine::Core;
use crate::fetch::{FetchError, Reading};
use crate::heavy::{Work, compute};
use crate::partition::Partition;
use crate::{Engine, Isolation};

/// Partitions whose lag in time is looked up at once.
const LAG_READS_MAX: usize = 16;

impl Engine {
    /// All groups that `who` may see, by name.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn list_groups(&self, who: &Principal) -> Result<Vec<GroupSummary>, GroupError> {
        if self.core.is_closing() {
            return Err(GroupError::Closing);
        }
        self.core.groups.load_all();
        let mut groups = Vec::new();
        for coordinator in self.core.groups.all() {
            groups.extend(coordinator.look(|machine| machine.groups()).await?);
        }
        groups.retain(|summary| self.core.authorize(who, Operation::Describe, Resource::Group(&summary.group)).is_ok());
        groups.sort_by(|a, b| a.group.cmp(&b.group));
        Ok(groups)
    }

    /// A group as it is.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn describe_group(&self, who: &Principal, group: &GroupName) -> Result<GroupDescription, GroupError> {
        self.core.authorize(who, Operation::Describe, Resource::Group(group))?;
        if self.core.is_closing() {
            return Err(GroupError::Closing);
        }
        let not_found = || GroupError::NotFound(group.clone());
        let coordinator = self.core.groups.coordinator(group).ok_or_else(not_found)?;
        let view = coordinator.look(|machine| machine.group(group)).await?.ok_or_else(not_found)?;
        let GroupView { state, generation, assignor, fallback, members, offsets, .. } = view;
        let (assignor, assignor_config) = assignor.as_deref().map(AssignorName::of_vote).unzip();
        let fallback = fallback.map(|fallback| AssignorFallback {
            assignor: AssignorName::of_vote(&fallback.assignor).0.into(),
            ..fallback
        });
        Ok(GroupDescription {
            group: group.clone(),
            state,
            generation: generation.0,
            assignor: assignor.map(Arc::from),
            assignor_config: assignor_config.flatten().map(Arc::from),
            fallback,
            members: members.into_iter().map(member).collect(),
            offsets: self.core.with_lags(self.core.stand(offsets)).await,
        })
    }

    /// The topics that a group reads, by name: those of its members, or where it has none, those that it has committed
    /// offsets for.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn group_topics(&self, who: &Principal, group: &GroupName) -> Result<Vec<TopicName>, GroupError> {
        self.core.authorize(who, Operation::Describe, Resource::Group(group))?;
        if self.core.is_closing() {
            return Err(GroupError::Closing);
        }
        let not_found = || GroupError::NotFound(group.clone());
        let coordinator = self.core.groups.coordinator(group).ok_or_else(not_found)?;
        let view = coordinator.look(|machine| machine.group(group)).await?.ok_or_else(not_found)?;
        let mut names: BTreeSet<TopicName> = view.members.into_iter().flat_map(|member| member.topics).collect();
        if names.is_empty() {
            let ids: BTreeSet<TopicId> = view.offsets.into_iter().map(|(at, _)| at.topic).collect();
            let topics = self.core.catalog.topics();
            names = ids.into_iter().filter_map(|id| Some(topics.by_id(id)?.name().clone())).collect();
        }
        Ok(names.into_iter().collect())
    }

    /// Deletes a group without members, with its offsets.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn delete_group(&self, who: &Principal, group: &GroupName) -> Result<(), GroupError> {
        self.core.authorize(who, Operation::Delete, Resource::Group(group))?;
        refuse_internal(group)?;
        self.core.delete_group(group).await
    }
}

impl Core {
    /// Deletes a group, also one of the broker's own.
    pub(crate) async fn delete_group(self: &Arc<Self>, group: &GroupName) -> Result<(), GroupError> {
        if self.is_closing() {
            return Err(GroupError::Closing);
        }
        let coordinator = self.groups.coordinator(group).ok_or_else(|| GroupError::NotFound(group.clone()))?;
        let deleted = coordinator.step(|machine, now, _| machine.delete(now, group)).await?;
        deleted.map_err(|error| match error {
            DeleteError::NotFound => GroupError::NotFound(group.clone()),
            DeleteError::Active(members) => GroupError::Active(members),
        })
    }

    /// Adds how far back in time each offset is: one small read each, a few at once.
    async fn with_lags(
        self: &Arc<Self>,
        offsets: Vec<(CommittedOffset, Arc<Topic>, Arc<Partition>)>,
    ) -> Vec<GroupOffset> {
        let mut found = vec![Some(0); offsets.len()];
        let mut behind = offsets.iter().enumerate().filter(|(_, (offset, ..))| offset.lag > 0);
        let mut reads = JoinSet::new();
        loop {
            while reads.len() < LAG_READS_MAX
                && let Some((place, (offset, topic, partition))) = behind.next()
            {
                let (core, offset) = (self.clone(), offset.clone());
                let (topic, partition) = (topic.clone(), partition.clone());
                reads.spawn(async move { (place, core.lag_ms(&offset, &topic, &partition).await) });
            }
            match reads.join_next().await {
                Some(Ok((place, lag_ms))) => found[place] = lag_ms,
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => break,
            }
        }
        offsets.into_iter().zip(found).map(|((offset, ..), lag_ms)| GroupOffset { offset, lag_ms }).collect()
    }

    /// How long ago the next record to read was produced; none if that cannot be told.
    async fn lag_ms(&self, offset: &CommittedOffset, topic: &Topic, partition: &Arc<Partition>) -> Option<u64> {
        let reading = Reading { core: self, topic, partition, isolation: Isolation::ReadCommitted };
        let mut from = offset.committed;
        loop {
            match reading.read(from, 1, 1).await {
                Err(FetchError::BelowStart { log_start_offset, .. }) => from = log_start_offset,
                Err(error) => {
                    tracing::debug!(topic = %topic.name(), partition = %partition.index(), %error, "no lag in time");
                    return None;
                }
                Ok(mut fetched) => {
                    let (next, bytes) = (fetched.next_offset, fetched.batches.iter().map(|b| b.bytes().len()).sum());
                    match compute(Work::Unpack, bytes, move || fetched.take_records().next()).await {
                        Some(record) => {
                            let since = self.directory.now().0.saturating_sub(record.ok()?.timestamp.0);
                            return Some(u64::try_from(since).unwrap_or(0));
                        }
                        None if next > from => from = next,
                        // All that is left are holes.
                        None => return Some(0),
                    }
                }
            }
        }
    }
}

fn member(summary: MemberSummary) -> GroupMember {
    let MemberSummary { view, instance_id, client, topics, .. } = summary;
    let (assignment, revoked) = super::members::split(view.holdings);
    GroupMember { member_id: view.member_id, instance_id, client, topics, assignment, revoked, state: view.state }
}
