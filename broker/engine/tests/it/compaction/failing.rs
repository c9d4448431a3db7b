//! What fails in a pass costs that partition its compaction for a while, and nothing else.

use levada_engine::{Engine, EngineOptions, Health, TopicError};
use levada_log::SimStorage;
use levada_model::Timestamp;
use serde_json::json;

use super::{compact, compacted_topic, state, store, try_compact};
use crate::support::{Bench, LONG, START, all, p, produce, record};

const VALUE: &str = "a value of some length, so that segments are full after a few of them, and another few words";

/// Two topics with some sealed segments to clean.
async fn two_topics(bench: &Bench, disk: &SimStorage) -> Engine {
    let engine = bench.with(disk.clone()).open();
    for topic in ["t", "u"] {
        compacted_topic(&engine, topic, 1, &[("segment.bytes", json!(1_024))]).await;
        for i in 0..20 {
            store(&engine, topic, &[(if i % 5 == 0 { "a" } else { "b" }, &format!("{VALUE} {topic} {i}"))]).await;
        }
    }
    engine
}

/// The first segment that holds a value of topic `t`.
fn a_segment(disk: &SimStorage) -> (String, u64) {
    let needle = format!("{VALUE} t 3");
    let mut logs: Vec<_> = disk.paths().into_iter().filter(|path| path.ends_with(".log")).collect();
    logs.sort();
    let found = logs.into_iter().find_map(|path| {
        let bytes = disk.contents(&path);
        let at = bytes.windows(needle.len()).position(|window| window == needle.as_bytes())?;
        Some((path, at as u64))
    });
    found.expect("the value is stored")
}

fn unfinished(disk: &SimStorage) -> Vec<String> {
    disk.paths().into_iter().filter(|path| path.contains(".cleaned") || path.contains(".swap")).collect()
}

#[tokio::test]
async fn a_damaged_segment_stops_only_its_own_topic_is_shown_and_recovers_when_it_is_mended() {
    let (bench, disk) = Bench::sim();
    let engine = two_topics(&bench, &disk).await;
    let (segment, at) = a_segment(&disk);
    disk.corrupt(&segment, at, 0x20);
    engine.run_compaction();
    assert_eq!((engine.stats().compaction_failures, engine.stats().compaction_failing), (1, 1));
    assert!(all(&engine, "u", 0, 0).await.len() < 20, "the other topic goes on");
    let failure = state(&engine, "t").await.failure.expect("it is shown");
    assert!(failure.reason.contains("offsets 3 to 4 are damaged"), "{failure:?}");
    assert_eq!((failure.since, failure.retry_at), (START, Timestamp(START.0 + 1_000)));
    assert!(state(&engine, "u").await.failure.is_none());
    assert_eq!(engine.health(), Health::Serving);
    let asked = try_compact(&engine, "t", LONG).await.expect_err("nor when it is asked for");
    assert!(matches!(&asked, TopicError::CompactionFailed { partition, .. } if *partition == p(0)), "{asked}");
    // Tried again after pauses that double.
    let mut failures = engine.stats().compaction_failures;
    for pause in [2_000, 4_000, 8_000] {
        bench.clock.advance(pause - 1);
        engine.run_compaction();
        assert_eq!(engine.stats().compaction_failures, failures, "not yet");
        bench.clock.advance(1);
        engine.run_compaction();
        failures += 1;
        assert_eq!(engine.stats().compaction_failures, failures);
    }
    assert_eq!(state(&engine, "t").await.failure.expect("still").since, START);
    produce(&engine, "t", vec![record("a", "appends go on")]).await;
    disk.corrupt(&segment, at, 0x20);
    bench.clock.advance(16_000);
    engine.run_compaction();
    assert!(state(&engine, "t").await.failure.is_none(), "it has recovered");
    assert_eq!(engine.stats().compaction_failing, 0);
    compact(&engine, "t").await;
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 2);
    assert!(unfinished(&disk).is_empty(), "{:?}", unfinished(&disk));
}

type Fault = fn(&SimStorage);

