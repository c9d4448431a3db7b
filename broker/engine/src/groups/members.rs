//! What members ask of their group: join, heartbeat, commit, leave.

use std::collections::BTreeSet;
use std::sync::Arc;

use levada_coordinator::{
    AssignmentEpoch, Holding, JoinError, MemberCommit, MemberError, MemberView, NewMember, Now, Step,
};
use levada_extension::TopicPartition;
use levada_model::{
    GroupName, MemberId, Offset, Operation, PartitionIndex, Principal, Resource, Tick, Timestamp, TopicName,
};
use uuid::Uuid;

use super::assignors;
use super::kind::{GroupCoordinator, GroupKind};
use super::own::refuse_internal;
use super::terms::{CommitWhat, GroupCommitted, GroupCursor, GroupError, GroupPosition, JoinGroup, Membership};
use crate::Engine;
use crate::catalog::Topic;
use crate::engine::Core;

impl Engine {
    /// Joins a group as a new member; never waits for others.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn join_group(
        &self,
        who: &Principal,
        group: &GroupName,
        join: JoinGroup,
    ) -> Result<Membership, GroupError> {
        self.core.authorize(who, Operation::Read, Resource::Group(group))?;
        refuse_internal(group)?;
        for topic in &join.topics {
            self.core.authorize(who, Operation::Read, Resource::Topic(topic))?;
        }
        // Nothing is written for a group that cannot be.
        self.core.refuse_unknown(&join.topics)?;
        // No module that it asks for goes away, or becomes another, between the question and its membership.
        let _settled = loop {
            let asked = assignors::check(&self.core.modules, &join.assignor).await?;
            let Some(asked) = asked else { break None };
            let settled = self.core.modules.joins.read().await;
            if self.core.modules.are_meant(&[asked]) {
                break Some(settled);
            }
        };
        let topic = self.core.ensure_coordinators::<GroupKind>().await?;
        let topics = join.topics.clone();
        let member = NewMember {
            member_id: MemberId::new(&Uuid::new_v4().simple().to_string()).expect("32 digits keep the rule"),
            instance_id: join.instance_id,
            client: join.client,
            topics: join.topics,
            assignor: join.assignor.vote().into_owned().into(),
            session_timeout_ms: join.session_timeout_ms,
            rebalance_timeout_ms: join.rebalance_timeout_ms,
            max_poll_interval_ms: join.max_poll_interval_ms,
            start: join.start,
        };
        let coordinator = self.core.groups.coordinator_in(&topic, group);
        let joined =
            coordinator.step(|machine, now, topics| timed(now, machine.join(now, topics, group, member))).await?;
        match joined {
            (now, Ok(view)) => Ok(membership(view, now)),
            (_, Err(JoinError::UnknownTopics(places))) => {
                Err(GroupError::UnknownTopics(places.into_iter().map(|place| (place, topics[place].clone())).collect()))
            }
            (_, Err(JoinError::SubscriptionsFull { limit_bytes })) => {
                Err(GroupError::SubscriptionsFull { limit_bytes })
            }
            (_, Err(JoinError::InconsistentProtocol)) => Err(GroupError::InconsistentProtocol),
            (_, Err(JoinError::GroupFull { limit })) => Err(GroupError::GroupFull { limit }),
        }
    }

    /// Says that the member lives.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn heartbeat(
        &self,
        who: &Principal,
        group: &GroupName,
        member: &MemberId,
    ) -> Result<Membership, GroupError> {
        self.core.authorize(who, Operation::Read, Resource::Group(group))?;
        let coordinator = self.core.coordinator_of_member(group, member)?;
        let (now, view) = coordinator.step(|machine, now, _| timed(now, machine.heartbeat(now, group, member))).await?;
        Ok(membership(view.map_err(member_error)?, now))
    }

    /// Commits offsets of partitions that the member holds, durably. Positions beyond a partition's end are
    /// [`GroupError::Offsets`], each at its place in the cursor or list, and nothing is committed then.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn commit_member(
        &self,
        who: &Principal,
        group: &GroupName,
        member: &MemberId,
        what: CommitWhat,
    ) -> Result<GroupCommitted, GroupError> {
        self.core.authorize(who, Operation::Read, Resource::Group(group))?;
        let places = match what {
            CommitWhat::Cursor(cursor) if cursor.group != *group => return Err(GroupError::OtherGroup),
            CommitWhat::Cursor(cursor) => self.core.places_of_cursor(cursor),
            CommitWhat::Offsets(offsets) => self.core.places_of_offsets(offsets),
        };
        let faults: Vec<_> = (0..).zip(&places).filter_map(|(i, place)| Some((i, place.fault.clone()?))).collect();
        if !faults.is_empty() {
            // Whoever is no member learns of that first.
            self.core.holdings(group, member).await?;
            return Err(GroupError::Offsets(faults));
        }
        let commits = places.iter().filter_map(|place| place.verdict.clone().ok()).collect();
        let coordinator = self.core.coordinator_of_member(group, member)?;
        let judged = coordinator.step(|machine, now, _| machine.commit(now, group, member, commits)).await?;
        let mut judged = judged.map_err(member_error)?.into_iter();
        let mut answer = GroupCommitted::default();
        for Place { topic, partition, verdict, .. } in places {
            let verdict = verdict.and_then(|_| {
                let judged = judged.next().expect("one judgement a commit");
                judged.map_err(|refusal| refusal.to_string())
            });
            match verdict {
                Ok(committed) => answer.committed.push((topic, partition, committed.offset)),
                Err(reason) => answer.refused.push((topic, partition, reason)),
            }
        }
        if answer.committed.is_empty() && !answer.refused.is_empty() {
            return Err(GroupError::IllegalGeneration(answer));
        }
        Ok(answer)
    }

    /// Leaves the group; what the member held goes to others at once.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn leave_group(&self, who: &Principal, group: &GroupName, member: &MemberId) -> Result<(), GroupError> {
        self.core.authorize(who, Operation::Read, Resource::Group(group))?;
        let coordinator = self.core.coordinator_of_member(group, member)?;
        let left = coordinator.step(|machine, now, _| machine.leave(now, group, member)).await?;
        left.map_err(member_error)
    }
}

