//! A running program with the calls that the proofs need. Not here: what they claim.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use levada_api::{Problem, Processor, ProcessorState};
use levada_client::{AcksWord, Client, FetchQuery, NewRecord, Record};
use serde_json::{Value, json};

use crate::program::Server;

/// Longest wait for something that must come; only a broken program meets it.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Records of one request, at most.
const REQUEST_RECORDS: usize = 5_000;

/// A server and a client of it.
pub(super) struct Broker {
    pub(super) server: Server,
    pub(super) client: Client,
}

impl Broker {
    pub(super) fn new(flags: &[&str]) -> Self {
        Self::of(Server::new(flags))
    }

    pub(super) fn of(server: Server) -> Self {
        let client = Client::new(&server.url).expect("a good address");
        Self { server, client }
    }

    pub(super) async fn topic(&self, name: &str, partitions: u32, config: Value) {
        self.client.create_topic(name, partitions, settings(config)).await.expect("it is created");
    }

    /// Creates a topic with a config that is refused.
    pub(super) async fn no_topic(&self, name: &str, config: Value) -> Problem {
        refused(self.client.create_topic(name, 1, settings(config)).await.expect_err("it is refused"))
    }

    pub(super) async fn store(&self, topic: &str, records: &[NewRecord]) {
        for records in records.chunks(REQUEST_RECORDS) {
            self.client.produce(topic, records, AcksWord::All).await.expect("they are stored");
        }
    }

    /// Stores one record, or says why not.
    pub(super) async fn produce(&self, topic: &str, value: &str) -> Result<(), Problem> {
        self.client.produce(topic, &[NewRecord::text(value)], AcksWord::All).await.map(drop).map_err(refused)
    }

    /// Puts and activates a version of a module; answers its number.
    pub(super) async fn put(&self, name: &str, wasm: impl Into<Bytes>) -> u32 {
        let (put, _) = self.client.put_module(name, wasm.into(), true).await.expect("it is a module");
        assert_eq!(put.active_version, put.version);
        put.version
    }

    pub(super) async fn put_refused(&self, name: &str, wasm: impl Into<Bytes>) -> Problem {
        refused(self.client.put_module(name, wasm.into(), true).await.expect_err("it is refused"))
    }

    /// The values of a partition through a filter, from its beginning.
    pub(super) async fn filtered(&self, topic: &str, filter: &str) -> Result<Vec<String>, Problem> {
        let url = format!("{}/v1/topics/{topic}/partitions/0/records", self.server.url);
        let query = [("filter", filter), ("max_records", "10000"), ("max_bytes", "16777216"), ("format", "text")];
        let response = reqwest::Client::new().get(url).query(&query).send().await.expect("an answer");
        let is_success = response.status().is_success();
        let body = response.bytes().await.expect("a body");
        if !is_success {
            return Err(serde_json::from_slice(&body).expect("a problem"));
        }
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let text =
            |record: &Value| record["value_text"].as_str().map_or_else(|| record["value"].to_string(), str::to_owned);
        Ok(body["records"].as_array().expect("records").iter().map(text).collect())
    }

    /// What is committed of a partition.
    pub(super) async fn partition(&self, topic: &str, partition: u32) -> Vec<Record> {
        let (mut all, mut next) = (Vec::new(), 0);
        loop {
            let query = FetchQuery { max_records: Some(10_000), max_bytes: Some(16 << 20), ..FetchQuery::from(next) };
            let fetched = self.client.fetch(topic, partition, &query).await.expect("it is readable");
            next = fetched.next_offset;
            all.extend(fetched.records);
            if next >= fetched.last_stable_offset {
                return all;
            }
        }
    }

    /// What is committed of a topic, partition by partition.
    pub(super) async fn all(&self, topic: &str) -> Vec<Record> {
        let partitions = self.client.topic(topic).await.expect("it is there").partition_count;
        let mut all = Vec::new();
        for partition in 0..partitions {
            all.extend(self.partition(topic, partition).await);
        }
        all
    }

    /// The dead letters of a processor's own topic for them; none if there is no such topic yet.
    pub(super) async fn letters(&self, processor: &str) -> Vec<Record> {
        let topic = format!("{processor}.aside");
        match self.client.topic(&topic).await {
            Ok(_) => self.all(&topic).await,
            Err(_) => Vec::new(),
        }
    }

    /// How many offsets the partitions of a topic have used up.
    pub(super) async fn sunk(&self, topic: &str) -> u64 {
        let topic = self.client.topic(topic).await.expect("it is there");
        topic.partitions.iter().map(|partition| partition.high_watermark).sum()
    }

    /// How many records are stored in partition 0.
    pub(super) async fn stored(&self, topic: &str) -> u64 {
        self.client.topic(topic).await.expect("it is there").partitions[0].high_watermark
    }

    /// A processor of one step from a topic to another.
    pub(super) async fn processor(&self, name: &str, document: &Value) {
        self.client.put_processor(name, document.to_string()).await.expect("a right document");
    }

    pub(super) async fn standing(&self, name: &str) -> Processor {
        self.client.processor(name).await.expect("it is there")
    }

    /// Waits until a processor has worked off all that there is, and readers see it.
    pub(super) async fn worked_off(&self, name: &str) -> Processor {
        let is_done = |it: &Processor| !it.tasks.is_empty() && it.tasks.iter().all(|task| task.lag == 0);
        let standing = self.processor_that(name, is_done).await;
        // A position is there a little before the records that it commits with.
        let begun = Instant::now();
        while !self.client.transactions().await.expect("a list").is_empty() {
            assert!(begun.elapsed() < PATIENCE, "a transaction stays open: {standing:?}");
        }
        standing
    }

    /// Waits until a processor is so; it runs meanwhile.
    pub(super) async fn processor_that(&self, name: &str, is: impl Fn(&Processor) -> bool) -> Processor {
        let begun = Instant::now();
        loop {
            let processor = self.standing(name).await;
            if is(&processor) {
                return processor;
            }
            assert_eq!(processor.state, ProcessorState::Running, "{processor:?}");
            assert!(begun.elapsed() < PATIENCE, "{processor:?}");
        }
    }
}

fn settings(config: Value) -> BTreeMap<String, Value> {
    serde_json::from_value(config).expect("an object")
}

/// What the server said.
pub(super) fn refused(error: levada_client::ClientError) -> Problem {
    error.problem().cloned().unwrap_or_else(|| panic!("not by the server: {error}"))
}

/// That a problem is this one, and says these words.
#[track_caller]
pub(super) fn says(problem: &Problem, code: &str, words: &str) {
    assert_eq!(problem.code.as_str(), code, "{problem:?}");
    assert!(problem.detail.contains(words), "{words:?} is not in: {}", problem.detail);
}

/// A document of one step.
pub(super) fn document(from: &str, module: &str, to: &str, more: Value) -> Value {
    let mut document = json!({
        "sources": [{ "topic": from }],
        "steps": [{ "transform": { "module": module } }],
        "sink": { "topic": to },
    });
    let Value::Object(more) = more else { panic!("an object") };
    document.as_object_mut().expect("an object").extend(more);
    document
}

/// The values of records as text; none for a tombstone.
pub(super) fn texts(records: &[Record]) -> Vec<Option<String>> {
    let text = |record: &Record| record.value.as_ref().map(|value| String::from_utf8(value.to_vec()).expect("text"));
    records.iter().map(text).collect()
}

/// How often each is there.
pub(super) fn counted<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, u64> {
    let mut counts = BTreeMap::new();
    items.into_iter().for_each(|item| *counts.entry(item).or_insert(0) += 1);
    counts
}