#[tokio::test]
async fn a_disk_that_fails_the_pass_fences_nothing_and_the_old_segments_stay() {
    let faults: [(&str, Fault); 3] = [
        ("no space is left for the copy", |disk| disk.set_free_bytes(10)),
        ("the source cannot be read", |disk| disk.fail_reads(true)),
        ("the copy cannot be synced", |disk| disk.fail_sync(true)),
    ];
    for (what, fault) in faults {
        let (bench, disk) = Bench::sim();
        let engine = two_topics(&bench, &disk).await;
        let before = all(&engine, "t", 0, 0).await;
        fault(&disk);
        engine.run_compaction();
        assert_eq!(engine.stats().compaction_failing, 2, "{what}");
        assert_eq!(engine.health(), Health::Serving, "{what}");
        disk.heal();
        assert_eq!(all(&engine, "t", 0, 0).await, before, "{what}");
        assert!(unfinished(&disk).is_empty(), "{what}: {:?}", unfinished(&disk));
        produce(&engine, "t", vec![record("c", "appends go on")]).await;
        bench.clock.advance(1_000);
        engine.run_compaction();
        assert_eq!(engine.stats().compaction_failing, 0, "{what}");
        assert!(all(&engine, "t", 0, 0).await.len() < before.len(), "{what}");
        engine.close().await.expect("closed");
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_judged_is_not_told_to_be_compacted() {
    let (bench, disk) = Bench::sim();
    let engine = bench.with(disk.clone()).open();
    let lag = ("min.compaction.lag.ms", json!(1_000));
    compacted_topic(&engine, "t", 1, &[("segment.bytes", json!(1_024)), lag]).await;
    for i in 0..20 {
        store(&engine, "t", &[("k", &format!("{VALUE} {i}"))]).await;
    }
    engine.close().await.expect("closed");
    let engine = bench.with(disk.clone()).open();
    bench.clock.advance(1_000);
    disk.fail_reads(true);
    let refused = try_compact(&engine, "t", LONG).await.expect_err("nobody knows how old it is");
    assert!(matches!(refused, TopicError::CompactionFailed { .. }), "{refused}");
    assert!(state(&engine, "t").await.failure.is_some());
    disk.fail_reads(false);
    compact(&engine, "t").await;
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 1);
    assert!(state(&engine, "t").await.failure.is_none());
}

#[tokio::test]
async fn no_free_file_fails_the_pass_and_nothing_else() {
    let (bench, disk) = Bench::sim();
    let engine = two_topics(&bench, &disk).await;
    let before = all(&engine, "t", 0, 0).await;
    disk.set_open_files_max(disk.open_files());
    engine.run_compaction();
    assert!(engine.stats().compaction_failing > 0);
    assert_eq!(engine.health(), Health::Serving);
    disk.set_open_files_max(usize::MAX);
    assert_eq!(all(&engine, "t", 0, 0).await, before);
    bench.clock.advance(1_000);
    engine.run_compaction();
    assert_eq!((engine.stats().compaction_failing, all(&engine, "t", 0, 0).await.len() < 20), (0, true));
}

#[tokio::test]
async fn a_fenced_directory_is_not_compacted() {
    let (bench, disk) = Bench::sim();
    let options = bench.with(disk.clone()).options();
    let engine = Engine::open(EngineOptions { ..options }).expect("opens");
    compacted_topic(&engine, "t", 1, &[]).await;
    store(&engine, "t", &[("k", "1"), ("k", "2")]).await;
    disk.fail_sync(true);
    let produced = engine
        .produce(&crate::support::me(), &crate::support::name("t"), crate::support::request(vec![record("k", "3")]))
        .await
        .expect("judged");
    assert!(produced.records[0].is_err());
    let refused = try_compact(&engine, "t", LONG).await.expect_err("no writes are taken");
    assert!(matches!(refused, TopicError::Fenced { possible: false, .. }));
    engine.run_compaction();
    assert_eq!((engine.stats().compaction_passes, engine.stats().compaction_failures), (0, 0));
}
