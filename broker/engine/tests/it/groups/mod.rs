//! Consumer groups: members, their offsets and what survives.

mod dead_letters;
mod failures;
mod members;
mod operators;
mod positions;
mod rebalances;
mod restarts;
mod standalone;
mod topics;

use std::time::Duration;

use levada_engine::{
    AssignorName, CommitWhat, Engine, EngineOptions, GroupCommitted, GroupCursor, GroupError, GroupFetch, GroupFetched,
    GroupOptions, GroupStart, JoinGroup, MemberState, Membership,
};
use levada_model::{GroupName, MemberId, Offset};

use crate::support::{Bench, LONG, me, name, until, values};

/// Session time-out of the members of the tests, in milliseconds.
pub(crate) const SESSION_MS: i64 = 45_000;
/// The first generation of a group that begins at `START`: the seconds since 2020.
const FIRST_GENERATION: u32 = 122_163_200;
/// How long they may take to give up partitions.
const REBALANCE_MS: i64 = 60_000;

pub(crate) fn group(text: &str) -> GroupName {
    GroupName::new(text).expect("a group's name")
}

/// An engine that rebalances at once.
pub(crate) fn open(bench: &Bench) -> Engine {
    let groups = GroupOptions {
        initial_rebalance_delay: Duration::ZERO,
        rebalance_interval: Duration::ZERO,
        ..GroupOptions::default()
    };
    Engine::open(EngineOptions { groups, ..bench.options() }).expect("the engine opens")
}

pub(crate) fn joining(topics: &[&str]) -> JoinGroup {
    JoinGroup {
        topics: topics.iter().map(|topic| name(topic)).collect(),
        assignor: AssignorName::CooperativeSticky,
        session_timeout_ms: SESSION_MS.cast_unsigned(),
        rebalance_timeout_ms: REBALANCE_MS.cast_unsigned(),
        max_poll_interval_ms: 300_000,
        start: GroupStart::Earliest,
        instance_id: None,
        client: "test".to_owned(),
    }
}

/// A member that says very seldom of itself that it lives, so that only news end its waits.
pub(crate) fn quiet(topics: &[&str]) -> JoinGroup {
    JoinGroup { session_timeout_ms: 1_800_000, ..joining(topics) }
}

/// A member, its cursor, and what it has got.
pub(crate) struct Member {
    engine: Engine,
    group: GroupName,
    pub(crate) id: MemberId,
    pub(crate) cursor: Option<GroupCursor>,
    pub(crate) got: Vec<(String, u32, u64, String)>,
}

impl Member {
    pub(crate) async fn join(engine: &Engine, of: &str, topics: &[&str]) -> Self {
        Self::join_as(engine, of, joining(topics)).await
    }

    pub(crate) async fn join_as(engine: &Engine, of: &str, join: JoinGroup) -> Self {
        let membership = engine.join_group(&me(), &group(of), join).await.expect("it joins");
        Self { engine: engine.clone(), group: group(of), id: membership.member_id, cursor: None, got: Vec::new() }
    }

    pub(crate) fn fetching(&self, wait: Duration) -> GroupFetch {
        GroupFetch { cursor: self.cursor.clone(), max_records: 500, max_bytes: 1 << 20, wait }
    }

    pub(crate) async fn try_fetch(&mut self, fetch: GroupFetch) -> Result<GroupFetched, GroupError> {
        let fetched = self.engine.fetch_group(&me(), &self.group, &self.id, fetch).await?;
        self.cursor = Some(fetched.cursor.clone());
        self.got.extend(flat(&fetched));
        Ok(fetched)
    }

    async fn fetch_for(&mut self, wait: Duration) -> GroupFetched {
        self.try_fetch(self.fetching(wait)).await.expect("a fetch")
    }

    /// A fetch whose wait must end by itself.
    pub(crate) async fn fetch_waiting(&mut self) -> GroupFetched {
        let fetched = tokio::time::timeout(LONG, self.fetch_for(Duration::from_secs(3_600))).await;
        fetched.expect("there is something to tell")
    }

    pub(crate) async fn fetch(&mut self) -> GroupFetched {
        self.fetch_for(Duration::ZERO).await
    }

    async fn heartbeat(&self) -> Result<Membership, GroupError> {
        self.engine.heartbeat(&me(), &self.group, &self.id).await
    }

    /// What it holds and keeps.
    pub(crate) async fn holds(&self) -> Vec<(String, u32)> {
        names(&self.heartbeat().await.expect("it is a member").assignment)
    }

