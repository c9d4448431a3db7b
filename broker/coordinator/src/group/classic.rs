//! Kafka's classic group protocol: members join, one of them (the leader) computes the assignment, and the coordinator
//! carries it to the others. What members say of themselves and what they are assigned is opaque here.
//!
//! A rebalance waits for every member to join again, for the longest of their rebalance time-outs (in an empty group for
//! the initial delay); who has not come by then is removed, but for static members, which only their session ends
//! (KIP-345). Then a generation begins: all joins are answered, the leader's with all members. Its sync brings the
//! assignments, and answers all syncs. A member whose request waits lives.
//!
//! Not here: KIP-394 (a member id must be asked for first), which needs no state, since ids are drawn by the caller.

mod join;
mod rounds;

use std::collections::BTreeMap;

use bytes::Bytes;
use levada_model::{InstanceId, MemberId, Tick, limits};

use super::{Context, Group, Timer};
use crate::classic::{ClassicAnswer, ClassicCaller, ClassicCommit, ClassicError, ClassicJoined, ClassicReply};
use crate::records::{ClassicMemberRecord, OffsetRecord};
use crate::terms::{Committed, GroupState, MemberState, MemberSummary, MemberView, Start};
use crate::timers::after;
use crate::tracked::Tracked;

/// The classic members of a group; what they agreed on is in the group's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Classic {
    pub(super) members: Tracked<MemberId, ClassicMemberRecord>,
    phase: Phase,
    instances: BTreeMap<InstanceId, MemberId>,
    /// When each was last heard.
    seen: BTreeMap<MemberId, Tick>,
    /// Joins that wait for the others, with their tokens.
    joins: BTreeMap<MemberId, u64>,
    /// Syncs that wait for the leader's.
    syncs: BTreeMap<MemberId, u64>,
}

/// How far a rebalance is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// No members, or all have their assignments.
    #[default]
    Stable,
    /// Members of a group that was empty are awaited, however many there are.
    Gathering,
    /// Members are to join again.
    Preparing,
    /// The leader computes.
    Completing,
}

impl Group {
    /// The leader's assignments, or another member's wish to know its own.
    pub(crate) fn classic_sync(
        &mut self,
        ctx: &mut Context<'_>,
        token: u64,
        caller: &ClassicCaller,
        assignments: Vec<(MemberId, Bytes)>,
    ) {
        if let Err(error) = self.classic_check(caller) {
            return answer_sync(ctx, token, Err(error));
        }
        self.classic_alive(ctx, &caller.member_id);
        match self.classic.phase {
            Phase::Gathering | Phase::Preparing => answer_sync(ctx, token, Err(ClassicError::RebalanceInProgress)),
            Phase::Stable => {
                let member = self.classic.members.get(&caller.member_id).expect("just checked");
                answer_sync(ctx, token, Ok(member.assignment.clone()));
            }
            Phase::Completing => {
                if let Some(older) = self.classic.syncs.insert(caller.member_id.clone(), token) {
                    // It asked again on another connection.
                    answer_sync(ctx, older, Err(ClassicError::RebalanceInProgress));
                }
                self.classic_watch(&caller.member_id);
                if self.is_classic_leader(&caller.member_id) {
                    self.take_assignments(ctx, assignments);
                }
            }
        }
    }

    /// A classic member lives.
    pub(crate) fn classic_heartbeat(
        &mut self,
        ctx: &mut Context<'_>,
        caller: &ClassicCaller,
    ) -> Result<(), ClassicError> {
        self.classic_check(caller)?;
        self.classic_alive(ctx, &caller.member_id);
        match self.classic.phase {
            Phase::Gathering | Phase::Preparing => Err(ClassicError::RebalanceInProgress),
            Phase::Completing | Phase::Stable => Ok(()),
        }
    }

    /// A classic member leaves.
    pub(crate) fn classic_leave(
        &mut self,
        ctx: &mut Context<'_>,
        member: &MemberId,
        instance: Option<&InstanceId>,
    ) -> Result<(), ClassicError> {
        self.classic_known(member, instance)?;
        self.classic_remove(ctx, member);
        Ok(())
    }

    /// A classic member commits: all of it or nothing.
    pub(crate) fn classic_commit(
        &mut self,
        ctx: &mut Context<'_>,
        caller: &ClassicCaller,
        commits: Vec<ClassicCommit>,
    ) -> Result<(), ClassicError> {
        self.classic_check(caller)?;
        self.classic_alive(ctx, &caller.member_id);
        if self.classic.phase == Phase::Completing {
            return Err(ClassicError::RebalanceInProgress);
        }
        for commit in commits {
            let committed = Committed {
                offset: commit.offset,
                leader_epoch: commit.leader_epoch,
                committed_at: ctx.now.wall,
                metadata: commit.metadata,
            };
            self.offsets.insert(commit.partition, OffsetRecord::Committed(committed));
        }
        Ok(())
    }

    /// A classic member was silent for its session.
    pub(super) fn classic_member_due(&mut self, ctx: &mut Context<'_>, member: &MemberId) {
        self.classic_remove(ctx, member);
    }

    pub(super) fn classic_state(&self) -> GroupState {
        match self.classic.phase {
            Phase::Gathering | Phase::Preparing => GroupState::Assigning,
            Phase::Completing => GroupState::Reconciling,
            Phase::Stable => GroupState::Stable,
        }
    }

