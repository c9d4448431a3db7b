//! A subscription as a group's member: a task that fetches for the client, keeps the member alive, commits, and gives up
//! what was revoked when the client is done with it.
//!
//! The engine gives revoked partitions up with the member's next fetch. So while one is to be given up and records of it
//! were delivered that are not committed, the task only sends heartbeats: until the commit comes, or the deadline passes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::BoxFuture;
use levada_api::{ErrorCode, JoinGroup, Problem, ServerFrame, SkipCause, StreamGap, StreamMember};
use levada_engine::{
    CommitWhat, Engine, GroupCursor, GroupError, GroupFetch, GroupFetched, GroupPart, MemberState, Membership,
    OffsetReset, ResetCause,
};
use levada_log::RecordsError;
use levada_model::limits::{READ_BYTES_DEFAULT, READ_RECORDS_MAX, READ_WAIT_MS_MAX, WS_SUBSCRIPTION_TOPICS_MAX};
use levada_model::{GroupName, MemberId, Offset, PartitionIndex, TopicId, TopicName};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::backlog::{Places, Read};
use super::outflow::Outflow;
use super::seat::{Asked, Command, Seat};
use super::socket::Outgoing;
use crate::cursor::encode_group;
use crate::groups;
use crate::read::refusal;

/// Heartbeats within a session, while nothing is fetched.
const BEATS_A_SESSION: u64 = 3;
/// Longest time between two: what is revoked meanwhile is told with the next.
const BEAT_MS_MAX: u64 = 1_000;
/// Fetches in a row, a beat apart, that may fail for reasons that pass. (Heartbeats have no such number: a member that is
/// not heard of is removed, which ends it.)
const FAILED_FETCHES_MAX: u32 = 60;

/// A fetch under way, since when, and whether it waits.
struct Fetching {
    answer: BoxFuture<'static, Result<GroupFetched, GroupError>>,
    since: Instant,
    waits: bool,
}

/// A partition by the names that commits use.
type Place = (TopicName, PartitionIndex);

/// A member on behalf of a client.
pub(super) struct Member {
    seat: Identity,
    out: Outflow,
    /// Where the client stands.
    places: Standing,
    /// What it was told last.
    membership: Membership,
    /// Behind the last record of each partition that was delivered, until it is committed.
    unfinished: BTreeMap<Place, Offset>,
    fetching: Option<Fetching>,
    /// Whether the last fetch brought nothing, so that the next one waits.
    is_dry: bool,
    /// Whether a fetch that was to wait came back at once without news, so that the next one waits for the next beat.
    rests: bool,
    /// How many fetches in a row have failed.
    failed_fetches: u32,
    beats: Interval,
}

/// Who it is.
struct Identity {
    engine: Engine,
    who: std::sync::Arc<levada_model::Principal>,
    group: GroupName,
    member: MemberId,
    /// Whether it has an instance id, so that the session time-out decides what becomes of it.
    is_static: bool,
}

/// Where the client stands: a cursor, and the topics by the numbers that reads have.
struct Standing {
    cursor: GroupCursor,
    topics: Vec<(TopicId, TopicName)>,
    /// Where in the cursor partitions stand.
    index: BTreeMap<(TopicId, PartitionIndex), usize>,
    /// Places in the cursor whose positions have moved, by the number of their topic.
    moved: Vec<(usize, usize)>,
}

