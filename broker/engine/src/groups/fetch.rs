//! A member's fetch: what it holds, read from where it stands, with a wait that ends for records and for news.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use levada_coordinator::{AssignmentEpoch, Holding, MemberState, MemberView, Now};
use levada_extension::TopicPartition;
use levada_model::{GroupName, MemberId, Operation, Principal, Resource};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::kind::GroupCoordinator;
use super::members::{member_error, membership, timed};
use super::standing::Standing;
use super::terms::{GroupCursor, GroupError, GroupFetch, GroupFetched, GroupPosition};
use crate::Engine;
use crate::fetch::IDLE_READS_MIN;

/// A waiting fetch says so many times within a session that its member lives.
const SIGNS_A_SESSION: u64 = 3;

impl Engine {
    /// Reads what the member holds from its cursor on; waits at most `fetch.wait` for something to tell: records, a first
    /// assignment, a changed one. Gives up what the member was told to give up before.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn fetch_group(
        &self,
        who: &Principal,
        group: &GroupName,
        member: &MemberId,
        fetch: GroupFetch,
    ) -> Result<GroupFetched, GroupError> {
        self.core.authorize(who, Operation::Read, Resource::Group(group))?;
        if fetch.cursor.as_ref().is_some_and(|cursor| cursor.group != *group) {
            return Err(GroupError::OtherGroup);
        }
        let polling =
            Polling { engine: self, who, group, member, coordinator: self.core.coordinator_of_member(group, member)? };
        polling.fetch(fetch).await
    }

    /// Whether a member goes on exactly where a cursor stands: everything that it keeps was delivered in the same holding,
    /// and is still there from the cursor's position on. Also false while it holds nothing.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub async fn member_resumes(
        &self,
        who: &Principal,
        group: &GroupName,
        member: &MemberId,
        cursor: &GroupCursor,
    ) -> Result<bool, GroupError> {
        self.core.authorize(who, Operation::Read, Resource::Group(group))?;
        let coordinator = self.core.coordinator_of_member(group, member)?;
        let view = coordinator.look(|machine| machine.group(group)).await?;
        let members = view.into_iter().flat_map(|view| view.members).map(|summary| summary.view);
        let view = members.into_iter().find(|view| view.member_id == *member);
        let view = view.ok_or_else(|| GroupError::UnknownMember(member.clone()))?;
        let delivered: BTreeMap<_, _> =
            cursor.positions.iter().map(|at| ((at.topic, at.partition, at.epoch), at.next)).collect();
        let topics = self.core.catalog.topics();
        let goes_on = |holding: &Holding| {
            let at = holding.partition;
            let partition = topics.by_id(at.topic).and_then(|topic| topic.state().partition(at.partition).cloned());
            let next = delivered.get(&(at.topic, at.partition, holding.epoch));
            next.zip(partition).is_some_and(|(next, it)| (it.log_start()..=it.high_watermark()).contains(next))
        };
        let mut kept = view.holdings.iter().filter(|holding| !holding.revoked).peekable();
        Ok(kept.peek().is_some() && kept.all(goes_on))
    }

    /// Offsets between the positions of a member's cursor and the ends that it may read to.
    #[must_use]
    pub fn group_lag(&self, cursor: &GroupCursor) -> u64 {
        let topics = self.core.catalog.topics();
        let behind = |position: &GroupPosition| {
            let state = topics.by_id(position.topic).map(|topic| topic.state());
            let end = state.and_then(|state| state.partition(position.partition).map(|it| it.last_stable_offset()));
            end.map_or(0, |end| end.0.saturating_sub(position.next.0))
        };
        cursor.positions.iter().map(behind).sum()
    }
}

/// A fetch that is under way.
struct Polling<'a> {
    engine: &'a Engine,
    who: &'a Principal,
    group: &'a GroupName,
    member: &'a MemberId,
    coordinator: GroupCoordinator,
}