/// Partitions by the names of their topics.
type Names = Vec<(TopicName, PartitionIndex)>;

/// One partition of a commit.
struct Place {
    topic: TopicName,
    partition: PartitionIndex,
    /// What the coordinator is to judge, or why it is refused already.
    verdict: Result<MemberCommit, String>,
    /// What is wrong with it, whoever commits it.
    fault: Option<String>,
}

impl Core {
    /// The coordinator that knows a member; without a topic nobody is one.
    pub(super) fn coordinator_of_member(
        self: &Arc<Self>,
        group: &GroupName,
        member: &MemberId,
    ) -> Result<GroupCoordinator, GroupError> {
        if self.is_closing() {
            return Err(GroupError::Closing);
        }
        self.groups.coordinator(group).ok_or_else(|| GroupError::UnknownMember(member.clone()))
    }

    /// What a member holds. It lives; but it is told nothing, so what it has to give up stays untold.
    pub(super) async fn holdings(
        self: &Arc<Self>,
        group: &GroupName,
        member: &MemberId,
    ) -> Result<Vec<Holding>, GroupError> {
        let coordinator = self.coordinator_of_member(group, member)?;
        let step = coordinator.step(|machine, now, _| {
            let step = machine.commit(now, group, member, Vec::new());
            let holdings = machine.holdings(group, member).unwrap_or_default();
            step.map(|answer| answer.map(|_| holdings))
        });
        step.await?.map_err(member_error)
    }