impl Member {
    /// Joins the group.
    ///
    /// # Errors
    /// What is wrong with the join.
    pub(super) async fn join(
        asked: &Asked,
        group: &str,
        mut join: JoinGroup,
        cursor: Option<String>,
    ) -> Result<Self, Problem> {
        let group = GroupName::new(group)
            .map_err(|error| crate::refusal::group_name(&error).at("/group", error.to_string()))?;
        let cursor = cursor.map_or(Ok(None), |text| groups::read_cursor(&text))?;
        if cursor.as_ref().is_some_and(|cursor| cursor.group != group) {
            return Err(groups::problem(&group, GroupError::OtherGroup));
        }
        if join.topics.is_empty() {
            join.topics = topics_of(asked, &group).await?;
        }
        let (session_ms, is_static) = (join.session_timeout_ms, join.instance_id.is_some());
        let join = groups::wanted(join, &asked.client)?;
        let joined = asked.engine.join_group(&asked.who, &group, join).await;
        let membership = joined.map_err(|error| groups::problem(&group, error))?;
        let resumed = match &cursor {
            // Where that cannot be told, it is not claimed.
            Some(cursor) => {
                asked.engine.member_resumes(&asked.who, &group, &membership.member_id, cursor).await.unwrap_or(false)
            }
            None => false,
        };
        let places =
            Standing::new(cursor.unwrap_or_else(|| GroupCursor { group: group.clone(), positions: Vec::new() }));
        let member =
            StreamMember { member_id: membership.member_id.to_string(), standing: groups::heartbeat(&membership) };
        let subscribed = ServerFrame::Subscribed {
            id: asked.id.clone(),
            positions: Vec::new(),
            resumed,
            cursor: places.cursor(),
            member: Some(member),
        };
        let beat_ms = (session_ms / BEATS_A_SESSION).clamp(1, BEAT_MS_MAX);
        let mut beats = interval(Duration::from_millis(beat_ms));
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let member = membership.member_id.clone();
        let (engine, who) = (asked.engine.clone(), asked.who.clone());
        Ok(Self {
            seat: Identity { engine, who, group, member, is_static },
            out: Outflow::new(asked.id.clone(), asked.form, &subscribed),
            places,
            membership,
            unfinished: BTreeMap::new(),
            fetching: None,
            // The first fetch does not wait: it tells what is held already, though nothing of it may be read yet.
            is_dry: false,
            rests: false,
            failed_fetches: 0,
            beats,
        })
    }

    /// Serves until the end; what is to be said last, if there is still somebody to say it to.
    pub(super) async fn serve(mut self, seat: &mut Seat) -> Option<Vec<Outgoing>> {
        let end = self.run(seat).await;
        if end.leaves(self.seat.is_static) {
            self.seat.leave().await;
        }
        match end {
            End::Gone => None,
            End::Unsubscribed => {
                let last = ServerFrame::Unsubscribed { id: self.out.id().clone() };
                Some(self.out.end(&last))
            }
            End::Failed(problem) => Some(self.out.fail(*problem)),
        }
    }

    async fn run(&mut self, seat: &mut Seat) -> End {
        loop {
            let has_frame = self.out.has_frame();
            if self.fetching.is_none()
                && !self.rests
                && self.may_fetch()
                && (self.out.is_thirsty() || self.has_to_give_up())
            {
                self.fetching = Some(self.fetch());
            }
            let fetching = self.fetching.is_some();
            tokio::select! {
                biased;
                command = seat.commands.recv() => match command {
                    Some(Command::Credit(credit)) => self.out.grant(credit),
                    Some(Command::Commit(cursor)) => {
                        if let Err(problem) = self.commit(&cursor).await {
                            return End::Failed(problem);
                        }
                    }
                    Some(Command::End) => return End::Unsubscribed,
                    None => return End::Gone,
                },
                permit = seat.outbox.reserve(), if has_frame => {
                    let Ok(permit) = permit else { return End::Gone };
                    if let Err(error) = self.advance() {
                        return End::Failed(Box::new(refusal::records(&error)));
                    }
                    permit.send(seat.delivery(self.out.take()));
                }
                fetched = async { (&mut self.fetching.as_mut().expect("it was looked at").answer).await }, if fetching => {
                    match fetched {
                        Ok(fetched) => self.take(fetched),
                        Err(error) => {
                            self.fetching = None;
                            self.failed_fetches += 1;
                            if !passes(&error) || self.failed_fetches >= FAILED_FETCHES_MAX {
                                return self.failed(error);
                            }
                            tracing::debug!(%error, group = %self.seat.group, "a member fetches again at the next beat");
                            self.rests = true;
                        }
                    }
                }
                _ = self.beats.tick(), if !fetching => {
                    self.rests = false;
                    match self.seat.heartbeat().await {
                        Ok(membership) => _ = self.follow(membership),
                        Err(error) if passes(&error) => {
                            tracing::debug!(%error, group = %self.seat.group, "a member waits for the next beat");
                            self.rests = true;
                        }
                        Err(error) => return self.failed(error),
                    }
                }
            }
        }
    }

