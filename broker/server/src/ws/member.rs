//! A subscription as a group's member: a task that fetches for the client, keeps the member alive, commits, and gives up
//! what was revoked when the client is done with it.
//!
//! The engine gives revoked partitions up with the member's next fetch. So while one is to be given up and records of it
//! were delivered that are not committed, the task only sends heartbeats: until the commit comes, or the deadline passes.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::BoxFuture;
use levada_api::{ErrorCode, JoinGroup, Problem, ServerFrame, SkipCause, StreamForm, StreamGap, StreamMember};
use levada_engine::{
    CommitWhat, Engine, GroupCursor, GroupError, GroupFetch, GroupFetched, GroupPart, MemberState, Membership,
    OffsetReset, ResetCause,
};
use levada_log::RecordsError;
use levada_model::limits::{READ_RECORDS_MAX, READ_WAIT_MS_MAX};
use levada_model::{GroupName, MemberId, Offset, PartitionIndex, TopicId, TopicName};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::backlog::{Places, Read};
use super::outflow::Outflow;
use super::seat::{Asked, Command, Seat};
use super::socket::Outgoing;
use super::subscription::chunk_bytes;
use crate::cursor::encode_group;
use crate::groups;
use crate::read::refusal;

/// Heartbeats within a session, while nothing is fetched.
const BEATS_A_SESSION: u64 = 3;
/// Longest time between two: what is revoked meanwhile is told with the next.
const BEAT_MS_MAX: u64 = 1_000;

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
    form: StreamForm,
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
        let places = Standing {
            cursor: cursor.unwrap_or_else(|| GroupCursor { group: group.clone(), positions: Vec::new() }),
            topics: Vec::new(),
        };
        let member =
            StreamMember { member_id: membership.member_id.to_string(), standing: groups::heartbeat(&membership) };
        let subscribed = ServerFrame::Subscribed {
            id: asked.id.clone(),
            positions: Vec::new(),
            resumed: false,
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
            form: asked.form,
            places,
            membership,
            unfinished: BTreeMap::new(),
            fetching: None,
            is_dry: true,
            rests: false,
            beats,
        })
    }

    /// Serves until the end; what is to be said last, if there is still somebody to say it to.
    pub(super) async fn serve(mut self, seat: &mut Seat) -> Option<Vec<Outgoing>> {
        let end = self.run(seat).await;
        match end {
            End::Gone => {
                if !self.seat.is_static {
                    self.seat.leave().await;
                }
                None
            }
            End::Unsubscribed => {
                self.seat.leave().await;
                let last = ServerFrame::Unsubscribed { id: self.out.id().clone() };
                Some(self.out.end(&last))
            }
            End::Failed(problem) => {
                self.seat.leave().await;
                Some(self.out.fail(*problem))
            }
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
                        Err(error) => return self.failed(error),
                    }
                }
                _ = self.beats.tick(), if !fetching => {
                    self.rests = false;
                    match self.seat.heartbeat().await {
                        Ok(membership) => _ = self.follow(membership),
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
        let max_bytes = chunk_bytes(self.form);
        let fetch = GroupFetch { cursor, max_records: READ_RECORDS_MAX, max_bytes, wait };
        let Identity { engine, who, group, member, .. } = &self.seat;
        let (engine, who, group, member) = (engine.clone(), who.clone(), group.clone(), member.clone());
        let answer = Box::pin(async move { engine.fetch_group(&who, &group, &member, fetch).await });
        Fetching { answer, since: Instant::now(), waits }
    }

    fn take(&mut self, fetched: GroupFetched) {
        let GroupFetched { membership, parts, cursor, resets } = fetched;
        let under_way = self.fetching.take().expect("it has just answered");
        self.is_dry = parts.is_empty();
        self.places.cursor = cursor;
        // From here on the client stands before what was read.
        let reads: Vec<Read> = parts.into_iter().map(|part| self.places.read(part)).collect();
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
        let before = self.places.cursor.clone();
        let lag = self.lag_behind_reads();
        self.out.advance(&mut self.places, lag)?;
        for (position, earlier) in self.places.cursor.positions.iter().zip(&before.positions) {
            if position.next > earlier.next
                && let Some(topic) = self.places.name(position.topic)
            {
                self.unfinished.insert((topic.clone(), position.partition), position.next);
            }
        }
        self.note_end();
        Ok(())
    }

    /// Offsets behind all that was fetched.
    fn lag_behind_reads(&mut self) -> u64 {
        self.seat.engine.group_lag(&self.places.cursor).saturating_sub(self.out.backlog().left())
    }

    fn note_end(&mut self) {
        let holds_something = !self.places.cursor.positions.is_empty();
        if self.out.is_empty() && holds_something && self.seat.engine.group_lag(&self.places.cursor) == 0 {
            self.out.note_end(&self.places);
        }
    }

    /// Tells what changed, if anything did, and drops what was read of partitions that are to be read no more.
    fn follow(&mut self, membership: Membership) -> bool {
        let told = |it: &Membership| (it.assignment.clone(), it.revoked.clone(), it.state == MemberState::Idle);
        let has_changed = told(&membership) != told(&self.membership);
        self.membership = membership;
        if !has_changed {
            return false;
        }
        let Membership { assignment, revoked, .. } = &self.membership;
        self.out.backlog().retain(|topic, partition| assignment.iter().any(|it| it.0 == *topic && it.1 == partition));
        self.unfinished.retain(|place, _| assignment.contains(place) || revoked.contains(place));
        let standing = groups::heartbeat(&self.membership);
        let cursor = self.places.cursor();
        self.out.say(&ServerFrame::Rebalance { id: self.out.id().clone(), standing, cursor });
        true
    }

    /// Tells of a position that did not go on where it stood.
    fn tell(&mut self, reset: &OffsetReset) {
        let cause = match reset.cause {
            ResetCause::Expired => SkipCause::ExpiredOffset,
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

    fn name(&self, topic: TopicId) -> Option<&TopicName> {
        self.topics.iter().find(|(id, _)| *id == topic).map(|(_, name)| name)
    }
}

impl Places for Standing {
    fn moved(&mut self, topic: usize, partition: PartitionIndex, next: Offset) {
        let topic = self.topics[topic].0;
        let mut positions = self.cursor.positions.iter_mut();
        if let Some(position) = positions.find(|it| it.topic == topic && it.partition == partition) {
            position.next = next;
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
    let group = match asked.engine.describe_group(&asked.who, group).await {
        Ok(group) => group,
        Err(GroupError::NotFound(_)) => return Err(needed()),
        Err(error) => return Err(groups::problem(group, error)),
    };
    let of_members = group.members.into_iter().flat_map(|member| member.topics);
    let mut topics: Vec<TopicName> = of_members.collect();
    if topics.is_empty() {
        topics = group.offsets.into_iter().map(|offset| offset.offset.topic).collect();
    }
    topics.sort();
    topics.dedup();
    if topics.is_empty() { Err(needed()) } else { Ok(topics.into_iter().map(Into::into).collect()) }
}
