//! Groups that go on where they were: after a stop, a kill and a power cut, in whatever state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_engine::{Engine, GroupError, GroupFetch, MemberState};
use levada_log::{CrashPlan, SimStorage};
use levada_model::MemberId;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::{Member, SESSION_MS, committed, fill, filled, flat, group, joining, kill, open, pass, settle};
use crate::support::{Bench, create, me, name, until};

#[tokio::test]
async fn a_settled_group_goes_on_after_stops_and_kills() {
    let (bench, _) = Bench::sim();
    let mut engine = open(&bench);
    filled(&engine, "t", 4, 2).await;
    let mut members = vec![Member::join(&engine, "g", &["t"]).await, Member::join(&engine, "g", &["t"]).await];
    settle(&mut members).await;
    for round in 2..6 {
        fill(&engine, "t", 4, round..round + 1).await;
        let mut before = Vec::new();
        for member in &mut members {
            member.fetch().await;
            before.push(member.heartbeat().await.expect("a member"));
        }
        members[0].commit().await.expect("committed");
        if round % 2 == 0 {
            engine.close().await.expect("closed");
        }
        let kept = kill(engine, members);
        engine = open(&bench);
        members = kept.into_iter().map(|kept| kept.at(&engine)).collect();
        for (member, before) in members.iter().zip(before) {
            assert_eq!(member.heartbeat().await.expect("a member"), before);
        }
        assert_eq!(members[1].commit().await.expect("its cursor counts").committed.len(), 2);
    }
    for member in &members {
        assert_eq!(member.values().len(), 12, "each record once");
    }
    // Sessions began anew; whoever does not come back is removed as ever.
    pass(&bench, &engine, SESSION_MS - 1);
    members[0].fetch().await;
    pass(&bench, &engine, 1);
    assert!(matches!(members[1].heartbeat().await, Err(GroupError::UnknownMember(_))));
    until("the other has all", async || members[0].holds().await.len() == 4).await;
}

#[tokio::test]
async fn sessions_run_out_in_groups_that_nobody_asks_for() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 1).await;
    Member::join(&engine, "g", &["t"]).await.settled().await;
    drop(engine);
    let engine = open(&bench);
    // Loaded in the background, without a request: that the member is gone is written down.
    until("its session is over", async || {
        pass(&bench, &engine, SESSION_MS);
        engine.stats().appended_records > 0
    })
    .await;
    assert!(engine.describe_group(&me(), &group("g")).await.expect("a group").members.is_empty());
}

#[tokio::test]
async fn a_join_that_was_not_assigned_yet_is_assigned_after_a_kill() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    filled(&engine, "t", 1, 1).await;
    let member = Member::join(&engine, "g", &["t"]).await;
    let kept = kill(engine, vec![member]).remove(0);
    let engine = bench.open();
    let mut member = kept.at(&engine);
    assert_eq!(member.heartbeat().await.expect("a member").state, MemberState::Assigning);
    pass(&bench, &engine, 500);
    member.fetch_waiting().await;
    assert_eq!(member.values(), ["t/0/0"]);
}

#[tokio::test]
async fn a_revocation_goes_on_after_a_kill_wherever_it_stood() {
    for told_before in [false, true] {
        let (bench, _) = Bench::sim();
        let engine = open(&bench);
        filled(&engine, "t", 2, 3).await;
        let mut old = Member::join(&engine, "g", &["t"]).await;
        old.fetch_waiting().await;
        let new = Member::join(&engine, "g", &["t"]).await;
        until("it has to give up one", async || {
            let described = engine.describe_group(&me(), &group("g")).await.expect("a group");
            described.members.iter().any(|member| !member.revoked.is_empty())
        })
        .await;
        if told_before {
            assert_eq!(old.fetch().await.membership.revoked.len(), 1);
        }
        let mut kept = kill(engine, vec![old, new]).into_iter();
        let engine = open(&bench);
        let mut next = || kept.next().expect("two").at(&engine);
        let (mut old, mut new) = (next(), next());
        assert!(new.fetch().await.membership.assignment.is_empty(), "it is not given up yet");
        // It is told again, and what it got before counts.
        let told = old.fetch().await;
        assert_eq!(told.membership.revoked.len(), 1);
        assert_eq!(old.commit().await.expect("it counts").committed.len(), 2);
        old.fetch().await;
        until("the new one has it", async || new.fetch().await.membership.assignment.len() == 1).await;
        assert!(new.got.is_empty(), "all of it was committed");
    }
}

