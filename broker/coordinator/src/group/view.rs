//! What is told of a group and of its members.

use std::sync::Arc;

use levada_extension::TopicPartition;
use levada_model::MemberId;

use super::Group;
use crate::records::{Hold, MemberRecord, OffsetRecord};
use crate::terms::{Committed, GroupState, GroupSummary, GroupView, Holding, MemberState, MemberSummary, MemberView};

impl Group {
    /// Whether there is more of it than marks of what has expired.
    pub(crate) fn is_shown(&self) -> bool {
        let has_members = self.active() > 0;
        has_members || self.offsets.is_empty() || !self.pending.is_empty() || self.committed().next().is_some()
    }

    pub(crate) fn summary(&self) -> GroupSummary {
        GroupSummary { group: self.name.clone(), state: self.state(), members: self.active() }
    }

    /// The assignors that members ask for.
    pub(crate) fn votes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.votes.keys()
    }

    pub(crate) fn describe(&self) -> GroupView {
        let summary = |(id, member): (&MemberId, &MemberRecord)| MemberSummary {
            view: self.view(id),
            instance_id: member.instance_id.clone(),
            client: member.client.clone(),
            topics: member.topics.clone(),
        };
        GroupView {
            state: self.state(),
            generation: self.head.generation,
            assignor: self.head.assignor.clone(),
            fallback: self.head.fallback.clone(),
            members: self.members.iter().map(summary).chain(self.classic_summaries()).collect(),
            offsets: self.committed().map(|(partition, committed)| (*partition, committed.clone())).collect(),
        }
    }

    /// What a member is told of itself.
    pub(super) fn view(&self, member: &MemberId) -> MemberView {
        let record = self.members.get(member).expect("only members are told");
        MemberView {
            member_id: member.clone(),
            generation: self.head.generation,
            holdings: self.holdings(record),
            revoke_deadline: self.pulses[member].deadline(),
            state: self.member_state(record),
            start: record.start,
            sign_within_ms: record.session_timeout_ms.min(record.max_poll_interval_ms),
        }
    }

    /// The offsets that stand.
    pub(crate) fn committed(&self) -> impl Iterator<Item = (&TopicPartition, &Committed)> {
        self.offsets.iter().filter_map(|(partition, record)| Some((partition, record.committed()?)))
    }

    /// What a member holds.
    pub(crate) fn holdings_of(&self, member: &MemberId) -> Option<Vec<Holding>> {
        self.members.get(member).map(|record| self.holdings(record))
    }

    fn holdings(&self, member: &MemberRecord) -> Vec<Holding> {
        let mut holdings = Vec::new();
        for (partition, place) in &member.places {
            let Some(epoch) = place.hold.epoch() else { continue };
            let offset = self.offsets.get(partition);
            holdings.push(Holding {
                partition: *partition,
                topic: place.topic.clone(),
                epoch,
                revoked: matches!(place.hold, Hold::Revoking(_)),
                committed: offset.and_then(OffsetRecord::committed).map(|committed| committed.offset),
                expired: matches!(offset, Some(OffsetRecord::Expired(_))),
                undecided: self.pending.has(*partition),
            });
        }
        holdings.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        holdings
    }

    fn member_state(&self, member: &MemberRecord) -> MemberState {
        let settled = |hold| matches!(hold, Hold::Owned(_));
        if self.head.rebalance_due {
            MemberState::Assigning
        } else if member.places.is_empty() {
            MemberState::Idle
        } else if member.places.values().all(|place| settled(place.hold)) {
            MemberState::Stable
        } else {
            MemberState::Reconciling
        }
    }

    fn state(&self) -> GroupState {
        if self.active() == 0 {
            GroupState::Empty
        } else if self.members.is_empty() {
            self.classic_state()
        } else if self.head.rebalance_due {
            GroupState::Assigning
        } else if self.revoking > 0 || !self.heirs.is_empty() {
            GroupState::Reconciling
        } else {
            GroupState::Stable
        }
    }
}
