//! Joining a classic group, and joining it again.

use std::collections::BTreeSet;

use bytes::Bytes;
use levada_model::{InstanceId, MemberId, limits};

use super::{Phase, answer_join, assert_bounded};
use crate::classic::{ClassicError, ClassicJoin};
use crate::group::membership::cut_client;
use crate::group::{Context, Group, Timer};
use crate::records::{ClassicMemberRecord, ClassicTerms};

impl Group {
    /// A member joins, or joins again; the answer may come with a later step.
    pub(crate) fn classic_join(&mut self, ctx: &mut Context<'_>, join: ClassicJoin) {
        let token = join.token;
        if let Err(error) = self.try_classic_join(ctx, join) {
            answer_join(ctx, token, Err(error));
        }
    }

    fn try_classic_join(&mut self, ctx: &mut Context<'_>, join: ClassicJoin) -> Result<(), ClassicError> {
        self.check_protocols(&join)?;
        if let Some(member) = &join.member_id {
            self.classic_known(member, join.instance_id.as_ref())?;
            let member = member.clone();
            self.join_again(ctx, member, join);
            return Ok(());
        }
        let before = join.instance_id.as_ref().and_then(|instance| self.classic.instances.get(instance)).cloned();
        if let Some((before, instance)) = before.zip(join.instance_id.clone()) {
            self.classic_take_over(ctx, &before, instance, join);
            return Ok(());
        }
        if self.classic.members.len() >= limits::GROUP_MEMBERS_MAX {
            return Err(ClassicError::GroupFull { limit: limits::GROUP_MEMBERS_MAX });
        }
        let first = self.classic.members.is_empty();
        let id = join.new_id.clone();
        let terms = ClassicTerms { protocol_type: join.protocol_type.clone(), protocol: None, leader: None };
        self.put_classic(ctx, &id, &join, Bytes::new());
        self.classic.joins.insert(id.clone(), join.token);
        self.classic_watch(&id);
        if first {
            self.head.empty_since = None;
            self.head.classic = Some(terms);
            self.timers.set(&Timer::Expiry, None);
            self.gather(ctx);
        } else {
            self.prepare_if_not_yet(ctx);
        }
        Ok(())
    }

    /// No members of the other kind, and a protocol that all speak.
    fn check_protocols(&self, join: &ClassicJoin) -> Result<(), ClassicError> {
        let of_this_kind = self.members.is_empty() && !join.protocols.is_empty() && !join.protocol_type.is_empty();
        let same_type = self
            .head
            .classic
            .as_ref()
            .is_none_or(|terms| terms.protocol_type.is_empty() || terms.protocol_type == join.protocol_type);
        let replaces = |id: &MemberId, member: &ClassicMemberRecord| {
            join.member_id.as_ref() == Some(id)
                || (join.instance_id.is_some() && join.instance_id == member.instance_id)
        };
        let others = self.classic.members.iter().filter(|(id, member)| !replaces(id, member));
        let others: Vec<_> = others.map(|(_, member)| member).collect();
        let spoken =
            join.protocols.iter().any(|protocol| others.iter().all(|member| member.metadata(&protocol.name).is_some()));
        let named_once = join.protocols.iter().map(|protocol| &protocol.name).collect::<BTreeSet<_>>().len();
        if of_this_kind && same_type && spoken && named_once == join.protocols.len() {
            Ok(())
        } else {
            Err(ClassicError::InconsistentProtocol)
        }
    }

    /// A member joins again under its id.
    fn join_again(&mut self, ctx: &mut Context<'_>, id: MemberId, join: ClassicJoin) {
        let old = self.classic.members.get(&id).expect("just checked").clone();
        let changed = old.protocols != join.protocols;
        self.put_classic(ctx, &id, &join, old.assignment);
        let heard_already = match self.classic.phase {
            Phase::Gathering | Phase::Preparing => false,
            // It lost the answer.
            Phase::Completing => !changed,
            // The leader joins again when it wants another assignment.
            Phase::Stable => !changed && !self.is_classic_leader(&id),
        };
        if heard_already {
            let joined = self.classic_joined(&id, self.classic.phase == Phase::Completing);
            return answer_join(ctx, join.token, Ok(joined));
        }
        self.wait_to_join(ctx, id, join.token);
    }

    /// A member takes the place of the one that had its instance id. With the same words in a group that has its
    /// assignments nothing has changed for the others.
    fn classic_take_over(
        &mut self,
        ctx: &mut Context<'_>,
        before: &MemberId,
        instance_id: InstanceId,
        join: ClassicJoin,
    ) {
        let led = self.is_classic_leader(before);
        let old = self.classic_drop(ctx, before, &ClassicError::FencedInstance { instance_id });
        let old = old.expect("an instance id belongs to a member");
        let id = join.new_id.clone();
        let same = old.protocols == join.protocols;
        self.put_classic(ctx, &id, &join, old.assignment);
        if let Some(terms) = self.head.classic.as_mut().filter(|_| led) {
            terms.leader = Some(id.clone());
        }
        if self.classic.phase == Phase::Stable && same {
            let joined = self.classic_joined(&id, false);
            return answer_join(ctx, join.token, Ok(joined));
        }
        self.wait_to_join(ctx, id, join.token);
    }

    fn wait_to_join(&mut self, ctx: &mut Context<'_>, id: MemberId, token: u64) {
        if let Some(older) = self.classic.joins.insert(id.clone(), token) {
            // It asked again on another connection.
            answer_join(ctx, older, Err(ClassicError::RebalanceInProgress));
        }
        self.classic_watch(&id);
        self.prepare_if_not_yet(ctx);
    }

    fn put_classic(&mut self, ctx: &Context<'_>, id: &MemberId, join: &ClassicJoin, assignment: Bytes) {
        let record = ClassicMemberRecord {
            instance_id: join.instance_id.clone(),
            client: cut_client(join.client.clone()),
            session_timeout_ms: join.session_timeout_ms,
            rebalance_timeout_ms: join.rebalance_timeout_ms,
            protocols: join.protocols.clone(),
            assignment,
        };
        assert_bounded(&record);
        if let Some(instance) = &record.instance_id {
            self.classic.instances.insert(instance.clone(), id.clone());
        }
        if self.classic.members.get(id) != Some(&record) {
            self.classic.members.insert(id.clone(), record);
        }
        self.classic_alive(ctx, id);
    }
}
