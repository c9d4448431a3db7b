//! The power is cut in the middle of rebalances: no commit that was answered is gone, no member that was answered is
//! forgotten, and the group reads on from there without a loss and without a record twice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use levada_engine::{Engine, EngineOptions};
use levada_log::{CrashPlan, SimStorage};
use levada_model::SystemClock;
use serde_json::json;
use tokio::task::JoinSet;

use super::member::{Member, Seen, store, work};
use crate::contract::Contract;
use crate::harness::Harness;

const PARTITIONS: u64 = 6;
const WORKERS: usize = 3;
const CUTS: u64 = 8;
/// Commits between two cuts.
const PACE: usize = 12;
/// Records that wait for the members, beyond which no more come: what they leave is read again after each cut.
const BACKLOG: u64 = 200;

async fn start_on(disk: &SimStorage) -> Harness {
    let disk = disk.clone();
    let open =
        move |options| Engine::open(EngineOptions { storage: Arc::new(disk), data_dir: "data".into(), ..options });
    let change = |options: &mut levada_server::ServeOptions| options.group_initial_rebalance_delay = Duration::ZERO;
    let mut harness = Harness::start_with(Arc::new(Contract::load()), change, open).await;
    harness.server.opened().await.expect("it opens");
    harness
}

/// A member as it knows itself.
#[derive(Clone)]
struct Known {
    id: String,
    cursor: String,
}

/// What members hold answers for.
#[derive(Clone, Default)]
struct Answered {
    commits: usize,
    /// What stands committed, by partition.
    committed: BTreeMap<u64, u64>,
    /// Those that have joined and not asked to leave, by worker.
    members: BTreeMap<usize, Known>,
}

impl Answered {
    fn commit(&mut self, answer: &serde_json::Value) {
        self.commits += 1;
        for place in answer["committed"].as_array().expect("a list") {
            let number = |name: &str| place[name].as_u64().expect("a number");
            let stands = self.committed.entry(number("partition")).or_default();
            *stands = number("offset").max(*stands);
        }
    }
}

/// Joins, works a while, leaves, and again: the group is never at rest.
async fn worker(harness: &Harness, number: usize, answered: &Mutex<Answered>, stop: &AtomicBool) {
    let note = |member: &Member<'_>| {
        let known = Known { id: member.id.clone(), cursor: member.cursor.clone() };
        answered.lock().expect("no panic").members.insert(number, known);
    };
    for life in 0.. {
        let mut member = Member::join(harness, "g", &["t"]).await;
        note(&member);
        for _ in 0..(3 + (number + life) % 4) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let records = member.fetch("max_records=3&wait_ms=20").await;
            note(&member);
            if !records.is_empty() {
                let committed = member.commit().await;
                if committed.status == 200 {
                    answered.lock().expect("no panic").commit(&committed.json());
                } else {
                    assert_eq!(committed.code(), "illegal-generation");
                }
            }
        }
        // From here on nobody knows whether it is a member.
        answered.lock().expect("no panic").members.remove(&number);
        member.leave().await.expect(204);
    }
}

