//! The power goes while producers are at work: all that was not synced is lost or torn, and what was acknowledged is
//! there. The same tests fail when the disk lies about its syncs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use levada_engine::{CreateTopic, Engine, From, OffsetCommit, Once, ProduceRequest};
use levada_log::{CrashPlan, SimStorage};
use levada_model::{GroupName, Offset};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{Bench, create, me, name, p, produce, record, request, set, to, try_all, until};

const PARTITIONS: u32 = 3;
const PRODUCERS: usize = 6;
const CUTS: u64 = 12;

/// What a client holds an answer for.
#[derive(Clone, Default)]
struct Answered {
    /// Values by partition and offset.
    records: BTreeMap<(u32, u64), String>,
    topics: Vec<String>,
    /// The newest commit of each group.
    commits: BTreeMap<String, u64>,
    /// Keys with the offset of their first try.
    keys: BTreeMap<String, u64>,
}

/// One round of a producer; every answer is noted as soon as it is there.
async fn round(engine: &Engine, producer: usize, i: usize, answered: &Mutex<Answered>) {
    let partition = u32::try_from(i).expect("small") % PARTITIONS;
    let value = format!("{producer}-{i}-{}", "x".repeat(i * 37 % 300));
    let produced = produce(engine, "t", vec![to(partition, &value)]).await;
    let offset = produced.records[0].as_ref().expect("the disk works").offset.expect("acks").0;
    answered.lock().records.insert((partition, offset), value);
    if i.is_multiple_of(5) {
        let key = format!("key-{producer}-{i}");
        let produced = engine.produce(&me(), &name("t"), keyed(&key)).await.expect("taken");
        let placed = *produced.records[0].as_ref().expect("the disk works");
        let offset = placed.offset.expect("acks").0;
        let mut answered = answered.lock();
        answered.records.insert((placed.partition.0, offset), key.clone());
        answered.keys.insert(key, offset);
    }
    if i.is_multiple_of(7) {
        let topic = format!("new-{producer}-{i}");
        create(engine, &topic, 1, &[]).await;
        answered.lock().topics.push(topic);
        let group = GroupName::new(&format!("g{producer}")).expect("a group");
        let commit = OffsetCommit { topic: name("t"), partition: p(partition), offset: From::Offset(Offset(offset)) };
        engine.commit_group_offsets(&me(), &group, vec![commit], false).await.expect("committed");
        answered.lock().commits.insert(group.as_str().to_owned() + &format!("/{partition}"), offset);
    }
}

fn keyed(key: &str) -> ProduceRequest {
    let once = Once::Key { key: key.to_owned(), body_digest: [9; 32] };
    ProduceRequest { once, ..request(vec![record("", key)]) }
}

/// Runs producers on a disk and takes pictures of what power cuts leave, each with what was answered before it.
async fn pictures(seed: u64, plant: impl Fn(&SimStorage)) -> (Bench, Vec<(Answered, SimStorage)>) {
    let (bench, disk) = Bench::sim();
    plant(&disk);
    let engine = bench.open();
    let config = set(&[("segment.bytes", json!(4_096))]);
    let new = CreateTopic { name: name("t"), partitions: PARTITIONS, config };
    engine.create_topic(&me(), new).await.expect("created");
    let answered: Arc<Mutex<Answered>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let (engine, answered, stop) = (engine.clone(), answered.clone(), stop.clone());
        producers.spawn(async move {
            for i in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                round(&engine, producer, i, &answered).await;
            }
        });
    }
    let mut pictures = Vec::new();
    for cut in 0..CUTS {
        let goal = (cut as usize + 1) * 25;
        until("enough is answered", async || answered.lock().records.len() >= goal).await;
        if cut % 4 == 3 {
            engine.run_maintenance();
        }
        let before = answered.lock().clone();
        let plan = match cut {
            0 => CrashPlan::all_lost(),
            _ => CrashPlan::seeded(seed * CUTS + cut, 512),
        };
        pictures.push((before, disk.crash(&plan)));
    }
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    (bench, pictures)
}

