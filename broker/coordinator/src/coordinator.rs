//! The coordinator of one partition of `__consumer_offsets`: finds the group of an event, and gathers what follows.
//!
//! What classic members say is in `classic`.

mod classic;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_extension::{Assignment, AssignorFault, TopicPartition};
use levada_model::{GroupName, MemberId, Tick, limits};

use crate::group::{Context, Group};
use crate::offsets::{MarkerError, OffsetsMarker, PendingError, TransactionalAppend};
use crate::producers::{MarkerVerdict, Producers};
use crate::records::{ClassicMemberRecord, GroupRecord, Key, MemberRecord, OffsetRecord};
use crate::terms::{
    CommitAnswer, Committed, CoordinatorOptions, CoordinatorRecord, DeleteError, GroupSummary, GroupView, Holding,
    JoinError, MemberCommit, MemberError, MemberView, NewMember, Now, StandaloneError, Step, TopicsView,
};
use crate::timers::{TICK_BYTES, Timers};
use crate::{Outcome, Producer};

/// The groups of one partition of `__consumer_offsets`: members, assignments, offsets, timers.
#[derive(Clone, Debug)]
pub struct Coordinator {
    options: CoordinatorOptions,
    groups: BTreeMap<GroupName, Group>,
    /// Those of transactions.
    producers: Producers,
    /// How many offsets of all groups wait for the ends of their transactions.
    pending: usize,
    /// When each group has something to do.
    due: Timers<GroupName>,
    /// The topics that were last looked at; none after a restart.
    topics_version: Option<u64>,
    /// Groups that have not looked at these yet.
    to_look: BTreeSet<GroupName>,
    next_token: u64,
}

impl Coordinator {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(options: CoordinatorOptions) -> Self {
        Self {
            options,
            groups: BTreeMap::new(),
            producers: Producers::default(),
            pending: 0,
            due: Timers::default(),
            topics_version: None,
            to_look: BTreeSet::new(),
            next_token: 0,
        }
    }