    fn refuse_unknown(&self, topics: &[TopicName]) -> Result<(), GroupError> {
        let there = self.catalog.topics();
        let unknown = topics.iter().enumerate().filter(|(_, topic)| there.by_name(topic).is_none());
        let unknown: Vec<_> = unknown.map(|(place, topic)| (place, topic.clone())).collect();
        if unknown.is_empty() { Ok(()) } else { Err(GroupError::UnknownTopics(unknown)) }
    }

    fn places_of_cursor(&self, cursor: GroupCursor) -> Vec<Place> {
        let topics = self.catalog.topics();
        let place = |position: GroupPosition| {
            let Some(topic) = topics.by_id(position.topic) else {
                let topic = TopicName::new(&position.topic.to_string()).expect("an id keeps the rule for names");
                return refused_place(topic, position.partition, "the topic was deleted".to_owned());
            };
            self.place(topic, position.partition, position.next, Some(position.epoch))
        };
        cursor.positions.into_iter().map(place).collect()
    }

    fn places_of_offsets(&self, offsets: Vec<(TopicName, PartitionIndex, Offset)>) -> Vec<Place> {
        let topics = self.catalog.topics();
        let mut named = BTreeSet::new();
        let place = |(name, partition, offset): (TopicName, PartitionIndex, Offset)| {
            let mut place = match topics.by_name(&name) {
                Some(topic) => self.place(topic, partition, offset, None),
                None => refused_place(name.clone(), partition, format!("there is no topic {name}")),
            };
            if !named.insert((name, partition)) {
                place.fault = Some("the partition is named twice".to_owned());
            }
            place
        };
        offsets.into_iter().map(place).collect()
    }

    fn place(&self, topic: &Topic, index: PartitionIndex, offset: Offset, epoch: Option<AssignmentEpoch>) -> Place {
        let state = topic.state();
        let Some(partition) = state.partition(index) else {
            return refused_place(
                topic.name().clone(),
                index,
                format!("topic {} has no partition {index}", topic.name()),
            );
        };
        let end = partition.high_watermark();
        let commit = MemberCommit {
            partition: TopicPartition { topic: topic.id(), partition: index },
            offset,
            leader_epoch: partition.leader_epoch(),
            epoch,
        };
        Place {
            topic: topic.name().clone(),
            partition: index,
            verdict: Ok(commit),
            fault: (offset > end).then(|| format!("offset {offset} is beyond the end {end}")),
        }
    }
}

/// What every answer to a member carries.
pub(super) fn membership(view: MemberView, now: Now) -> Membership {
    let (assignment, revoked) = split(view.holdings);
    let at = |deadline: Tick| {
        let left_ms = deadline.0.saturating_sub(now.tick.0);
        Timestamp(now.wall.0.saturating_add_unsigned(left_ms))
    };
    Membership {
        member_id: view.member_id,
        generation: view.generation.0,
        assignment,
        revoked,
        revoke_deadline: view.revoke_deadline.map(at),
        state: view.state,
    }
}

/// What a member keeps and what it has to give up, each by topic and partition.
pub(super) fn split(holdings: Vec<Holding>) -> (Names, Names) {
    let (mut kept, mut revoked) = (Vec::new(), Vec::new());
    for Holding { topic, partition, revoked: is_revoked, .. } in holdings {
        let names = if is_revoked { &mut revoked } else { &mut kept };
        names.push((topic, partition.partition));
    }
    kept.sort();
    revoked.sort();
    (kept, revoked)
}

pub(super) fn member_error(error: MemberError) -> GroupError {
    match error {
        MemberError::UnknownMember(member) => GroupError::UnknownMember(member),
        MemberError::FencedInstance { instance_id } => GroupError::FencedInstance { instance_id },
    }
}

/// A step whose answer goes with the time at which it was taken.
pub(super) fn timed<T>(now: Now, step: Step<T>) -> Step<(Now, T)> {
    step.map(|answer| (now, answer))
}

fn refused_place(topic: TopicName, partition: PartitionIndex, reason: String) -> Place {
    Place { topic, partition, verdict: Err(reason), fault: None }
}
