//! The whole server on a simulated disk: one that fails, and one whose power is cut while clients write. What a client
//! holds an answer for is there afterwards; the same test fails when the disk lies about its syncs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http::Method;
use levada_engine::{Engine, EngineOptions, OpenError};
use levada_log::{CrashPlan, SimStorage};
use levada_model::SystemClock;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::contract::Contract;
use crate::harness::Harness;

const PARTITIONS: u64 = 2;
const CLIENTS: usize = 4;
const CUTS: u64 = 6;

fn new_disk() -> SimStorage {
    SimStorage::new(Arc::new(SystemClock))
}

/// Opens the engine on another disk than the machine's.
fn on(disk: &SimStorage) -> impl FnOnce(EngineOptions) -> Result<Engine, OpenError> + Send + 'static {
    let disk = disk.clone();
    move |options| Engine::open(EngineOptions { storage: Arc::new(disk), data_dir: "data".into(), ..options })
}

async fn start_on(disk: &SimStorage) -> Result<Harness, OpenError> {
    let mut harness = Harness::start_with(Arc::new(Contract::load()), |_| {}, on(disk)).await;
    harness.server.opened().await.map(|()| harness)
}

async fn produce(harness: &Harness, record: Value) -> crate::harness::Answer {
    harness.json(Method::POST, "/v1/topics/t/records", &json!({ "records": [record] })).await
}

/// All values of a partition, by offset.
async fn all(harness: &Harness, partition: u64) -> BTreeMap<u64, Value> {
    let path = format!("/v1/topics/t/partitions/{partition}/records?max_records=10000&max_bytes=9000000");
    let answer = harness.get(&path).await.expect(200).json();
    let records = answer["records"].as_array().expect("records").iter();
    records.map(|record| (record["offset"].as_u64().expect("an offset"), record["value"].clone())).collect()
}

#[tokio::test]
async fn a_disk_that_fails_is_told_by_every_refused_write_and_reads_go_on() {
    let disk = new_disk();
    let harness = start_on(&disk).await.expect("it opens");
    produce(&harness, json!({ "value": "kept" })).await.expect(200);
    produce(&harness, json!({ "value": "kept too" })).await.expect(200);
    disk.fail_sync(true);
    let lost = produce(&harness, json!({ "value": "lost" })).await.expect(503);
    assert_eq!((lost.code().as_str(), &lost.json()["effect"]), ("log-fenced", &json!("possible")));
    disk.fail_sync(false);

    let refused = produce(&harness, json!({ "value": "refused" })).await.expect(503);
    assert_eq!((refused.code().as_str(), &refused.json()["effect"]), ("log-fenced", &json!("none")));
    let ready = harness.get("/readyz").await.expect(503);
    assert_eq!((ready.code().as_str(), ready.header("retry-after")), ("log-fenced", "1"));
    assert!(ready.json()["detail"].as_str().is_some_and(|detail| detail.contains("sync")), "{ready:?}");
    harness.get("/healthz").await.expect(200);
    let page = harness.get("/metrics").await.expect(200);
    assert!(String::from_utf8_lossy(&page.body).lines().any(|line| line == "levada_ready 0"));
    assert_eq!(
        harness.json(Method::POST, "/v1/topics", &json!({ "name": "new" })).await.expect(503).code(),
        "log-fenced"
    );
    assert_eq!(harness.delete("/v1/topics/t").await.expect(503).code(), "log-fenced");
    let commit = json!({ "offsets": [{ "topic": "t", "partition": 0, "offset": 0 }] });
    assert_eq!(harness.json(Method::PUT, "/v1/groups/g/offsets", &commit).await.expect(503).code(), "log-fenced");
    let kept = BTreeMap::from([(0, json!("kept")), (1, json!("kept too"))]);
    assert_eq!(all(&harness, 0).await, kept);

    let disk = disk.restart();
    let again = start_on(&disk).await.expect("it opens again");
    again.get("/readyz").await.expect(200);
    assert!(all(&again, 0).await.len() >= 2);
    produce(&again, json!({ "value": "new" })).await.expect(200);
}

/// What clients hold answers for.
#[derive(Clone, Default)]
struct Answered {
    /// Values by partition and offset.
    records: BTreeMap<(u64, u64), Value>,
    /// Idempotency keys with the place of their first try.
    keys: BTreeMap<String, (u64, u64)>,
    /// Committed offsets by group.
    commits: BTreeMap<String, u64>,
    topics: Vec<String>,
}

fn place(answer: &Value) -> (u64, u64) {
    let record = &answer["records"][0];
    (record["partition"].as_u64().expect("a partition"), record["offset"].as_u64().expect("an offset"))
}

async fn produce_once(harness: &Harness, key: &str) -> Value {
    let request = harness.request(Method::POST, "/v1/topics/t/records").header("idempotency-key", key);
    harness.send(request.json(&json!({ "records": [{ "value": key }] }))).await.expect(200).json()
}

