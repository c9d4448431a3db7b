//! kill -9 under load, again and again: every record that was acknowledged is there after the restart, at its place and
//! byte for byte, and a retry with its key is stored once.
//!
//! `LEVADA_SOAK=N` makes it N times as long.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use levada_api::Placement;
use levada_client::{AcksWord, Client, FetchQuery, NewRecord};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::program::Server;

const KILLS: u64 = 50;
const WRITERS: usize = 4;
const TOPICS: [&str; 2] = ["synced", "cached"];
const PARTITIONS: u32 = 2;
/// Small, so that rolls, checkpoints and producer snapshots fall into every cycle.
const FLAGS: &[&str] = &["--maintenance-interval-ms", "5"];

/// Where a record was acknowledged to be: topic, partition, offset.
type Place = (&'static str, u32, u64);

/// One writer's stream of requests; each has a key and is tried until it is answered, over any number of kills.
struct Writer {
    number: usize,
    topic: &'static str,
    next: u64,
    acked: HashMap<Place, String>,
}

impl Writer {
    /// The records of the request that is next; the same however often it is tried.
    fn request(&self) -> Vec<String> {
        let count = 1 + self.next % 3;
        let pad = "x".repeat((self.next % 7 * 150).try_into().expect("small"));
        let (number, next) = (self.number, self.next);
        (0..count)
            .map(|n| format!("{{\"writer\":{number},\"request\":{next},\"record\":{n},\"pad\":\"{pad}\"}}"))
            .collect()
    }

    /// Writes until the server is gone.
    async fn write(mut self, client: Client, answers: Arc<Semaphore>) -> Self {
        loop {
            let values = self.request();
            let record = |value: &String| NewRecord::json(value.clone()).expect("it is JSON").with_key(value.clone());
            let records: Vec<_> = values.iter().map(record).collect();
            let key = format!("{}-{}", self.number, self.next);
            let answer = match client.produce_with_key(self.topic, &records, AcksWord::All, Some(&key)).await {
                Ok(answer) => answer,
                Err(error) if error.problem().is_none() => return self,
                Err(refused) => panic!("nothing is wrong with it: {refused}"),
            };
            for (placement, value) in answer.records.into_iter().zip(values) {
                let Placement::Placed(placed) = placement else { panic!("{placement:?}") };
                let offset = placed.offset.expect("acks=all tells it");
                self.acked.insert((self.topic, placed.partition, offset), value);
            }
            self.next += 1;
            answers.add_permits(1);
        }
    }
}

/// All that is stored, and that its offsets are dense.
async fn read_all(client: &Client) -> BTreeMap<Place, String> {
    let mut all = BTreeMap::new();
    for topic in TOPICS {
        for partition in 0..PARTITIONS {
            let mut next = 0;
            loop {
                let query = FetchQuery { max_records: Some(10_000), ..FetchQuery::from(next) };
                let fetched = client.fetch(topic, partition, &query).await.expect("it is readable");
                for record in fetched.records {
                    assert_eq!(record.offset, next, "offsets are dense");
                    next += 1;
                    let value = String::from_utf8(record.value.expect("a value").to_vec()).expect("text");
                    all.insert((topic, partition, record.offset), value);
                }
                assert_eq!(fetched.next_offset, next);
                if next >= fetched.high_watermark {
                    break;
                }
            }
        }
    }
    all
}

fn check(all: &BTreeMap<Place, String>, writers: &[Writer], kills: u64) {
    for writer in writers {
        for (place, value) in &writer.acked {
            assert_eq!(all.get(place), Some(value), "acknowledged at {place:?}, after {kills} kills");
        }
    }
    let mut times = HashMap::new();
    for value in all.values() {
        *times.entry(value).or_insert(0) += 1;
    }
    for (value, times) in times {
        assert_eq!(times, 1, "stored once, though it was tried again: {value}");
    }
}

fn soak() -> u64 {
    std::env::var("LEVADA_SOAK").ok().map_or(1, |times| times.parse().expect("LEVADA_SOAK is a number"))
}

#[test]
fn every_acknowledged_record_survives_kill_9_under_load() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let dir = TempDir::new().expect("a temporary directory");
    let mut server = Server::on(dir.path(), FLAGS);
    for (topic, durability) in TOPICS.into_iter().zip(["fsync", "page-cache"]) {
        let create = ["topic", "create", topic, "--partitions", "2", "--config", "segment.bytes=8192"];
        server.levada(&[&create[..], &["--config", &format!("durability={durability}")]].concat()).ok();
    }
    let new = |number| Writer { number, topic: TOPICS[number % 2], next: 0, acked: HashMap::new() };
    let mut writers: Vec<_> = (0..WRITERS).map(new).collect();
    for kill in 1..=KILLS * soak() {
        // From one answer to a few dozen, so that the kill falls at different ages of the log.
        let enough = u32::try_from(1 + kill * 7 % 40).expect("small");
        writers = runtime.block_on(async {
            let answers = Arc::new(Semaphore::new(0));
            let mut running = JoinSet::new();
            for writer in writers {
                let client = Client::new(&server.url).expect("a good address");
                running.spawn(writer.write(client, Arc::clone(&answers)));
            }
            answers.acquire_many(enough).await.expect("it is never closed").forget();
            server.running.signal(rustix::process::Signal::KILL);
            running.join_all().await
        });
        drop(server);
        server = Server::on(dir.path(), FLAGS);
        let client = Client::new(&server.url).expect("a good address");
        let all = runtime.block_on(read_all(&client));
        check(&all, &writers, kill);
    }
    let acked: usize = writers.iter().map(|writer| writer.acked.len()).sum();
    assert!(acked > 500, "the loop was about something: {acked}");
    let (status, _) = server.terminate();
    assert!(status.success());
}