    /// Takes in one record of the partition, in order; what cannot be read changes nothing.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        match Key::decode(key)? {
            Key::Offset(key) => {
                let offset = value.map(OffsetRecord::decode).transpose()?;
                self.load(key.group, |group| group.load_offset(key.partition, offset));
            }
            Key::Group(group) => {
                let head = value.map(GroupRecord::decode).transpose()?;
                self.load(group, |group| group.load_head(head));
            }
            Key::Member(key) => {
                let member = value.map(MemberRecord::decode).transpose()?;
                self.load(key.group, |group| group.load_member(key.member, member));
            }
            Key::ClassicMember(key) => {
                let member = value.map(ClassicMemberRecord::decode).transpose()?;
                self.load(key.group, |group| group.load_classic(key.member, member));
            }
        }
        Ok(())
    }

    /// Takes in one record of a transactional batch of the partition, in order with all others; what cannot be read changes
    /// nothing.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn replay_transactional(&mut self, producer: Producer, key: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        let Key::Offset(key) = Key::decode(key)? else {
            return Err("only offsets are in transactions".to_owned());
        };
        let value = value.ok_or("an offset in a transaction has a value")?;
        let OffsetRecord::Committed(committed) = OffsetRecord::decode(value)? else {
            return Err("an offset in a transaction has not expired".to_owned());
        };
        let lost = self.producers.add(producer, &key.group);
        self.load_end(producer, Outcome::Abort, lost);
        self.load(key.group, |group| group.load_pending(producer.id, key.partition, committed));
        Ok(())
    }

    /// Takes in a marker of the partition, in order with all others.
    pub fn replay_marker(&mut self, marker: OffsetsMarker) {
        let groups = self.producers.end(marker);
        self.load_end(marker.producer, marker.outcome, groups);
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
        if self.to_look.is_empty() { self.due.next() } else { Some(Tick(0)) }
    }

    /// Does all that is due: expired sessions, revocation deadlines, rebalances, expired offsets, offsets of deleted
    /// topics, topics that changed. Where that is much the rest stays due, so that a step is never much larger than what
    /// one group writes.
    pub fn tick(&mut self, now: Now, topics: &dyn TopicsView) -> Step<()> {
        let mut all = Step::empty(());
        if self.topics_version != Some(topics.version()) {
            self.topics_version = Some(topics.version());
            self.to_look = self.groups.keys().cloned().collect();
        }
        let mut size_bytes = 0;
        while size_bytes < TICK_BYTES {
            let step = if let Some(name) = self.to_look.pop_first() {
                if !self.groups.contains_key(&name) {
                    continue;
                }
                self.at(now, &name, |group, ctx| group.topics_changed(ctx, topics))
            } else if let Some(name) = self.due.pop(now.tick) {
                self.at(now, &name, |group, ctx| group.tick(ctx, topics))
            } else {
                break;
            };
            size_bytes += step.records.iter().map(CoordinatorRecord::size_bytes).sum::<usize>();
            all.absorb(step);
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
    ) -> Step<Result<MemberView, JoinError>> {
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
    ) -> Step<Result<CommitAnswer, MemberError>> {
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

    /// Takes offsets into a transaction: they count once it is committed, from where they are written now on, and never if it
    /// is aborted. Judged as a commit of `member`, or (none) as one from outside of the members; all of them or none.
    ///
    /// # Errors
    /// See [`PendingError`].
    pub fn add_transaction_offsets(
        &mut self,
        now: Now,
        group: &GroupName,
        member: Option<&MemberId>,
        producer: Producer,
        commits: Vec<(TopicPartition, Committed)>,
    ) -> Step<Result<(), PendingError>> {
        if let Some(member) = member.filter(|_| !self.groups.contains_key(group)) {
            return Step::empty(Err(MemberError::UnknownMember(member.clone()).into()));
        }
        let is_full = self.pending + commits.len() > limits::GROUP_PENDING_OFFSETS_MAX;
        let full = || PendingError::TooManyOffsets { limit: limits::GROUP_PENDING_OFFSETS_MAX };
        let room = if is_full { Err(full()) } else { Ok(()) };
        let judged = self.producers.judge_offsets(producer).and(room);
        self.groups.entry(group.clone()).or_insert_with(|| Group::new(group.clone()));
        let step = self.at(now, group, |group, ctx| {
            group.judge_pending(ctx, member, &commits)?;
            judged?;
            Ok(group.add_pending(ctx, producer.id, commits))
        });
        let records = step.answer.as_ref().map_or_else(|_| Vec::new(), Vec::clone);
        let mut step = step.map(|answer| answer.map(drop));
        if !records.is_empty() {
            let lost = self.producers.add(producer, group);
            assert!(lost.is_empty(), "it was judged");
            step.transactional = Some(TransactionalAppend::Offsets { producer, records });
        }
        step
    }

    /// Ends a transaction in all groups here: what is pending of its producer is committed or dropped, and whatever of it
    /// comes later is refused, also where nothing is pending. The same end again changes nothing, and so does the late
    /// end of an earlier transaction.
    ///
    /// # Errors
    /// See [`MarkerError`].
    pub fn end_transaction(&mut self, now: Now, marker: OffsetsMarker) -> Step<Result<(), MarkerError>> {
        match self.producers.judge_marker(&marker) {
            Ok(MarkerVerdict::New) => {}
            Ok(MarkerVerdict::Known) => return Step::empty(Ok(())),
            Err(error) => return Step::empty(Err(error)),
        }
        let mut all = Step::empty(Ok(()));
        for group in self.producers.end(marker) {
            if self.groups.contains_key(&group) {
                let end = |group: &mut Group| group.end_pending(marker.producer.id, marker.outcome);
                all.absorb(self.at(now, &group, |group, ctx| ctx.changed.extend(end(group))));
            }
        }
        assert!(all.records.is_empty(), "what the end of a transaction changes is in the log already");
        all.transactional = Some(TransactionalAppend::Marker(marker));
        all
    }

    /// Deletes an empty group with its offsets, those that are pending included.
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

    /// The assignors that members ask for, as they wrote them, each once a group.
    pub fn votes(&self) -> impl Iterator<Item = (&GroupName, &Arc<str>)> {
        self.groups.iter().flat_map(|(name, group)| group.votes().map(move |vote| (name, vote)))
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

    /// Has a group take in something from the log.
    fn load(&mut self, name: GroupName, take: impl FnOnce(&mut Group)) {
        let group = self.groups.entry(name.clone()).or_insert_with(|| Group::new(name.clone()));
        self.pending -= group.pending();
        take(group);
        self.pending += group.pending();
        if group.is_gone() {
            self.groups.remove(&name);
        }
    }

    fn load_end(&mut self, producer: Producer, outcome: Outcome, groups: BTreeSet<GroupName>) {
        for group in groups {
            self.load(group, |group| drop(group.end_pending(producer.id, outcome)));
        }
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
        self.pending -= group.pending();
        let answer = event(group, &mut ctx);
        let records = group.take_records(&mut ctx.changed);
        let changed = ctx.changed.into_iter().map(|member| (name.clone(), member)).collect();
        let step = Step { records, changed, assign: ctx.assign, replies: ctx.replies, ..Step::empty(answer) };
        self.pending += group.pending();
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
        let Self { answer: before, records, transactional, changed, assign, replies } = self;
        Step { answer: answer(before), records, transactional, changed, assign, replies }
    }

    /// An answer without effects.
    fn empty(answer: T) -> Self {
        let records = Vec::new();
        Self { answer, records, transactional: None, changed: Vec::new(), assign: Vec::new(), replies: Vec::new() }
    }

    /// Adds the effects of a later step.
    fn absorb(&mut self, later: Step<()>) {
        self.records.extend(later.records);
        self.changed.extend(later.changed);
        self.assign.extend(later.assign);
        self.replies.extend(later.replies);
    }
}
