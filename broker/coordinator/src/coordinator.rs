//! The coordinator of one partition of `__consumer_offsets`.

use levada_extension::{Assignment, AssignorFault, TopicPartition};
use levada_model::{GroupName, MemberId, Tick};

use crate::terms::*;

/// The groups of one partition of `__consumer_offsets`: members, assignments, offsets, timers.
pub struct Coordinator {}

impl Coordinator {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(options: CoordinatorOptions) -> Self {
        todo!()
    }

    /// Takes in one record of the partition, in order; what cannot be read changes nothing.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        todo!()
    }

    /// Ends the replay: every session begins anew now, and rebalances that were under way go on.
    pub fn loaded(&mut self, now: Now) -> Step<()> {
        todo!()
    }

    /// When [`tick`](Self::tick) has something to do next; none while nothing is timed.
    #[must_use]
    pub fn next_due(&self) -> Option<Tick> {
        todo!()
    }

    /// Does all that is due: expired sessions, revocation deadlines, rebalances, expired offsets, offsets of deleted
    /// topics, topics that changed.
    pub fn tick(&mut self, now: Now, topics: &dyn TopicsView) -> Step<()> {
        todo!()
    }

    /// A member joins; never waits.
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
        todo!()
    }

    /// A member fetches: it lives, gives up what it was told to give up before, and is told what it holds now.
    /// `again` is a look of the same fetch, which waits: it lives, but gives nothing up.
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
        todo!()
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
        todo!()
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
        todo!()
    }

    /// A member leaves.
    ///
    /// # Errors
    /// See [`MemberError`].
    pub fn leave(&mut self, now: Now, group: &GroupName, member: &MemberId) -> Step<Result<(), MemberError>> {
        todo!()
    }

    /// The answer to an [`AssignTask`]: checked here; what cannot be used falls back to the built-in assignor.
    pub fn assigned(
        &mut self,
        now: Now,
        group: &GroupName,
        token: u64,
        answer: Result<Assignment, AssignorFault>,
    ) -> Step<()> {
        todo!()
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
        todo!()
    }

    /// Deletes an empty group with its offsets.
    ///
    /// # Errors
    /// See [`DeleteError`].
    pub fn delete(&mut self, now: Now, group: &GroupName) -> Step<Result<(), DeleteError>> {
        todo!()
    }

    /// All groups, by name.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupSummary> {
        todo!()
    }

    /// One group; none if nothing is known of it.
    #[must_use]
    pub fn group(&self, group: &GroupName) -> Option<GroupView> {
        todo!()
    }
}
