//! How far a partition is stable, whatever happens to its log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use levada_engine::AlterTopic;
use levada_log::CrashPlan;
use levada_model::Offset;
use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::support::{Bench, LONG, all, create, produce, record, set, to};

#[tokio::test]
async fn what_was_committed_outlives_a_power_cut_in_every_topic_and_nothing_else_is_seen_after_it() {
    for durability in ["fsync", "page-cache"] {
        for (plan, is_kept) in [(CrashPlan::all_lost(), false), (CrashPlan::all_kept(), true)] {
            let (bench, disk) = Bench::sim();
            let engine = bench.open();
            create(&engine, "t", 1, &[("durability", json!(durability))]).await;
            let mut one = Transactor::start(&engine, "one").await;
            let mut two = Transactor::start(&engine, "two").await;
            one.send("t", vec![to(0, "a")]).await;
            two.send("t", vec![to(0, "x")]).await;
            one.end(COMMIT).await;
            two.end(ABORT).await;
            one.send("t", vec![to(0, "open")]).await;
            let open = one.begin().await;
            let is_there = is_kept || durability == "fsync";
            let bench = bench.with(disk.crash(&plan));
            drop((engine, one, two));
            let engine = bench.open();
            assert_eq!(seen(&engine, "t", ReadCommitted).await, (owned(&["a"]), 4), "{durability}, {plan:?}");
            assert_eq!(marks(&engine, "t"), (0, 4, if is_there { 5 } else { 4 }));
            // And it ends.
            engine.end_transaction(&me(), open, COMMIT).await.expect("it ends");
            let found = if is_there { owned(&["a", "open"]) } else { owned(&["a"]) };
            assert_eq!(seen(&engine, "t", ReadCommitted).await.0, found);
        }
    }
}

#[tokio::test]
async fn retention_leaves_what_is_not_decided_and_truncation_goes_beyond_it() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("retention.ms", json!(1_000)), ("segment.ms", json!(1))]).await;
    produce(&engine, "t", vec![to(0, "a")]).await;
    bench.clock.advance(2_000);
    engine.run_maintenance();
    let mut one = Transactor::start(&engine, "one").await;
    one.send("t", vec![to(0, "b"), to(0, "c")]).await;
    produce(&engine, "t", vec![to(0, "d")]).await;
    for _ in 0..3 {
        bench.clock.advance(2_000);
        engine.run_maintenance();
    }
    assert_eq!(marks(&engine, "t"), (1, 1, 4), "what is old and decided goes");
    engine.truncate_topic(&me(), &name("t"), vec![(p(0), Offset(2))]).await.expect("truncated");
    assert_eq!(marks(&engine, "t"), (2, 2, 4));
    engine.truncate_topic(&me(), &name("t"), vec![(p(0), Offset(4))]).await.expect("truncated");
    assert_eq!(marks(&engine, "t"), (4, 4, 4), "nothing of it is left");
    produce(&engine, "t", vec![to(0, "e")]).await;
    one.end(COMMIT).await;
    assert_eq!(seen(&engine, "t", ReadCommitted).await, (owned(&["e"]), 6));
    for _ in 0..3 {
        bench.clock.advance(2_000);
        engine.run_maintenance();
    }
    assert_eq!(marks(&engine, "t"), (6, 6, 6));
}

#[tokio::test]
async fn a_topic_that_is_compacted_shows_the_newest_committed_record_of_each_key() {
    for isolation in [ReadCommitted, ReadUncommitted] {
        let (bench, _) = Bench::sim();
        let mut engine = bench.open();
        create(&engine, "t", 1, &[("cleanup.policy", json!("compact")), ("segment.bytes", json!(1_024))]).await;
        let mut good = Transactor::start(&engine, "good").await;
        let mut bad = Transactor::start(&engine, "bad").await;
        let mut open = Transactor::start(&engine, "open").await;
        for round in 0..8 {
            for key in ["a", "b"] {
                good.send("t", vec![record(key, &format!("{round}"))]).await;
                bad.send("t", vec![record(key, "never")]).await;
            }
            good.end(COMMIT).await;
            bad.end(ABORT).await;
        }
        // The readers stand in the middle, in memory, when it is taken from under them.
        let (stable, before) = (marks(&engine, "t").1, all(&engine, "t", 0, 0).await);
        open.send("t", vec![record("a", "open")]).await;
        engine.compact_topic(&me(), &name("t"), LONG).await.expect("compacted");
        assert_eq!((marks(&engine, "t").1, before.len()), (stable, 16));
        for is_opened_anew in [false, true] {
            if is_opened_anew {
                drop((good, bad, open));
                engine.close().await.expect("closed");
                engine = bench.open();
                (good, bad, open) = (
                    Transactor::start(&engine, "good-2").await,
                    Transactor::start(&engine, "bad-2").await,
                    Transactor::start(&engine, "open-2").await,
                );
            }
            let found = all(&engine, "t", 0, 0).await;
            let newest: Vec<_> = before[14..].to_vec();
            assert!(newest.iter().all(|record| found.contains(record)), "{found:?}");
            assert!(found.len() < before.len() && found.iter().all(|record| before.contains(record)), "{found:?}");
            let last = read(&engine, "t", From::Offset(Offset(stable)), isolation).await;
            assert_eq!(texts(&last), if isolation == ReadCommitted { vec![] } else { owned(&["open"]) });
        }
    }
}

