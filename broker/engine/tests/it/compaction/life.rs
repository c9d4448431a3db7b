//! A pass among everything else that happens to a topic: others that ask, deletion, the end, what is stored once.

use std::time::Duration;

use levada_engine::{Engine, Once, ProduceRequest, TopicError};
use levada_model::{ProducerEpoch, Sequence};
use serde_json::json;

use super::{compact, compacted_topic, store, try_compact};
use crate::gate::Gate;
use crate::support::{Bench, LONG, all, create, me, name, offsets, p, produce, record, request, until};

/// An engine whose cleaner stands in the middle of a pass, before its copy is synced.
async fn in_a_pass() -> (Gate, levada_log::SimStorage, Engine) {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk.clone());
    let engine = bench.with(gate.clone()).open();
    compacted_topic(&engine, "t", 1, &[("segment.bytes", json!(1_024)), ("min.cleanable.dirty.ratio", json!(1))]).await;
    let value = "v".repeat(300);
    for _ in 0..12 {
        store(&engine, "t", &[("k", &value)]).await;
    }
    gate.shut_for_copies();
    let asked = try_compact(&engine, "t", Duration::ZERO).await.expect("it is asked for");
    assert!(!asked.is_done && asked.partitions.is_empty());
    gate.until_waiting(1).await;
    (gate, disk, engine)
}

