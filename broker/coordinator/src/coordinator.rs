//! The coordinator of one partition of `__consumer_offsets`: finds the group of an event, and gathers what follows.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use levada_extension::{Assignment, AssignorFault, TopicPartition};
use levada_model::{GroupName, InstanceId, MemberId, Tick};

use crate::classic::{ClassicAnswer, ClassicCaller, ClassicCommit, ClassicError, ClassicJoin, ClassicReply};
use crate::group::{Context, Group};
use crate::records::{ClassicMemberRecord, GroupRecord, Key, MemberRecord, OffsetRecord};
use crate::terms::{
    CommitAnswer, CommitError, Committed, CoordinatorOptions, CoordinatorRecord, DeleteError, GroupSummary, GroupView,
    Holding, JoinError, Joined, MemberCommit, MemberError, MemberView, NewMember, Now, StandaloneError, Step,
    TopicsView,
};
use crate::timers::Timers;

/// The groups of one partition of `__consumer_offsets`: members, assignments, offsets, timers.
#[derive(Clone, Debug)]
pub struct Coordinator {
    options: CoordinatorOptions,
    groups: BTreeMap<GroupName, Group>,
    /// When each group has something to do.
    due: Timers<GroupName>,
    /// The topics that were last looked at; none after a restart.
    topics_version: Option<u64>,
    next_token: u64,
}

impl Coordinator {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(options: CoordinatorOptions) -> Self {
        Self { options, groups: BTreeMap::new(), due: Timers::default(), topics_version: None, next_token: 0 }
    }

