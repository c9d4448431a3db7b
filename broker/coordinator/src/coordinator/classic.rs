//! What members of the classic protocol say to their group.

use bytes::Bytes;
use levada_model::{GroupName, InstanceId, MemberId};

use super::Coordinator;
use crate::classic::{ClassicAnswer, ClassicCaller, ClassicCommit, ClassicError, ClassicJoin, ClassicReply};
use crate::group::{Context, Group};
use crate::terms::{Now, Step};

impl Coordinator {
    /// A classic member joins, or joins again. The answer comes among the `replies` of this step or of a later one.
    pub fn classic_join(&mut self, now: Now, group: &GroupName, join: ClassicJoin) -> Step<()> {
        self.groups.entry(group.clone()).or_insert_with(|| Group::new(group.clone()));
        self.at(now, group, |group, ctx| group.classic_join(ctx, join))
    }

    /// A classic member brings the assignments (the leader) or asks for its own. The answer comes among the `replies` of
    /// this step or of a later one.
    pub fn classic_sync(
        &mut self,
        now: Now,
        group: &GroupName,
        token: u64,
        caller: &ClassicCaller,
        assignments: Vec<(MemberId, Bytes)>,
    ) -> Step<()> {
        if self.groups.contains_key(group) {
            return self.at(now, group, |group, ctx| group.classic_sync(ctx, token, caller, assignments));
        }
        let unknown = ClassicError::UnknownMember(caller.member_id.clone());
        let reply = ClassicReply { token, answer: ClassicAnswer::Sync(Err(unknown)) };
        Step { replies: vec![reply], ..Step::empty(()) }
    }

    /// A classic member lives.
    ///
    /// # Errors
    /// See [`ClassicError`].
    pub fn classic_heartbeat(
        &mut self,
        now: Now,
        group: &GroupName,
        caller: &ClassicCaller,
    ) -> Step<Result<(), ClassicError>> {
        self.at_classic(now, group, &caller.member_id, |group, ctx| group.classic_heartbeat(ctx, caller))
    }

    /// A classic member leaves; an operator may name any.
    ///
    /// # Errors
    /// See [`ClassicError`].
    pub fn classic_leave(
        &mut self,
        now: Now,
        group: &GroupName,
        member: &MemberId,
        instance: Option<&InstanceId>,
    ) -> Step<Result<(), ClassicError>> {
        self.at_classic(now, group, member, |group, ctx| group.classic_leave(ctx, member, instance))
    }

    /// A classic member commits: all of it or nothing. The engine has checked that nothing is beyond its end.
    ///
    /// # Errors
    /// See [`ClassicError`].
    pub fn classic_commit(
        &mut self,
        now: Now,
        group: &GroupName,
        caller: &ClassicCaller,
        commits: Vec<ClassicCommit>,
    ) -> Step<Result<(), ClassicError>> {
        self.at_classic(now, group, &caller.member_id, |group, ctx| group.classic_commit(ctx, caller, commits))
    }

    fn at_classic(
        &mut self,
        now: Now,
        group: &GroupName,
        member: &MemberId,
        event: impl FnOnce(&mut Group, &mut Context<'_>) -> Result<(), ClassicError>,
    ) -> Step<Result<(), ClassicError>> {
        if !self.groups.contains_key(group) {
            return Step::empty(Err(ClassicError::UnknownMember(member.clone())));
        }
        self.at(now, group, event)
    }
}
