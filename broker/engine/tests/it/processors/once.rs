//! The power goes, and brokers are closed, while a processor works: under `exactly-once` its sink and dead letters hold what
//! a native computation over its sources gives, each once; under `at-least-once` each at least once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use levada_engine::Guarantee;
use levada_log::{CrashPlan, SimStorage};
use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::modules::{self, HostHandle, module};
use crate::support::{Bench, create, produce, to};

const PARTITIONS: u32 = 3;
const CUTS: u64 = 6;
const CLOSES: u32 = 10;
/// Records that are processed between two cuts.
const GOAL: u64 = 60;
/// Records that may wait for the processor.
const WAITING_MAX: u64 = 120;

/// Values with how often each is there.
type Counts = BTreeMap<String, u32>;

/// The `n`th value of a partition: some are dropped, doubled, rejected, or trap.
fn value(partition: u32, n: u64) -> String {
    let word = match n * 7 % 23 {
        0 => "trap",
        1 | 2 => "reject",
        3..=6 => "drop",
        7..=9 => "twice",
        _ => "pass",
    };
    format!("{word}-{partition}-{n}")
}

/// What has to come out of a value, and whether it is set aside.
fn native(value: &str) -> (Vec<String>, bool) {
    match value.split('-').next() {
        Some("trap" | "reject") => (Vec::new(), true),
        Some("drop") => (Vec::new(), false),
        Some("twice") => (vec![format!("{value}/1"), format!("{value}/2")], false),
        _ => (vec![value.to_uppercase()], false),
    }
}

async fn prepare(engine: &Engine, guarantee: Guarantee) {
    modules::put(engine, "f", module(&["transform"], json!({"upper": true}))).await;
    create(engine, "in", PARTITIONS, &[("segment.bytes", json!(16_384))]).await;
    create(engine, "out", 2, &[("segment.bytes", json!(16_384))]).await;
    let steps = vec![filter("", levada_extension::JsonTest::Exists(false)), transform("f")];
    put(engine, ProcessorSpec { guarantee, commit_interval_ms: 1, ..spec(steps) }).await;
}

/// Produces values until it is told to stop, not too many at once.
async fn feed(engine: Engine, next: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    let (began, from) = (engine.stats(), next.load(Ordering::Relaxed));
    while !stop.load(Ordering::Relaxed) {
        let stats = engine.stats();
        let fed = (next.load(Ordering::Relaxed) - from) * u64::from(PARTITIONS);
        if fed > stats.processor_records_in - began.processor_records_in + WAITING_MAX {
            tokio::task::yield_now().await;
            continue;
        }
        let n = next.fetch_add(5, Ordering::Relaxed);
        let records =
            (n..n + 5).flat_map(|n| (0..PARTITIONS).map(move |partition| to(partition, &value(partition, n))));
        let request = crate::support::request(records.collect());
        // While the engine closes none of them, or some, are stored.
        drop(engine.produce(&me(), &name("in"), request).await);
    }
}

async fn counts(engine: &Engine, topic: &str, partitions: u32) -> Counts {
    let mut counts = Counts::new();
    for partition in 0..partitions {
        if engine.describe_topic(&me(), &name(topic)).is_err() {
            return counts;
        }
        for value in out(engine, topic, partition).await {
            *counts.entry(value).or_default() += 1;
        }
    }
    counts
}

/// Waits until all is processed and compares; answers how many records the sources had.
async fn check(engine: &Engine, guarantee: Guarantee, at: &str) -> usize {
    caught_up(engine).await;
    let (mut wanted, mut wanted_letters) = (Counts::new(), Counts::new());
    let source = counts(engine, "in", PARTITIONS).await;
    for value in source.keys() {
        let (outputs, is_letter) = native(value);
        outputs.into_iter().for_each(|output| *wanted.entry(output).or_default() += 1);
        if is_letter {
            wanted_letters.insert(value.clone(), 1);
        }
    }
    let found = [counts(engine, "out", 2).await, counts(engine, "in.dead-letter", 1).await];
    for (found, wanted) in found.into_iter().zip([wanted, wanted_letters]) {
        match guarantee {
            Guarantee::ExactlyOnce => assert_eq!(found, wanted, "{at}"),
            Guarantee::AtLeastOnce => assert!(found.keys().eq(wanted.keys()), "{at}: {found:?}, {wanted:?}"),
        }
    }
    source.len()
}