/// Lets members work and records come, and takes pictures of what power cuts leave.
async fn pictures() -> Vec<(Answered, SimStorage)> {
    let disk = SimStorage::new(Arc::new(SystemClock));
    let harness = Arc::new(start_on(&disk).await);
    harness.json(Method::POST, "/v1/topics", &json!({ "name": "t", "partitions": PARTITIONS })).await.expect(201);
    let (answered, stop) = (Arc::new(Mutex::new(Answered::default())), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for number in 0..WORKERS {
        let (harness, answered, stop) = (Arc::clone(&harness), Arc::clone(&answered), Arc::clone(&stop));
        tasks.spawn(async move { worker(&harness, number, &answered, &stop).await });
    }
    let (feeding, read, stopped) = (Arc::clone(&harness), Arc::clone(&answered), Arc::clone(&stop));
    tasks.spawn(async move {
        let mut stored = 0;
        while !stopped.load(Ordering::Relaxed) {
            let committed: u64 = read.lock().expect("no panic").committed.values().sum();
            if stored < committed + BACKLOG {
                store(&feeding, "t", 5).await;
                stored += 5;
            } else {
                tokio::task::yield_now().await;
            }
        }
    });
    let mut pictures = Vec::new();
    for cut in 0..CUTS {
        let goal = usize::try_from(cut + 1).expect("small") * PACE;
        while answered.lock().expect("no panic").commits < goal {
            tokio::task::yield_now().await;
        }
        let before = answered.lock().expect("no panic").clone();
        let plan = if cut == 0 { CrashPlan::all_lost() } else { CrashPlan::seeded(cut, 512) };
        pictures.push((before, disk.crash(&plan)));
    }
    stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    pictures
}

async fn ends(harness: &Harness) -> Vec<u64> {
    let topic = harness.get("/v1/topics/t").await.expect(200).json();
    let ends = topic["partitions"].as_array().expect("partitions").iter();
    ends.map(|partition| partition["high_watermark"].as_u64().expect("a number")).collect()
}

/// What stands committed, by partition.
async fn committed(harness: &Harness) -> BTreeMap<u64, u64> {
    let group = harness.get("/v1/groups/g").await.expect(200).json();
    let offsets = group["offsets"].as_array().expect("offsets").iter();
    let number = |offset: &serde_json::Value, name: &str| offset[name].as_u64().expect("a number");
    offsets.map(|offset| (number(offset, "partition"), number(offset, "committed"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_power_cut_in_a_rebalance_nothing_is_lost_doubled_or_set_back() {
    for (answered, disk) in pictures().await {
        let harness = start_on(&disk).await;
        let begun = committed(&harness).await;
        for (partition, offset) in &answered.committed {
            assert!(begun.get(partition) >= Some(offset), "partition {partition}, {offset} was answered: {begun:?}");
        }
        // Members that were answered go on where they were; one that left without an answer is shown out.
        let described = harness.get("/v1/groups/g").await.expect(200).json();
        let there: Vec<_> =
            described["members"].as_array().expect("members").iter().map(|m| m["member_id"].clone()).collect();
        let mut members: Vec<Member<'_>> = Vec::new();
        for Known { id, cursor } in answered.members.values() {
            let last = json!({ "state": "assigning" });
            let (id, cursor) = (id.clone(), cursor.clone());
            let member = Member { harness: &harness, group: "g".to_owned(), id, cursor, last };
            // It may have left, and the log knows of it, before the cut.
            if there.contains(&json!(member.id)) {
                member.heartbeat().await.expect(200);
                members.push(member);
            }
        }
        for id in there.iter().map(|id| id.as_str().expect("an id")) {
            if members.iter().all(|member| member.id != id) {
                harness.delete(&format!("/v1/groups/g/members/{id}")).await.expect(204);
            }
        }
        if members.is_empty() {
            members.push(Member::join(&harness, "g", &["t"]).await);
        }
        read_to_the_end(&harness, members, &begun).await;
    }
}

/// The members read all that is left: each record from the commits on once, and none before them.
async fn read_to_the_end(harness: &Harness, mut members: Vec<Member<'_>>, begun: &BTreeMap<u64, u64>) {
    // What was delivered before the cut and not committed is the members' to commit now.
    for member in &members {
        member.commit().await;
    }
    let from = committed(harness).await;
    assert!(begun.iter().all(|(partition, offset)| from.get(partition) >= Some(offset)), "{begun:?} {from:?}");
    let ends = ends(harness).await;
    let seen = Seen::default();
    while (0..).zip(&ends).any(|(partition, end)| committed_in(&from, &seen, partition) < *end) {
        work(&mut members, &seen).await;
    }
    assert_eq!(seen.doubled(), []);
    let wanted: Vec<_> = (0..)
        .zip(&ends)
        .flat_map(|(partition, end)| (*from.get(&partition).unwrap_or(&0)..*end).map(move |offset| (partition, offset)))
        .collect();
    assert_eq!(seen.places(), wanted);
}

/// How far a partition was read without a hole.
fn committed_in(from: &BTreeMap<u64, u64>, seen: &Seen, partition: u64) -> u64 {
    let first = *from.get(&partition).unwrap_or(&0);
    let got = seen.places().into_iter().filter(|(of, offset)| *of == partition && *offset >= first).count();
    first + got as u64
}