    /// The members, without what they are assigned, which is opaque.
    pub(super) fn classic_summaries(&self) -> impl Iterator<Item = MemberSummary> {
        let state = match self.classic.phase {
            Phase::Gathering | Phase::Preparing => MemberState::Assigning,
            Phase::Completing => MemberState::Reconciling,
            Phase::Stable => MemberState::Stable,
        };
        self.classic.members.iter().map(move |(id, member)| MemberSummary {
            view: MemberView {
                member_id: id.clone(),
                generation: self.head.generation,
                holdings: Vec::new(),
                revoke_deadline: None,
                state,
                start: Start::Earliest,
                session_timeout_ms: member.session_timeout_ms,
            },
            instance_id: member.instance_id.clone(),
            client: member.client.clone(),
            topics: Vec::new(),
        })
    }

    /// Takes the members up from their records.
    pub(super) fn classic_loaded(&mut self, ctx: &mut Context<'_>) {
        let members: Vec<_> = self.classic.members.iter().map(|(id, member)| (id.clone(), member.clone())).collect();
        for (id, member) in members {
            if let Some(instance) = member.instance_id {
                self.classic.instances.insert(instance, id.clone());
            }
            self.classic_alive(ctx, &id);
        }
        if self.head.classic.is_none() || self.head.rebalance_due {
            self.prepare(ctx);
        }
    }

    /// Both kinds of members, after damage: the classic ones go.
    pub(super) fn drop_classic_members(&mut self) {
        let ids: Vec<_> = self.classic.members.keys().cloned().collect();
        ids.iter().for_each(|id| drop(self.classic.members.remove(id)));
        self.head.classic = None;
    }

    /// Whether this member may speak as this instance.
    fn classic_known(&self, member: &MemberId, instance: Option<&InstanceId>) -> Result<(), ClassicError> {
        let current = instance.and_then(|instance| self.classic.instances.get(instance));
        if let (Some(instance), Some(current)) = (instance, current)
            && current != member
        {
            return Err(ClassicError::FencedInstance { instance_id: instance.clone() });
        }
        let known = self.classic.members.contains(member);
        if known { Ok(()) } else { Err(ClassicError::UnknownMember(member.clone())) }
    }

    fn classic_check(&self, caller: &ClassicCaller) -> Result<(), ClassicError> {
        self.classic_known(&caller.member_id, caller.instance_id.as_ref())?;
        let generation = self.head.generation;
        if caller.generation == generation { Ok(()) } else { Err(ClassicError::IllegalGeneration(generation)) }
    }

    fn is_classic_leader(&self, member: &MemberId) -> bool {
        self.head.classic.as_ref().is_some_and(|terms| terms.leader.as_ref() == Some(member))
    }

    /// Notes a sign of life.
    fn classic_alive(&mut self, ctx: &Context<'_>, member: &MemberId) {
        self.classic.seen.insert(member.clone(), ctx.now.tick);
        self.classic_watch(member);
    }

    /// Sets the time at which a member is removed if it stays silent; never while a request of it waits.
    fn classic_watch(&mut self, member: &MemberId) {
        let waits = self.classic.joins.contains_key(member) || self.classic.syncs.contains_key(member);
        let record = self.classic.members.get(member).expect("only members are watched");
        let end = after(self.classic.seen[member], record.session_timeout_ms);
        self.timers.set(&Timer::ClassicMember(member.clone()), (!waits).then_some(end));
    }

    fn classic_remove(&mut self, ctx: &mut Context<'_>, member: &MemberId) {
        self.classic_drop(ctx, member, &ClassicError::UnknownMember(member.clone()));
        if self.classic.members.is_empty() {
            self.classic_emptied(ctx);
            return;
        }
        match self.classic.phase {
            Phase::Stable | Phase::Completing => self.prepare(ctx),
            Phase::Gathering | Phase::Preparing => self.complete_if_all_joined(ctx),
        }
    }

    /// Takes a member out; requests of it that wait are refused.
    fn classic_drop(
        &mut self,
        ctx: &mut Context<'_>,
        member: &MemberId,
        why: &ClassicError,
    ) -> Option<ClassicMemberRecord> {
        if let Some(token) = self.classic.joins.remove(member) {
            answer_join(ctx, token, Err(why.clone()));
        }
        if let Some(token) = self.classic.syncs.remove(member) {
            answer_sync(ctx, token, Err(why.clone()));
        }
        self.timers.set(&Timer::ClassicMember(member.clone()), None);
        self.classic.seen.remove(member);
        let record = self.classic.members.remove(member)?;
        if let Some(instance) = &record.instance_id {
            self.classic.instances.remove(instance);
        }
        Some(record)
    }

    fn classic_emptied(&mut self, ctx: &mut Context<'_>) {
        self.classic.phase = Phase::Stable;
        self.head.classic = None;
        self.timers.set(&Timer::ClassicRound, None);
        self.emptied(ctx);
    }
}

fn answer_sync(ctx: &mut Context<'_>, token: u64, answer: Result<Bytes, ClassicError>) {
    ctx.replies.push(ClassicReply { token, answer: ClassicAnswer::Sync(answer) });
}

fn answer_join(ctx: &mut Context<'_>, token: u64, answer: Result<ClassicJoined, ClassicError>) {
    ctx.replies.push(ClassicReply { token, answer: ClassicAnswer::Join(answer) });
}

/// Whether a member's words keep within the caps, which the edge checks.
fn assert_bounded(record: &ClassicMemberRecord) {
    let metadata: usize = record.protocols.iter().map(|protocol| protocol.metadata.len()).sum();
    assert!(metadata <= limits::CLASSIC_METADATA_BYTES_MAX, "the edge bounds metadata");
}
