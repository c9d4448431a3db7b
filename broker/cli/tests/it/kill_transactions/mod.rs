//! kill -9 of the server under a load of transactions, again and again: the history of all that its clients asked and saw
//! is judged by `levada_history`.
//!
//! `LEVADA_SOAK=N` makes the loop N times as long.

mod face;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_client::{AcksWord, Client, NewRecord};
use levada_history::{Dice, Event, Partition, Read, Refusal, Setting, View, Workload};
use levada_model::{GroupName, Offset, PartitionIndex, TopicName};
use tempfile::TempDir;
use tokio::task::JoinSet;

use self::face::Face;
use crate::program::Server;

const PRODUCERS: u32 = 6;
const KILLS: u64 = 5;
/// Transactions between two kills, at least; the more so the later.
const PACE: u64 = 15;
const TOPICS: [(&str, &str); 2] = [("synced", "fsync"), ("cached", "page-cache")];
const PARTITIONS: u32 = 2;
/// Some transactions hang until then; now and then it hits others, too.
const TIMEOUT_MS: u64 = 500;
/// Offsets of the topic that groups read.
const SOURCE_END: u64 = 2_000;
/// Small, so that rolls, checkpoints and producer snapshots fall into every cycle.
const FLAGS: &[&str] = &["--maintenance-interval-ms", "20"];
/// Longest wait for something that must come; only a broken program meets it.
const PATIENCE: Duration = Duration::from_secs(120);
const VIEWS: [View; 2] = [View::Committed, View::Uncommitted];

fn partition(topic: &str, index: u32) -> Partition {
    Partition { topic: TopicName::new(topic).expect("a name"), index: PartitionIndex(index) }
}

async fn prepare(server: &Server) -> Setting {
    for (topic, durability) in TOPICS {
        let create = ["topic", "create", topic, "--partitions", "2", "--config", "segment.bytes=8192"];
        server.levada(&[&create[..], &["--config", &format!("durability={durability}")]].concat()).ok();
    }
    server.levada(&["topic", "create", "source", "--partitions", "1"]).ok();
    let client = Client::new(&server.url).expect("a good address");
    let records: Vec<_> = (0..SOURCE_END).map(|_| NewRecord::text("x")).collect();
    client.produce("source", &records, AcksWord::All).await.expect("stored");
    let partitions = TOPICS.iter().flat_map(|(topic, _)| (0..PARTITIONS).map(|index| partition(topic, index)));
    Setting {
        partitions: partitions.collect(),
        groups: ["g", "h"].map(|group| GroupName::new(group).expect("a name")).to_vec(),
        source: partition("source", 0),
        source_end: Offset(SOURCE_END),
        timeout_ms: TIMEOUT_MS,
    }
}

/// Reads a whole topic by its cursor, over all kills: no record is left out and none comes twice.
async fn follow(load: &Workload<Face>, topic: &str, view: View, is_over: impl Fn() -> bool) {
    let (mut cursor, mut next) = (None::<String>, HashMap::<u32, Offset>::new());
    while !is_over() {
        let asked = load.history().now();
        let page = match load.broker().page(topic, view, cursor.as_deref()).await {
            Ok(page) => page,
            Err(Refusal::Unknown | Refusal::Later) => continue,
            Err(error) => return load.history().note(Event::Unexpected(format!("{topic} by cursor: {error:?}"))),
        };
        cursor = Some(page.cursor);
        for index in 0..PARTITIONS {
            let of_it = page.records.iter().filter(|record| record.partition == index);
            let found = of_it.map(|record| Ok((Offset(record.offset), face::value(record)?)));
            let records: Vec<_> = match found.collect::<Result<_, Refusal>>() {
                Ok(records) => records,
                Err(error) => return load.history().note(Event::Unexpected(format!("{topic}: {error:?}"))),
            };
            let Some((last, _)) = records.last() else { continue };
            // Where the cursor stands it does not say; it stood before all of these, and stands behind the last.
            let (from, behind) = (next.get(&index).copied().unwrap_or_default(), last.advance(1));
            next.insert(index, behind);
            let partition = partition(topic, index);
            let read = Read { asked, view, partition, from, records, next: behind, marks: None };
            load.history().note(Event::Read(read));
        }
    }
}

fn start(load: &Arc<Workload<Face>>, seed: u64) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for producer in 0..PRODUCERS {
        let load = Arc::clone(load);
        tasks.spawn(async move { load.produce(producer, (seed << 8) + u64::from(producer)).await });
    }
    for number in 0..2 {
        let load = Arc::clone(load);
        tasks.spawn(async move { load.execute((seed << 8) + 100 + number).await });
    }
    for view in VIEWS {
        for partition in load.setting().partitions.clone() {
            let load = Arc::clone(load);
            tasks.spawn(async move { load.read(view, &partition, seed).await });
        }
        for (topic, _) in TOPICS {
            let load = Arc::clone(load);
            tasks.spawn(async move { follow(&load, topic, view, || load.is_stopped()).await });
        }
    }
    tasks
}

fn soak() -> u64 {
    std::env::var("LEVADA_SOAK").ok().map_or(1, |times| times.parse().expect("LEVADA_SOAK is a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_keep_every_promise_under_kill_9() {
    let seed = u64::from(std::process::id());
    let dir = TempDir::new().expect("a temporary directory");
    let mut server = Server::on(dir.path(), FLAGS);
    let port = server.port();
    let load = Arc::new(Workload::new(Face::new(), prepare(&server).await));
    load.broker().up(&server.url);
    let (tasks, mut dice, begun) = (start(&load, seed), Dice::new(seed), Instant::now());
    let mut enough = 0;
    for _ in 0..KILLS * soak() {
        enough += PACE + dice.below(20) as u64;
        while load.ended().0 + load.ended().1 < enough {
            assert!(begun.elapsed() < PATIENCE * u32::try_from(soak()).expect("small"), "seed {seed} stands still");
            tokio::task::yield_now().await;
        }
        load.broker().down();
        load.history().note(Event::Down("killed"));
        server.running.signal(rustix::process::Signal::KILL);
        drop(server);
        server = Server::on_port(dir.path(), port, FLAGS);
        load.history().note(Event::Up);
        load.broker().up(&server.url);
    }
    load.stop();
    let settled = async {
        tasks.join_all().await;
        load.settle(PRODUCERS).await;
    };
    tokio::time::timeout(PATIENCE, settled).await.unwrap_or_else(|_| panic!("seed {seed} does not come to an end"));
    let found = load.history().check();
    let shown: String = found.iter().take(5).map(|violation| format!("\n{violation}")).collect();
    assert!(found.is_empty(), "seed {seed}: {} violations{shown}", found.len());
    let (committed, aborted) = load.ended();
    assert!(committed > KILLS * PACE / 2 && aborted > 5, "it was about something: {committed} and {aborted}");
    let (status, _) = server.terminate();
    assert!(status.success());
}
