//! The rounds of a classic rebalance: gathering the members, beginning a generation, taking the leader's assignments.

use std::collections::BTreeMap;

use bytes::Bytes;
use levada_model::{MemberId, limits};

use super::{Phase, answer_join, answer_sync};
use crate::classic::{ClassicError, ClassicJoined, ClassicPeer};
use crate::group::{Context, Group, Timer};
use crate::records::ClassicMemberRecord;
use crate::terms::Generation;
use crate::timers::after;

impl Group {
    /// The first member is there: others may come within a moment.
    pub(super) fn gather(&mut self, ctx: &Context<'_>) {
        self.classic.phase = Phase::Gathering;
        self.head.rebalance_due = true;
        let at = after(ctx.now.tick, ctx.options.initial_rebalance_delay_ms);
        self.timers.set(&Timer::ClassicRound, Some(at));
    }

    /// Members are to join again; those that wait for the leader are told so.
    pub(super) fn prepare(&mut self, ctx: &mut Context<'_>) {
        self.classic.phase = Phase::Preparing;
        self.head.rebalance_due = true;
        for (member, token) in std::mem::take(&mut self.classic.syncs) {
            answer_sync(ctx, token, Err(ClassicError::RebalanceInProgress));
            self.classic_alive(ctx, &member);
        }
        self.start_round(ctx);
        self.complete_if_all_joined(ctx);
    }

    pub(super) fn prepare_if_not_yet(&mut self, ctx: &mut Context<'_>) {
        match self.classic.phase {
            Phase::Stable | Phase::Completing => self.prepare(ctx),
            Phase::Gathering | Phase::Preparing => self.complete_if_all_joined(ctx),
        }
    }

    pub(super) fn complete_if_all_joined(&mut self, ctx: &mut Context<'_>) {
        let all = self.classic.members.keys().all(|member| self.classic.joins.contains_key(member));
        if self.classic.phase == Phase::Preparing && all {
            self.begin_generation(ctx);
        }
    }

    /// The time of a round is over.
    pub(in crate::group) fn classic_round_due(&mut self, ctx: &mut Context<'_>) {
        let late = match self.classic.phase {
            Phase::Gathering | Phase::Preparing => self.late(&self.classic.joins),
            Phase::Completing => self.late(&self.classic.syncs),
            Phase::Stable => Vec::new(),
        };
        for member in late {
            self.classic_drop(ctx, &member, &ClassicError::UnknownMember(member.clone()));
        }
        if self.classic.members.is_empty() {
            self.classic_emptied(ctx);
        } else if self.classic.phase == Phase::Completing {
            // The leader or another member has not come for its assignment.
            self.prepare(ctx);
        } else if self.classic.joins.is_empty() {
            // Only static members, whose sessions go on: some of them may come yet.
            self.start_round(ctx);
        } else {
            self.begin_generation(ctx);
        }
    }

    /// What a member is told of the generation.
    pub(super) fn classic_joined(&self, member: &MemberId, compute: bool) -> ClassicJoined {
        let terms = self.head.classic.clone().unwrap_or_default();
        let (protocol, leader) = (terms.protocol.unwrap_or_default(), terms.leader);
        let peer = |(id, peer): (&MemberId, &ClassicMemberRecord)| ClassicPeer {
            member_id: id.clone(),
            instance_id: peer.instance_id.clone(),
            metadata: peer.metadata(&protocol).cloned().unwrap_or_default(),
        };
        let leads = compute && leader.as_ref() == Some(member);
        let members = if leads { self.classic.members.iter().map(peer).collect() } else { Vec::new() };
        let leader = leader.unwrap_or_else(|| member.clone());
        ClassicJoined { member_id: member.clone(), generation: self.head.generation, protocol, leader, members }
    }

    /// The leader's assignments are there; members that it forgot have an empty one.
    pub(super) fn take_assignments(&mut self, ctx: &mut Context<'_>, assignments: Vec<(MemberId, Bytes)>) {
        let mut assignments: BTreeMap<MemberId, Bytes> = assignments.into_iter().collect();
        let ids: Vec<_> = self.classic.members.keys().cloned().collect();
        for id in ids {
            let assignment = assignments.remove(&id).unwrap_or_default();
            assert!(assignment.len() <= limits::CLASSIC_METADATA_BYTES_MAX, "the edge bounds assignments");
            self.classic.members.get_mut(&id).expect("a member").assignment = assignment;
        }
        self.classic.phase = Phase::Stable;
        self.head.rebalance_due = false;
        self.timers.set(&Timer::ClassicRound, None);
        for (member, token) in std::mem::take(&mut self.classic.syncs) {
            let assignment = self.classic.members.get(&member).expect("only members wait").assignment.clone();
            answer_sync(ctx, token, Ok(assignment));
            self.classic_alive(ctx, &member);
        }
    }

    fn start_round(&mut self, ctx: &Context<'_>) {
        let longest = self.classic.members.iter().map(|(_, member)| member.rebalance_timeout_ms).max();
        let at = after(ctx.now.tick, longest.expect("the group has members"));
        self.timers.set(&Timer::ClassicRound, Some(at));
    }

    /// Members without a waiting request that are not static.
    fn late(&self, waiting: &BTreeMap<MemberId, u64>) -> Vec<MemberId> {
        let members = self.classic.members.iter();
        let late = members.filter(|(id, member)| member.instance_id.is_none() && !waiting.contains_key(*id));
        late.map(|(id, _)| id.clone()).collect()
    }

    /// All who are expected have joined.
    fn begin_generation(&mut self, ctx: &mut Context<'_>) {
        self.head.generation = Generation(self.head.generation.0 + 1);
        let protocol = self.choose_protocol();
        let joins = std::mem::take(&mut self.classic.joins);
        let terms = self.head.classic.get_or_insert_default();
        let leader = terms.leader.take().filter(|leader| joins.contains_key(leader));
        terms.leader = leader.or_else(|| joins.keys().next().cloned());
        terms.protocol = Some(protocol);
        self.classic.phase = Phase::Completing;
        self.start_round(ctx);
        for (member, token) in joins {
            let joined = self.classic_joined(&member, true);
            answer_join(ctx, token, Ok(joined));
            self.classic_alive(ctx, &member);
        }
    }

    /// Of the protocols that all speak, the one that most prefer; of several the first by name.
    fn choose_protocol(&self) -> String {
        let members: Vec<_> = self.classic.members.iter().map(|(_, member)| member).collect();
        let by_all = |name: &str| members.iter().all(|member| member.metadata(name).is_some());
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in &members {
            let preferred = member.protocols.iter().map(|protocol| protocol.name.as_str()).find(|name| by_all(name));
            *votes.entry(preferred.expect("every join leaves one that all speak")).or_default() += 1;
        }
        let most = votes.values().max().copied();
        let chosen = votes.iter().find(|(_, count)| Some(**count) == most).expect("the group has members");
        (*chosen.0).to_owned()
    }
}