    /// Takes in one record of the partition, in order; what cannot be read changes nothing.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        let name = match Key::decode(key)? {
            Key::Offset(key) => {
                let offset = value.map(OffsetRecord::decode).transpose()?;
                self.replayed(&key.group).load_offset(key.partition, offset);
                key.group
            }
            Key::Group(group) => {
                let head = value.map(GroupRecord::decode).transpose()?;
                self.replayed(&group).load_head(head);
                group
            }
            Key::Member(key) => {
                let member = value.map(MemberRecord::decode).transpose()?;
                self.replayed(&key.group).load_member(key.member, member);
                key.group
            }
            Key::ClassicMember(key) => {
                let member = value.map(ClassicMemberRecord::decode).transpose()?;
                self.replayed(&key.group).load_classic(key.member, member);
                key.group
            }
        };
        if self.groups[&name].is_gone() {
            self.groups.remove(&name);
        }
        Ok(())
    }

    /// Ends the replay: every session begins anew now, and rebalances that were under way go on. It has records only where
    /// the log was damaged.
    pub fn loaded(&mut self, now: Now) -> Step<()> {
        let names: Vec<_> = self.groups.keys().cloned().collect();
        let mut all = Step::empty(());
        for name in names {
            all.absorb(self.at(now, &name, |group, ctx| group.loaded(ctx)));
        }
        all
    }

    /// When [`tick`](Self::tick) has something to do next; none while nothing is timed. It has something to do too when
    /// [`TopicsView::version`] has changed.
    #[must_use]
    pub fn next_due(&self) -> Option<Tick> {
        self.due.next()
    }

    /// Does all that is due: expired sessions, revocation deadlines, rebalances, expired offsets, offsets of deleted
    /// topics, topics that changed.
    pub fn tick(&mut self, now: Now, topics: &dyn TopicsView) -> Step<()> {
        let mut all = Step::empty(());
        if self.topics_version != Some(topics.version()) {
            self.topics_version = Some(topics.version());
            let names: Vec<_> = self.groups.keys().cloned().collect();
            for name in names {
                all.absorb(self.at(now, &name, |group, ctx| group.topics_changed(ctx, topics)));
            }
        }
        while let Some(name) = self.due.pop(now.tick) {
            all.absorb(self.at(now, &name, |group, ctx| group.tick(ctx, topics)));
        }
        all
    }

    /// A member joins; never waits.
    ///
    /// The first member of an empty group waits for `initial_rebalance_delay_ms` before anything is assigned. A member
    /// that comes with the instance id of a member takes over all that this one holds, under the same epochs; with the
    /// same subscription and assignor no rebalance follows.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn join(
        &mut self,
        now: Now,
        topics: &dyn TopicsView,
        group: &GroupName,
        member: NewMember,
    ) -> Step<Result<Joined, JoinError>> {
        let missing: Vec<_> =
            (0..member.topics.len()).filter(|place| topics.topic(&member.topics[*place]).is_none()).collect();
        if !missing.is_empty() {
            return Step::empty(Err(JoinError::UnknownTopics(missing)));
        }
        self.groups.entry(group.clone()).or_insert_with(|| Group::new(group.clone()));
        self.at(now, group, |group, ctx| group.join(ctx, member))
    }

    /// A member fetches: it lives, gives up what it was told to give up before, and is told what it holds now.
    /// `again` is a look of the same fetch, which waits: it lives, but gives nothing up.
    ///
    /// Every answer to a fetch or heartbeat tells, whether it reaches the member or not: a lost answer costs the member the
    /// commits of what it has not committed yet of the revoked partitions, and their next owner reads that again.
    ///
    /// # Errors
    /// See [`MemberError`].
    pub fn poll(
        &mut self,
        now: Now,
        group: &GroupName,
        member: &MemberId,
        again: bool,
    ) -> Step<Result<MemberView, MemberError>> {
        self.at_member(now, group, member, |group, ctx| group.poll(ctx, member, again))
    }

    /// A member lives, and is told what it holds.
    ///
    /// # Errors
    /// See [`MemberError`].
    pub fn heartbeat(
        &mut self,
        now: Now,
        group: &GroupName,
        member: &MemberId,
    ) -> Step<Result<MemberView, MemberError>> {
        self.at_member(now, group, member, |group, ctx| group.heartbeat(ctx, member))
    }

    /// A member commits; it lives.
    ///
    /// # Errors
    /// See [`MemberError`].
    pub fn commit(
        &mut self,
        now: Now,
        group: &GroupName,
        member: &MemberId,
        commits: Vec<MemberCommit>,
    ) -> Step<Result<CommitAnswer, CommitError>> {
        self.at_member(now, group, member, |group, ctx| group.commit(ctx, member, commits))
    }

    /// A member leaves.
    ///
    /// # Errors
    /// See [`MemberError`].
    pub fn leave(&mut self, now: Now, group: &GroupName, member: &MemberId) -> Step<Result<(), MemberError>> {
        self.at_member(now, group, member, |group, ctx| group.leave(ctx, member))
    }

    /// The answer to an [`AssignTask`](crate::AssignTask): checked here; what cannot be used falls back to the built-in
    /// assignor. An answer to another question than the one that is open changes nothing.
    pub fn assigned(
        &mut self,
        now: Now,
        group: &GroupName,
        token: u64,
        answer: Result<Assignment, AssignorFault>,
    ) -> Step<()> {
        if !self.groups.contains_key(group) {
            return Step::empty(());
        }
        self.at(now, group, |group, ctx| group.assigned(ctx, token, answer))
    }

    /// Commits from outside of the members (an operator's reset, a consumer without a group protocol); they may go back.
    ///
    /// # Errors
    /// See [`StandaloneError`].
    pub fn commit_standalone(
        &mut self,
        now: Now,
        group: &GroupName,
        commits: Vec<(TopicPartition, Committed)>,
    ) -> Step<Result<(), StandaloneError>> {
        self.groups.entry(group.clone()).or_insert_with(|| Group::new(group.clone()));
        self.at(now, group, |group, ctx| group.commit_standalone(ctx, commits))
    }

    /// Deletes an empty group with its offsets.
    ///
    /// # Errors
    /// See [`DeleteError`].
    pub fn delete(&mut self, now: Now, group: &GroupName) -> Step<Result<(), DeleteError>> {
        if !self.groups.contains_key(group) {
            return Step::empty(Err(DeleteError::NotFound));
        }
        self.at(now, group, |group, _| group.delete())
    }

    /// All groups, by name.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupSummary> {
        self.groups.values().filter(|group| group.is_shown()).map(Group::summary).collect()
    }

    /// One group; none if nothing is known of it.
    #[must_use]
    pub fn group(&self, group: &GroupName) -> Option<GroupView> {
        self.groups.get(group).filter(|group| group.is_shown()).map(Group::describe)
    }

    /// What a group has committed, by topic and partition; none if nothing is known of it.
    #[must_use]
    pub fn committed(&self, group: &GroupName) -> Option<Vec<(TopicPartition, Committed)>> {
        let group = self.groups.get(group).filter(|group| group.is_shown())?;
        Some(group.committed().map(|(partition, committed)| (*partition, committed.clone())).collect())
    }

    /// What a member holds, without a word to it; none if there is no such member.
    #[must_use]
    pub fn holdings(&self, group: &GroupName, member: &MemberId) -> Option<Vec<Holding>> {
        self.groups.get(group)?.holdings_of(member)
    }

    /// Records that hold all that it knows: what is left of all its steps' records after compaction.
    #[must_use]
    pub fn records(&self) -> Vec<CoordinatorRecord> {
        self.groups.values().flat_map(Group::all_records).collect()
    }

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

    fn replayed(&mut self, group: &GroupName) -> &mut Group {
        self.groups.entry(group.clone()).or_insert_with(|| Group::new(group.clone()))
    }

    /// Does something in a group if it knows the member.
    fn at_member<T>(
        &mut self,
        now: Now,
        group: &GroupName,
        member: &MemberId,
        event: impl FnOnce(&mut Group, &mut Context<'_>) -> T,
    ) -> Step<Result<T, MemberError>> {
        if !self.groups.contains_key(group) {
            return Step::empty(Err(MemberError::UnknownMember(member.clone())));
        }
        self.at(now, group, |group, ctx| {
            group.admit(member)?;
            Ok(event(group, ctx))
        })
    }

    /// Does something in a group that is there, and gathers what follows.
    fn at<T>(&mut self, now: Now, name: &GroupName, event: impl FnOnce(&mut Group, &mut Context<'_>) -> T) -> Step<T> {
        let group = self.groups.get_mut(name).expect("the caller has looked");
        let mut ctx = Context {
            now,
            options: &self.options,
            next_token: &mut self.next_token,
            changed: BTreeSet::new(),
            assign: Vec::new(),
            replies: Vec::new(),
        };
        let answer = event(group, &mut ctx);
        let changed = ctx.changed.into_iter().map(|member| (name.clone(), member)).collect();
        let step = Step { answer, records: group.take_records(), changed, assign: ctx.assign, replies: ctx.replies };
        self.due.set(name, group.next_due());
        if group.is_gone() {
            self.due.set(name, None);
            self.groups.remove(name);
        }
        step
    }
}

impl<T> Step<T> {
    /// The same effects with another answer.
    pub fn map<U>(self, answer: impl FnOnce(T) -> U) -> Step<U> {
        let Self { answer: before, records, changed, assign, replies } = self;
        Step { answer: answer(before), records, changed, assign, replies }
    }

    /// An answer without effects.
    fn empty(answer: T) -> Self {
        Self { answer, records: Vec::new(), changed: Vec::new(), assign: Vec::new(), replies: Vec::new() }
    }

    /// Adds the effects of a later step.
    fn absorb(&mut self, later: Step<()>) {
        self.records.extend(later.records);
        self.changed.extend(later.changed);
        self.assign.extend(later.assign);
        self.replies.extend(later.replies);
    }
}
