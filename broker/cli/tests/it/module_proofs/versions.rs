//! New versions of modules while records flow: nothing is lost or doubled, and each record is judged by one version, and
//! that one of those there were.
//!
//! `LEVADA_SOAK=N` makes it N times as long: ten times are 200 versions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use levada_client::{AcksWord, Client, NewRecord};
use levada_fixtures::{CASES, stamp};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;

use super::broker::{Broker, document, refused};
use super::{report, soak};
use crate::program::Server;

const VERSIONS: u64 = 20;
const PARTITIONS: u32 = 2;
const REQUEST_RECORDS: u64 = 10;

/// What the module makes of a value.
#[derive(Deserialize)]
struct Stamped {
    version: u32,
    value: (u32, u64),
}

/// What the tasks of a load share.
#[derive(Clone)]
struct Load {
    client: Client,
    stop: Arc<AtomicBool>,
    /// The newest version, and the one that is being put.
    newest: Arc<AtomicU32>,
}

impl Load {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Produces pairs of partition and number; answers how many.
    async fn produce(self, partition: u32) -> u64 {
        let mut next = 0;
        while !self.is_over() {
            let record = |number: u64| {
                let value = NewRecord::json(json!([partition, number]).to_string()).expect("it is JSON");
                NewRecord { partition: Some(partition), ..value.with_key(partition.to_string()) }
            };
            let records: Vec<_> = (next..next + REQUEST_RECORDS).map(record).collect();
            self.client.produce("in", &records, AcksWord::All).await.expect("it is stored");
            next += REQUEST_RECORDS;
        }
        next
    }

    /// Reads through whatever version is in force; answers how often.
    async fn read(self, url: String) -> u64 {
        let http = reqwest::Client::new();
        let mut reads = 0;
        while !self.is_over() {
            let query = [("filter", "module:stamp"), ("offset", "tail:20"), ("format", "text"), ("max_records", "20")];
            let before = self.newest.load(Ordering::SeqCst);
            let response = http.get(format!("{url}/v1/topics/in/partitions/0/records")).query(&query).send().await;
            let body = response.expect("an answer").text().await.expect("a body");
            let after = self.newest.load(Ordering::SeqCst);
            let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
            let records = body["records"].as_array().unwrap_or_else(|| panic!("no filtered read: {body}"));
            for record in records {
                let text = record["value_text"].as_str().expect("text");
                let stamped: Stamped = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
                // The version that was in force when it was asked, or one that came meanwhile.
                assert!((before..=after + 1).contains(&stamped.version), "{before} to {after}: {}", stamped.version);
            }
            reads += 1;
        }
        reads
    }

    /// Produces what a validator takes and what it rejects; answers how many it took.
    async fn judge(self) -> u64 {
        let mut taken = 0;
        while !self.is_over() {
            self.client.produce("judged", &[NewRecord::text("fine")], AcksWord::All).await.expect("it is taken");
            taken += 1;
            let answer = self.client.produce("judged", &[NewRecord::text("reject")], AcksWord::All).await;
            let problem = refused(answer.expect_err("it is rejected"));
            assert_eq!(problem.code.as_str(), "record-rejected", "{problem:?}");
        }
        taken
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn new_versions_under_load_lose_and_double_nothing_and_each_record_is_judged_by_one_of_them() {
    let broker = Broker::of(Server::new(&[]));
    for topic in ["in", "out"] {
        broker.topic(topic, PARTITIONS, json!({})).await;
    }
    broker.put("stamp", stamp(1)).await;
    broker.put("judge", CASES).await;
    broker.topic("judged", 1, json!({ "validator": "module:judge" })).await;
    broker.processor("p", &document("in", "stamp", "out", json!({ "commit_interval_ms": 20 }))).await;
    let load = Load {
        client: Client::new(&broker.server.url).expect("a good address"),
        stop: Arc::default(),
        newest: Arc::new(AtomicU32::new(1)),
    };
    let mut producers = JoinSet::new();
    for partition in 0..PARTITIONS {
        let load = load.clone();
        producers.spawn(async move { (partition, load.produce(partition).await) });
    }
    let reads = tokio::spawn(load.clone().read(broker.server.url.clone()));
    let taken = tokio::spawn(load.clone().judge());
    let last = u32::try_from(VERSIONS * soak()).expect("small");
    for version in 2..=last {
        assert_eq!(broker.put("stamp", stamp(version)).await, version);
        load.newest.store(version, Ordering::SeqCst);
        // The validator's bytes are others each time; it does the same.
        let custom = [&[0, 5, 0][..], &version.to_le_bytes()].concat();
        broker.put("judge", [CASES, &custom].concat()).await;
    }
    load.stop.store(true, Ordering::SeqCst);
    let produced: HashMap<_, _> = producers.join_all().await.into_iter().collect();
    let (reads, taken) = (reads.await.expect("all reads are right"), taken.await.expect("all is judged"));
    broker.worked_off("p").await;
    assert_eq!(broker.stored("judged").await, taken);
    let mut next: HashMap<u32, (u64, u32)> = HashMap::new();
    let mut used = std::collections::BTreeSet::new();
    for record in broker.all("out").await {
        let text = record.value.expect("a value");
        let Stamped { version, value: (partition, number) } = serde_json::from_slice(&text).expect("it is stamped");
        let (expected, before) = next.entry(partition).or_insert((0, 1));
        assert_eq!(number, *expected, "partition {partition}: none is lost, doubled or out of its turn");
        assert!((*before..=last).contains(&version), "partition {partition}, {number}: {version} after {before}");
        (*expected, *before) = (number + 1, version);
        used.insert(version);
    }
    for (partition, count) in produced {
        assert_eq!(next[&partition].0, count, "partition {partition}");
    }
    let records: u64 = next.values().map(|(count, _)| count).sum();
    report(&format!(
        "{last} versions, {} of them at work; {records} records, {reads} reads, {taken} judged",
        used.len()
    ));
    assert!(used.len() > 2, "it was about something: {used:?}");
}