/// One round of a client; every answer is noted as soon as it is there.
async fn round(harness: &Harness, client: usize, i: u64, answered: &Mutex<Answered>) {
    let value = json!({ "client": client, "i": i, "text": "x".repeat(usize::try_from(i * 37 % 300).expect("small")) });
    let stored = produce(harness, json!({ "partition": i % PARTITIONS, "value": value })).await.expect(200).json();
    answered.lock().expect("no panic").records.insert(place(&stored), value);
    if i.is_multiple_of(4) {
        let key = format!("key-{client}-{i}");
        let at = place(&produce_once(harness, &key).await);
        let mut answered = answered.lock().expect("no panic");
        answered.records.insert(at, json!(key));
        answered.keys.insert(key, at);
    }
    if i.is_multiple_of(6) {
        let topic = format!("new-{client}-{i}");
        harness.topic(&topic).await;
        answered.lock().expect("no panic").topics.push(topic);
        let (partition, offset) = place(&stored);
        let group = format!("g-{client}-{i}");
        let commit = json!({ "offsets": [{ "topic": "t", "partition": partition, "offset": offset }] });
        harness.json(Method::PUT, &format!("/v1/groups/{group}/offsets"), &commit).await.expect(200);
        answered.lock().expect("no panic").commits.insert(group, offset);
    }
}

/// Lets clients write, and takes pictures of what power cuts leave, each with what was answered before it.
async fn pictures(plant: impl Fn(&SimStorage)) -> Vec<(Answered, SimStorage)> {
    let disk = new_disk();
    plant(&disk);
    let harness = Arc::new(start_on(&disk).await.expect("it opens"));
    let topic = json!({ "name": "t", "partitions": PARTITIONS, "config": { "segment.bytes": 4096 } });
    harness.json(Method::POST, "/v1/topics", &topic).await.expect(201);
    let (answered, stop) = (Arc::new(Mutex::new(Answered::default())), Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (harness, answered, stop) = (Arc::clone(&harness), Arc::clone(&answered), Arc::clone(&stop));
        clients.spawn(async move {
            for i in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                round(&harness, client, i, &answered).await;
            }
        });
    }
    let mut pictures = Vec::new();
    for cut in 0..CUTS {
        let goal = usize::try_from(cut + 1).expect("small") * 20;
        while answered.lock().expect("no panic").records.len() < goal {
            tokio::task::yield_now().await;
        }
        let before = answered.lock().expect("no panic").clone();
        let plan = if cut == 0 { CrashPlan::all_lost() } else { CrashPlan::seeded(cut, 512) };
        pictures.push((before, disk.crash(&plan)));
    }
    stop.store(true, Ordering::Relaxed);
    clients.join_all().await;
    pictures
}

/// What of the answers does not hold on the disk that a power cut left.
async fn broken(answered: &Answered, disk: &SimStorage) -> Option<String> {
    let harness = match start_on(disk).await {
        Ok(harness) => harness,
        Err(error) => return Some(format!("no start: {error}")),
    };
    for topic in answered.topics.iter().map(String::as_str).chain(["t"]) {
        if harness.get(&format!("/v1/topics/{topic}")).await.status != 200 {
            return Some(format!("topic {topic} is gone"));
        }
    }
    for partition in 0..PARTITIONS {
        let found = all(&harness, partition).await;
        if !found.keys().copied().eq(0..found.len() as u64) {
            return Some(format!("partition {partition} has holes"));
        }
        let mut wanted = answered.records.range((partition, 0)..(partition + 1, 0));
        if let Some(((_, offset), value)) = wanted.find(|((_, offset), value)| found.get(offset) != Some(value)) {
            return Some(format!("{value} is not at {offset} of partition {partition}"));
        }
    }
    for (key, at) in &answered.keys {
        if place(&produce_once(&harness, key).await) != *at {
            return Some(format!("{key} was stored twice"));
        }
    }
    for (group, offset) in &answered.commits {
        let answer = harness.get(&format!("/v1/groups/{group}/offsets")).await;
        if answer.status != 200 || answer.json()["offsets"][0]["committed"] != *offset {
            return Some(format!("the commit of {group} is gone"));
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_power_cut_everything_is_there_that_a_client_holds_an_answer_for() {
    for (answered, disk) in pictures(|_| {}).await {
        assert_eq!(broken(&answered, &disk).await, None);
    }
}

async fn is_noticed(plant: impl Fn(&SimStorage)) -> bool {
    for (answered, disk) in pictures(plant).await {
        if broken(&answered, &disk).await.is_some() {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_noticed_when_the_disk_lies_about_data() {
    assert!(is_noticed(|disk| disk.ignore_sync_data(true)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_noticed_when_the_disk_lies_about_names() {
    assert!(is_noticed(|disk| disk.ignore_sync_dir(true)).await);
}