    /// Whether a fetch would give up nothing that the client is not done with.
    fn may_fetch(&self) -> bool {
        self.membership.revoked.iter().all(|place| !self.unfinished.contains_key(place))
    }

    fn has_to_give_up(&self) -> bool {
        !self.membership.revoked.is_empty()
    }

    fn fetch(&mut self) -> Fetching {
        // What waits for credit is read again from where the client stands.
        self.out.backlog().clear();
        let waits = self.is_dry && !self.has_to_give_up();
        let wait = if waits { Duration::from_millis(READ_WAIT_MS_MAX) } else { Duration::ZERO };
        // A cursor without positions says that nothing is known yet, so that the first partitions are told at once.
        let cursor = Some(self.places.cursor.clone());
        // Much at a time: where a batch has to be cut, it is unpacked once more for each piece.
        let max_bytes = READ_BYTES_DEFAULT;
        let fetch = GroupFetch { cursor, max_records: READ_RECORDS_MAX, max_bytes, wait };
        let Identity { engine, who, group, member, .. } = &self.seat;
        let (engine, who, group, member) = (engine.clone(), who.clone(), group.clone(), member.clone());
        let answer = Box::pin(async move { engine.fetch_group(&who, &group, &member, fetch).await });
        Fetching { answer, since: Instant::now(), waits }
    }

    fn take(&mut self, fetched: GroupFetched) {
        let GroupFetched { membership, parts, cursor, resets } = fetched;
        let under_way = self.fetching.take().expect("it has just answered");
        self.failed_fetches = 0;
        self.is_dry = parts.is_empty();
        self.places.follow(cursor);
        // From here on the client stands before what was read.
        let reads: Vec<Read> = parts.into_iter().map(|part| self.places.read(part)).collect();
        self.places.moved.clear();
        let has_changed = self.follow(membership);
        let was_quick = under_way.since.elapsed() < self.beats.period();
        self.rests = self.is_dry && under_way.waits && was_quick && !has_changed;
        for reset in resets {
            self.tell(&reset);
        }
        for (_, topic) in &self.places.topics[self.out.backlog().topics()..] {
            self.out.backlog().add_topic(topic.clone());
        }
        self.out.push(reads);
        self.note_end();
    }

    fn advance(&mut self) -> Result<(), RecordsError> {
        let lag = self.lag_behind_reads();
        self.out.advance(&mut self.places, lag)?;
        for (topic, at) in self.places.moved.drain(..) {
            let position = &self.places.cursor.positions[at];
            self.unfinished.insert((self.places.topics[topic].1.clone(), position.partition), position.next);
        }
        self.note_end();
        Ok(())
    }

    /// Offsets behind all that was fetched.
    fn lag_behind_reads(&mut self) -> u64 {
        self.seat.engine.group_lag(&self.places.cursor).saturating_sub(self.out.backlog().left())
    }

    fn note_end(&mut self) {
        let held = self.membership.assignment.len() + self.membership.revoked.len();
        // What waits for the end of a transaction has no place yet, and may have records.
        let has_begun_all = held > 0 && self.places.cursor.positions.len() >= held;
        if self.out.is_empty() && has_begun_all && self.seat.engine.group_lag(&self.places.cursor) == 0 {
            self.out.note_end(&self.places);
        }
    }