#[tokio::test]
async fn who_asks_does_not_have_to_wait_and_several_share_a_pass() {
    let (gate, _, engine) = in_a_pass().await;
    let before = engine.stats().compaction_passes;
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let engine = engine.clone();
        asking.spawn(async move { try_compact(&engine, "t", LONG).await.expect("it is compacted").is_done });
    }
    let vanished = {
        let engine = engine.clone();
        tokio::spawn(async move { try_compact(&engine, "t", LONG).await.map(|_| ()) })
    };
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    vanished.abort();
    let short = try_compact(&engine, "t", Duration::from_millis(1)).await.expect("asked");
    assert!(!short.is_done && short.partitions.is_empty(), "the pass goes on");
    gate.open();
    assert!(asking.join_all().await.into_iter().all(|done| done));
    assert_eq!(engine.stats().compaction_passes - before, 2, "the one that ran, and one for all who asked meanwhile");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_and_reads_do_not_wait_for_a_pass() {
    let (gate, _, engine) = in_a_pass().await;
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 12);
    store(&engine, "t", &[("k", "v")]).await;
    create(&engine, "cached", 1, &[("durability", json!("page-cache"))]).await;
    produce(&engine, "cached", vec![record("k", "v")]).await;
    gate.open();
    compact(&engine, "t").await;
    assert_eq!(all(&engine, "t", 0, 0).await, [(12, "v".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_have_their_turn_between_the_segments_that_a_pass_puts_in_place() {
    const SEGMENTS: usize = 16;
    for durability in ["fsync", "page-cache"] {
        let (bench, disk) = Bench::sim();
        let gate = Gate::before(disk.clone());
        let engine = bench.with(gate.clone()).open();
        let config = [
            ("segment.bytes", json!(1_024)),
            ("min.cleanable.dirty.ratio", json!(1)),
            ("durability", json!(durability)),
        ];
        compacted_topic(&engine, "t", 1, &config).await;
        // Each segment keeps one of its records, which alone fills the one that comes of it.
        let (long, short) = ("v".repeat(700), "v".repeat(200));
        for segment in 0..SEGMENTS {
            store(&engine, "t", &[(&format!("k{segment}"), &long), ("k", &short)]).await;
        }
        gate.shut_for_swaps();
        let asked = try_compact(&engine, "t", Duration::ZERO).await.expect("it is asked for");
        assert!(!asked.is_done);
        gate.until_waiting(1).await;
        let mut appending = {
            let engine = engine.clone();
            tokio::spawn(async move { store(&engine, "t", &[("new", "in between")]).await })
        };
        // It has the first turn for which it is in time.
        let mut turns = 0;
        while tokio::time::timeout(Duration::from_millis(20), &mut appending).await.is_err() {
            turns += 1;
            assert!(turns < SEGMENTS, "it does not wait for the whole pass");
            gate.let_one_swap_go().await;
        }
        gate.until_waiting(1).await;
        assert_eq!(engine.stats().compaction_passes, 0, "segments are still to be put in place");
        gate.open();
        compact(&engine, "t").await;
        let kept: Vec<_> = all(&engine, "t", 0, 0).await.into_iter().map(|(at, _)| at).collect();
        assert_eq!(kept, (0..32).step_by(2).chain([31, 32]).collect::<Vec<_>>(), "{durability}");
        engine.close().await.expect("closed");
        assert_eq!(all(&bench.with(disk.clone()).open(), "t", 0, 0).await.len(), kept.len(), "also after a restart");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_deleted_and_an_engine_that_closes_end_the_pass_and_leave_nothing_of_it() {
    for closes in [false, true] {
        let (gate, disk, engine) = in_a_pass().await;
        let asked = {
            let engine = engine.clone();
            tokio::spawn(async move { try_compact(&engine, "t", LONG).await })
        };
        tokio::task::yield_now().await;
        let ending = {
            let engine = engine.clone();
            tokio::spawn(async move {
                if closes {
                    engine.close().await.expect("closed cleanly");
                } else {
                    engine.delete_topic(&me(), &name("t")).await.expect("deleted");
                }
            })
        };
        until("it is ending", async || {
            let gone = engine.describe_topic(&me(), &name("t")).is_err();
            gone || engine.health() == levada_engine::Health::Closing
        })
        .await;
        gate.open();
        ending.await.expect("no panic");
        match asked.await.expect("no panic") {
            Err(TopicError::Closing) => assert!(closes),
            Err(TopicError::NotFound(_)) => assert!(!closes),
            // The gate may have been faster than the end.
            Ok(compacted) => assert!(compacted.is_done),
            Err(other) => panic!("{other:?}"),
        }
        let left: Vec<_> =
            disk.paths().into_iter().filter(|path| path.contains("clean") || path.contains("swap")).collect();
        assert_eq!(left.len(), usize::from(closes), "the clean-shutdown marker alone: {left:?}");
        assert_eq!(engine.stats().compaction_failures, 0, "that is no failure");
    }
}

#[tokio::test]
async fn an_engine_that_is_given_up_puts_nothing_in_place_any_more() {
    let (gate, disk, engine) = in_a_pass().await;
    let segments = || {
        let paths = disk.paths().into_iter().filter(|path| path.ends_with(".log"));
        paths.map(|path| (path.clone(), disk.contents(&path))).collect::<Vec<_>>()
    };
    let before = segments();
    drop(engine);
    gate.open();
    until("the copy is gone", async || !disk.paths().iter().any(|path| path.contains(".cleaned"))).await;
    assert!(segments() == before, "the next engine is alone with the log");
}

#[tokio::test]
async fn what_is_not_compacted_cannot_be_asked_for() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    assert!(matches!(try_compact(&engine, "t", LONG).await, Err(TopicError::NotCompacted(_))));
    assert!(matches!(try_compact(&engine, "u", LONG).await, Err(TopicError::NotFound(_))));
    assert!(matches!(try_compact(&engine, "__t", LONG).await, Err(TopicError::Internal(_))));
    assert!(engine.topic_compaction(&me(), &name("t")).await.expect("there").is_empty());
    engine.close().await.expect("closed");
    compacted_topic(&bench.open(), "u", 3, &[]).await;
    let engine = bench.open();
    let done = compact(&engine, "u").await;
    assert_eq!(
        done.partitions.iter().map(|done| (done.partition, done.before_bytes)).collect::<Vec<_>>(),
        [(p(0), 0), (p(1), 0), (p(2), 0)]
    );
}

#[tokio::test]
async fn what_was_stored_once_is_recognised_after_compaction_and_a_restart() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    compacted_topic(&engine, "t", 1, &[("segment.bytes", json!(1_024))]).await;
    let keyed = |value: &str| ProduceRequest {
        once: Once::Key { key: value.to_owned(), body_digest: [7; 32] },
        ..request(vec![record("k", value)])
    };
    let (id, epoch) = engine.init_producer(&me()).await.expect("an id");
    let sequenced = |sequence: i32| {
        let mut record = record("k", &"v".repeat(200));
        record.partition = Some(p(0));
        let once = Once::Producer { id, epoch: ProducerEpoch(epoch.0), sequence: Sequence(sequence) };
        ProduceRequest { once, ..request(vec![record]) }
    };
    let send = async |engine: &Engine, request| engine.produce(&me(), &name("t"), request).await.expect("judged");
    let first = offsets(&send(&engine, keyed("first")).await);
    let mut given = Vec::new();
    for sequence in 0..10 {
        given.extend(offsets(&send(&engine, sequenced(sequence)).await));
    }
    compact(&engine, "t").await;
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 1, "their records are gone");
    let check = async |engine: &Engine| {
        let again = send(engine, keyed("first")).await;
        assert_eq!((again.duplicate, offsets(&again)), (true, first.clone()));
        for sequence in 5..10 {
            let again = send(engine, sequenced(sequence)).await;
            assert_eq!((again.duplicate, offsets(&again)[0]), (true, given[usize::try_from(sequence).expect("small")]));
        }
    };
    check(&engine).await;
    engine.close().await.expect("closed");
    let engine = bench.open();
    check(&engine).await;
    compact(&engine, "t").await;
    drop(engine);
    let engine = bench.open();
    check(&engine).await;
    assert!(!send(&engine, sequenced(10)).await.duplicate, "and goes on");
}