#[tokio::test]
async fn a_lost_holding_stays_lost_over_a_kill() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 3).await;
    let mut old = Member::join(&engine, "g", &["t"]).await;
    old.fetch_waiting().await;
    pass(&bench, &engine, SESSION_MS);
    let mut new = Member::join(&engine, "g", &["t"]).await;
    new.fetch_waiting().await;
    new.commit().await.expect("committed");
    let mut kept = kill(engine, vec![old, new]).into_iter();
    let engine = open(&bench);
    let old = kept.next().expect("two").at(&engine);
    assert!(matches!(old.commit().await, Err(GroupError::UnknownMember(_))));
    assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, 3)]);
}

const PARTITIONS: u32 = 4;
const CONSUMERS: usize = 4;
const CUTS: u64 = 10;

/// What clients hold answers for.
#[derive(Clone, Default)]
struct Answered {
    count: usize,
    /// The newest commit of each partition.
    commits: BTreeMap<u32, u64>,
    /// The newest holding of each partition that anyone was told of, and whose.
    holdings: BTreeMap<u32, (u32, MemberId)>,
    /// Whether a member is (or was removed with its own word).
    members: BTreeMap<MemberId, bool>,
}

impl Answered {
    fn told(&mut self, member: &Member) {
        for at in member.cursor.iter().flat_map(|cursor| &cursor.positions) {
            let holding = (at.epoch.0, member.id.clone());
            let newest = self.holdings.entry(at.partition.0).or_insert_with(|| holding.clone());
            if newest.0 < holding.0 {
                *newest = holding;
            } else {
                assert!(*newest == holding || newest.0 > holding.0, "two have the same holding");
            }
        }
    }
}

/// The life of a consumer: it reads, commits, and now and then leaves and comes back.
async fn consume(engine: Engine, number: usize, answered: Arc<Mutex<Answered>>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let mut member = Member::join(&engine, "g", &["t"]).await;
        answered.lock().members.insert(member.id.clone(), true);
        for _ in 0..20 + number * 7 {
            let fetch = GroupFetch { max_records: 3, ..member.fetching(Duration::from_millis(1)) };
            member.try_fetch(fetch).await.expect("a fetch");
            answered.lock().told(&member);
            let done = match member.commit().await {
                Ok(done) => done.committed,
                Err(GroupError::IllegalGeneration(_)) => Vec::new(),
                Err(error) => panic!("{error}"),
            };
            let mut answered = answered.lock();
            answered.count += 1;
            for (_, partition, offset) in done {
                let newest = answered.commits.entry(partition.0).or_default();
                *newest = offset.0.max(*newest);
            }
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
        // Between the request and its answer nobody knows.
        answered.lock().members.remove(&member.id);
        engine.leave_group(&me(), &group("g"), &member.id).await.expect("it leaves");
        answered.lock().members.insert(member.id.clone(), false);
    }
}