    /// Tells what changed, if anything did, and drops what was read of partitions that are to be read no more.
    fn follow(&mut self, membership: Membership) -> bool {
        let before = std::mem::replace(&mut self.membership, membership);
        let is_idle = |it: &Membership| it.state == MemberState::Idle;
        let has_changed = self.membership.assignment != before.assignment
            || self.membership.revoked != before.revoked
            || is_idle(&self.membership) != is_idle(&before);
        if !has_changed {
            return false;
        }
        let Membership { assignment, revoked, .. } = &self.membership;
        let kept: BTreeSet<(&TopicName, PartitionIndex)> = assignment.iter().map(|it| (&it.0, it.1)).collect();
        let given_up: BTreeSet<&Place> = revoked.iter().collect();
        self.out.backlog().retain(|topic, partition| kept.contains(&(topic, partition)));
        self.unfinished.retain(|place, _| kept.contains(&(&place.0, place.1)) || given_up.contains(place));
        let standing = groups::heartbeat(&self.membership);
        let cursor = self.places.cursor();
        self.out.say(&ServerFrame::Rebalance { id: self.out.id().clone(), standing, cursor });
        true
    }

    /// Tells of a position that did not go on where it stood.
    fn tell(&mut self, reset: &OffsetReset) {
        let cause = match reset.cause {
            ResetCause::Expired => SkipCause::Expired,
            ResetCause::BeyondEnd => SkipCause::BeyondEnd,
            // The read that follows begins with the gap.
            ResetCause::BelowStart => return,
        };
        let (id, topic) = (self.out.id().clone(), reset.topic.to_string());
        let gap = StreamGap { id, topic, partition: reset.partition.0, from: None, to: reset.to.0, cause };
        self.out.say(&ServerFrame::Gap(gap));
    }

    /// Commits what was delivered up to a cursor.
    ///
    /// # Errors
    /// Where there is no member any more.
    async fn commit(&mut self, cursor: &str) -> Result<(), Box<Problem>> {
        let cursor = match groups::read_cursor(cursor) {
            Ok(cursor) => cursor,
            Err(problem) => {
                let detail = problem.detail.clone();
                self.out.refuse(problem.at("/cursor", detail));
                return Ok(());
            }
        };
        let nothing = || GroupCursor { group: self.seat.group.clone(), positions: Vec::new() };
        match self.seat.commit(cursor.unwrap_or_else(nothing)).await {
            Ok(committed) => {
                for (topic, partition, offset) in &committed.committed {
                    let place = (topic.clone(), *partition);
                    if self.unfinished.get(&place).is_some_and(|delivered| delivered <= offset) {
                        self.unfinished.remove(&place);
                    }
                }
                let id = self.out.id().clone();
                let committed = groups::committed(committed);
                self.out.say(&ServerFrame::Committed {
                    id,
                    committed: committed.committed,
                    refused: committed.refused,
                });
                Ok(())
            }
            Err(error @ (GroupError::UnknownMember(_) | GroupError::FencedInstance { .. })) => {
                Err(Box::new(groups::problem(&self.seat.group, error)))
            }
            Err(error) => {
                self.out.refuse(groups::problem(&self.seat.group, error));
                Ok(())
            }
        }
    }

    fn failed(&self, error: GroupError) -> End {
        End::Failed(Box::new(groups::problem(&self.seat.group, error)))
    }
}

/// Why a member's subscription ends.
enum End {
    /// The socket is gone.
    Gone,
    /// The client wants no more.
    Unsubscribed,
    /// It cannot go on.
    Failed(Box<Problem>),
}

impl End {
    /// Whether the member leaves its group: one with an instance id only where the client says so.
    fn leaves(&self, is_static: bool) -> bool {
        matches!(self, Self::Unsubscribed) || !is_static
    }
}

/// Whether what was asked for may be done the next time.
fn passes(error: &GroupError) -> bool {
    matches!(error, GroupError::Overloaded | GroupError::Loading | GroupError::Storage(_))
}