#[tokio::test]
async fn a_topic_that_begins_to_sync_is_as_stable_as_before() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("durability", json!("page-cache"))]).await;
    let mut one = Transactor::start(&engine, "one").await;
    produce(&engine, "t", vec![to(0, "a")]).await;
    one.send("t", vec![to(0, "b")]).await;
    assert_eq!(marks(&engine, "t"), (0, 1, 2));
    for durability in ["fsync", "page-cache", "fsync"] {
        let config = set(&[("durability", json!(durability))]).into_iter().map(|(name, value)| (name, Some(value)));
        let change = AlterTopic { config: config.collect(), ..AlterTopic::default() };
        engine.alter_topic(&me(), &name("t"), change).await.expect("altered");
        let (start, stable, end) = marks(&engine, "t");
        assert_eq!((start, stable), (0, 1));
        produce(&engine, "t", vec![to(0, "c")]).await;
        assert_eq!(marks(&engine, "t"), (0, 1, end + 1));
    }
    one.end(COMMIT).await;
    assert_eq!(marks(&engine, "t"), (0, 6, 6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_looks_at_any_time_sees_marks_in_order_that_never_go_back_and_transactions_whole() {
    const ROUNDS: usize = 60;
    for durability in ["fsync", "page-cache"] {
        let (bench, _) = Bench::sim();
        let engine = bench.open();
        create(&engine, "t", 1, &[("durability", json!(durability)), ("segment.bytes", json!(4_096))]).await;
        let is_over = Arc::new(AtomicBool::new(false));
        let mut watchers = JoinSet::new();
        for _ in 0..2 {
            let (engine, is_over) = (engine.clone(), is_over.clone());
            watchers.spawn(async move {
                let mut last = (0, 0, 0);
                while !is_over.load(Ordering::Acquire) {
                    let now = marks(&engine, "t");
                    assert!(last.0 <= now.0 && last.1 <= now.1 && last.2 <= now.2, "{last:?}, then {now:?}");
                    last = now;
                    // Each transaction has three records of one name, and what is stable has all three.
                    let mut counts = std::collections::BTreeMap::new();
                    let stable = Offset(now.1);
                    let found = all(&engine, "t", 0, 0).await;
                    for (_, value) in found.into_iter().filter(|(offset, _)| *offset < stable.0) {
                        assert!(!value.starts_with("bad"), "{value}");
                        *counts.entry(value).or_insert(0) += 1;
                    }
                    let broken = counts.values().filter(|count| **count != 3).count();
                    assert!(broken <= 4, "at most those that are cut by the look: {counts:?}");
                    tokio::task::yield_now().await;
                }
            });
        }
        let mut producers = JoinSet::new();
        for producer in 0..4 {
            let engine = engine.clone();
            producers.spawn(async move {
                let mut one = Transactor::start(&engine, &format!("p{producer}")).await;
                for round in 0..ROUNDS {
                    let (word, outcome) = if round % 3 == 2 { ("bad", ABORT) } else { ("good", COMMIT) };
                    for _ in 0..3 {
                        one.send("t", vec![to(0, &format!("{word}-{producer}-{round}"))]).await;
                    }
                    one.end(outcome).await;
                }
            });
        }
        producers.join_all().await;
        is_over.store(true, Ordering::Release);
        watchers.join_all().await;
        assert_eq!(all(&engine, "t", 0, 0).await.len(), 4 * ROUNDS / 3 * 2 * 3);
        let (_, stable, end) = marks(&engine, "t");
        assert_eq!(stable, end);
    }
}