/// What of the answers does not hold on the disk that a power cut left.
async fn broken(bench: &Bench, answered: &Answered, disk: SimStorage) -> Option<String> {
    let engine = open(&bench.with(disk));
    let offsets: BTreeMap<_, _> = match engine.group_offsets(&me(), &group("g")).await {
        Ok(offsets) => offsets.into_iter().map(|offset| (offset.partition.0, offset.committed.0)).collect(),
        Err(error) => return Some(error.to_string()),
    };
    for (partition, least) in &answered.commits {
        let found = offsets.get(partition).copied().unwrap_or_default();
        if found < *least {
            return Some(format!("partition {partition} fell back from {least} to {found}"));
        }
    }
    let mut holders: BTreeMap<u32, (u32, MemberId)> = BTreeMap::new();
    for (id, is_member) in &answered.members {
        let mut member =
            Member { engine: engine.clone(), group: group("g"), id: id.clone(), cursor: None, got: Vec::new() };
        let fetched = member.try_fetch(GroupFetch { max_records: 1, ..member.fetching(Duration::ZERO) }).await;
        match (fetched, is_member) {
            (Ok(fetched), true) => {
                for at in fetched.cursor.positions {
                    if let Some((_, other)) = holders.insert(at.partition.0, (at.epoch.0, id.clone())) {
                        return Some(format!("partition {} has two owners, {id} and {other}", at.partition));
                    }
                }
                if let Some(record) = flat_first(&fetched.parts)
                    && record.1 < offsets.get(&record.0).copied().unwrap_or_default()
                {
                    return Some(format!("{record:?} comes again, though it was committed"));
                }
            }
            (Err(GroupError::UnknownMember(_)), false) => {}
            (other, _) => return Some(format!("{id} is a member: {is_member}; found {:?}", other.map(drop))),
        }
    }
    for (partition, (epoch, of)) in &answered.holdings {
        if let Some((now, holder)) = holders.get(partition)
            && (now < epoch || (now == epoch && holder != of))
        {
            return Some(format!("partition {partition} fell back from holding {epoch} to {now}"));
        }
    }
    None
}

fn flat_first(parts: &[levada_engine::GroupPart]) -> Option<(u32, u64)> {
    let part = parts.first()?;
    Some((part.fetched.partition.0, part.fetched.records().next()?.ok()?.offset.0))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answered_commit_join_and_holding_outlives_a_power_cut() {
    let seeds = std::env::var("LEVADA_POWER_CUT_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(3);
    for seed in 0..seeds {
        let (bench, disk) = Bench::sim();
        let engine = open(&bench);
        filled(&engine, "t", PARTITIONS, 500).await;
        let answered: Arc<Mutex<Answered>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let mut consumers = JoinSet::new();
        for number in 0..CONSUMERS {
            consumers.spawn(consume(engine.clone(), number, answered.clone(), stop.clone()));
        }
        let mut pictures = Vec::new();
        for cut in 0..CUTS {
            let goal = (cut as usize + 1) * 40;
            until("enough is answered", async || answered.lock().count >= goal).await;
            let before = answered.lock().clone();
            let plan = if cut == 0 { CrashPlan::all_lost() } else { CrashPlan::seeded(seed * CUTS + cut, 512) };
            pictures.push((before, disk.crash(&plan)));
        }
        stop.store(true, Ordering::Relaxed);
        consumers.join_all().await;
        for (cut, (mut answered, disk)) in pictures.into_iter().enumerate() {
            // Requests that were on their way when the picture was taken may be in it: members that left then.
            let engine = open(&bench.with(disk.clone()));
            let described = engine.describe_group(&me(), &group("g")).await.expect("a group");
            answered.members.retain(|id, is_member| {
                !*is_member || described.members.iter().any(|member| member.member_id == *id) || {
                    panic!("seed {seed}, cut {cut}: {id} is gone")
                }
            });
            drop(engine);
            assert_eq!(broken(&bench, &answered, disk).await, None, "seed {seed}, cut {cut}");
        }
    }
}

#[tokio::test]
async fn many_members_come_back_in_one_load() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 100, &[]).await;
    let mut ids = Vec::new();
    for _ in 0..100 {
        ids.push(engine.join_group(&me(), &group("g"), joining(&["t"])).await.expect("it joins").member_id);
    }
    pass(&bench, &engine, 500);
    let last = ids.last().expect("many").clone();
    let holds = async |engine: &Engine| engine.heartbeat(&me(), &group("g"), &last).await.expect("a member").assignment;
    until("all are assigned", async || holds(&engine).await.len() == 1).await;
    let before = holds(&engine).await;
    drop(engine);
    let engine = bench.open();
    assert_eq!(holds(&engine).await, before);
    let fetch = GroupFetch { cursor: None, max_records: 1, max_bytes: 1, wait: Duration::ZERO };
    let fetched = engine.fetch_group(&me(), &group("g"), &last, fetch).await.expect("a fetch");
    assert!(flat(&fetched).is_empty());
    assert_eq!(fetched.membership.assignment[0].0, name("t"));
}