impl Identity {
    async fn heartbeat(&self) -> Result<Membership, GroupError> {
        self.engine.heartbeat(&self.who, &self.group, &self.member).await
    }

    async fn commit(&self, cursor: GroupCursor) -> Result<levada_engine::GroupCommitted, GroupError> {
        self.engine.commit_member(&self.who, &self.group, &self.member, CommitWhat::Cursor(cursor)).await
    }

    /// Leaves; a member that was removed before has left.
    async fn leave(&self) {
        if let Err(error) = self.engine.leave_group(&self.who, &self.group, &self.member).await {
            tracing::debug!(%error, group = %self.group, member = %self.member, "a member did not leave");
        }
    }
}

impl Standing {
    fn new(cursor: GroupCursor) -> Self {
        let mut this = Self { cursor, topics: Vec::new(), index: BTreeMap::new(), moved: Vec::new() };
        this.note_places();
        this
    }

    /// Takes up another cursor.
    fn follow(&mut self, cursor: GroupCursor) {
        self.cursor = cursor;
        self.note_places();
    }

    fn note_places(&mut self) {
        let places = self.cursor.positions.iter().enumerate().map(|(at, it)| ((it.topic, it.partition), at));
        self.index = places.collect();
    }

    /// Takes a part in: the client stands before it.
    fn read(&mut self, part: GroupPart) -> Read {
        let known = self.topics.iter().position(|(id, _)| *id == part.topic_id);
        let topic = known.unwrap_or_else(|| {
            self.topics.push((part.topic_id, part.topic));
            self.topics.len() - 1
        });
        let read = Read { topic, fetched: part.fetched };
        self.moved(topic, read.fetched.partition, read.begin());
        read
    }
}

impl Places for Standing {
    fn moved(&mut self, topic: usize, partition: PartitionIndex, next: Offset) {
        let Some(at) = self.index.get(&(self.topics[topic].0, partition)).copied() else { return };
        let position = &mut self.cursor.positions[at];
        if position.next != next {
            position.next = next;
            if self.moved.last() != Some(&(topic, at)) {
                self.moved.push((topic, at));
            }
        }
    }

    fn cursor(&self) -> String {
        if self.cursor.positions.is_empty() { String::new() } else { encode_group(&self.cursor) }
    }
}

/// What the group reads already: by its members, or else by what it has committed.
async fn topics_of(asked: &Asked, group: &GroupName) -> Result<Vec<String>, Problem> {
    let needed = || {
        let detail = "the group reads nothing yet; topics are needed";
        Problem::new(ErrorCode::InvalidField, detail).at("", detail)
    };
    let topics = match asked.engine.group_topics(&asked.who, group).await {
        Ok(topics) => topics,
        Err(GroupError::NotFound(_)) => return Err(needed()),
        Err(error) => return Err(groups::problem(group, error)),
    };
    if topics.len() > WS_SUBSCRIPTION_TOPICS_MAX {
        let detail = format!("the group reads more than {WS_SUBSCRIPTION_TOPICS_MAX} topics; those to read are needed");
        return Err(Problem::new(ErrorCode::InvalidField, &*detail).at("", detail));
    }
    if topics.is_empty() { Err(needed()) } else { Ok(topics.into_iter().map(Into::into).collect()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_with_an_instance_id_leaves_only_where_its_client_says_so() {
        let failed = || End::Failed(Box::new(Problem::new(ErrorCode::StorageFailed, "it")));
        assert!(End::Unsubscribed.leaves(true) && !End::Gone.leaves(true) && !failed().leaves(true));
        assert!(End::Unsubscribed.leaves(false) && End::Gone.leaves(false) && failed().leaves(false));
    }

    #[test]
    fn what_passes_ends_no_member() {
        assert!(passes(&GroupError::Overloaded) && passes(&GroupError::Loading));
        assert!(!passes(&GroupError::Closing) && !passes(&GroupError::OtherGroup));
    }
}