    async fn commit(&self) -> Result<GroupCommitted, GroupError> {
        let cursor = self.cursor.clone().expect("it has fetched");
        self.engine.commit_member(&me(), &self.group, &self.id, CommitWhat::Cursor(cursor)).await
    }

    pub(crate) async fn commit_offset(
        &self,
        topic: &str,
        partition: u32,
        offset: u64,
    ) -> Result<GroupCommitted, GroupError> {
        let offsets = vec![(name(topic), crate::support::p(partition), Offset(offset))];
        self.engine.commit_member(&me(), &self.group, &self.id, CommitWhat::Offsets(offsets)).await
    }

    /// Comes back when the member has its share.
    async fn settled(&self) {
        let state = async || self.heartbeat().await.expect("it is a member").state;
        until("the member is settled", async || matches!(state().await, MemberState::Stable | MemberState::Idle)).await;
    }

    fn values(&self) -> Vec<&str> {
        let mut values: Vec<_> = self.got.iter().map(|(_, _, _, value)| value.as_str()).collect();
        values.sort_unstable();
        values
    }
}

/// Fetches by all members until each is settled, as real ones do all the time.
async fn settle(members: &mut [Member]) {
    until("the group is settled", async || {
        let mut settled = true;
        for member in &mut *members {
            let state = member.fetch().await.membership.state;
            settled &= matches!(state, MemberState::Stable | MemberState::Idle);
        }
        settled
    })
    .await;
}

fn names(partitions: &[(levada_model::TopicName, levada_model::PartitionIndex)]) -> Vec<(String, u32)> {
    partitions.iter().map(|(topic, partition)| (topic.to_string(), partition.0)).collect()
}

/// Topic, partition, offset and value of all records.
fn flat(fetched: &GroupFetched) -> Vec<(String, u32, u64, String)> {
    let part = |part: &levada_engine::GroupPart| {
        let (topic, partition) = (part.topic.to_string(), part.fetched.partition.0);
        let records = values(&part.fetched).into_iter();
        records.map(move |(offset, value)| (topic.clone(), partition, offset, value)).collect::<Vec<_>>()
    };
    fetched.parts.iter().flat_map(part).collect()
}

/// What a group has committed.
pub(crate) async fn committed(engine: &Engine, of: &str) -> Vec<(String, u32, u64)> {
    let offsets = engine.group_offsets(&me(), &group(of)).await.expect("offsets");
    offsets.into_iter().map(|c| (c.topic.to_string(), c.partition.0, c.committed.0)).collect()
}

/// The number of the group's partition of `__consumer_offsets`, as the format document says.
pub(crate) fn partition_of(group: &str) -> u32 {
    (levada_extension::murmur2(group.as_bytes()) & 0x7fff_ffff) % 50
}

/// Moves the clock on and does what is due.
pub(crate) fn pass(bench: &Bench, engine: &Engine, millis: i64) {
    bench.clock.advance(millis);
    engine.run_maintenance();
}

fn refused(committed: &GroupCommitted) -> Vec<(String, u32)> {
    committed.refused.iter().map(|(topic, partition, _)| (topic.to_string(), partition.0)).collect()
}

/// A topic with `count` records in each partition, named by partition and number.
pub(crate) async fn filled(engine: &Engine, topic: &str, partitions: u32, count: u32) {
    crate::support::create(engine, topic, partitions, &[]).await;
    fill(engine, topic, partitions, 0..count).await;
}

pub(crate) async fn fill(engine: &Engine, topic: &str, partitions: u32, numbers: std::ops::Range<u32>) {
    let record = |partition| {
        numbers.clone().map(move |number| crate::support::to(partition, &format!("{topic}/{partition}/{number}")))
    };
    let records: Vec<_> = (0..partitions).flat_map(record).collect();
    crate::support::produce(engine, topic, records).await;
}

/// The engine alone, so that dropping it ends it.
pub(crate) fn kill(engine: Engine, members: Vec<Member>) -> Vec<Kept> {
    let kept = members.into_iter().map(|m| Kept { group: m.group, id: m.id, cursor: m.cursor, got: m.got }).collect();
    drop(engine);
    kept
}

/// What a member's client knows, without an engine.
pub(crate) struct Kept {
    group: GroupName,
    id: MemberId,
    cursor: Option<GroupCursor>,
    got: Vec<(String, u32, u64, String)>,
}

impl Kept {
    pub(crate) fn at(self, engine: &Engine) -> Member {
        Member { engine: engine.clone(), group: self.group, id: self.id, cursor: self.cursor, got: self.got }
    }
}