/// What of the answers does not hold on the disk that a power cut left.
async fn broken(bench: &Bench, answered: &Answered, disk: SimStorage) -> Option<String> {
    let engine = match Engine::open(bench.with(disk).options()) {
        Ok(engine) => engine,
        Err(error) => return Some(format!("no start: {error}")),
    };
    for topic in answered.topics.iter().map(String::as_str).chain(["t"]) {
        if engine.describe_topic(&me(), &name(topic)).is_err() {
            return Some(format!("topic {topic} is gone"));
        }
    }
    for partition in 0..PARTITIONS {
        let found = match try_all(&engine, "t", partition, 0).await {
            Ok(found) => found,
            Err(error) => return Some(error.to_string()),
        };
        if let Some((place, _)) = (0..).zip(&found).find(|(place, (offset, _))| place != offset) {
            return Some(format!("a hole at {place} of partition {partition}"));
        }
        let found: BTreeMap<_, _> = found.into_iter().collect();
        for ((_, offset), value) in answered.records.range((partition, 0)..(partition + 1, 0)) {
            if found.get(offset) != Some(value) {
                return Some(format!("{value} is not at {offset} of partition {partition}"));
            }
        }
    }
    for (key, offset) in &answered.keys {
        let produced = engine.produce(&me(), &name("t"), keyed(key)).await.expect("taken");
        let again = produced.records[0].as_ref().ok().and_then(|placed| placed.offset);
        if !produced.duplicate || again != Some(Offset(*offset)) {
            return Some(format!("{key} was stored twice"));
        }
    }
    for (commit, least) in &answered.commits {
        let (group, partition) = commit.split_once('/').expect("made above");
        let group = GroupName::new(group).expect("a group");
        let offsets = engine.group_offsets(&me(), &group).await.unwrap_or_default();
        let found = offsets.iter().find(|c| c.partition.to_string() == partition);
        if found.is_none_or(|found| found.committed.0 < *least) {
            return Some(format!("the commit {least} of {commit} is gone"));
        }
    }
    // And it goes on.
    let next = produce(&engine, "t", (0..PARTITIONS).map(|partition| to(partition, "next")).collect()).await;
    (!next.records.iter().all(Result::is_ok)).then(|| "it takes no records".to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_record_topic_key_and_commit_outlives_a_power_cut() {
    for seed in 0..4 {
        let (bench, pictures) = pictures(seed, |_| {}).await;
        for (cut, (answered, disk)) in pictures.into_iter().enumerate() {
            assert!(!answered.records.is_empty() && !answered.topics.is_empty() && !answered.keys.is_empty());
            assert_eq!(broken(&bench, &answered, disk).await, None, "seed {seed}, cut {cut}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_does_not_sync_is_found_out() {
    let no_data_sync: fn(&SimStorage) = |disk| disk.ignore_sync_data(true);
    let no_dir_sync: fn(&SimStorage) = |disk| disk.ignore_sync_dir(true);
    for (what, lie) in [("data", no_data_sync), ("directories", no_dir_sync)] {
        let (bench, pictures) = pictures(0, lie).await;
        let mut found = Vec::new();
        for (answered, disk) in pictures {
            found.extend(broken(&bench, &answered, disk).await);
        }
        assert!(!found.is_empty(), "nobody noticed that {what} are not synced");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_cache_topics_outlive_the_process() {
    let (bench, disk) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", PARTITIONS, &[("durability", json!("page-cache"))]).await;
    let mut answered = Answered::default();
    for i in 0..50 {
        let value = i.to_string();
        let produced = produce(&engine, "t", vec![to(i % PARTITIONS, &value)]).await;
        let offset = produced.records[0].as_ref().expect("the disk works").offset.expect("acks").0;
        answered.records.insert((i % PARTITIONS, offset), value);
    }
    assert_eq!(broken(&bench, &answered, disk.restart()).await, None);
    let lost = broken(&bench, &answered, disk.crash(&CrashPlan::all_lost())).await;
    assert!(lost.is_some(), "they promise nothing more");
    engine.run_maintenance();
    assert_eq!(broken(&bench, &answered, disk.crash(&CrashPlan::all_lost())).await, None, "until they are flushed");
}