impl Polling<'_> {
    async fn fetch(&self, fetch: GroupFetch) -> Result<GroupFetched, GroupError> {
        let GroupFetch { cursor, max_records, max_bytes, wait } = fetch;
        let deadline = Instant::now().checked_add(wait);
        let woken = Arc::new(Notify::new());
        let watch = self.coordinator.watches().register(self.member, &woken);
        let (mut view, mut now) = self.poll(false).await?;
        let mut sign_at = Instant::now() + sign_interval(&view);
        let told = Told::of(&view, cursor.as_ref());
        let mut standing = Standing::new(self.engine.core.clone(), cursor);
        standing.follow(&view).await?;
        let mut rounds_left = IDLE_READS_MIN;
        loop {
            let parts = standing.read(max_records.max(1), max_bytes.max(1)).await?;
            rounds_left = rounds_left.saturating_sub(1);
            // Also where news without records come all the time it ends.
            let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now())
                && (rounds_left == 0 || !standing.has_news());
            let mut is_over = is_late || !parts.is_empty() || told.is_changed(&view);
            if !is_over {
                let _waiters = standing.register(&woken);
                if !standing.has_news() && !watch.has_news() {
                    is_over = !wait_until(&woken, deadline, sign_at).await;
                }
            }
            if is_over {
                let (cursor, resets) = standing.finish(self.group);
                return Ok(GroupFetched { membership: membership(view, now), parts, cursor, resets });
            }
            if watch.take_news() || Instant::now() >= sign_at {
                (view, now) = self.poll(true).await?;
                sign_at = Instant::now() + sign_interval(&view);
                standing.follow(&view).await?;
            }
            if self.engine.core.is_closing() {
                return Err(GroupError::Closing);
            }
        }
    }

    /// A look at what the member holds.
    async fn poll(&self, again: bool) -> Result<(MemberView, Now), GroupError> {
        let (group, member) = (self.group, self.member);
        let polled =
            self.coordinator.step(|machine, now, _| timed(now, machine.poll(now, group, member, again))).await?;
        let (now, view) = (polled.0, polled.1.map_err(member_error)?);
        let mut topic = None;
        for holding in &view.holdings {
            if topic.replace(&holding.topic) != Some(&holding.topic) {
                self.engine.core.authorize(self.who, Operation::Read, Resource::Topic(&holding.topic))?;
            }
        }
        Ok((view, now))
    }
}

/// What the member knows of what it holds: by its cursor, or else what there was when its fetch came. (Who always comes
/// without a cursor cannot be told from one who comes for the first time, and shall have its wait too. A partition that is
/// not begun before its offsets are decided is in no cursor, and is no reason to answer again and again.)
struct Told {
    holdings: BTreeSet<(TopicPartition, AssignmentEpoch)>,
    is_idle: bool,
}

impl Told {
    fn of(view: &MemberView, cursor: Option<&GroupCursor>) -> Self {
        let holdings = match cursor {
            Some(cursor) => {
                let positions = cursor.positions.iter();
                let known = positions.map(|at| (TopicPartition { topic: at.topic, partition: at.partition }, at.epoch));
                known.chain(named(view.holdings.iter().filter(|holding| holding.undecided))).collect()
            }
            None => named(&view.holdings).collect(),
        };
        Self { holdings, is_idle: view.state == MemberState::Idle }
    }

    /// Whether there is something to tell at once: partitions that came or went or are to be given up, or that there is
    /// none for the member.
    fn is_changed(&self, view: &MemberView) -> bool {
        view.holdings.iter().any(|holding| holding.revoked)
            || named(&view.holdings).collect::<BTreeSet<_>>() != self.holdings
            || (view.state == MemberState::Idle && !self.is_idle)
    }
}

fn named<'a>(
    holdings: impl IntoIterator<Item = &'a Holding>,
) -> impl Iterator<Item = (TopicPartition, AssignmentEpoch)> {
    holdings.into_iter().map(|holding| (holding.partition, holding.epoch))
}

fn sign_interval(view: &MemberView) -> Duration {
    Duration::from_millis((view.sign_within_ms / SIGNS_A_SESSION).max(1))
}

/// Waits to be woken, or for the next sign of life; false when the whole wait is over.
async fn wait_until(woken: &Notify, deadline: Option<Instant>, sign_at: Instant) -> bool {
    let until = deadline.map_or(sign_at, |deadline| deadline.min(sign_at));
    timeout_at(until, woken.notified()).await.is_ok() || deadline.is_none_or(|deadline| Instant::now() < deadline)
}
