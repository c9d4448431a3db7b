//! The power goes while transactions are under way: what was answered as committed is there whole, what was aborted never
//! is, and of the rest all or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use levada_log::{CrashPlan, SimStorage};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::support::{Bench, all, create, to, until};

const PARTITIONS: u32 = 3;
const PRODUCERS: usize = 4;
const CUTS: u64 = 8;

/// What the programs know.
#[derive(Clone, Default)]
struct Known {
    /// Whose commit was answered.
    committed: BTreeSet<String>,
    /// That were aborted, or are about to be.
    aborted: BTreeSet<String>,
}

/// Runs one transaction after another, each with a record in every partition.
async fn transact(engine: Engine, producer: usize, known: Arc<Mutex<Known>>, stop: Arc<AtomicBool>) {
    let mut one = Transactor::start(&engine, &format!("p{producer}")).await;
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("{producer}-{round}");
        let outcome = if round % 4 == 3 { ABORT } else { COMMIT };
        if outcome == ABORT {
            known.lock().aborted.insert(name.clone());
        }
        let produced = one.send("t", (0..PARTITIONS).map(|partition| to(partition, &name)).collect()).await;
        assert!(produced.records.iter().all(Result::is_ok));
        one.end(outcome).await;
        if outcome == COMMIT {
            known.lock().committed.insert(name);
        }
    }
}

/// What power cuts leave of the disk at several moments, each with what was known before it.
async fn pictures(durability: &str, seed: u64) -> (Bench, Vec<(Known, SimStorage)>) {
    let (bench, disk) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", PARTITIONS, &[("durability", json!(durability)), ("segment.bytes", json!(4_096))]).await;
    let (known, stop): (Arc<Mutex<Known>>, Arc<AtomicBool>) = Default::default();
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        producers.spawn(transact(engine.clone(), producer, known.clone(), stop.clone()));
    }
    let mut pictures = Vec::new();
    for cut in 0..CUTS {
        let goal = (cut as usize + 1) * 6;
        until("enough is committed", async || known.lock().committed.len() >= goal).await;
        let before = known.lock().clone();
        let plan = if cut == 0 { CrashPlan::all_lost() } else { CrashPlan::seeded(seed * CUTS + cut, 512) };
        pictures.push((before, disk.crash(&plan)));
    }
    stop.store(true, Ordering::Relaxed);
    producers.join_all().await;
    (bench, pictures)
}

/// How many partitions have each transaction's record, once everything is decided.
async fn found(bench: &Bench, disk: SimStorage) -> BTreeMap<String, u32> {
    let bench = bench.with(disk);
    let engine = bench.open();
    // What nobody ends is ended by its time.
    bench.clock.advance(61_000);
    until("everything is decided", async || {
        engine.run_maintenance();
        let described = engine.describe_topic(&me(), &name("t")).expect("there");
        described.partitions.iter().all(|partition| partition.last_stable_offset == partition.high_watermark)
    })
    .await;
    let mut counts = BTreeMap::new();
    for partition in 0..PARTITIONS {
        for (_, value) in all(&engine, "t", partition, 0).await {
            *counts.entry(value).or_insert(0) += 1;
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_are_whole_or_not_there_after_a_power_cut() {
    // A longer soak: LEVADA_POWER_CUT_SEEDS=1000.
    let seeds = std::env::var("LEVADA_POWER_CUT_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1);
    for seed in 0..seeds {
        for durability in ["fsync", "page-cache"] {
            let (bench, pictures) = pictures(durability, seed).await;
            for (cut, (known, disk)) in pictures.into_iter().enumerate() {
                let found = found(&bench, disk).await;
                let at = format!("{durability}, seed {seed}, cut {cut}: {found:?}");
                for name in &known.committed {
                    assert_eq!(found.get(name), Some(&PARTITIONS), "{name} was committed; {at}");
                }
                assert!(known.aborted.iter().all(|name| !found.contains_key(name)), "{:?}; {at}", known.aborted);
                // What was stored and not yet ended is as safe as the topic promises, and here that is not at all.
                if durability == "fsync" {
                    assert!(found.values().all(|count| *count == PARTITIONS), "in part: {at}");
                }
            }
        }
    }
}