/// What power cuts leave of the disk at several moments.
async fn pictures(guarantee: Guarantee, seed: u64) -> (Bench, Vec<SimStorage>) {
    let (bench, disk) = Bench::sim();
    let engine = modules::open(&bench, &HostHandle::default());
    prepare(&engine, guarantee).await;
    let (next, stop): (Arc<AtomicU64>, Arc<AtomicBool>) = Default::default();
    let mut feeders = JoinSet::new();
    feeders.spawn(feed(engine.clone(), next, stop.clone()));
    let mut pictures = Vec::new();
    for cut in 0..CUTS {
        let goal = (cut + 1) * GOAL;
        until("enough is processed", async || engine.stats().processor_records_in >= goal).await;
        let plan = if cut == 0 { CrashPlan::all_lost() } else { CrashPlan::seeded(seed * CUTS + cut, 512) };
        pictures.push(disk.crash(&plan));
    }
    stop.store(true, Ordering::Relaxed);
    feeders.join_all().await;
    engine.close().await.expect("closed");
    (bench, pictures)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_power_cut_nothing_is_lost_and_nothing_doubled_that_must_not_be() {
    // A longer soak: LEVADA_POWER_CUT_SEEDS=1000.
    let seeds = std::env::var("LEVADA_POWER_CUT_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1);
    for seed in 0..seeds {
        for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce] {
            let (bench, pictures) = pictures(guarantee, seed).await;
            for (cut, disk) in pictures.into_iter().enumerate() {
                let engine = modules::open(&bench.with(disk), &HostHandle::default());
                let count = check(&engine, guarantee, &format!("{guarantee:?}, seed {seed}, cut {cut}")).await;
                assert!(count as u64 >= (cut as u64 + 1) * GOAL, "{count} records before cut {cut}");
                engine.close().await.expect("closed");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_closed_at_any_moment_goes_on_where_it_was() {
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce] {
        let (bench, _) = Bench::sim();
        let host = HostHandle::default();
        let engine = modules::open(&bench, &host);
        prepare(&engine, guarantee).await;
        engine.close().await.expect("closed");
        let next: Arc<AtomicU64> = Arc::default();
        for round in 0..CLOSES {
            let engine = modules::open(&bench, &host);
            let stop: Arc<AtomicBool> = Arc::default();
            let mut feeders = JoinSet::new();
            feeders.spawn(feed(engine.clone(), next.clone(), stop.clone()));
            let goal = u64::from(round * 13 % 50);
            until("something is processed", async || engine.stats().processor_records_in >= goal).await;
            engine.close().await.expect("closed");
            stop.store(true, Ordering::Relaxed);
            feeders.join_all().await;
        }
        let engine = modules::open(&bench, &host);
        check(&engine, guarantee, &format!("{guarantee:?}")).await;
    }
}

#[tokio::test]
async fn a_task_that_comes_back_aborts_what_the_one_before_has_left_open() {
    let (bench, disk) = Bench::sim();
    let host = HostHandle::default();
    let engine = modules::open(&bench, &host);
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    put(&engine, ProcessorSpec { commit_interval_ms: 60_000, ..spec(vec![]) }).await;
    produce(&engine, "in", vec![to(0, "a")]).await;
    until("it is stored and not committed", async || {
        let out = engine.describe_topic(&me(), &name("out")).expect("there");
        out.partitions[0].high_watermark.0 == 1
    })
    .await;
    assert!(out(&engine, "out", 0).await.is_empty());
    let cut = bench.with(disk.crash(&CrashPlan::all_lost()));
    engine.close().await.expect("closed");
    drop(engine);
    let engine = modules::open(&cut, &host);
    put(&engine, spec(vec![])).await;
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, ["a"], "once");
    assert_eq!(info(&engine).await.tasks[0].lag, 0);
}
