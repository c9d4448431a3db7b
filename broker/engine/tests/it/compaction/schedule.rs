//! When the cleaner takes which part of which log.

use std::time::Duration;

use levada_engine::{CompactedPartition, Engine, EngineOptions};
use levada_log::UncompactedReason;
use levada_model::Offset;
use serde_json::{Value, json};

use super::{compact, compacted_topic, state, store};
use crate::gate::Gate;
use crate::support::{Bench, all, create, me, name, p, produce, record, until};

/// Rolls at every few records.
fn small() -> (&'static str, Value) {
    ("segment.bytes", json!(1_024))
}

/// As many updates of one key, each of some 300 bytes.
async fn updates(engine: &Engine, topic: &str, count: usize) {
    let value = "v".repeat(230);
    for _ in 0..count {
        store(engine, topic, &[("k", &value)]).await;
    }
}

async fn count(engine: &Engine, topic: &str) -> usize {
    let start = engine.describe_topic(&me(), &name(topic)).expect("there").partitions[0].log_start_offset;
    all(engine, topic, 0, start.0).await.len()
}

fn waiting(state: &levada_engine::PartitionCompaction) -> Vec<UncompactedReason> {
    state.uncompacted.iter().map(|stretch| stretch.reason).collect()
}

#[tokio::test]
async fn each_cleanup_policy_does_what_it_names() {
    for (policy, compacts, deletes) in [
        ("delete", false, true),
        ("compact", true, false),
        ("compact,delete", true, true),
        ("delete,compact", true, true),
    ] {
        let (bench, _) = Bench::sim();
        let engine = bench.open();
        let config = [("cleanup.policy", json!(policy)), ("retention.ms", json!(1_000)), small()];
        create(&engine, "t", 1, &config).await;
        updates(&engine, "t", 12).await;
        engine.run_compaction();
        let left = count(&engine, "t").await;
        assert_eq!(left < 12, compacts, "{policy}: {left} of 12 records are left");
        bench.clock.advance(2_000);
        engine.run_maintenance();
        assert_eq!(engine.stats().segments_removed > 0, deletes, "{policy}");
        engine.run_compaction();
        assert!(count(&engine, "t").await > 0, "{policy}: the active segment stays");
    }
}

#[tokio::test]
async fn compaction_waits_until_enough_is_dirty() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    compacted_topic(&engine, "t", 1, &[("min.cleanable.dirty.ratio", json!(0.6)), small()]).await;
    let values = "v".repeat(230);
    let keys: Vec<_> = (0..40).map(|i| format!("k{i}")).collect();
    for key in &keys {
        store(&engine, "t", &[(key, &values)]).await;
    }
    compact(&engine, "t").await;
    updates(&engine, "t", 20).await;
    let dirty = state(&engine, "t").await;
    assert!(dirty.dirty_ratio > 0.1 && dirty.dirty_ratio < 0.6, "{dirty:?}");
    assert_eq!(waiting(&dirty), [UncompactedReason::Ratio, UncompactedReason::Active]);
    let before = engine.stats().compaction_passes;
    engine.run_compaction();
    assert_eq!(engine.stats().compaction_passes, before, "too little is dirty");
    updates(&engine, "t", 100).await;
    assert_eq!(waiting(&state(&engine, "t").await), [UncompactedReason::Due, UncompactedReason::Active]);
    engine.run_compaction();
    assert_eq!(engine.stats().compaction_passes, before + 1);
    let clean = state(&engine, "t").await;
    assert_eq!((clean.dirty_bytes, waiting(&clean)), (0, vec![UncompactedReason::Active]));
    assert_eq!(clean.uncompacted[0].from, clean.cleaned_to);
    assert!(clean.cleaned_to > Offset(150), "{clean:?}");
}

#[tokio::test]
async fn young_records_are_left_alone_also_by_a_forced_pass() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    compacted_topic(&engine, "t", 1, &[("min.compaction.lag.ms", json!(1_000)), small()]).await;
    updates(&engine, "t", 12).await;
    engine.run_compaction();
    let done = compact(&engine, "t").await.partitions[0];
    let nothing =
        CompactedPartition { partition: p(0), before_bytes: 0, after_bytes: 0, before_records: 0, after_records: 0 };
    assert_eq!((done, count(&engine, "t").await), (nothing, 12));
    assert_eq!(waiting(&state(&engine, "t").await)[0], UncompactedReason::Lag);
    bench.clock.advance(1_000);
    engine.run_compaction();
    assert_eq!(count(&engine, "t").await, 1);
}

#[tokio::test]
async fn a_quiet_topic_is_compacted_when_its_records_are_too_old() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    let config = [("max.compaction.lag.ms", json!(60_000)), ("min.cleanable.dirty.ratio", json!(1))];
    compacted_topic(&engine, "t", 1, &config).await;
    store(&engine, "t", &[("k", "1"), ("k", "2"), ("l", "1")]).await;
    engine.run_compaction();
    bench.clock.advance(60_000);
    engine.run_compaction();
    assert_eq!(count(&engine, "t").await, 3, "not older than the setting");
    bench.clock.advance(1);
    engine.run_compaction();
    assert_eq!(all(&engine, "t", 0, 0).await, [(1, "2".to_owned()), (2, "1".to_owned())], "it rolled by itself");
}

#[tokio::test]
async fn keys_that_do_not_fit_are_cleaned_in_further_passes_at_once() {
    let (bench, _) = Bench::sim();
    let engine = Engine::open(EngineOptions { compaction_memory_bytes: 600, ..bench.options() }).expect("opens");
    let config = [("min.cleanable.dirty.ratio", json!(0.9)), small()];
    for forced in [false, true] {
        let topic = if forced { "forced" } else { "due" };
        compacted_topic(&engine, topic, 1, &config).await;
        let records: Vec<_> = (0..300).map(|i| (format!("k{}", i % 100), format!("{i}"))).collect();
        for (key, value) in &records {
            produce(&engine, topic, vec![record(key, value)]).await;
        }
        let before = engine.stats().compaction_passes;
        if forced {
            let done = compact(&engine, topic).await.partitions[0];
            assert_eq!((done.before_records, done.after_records), (300, 100));
            assert_eq!(count(&engine, topic).await, 100);
        } else {
            engine.run_compaction();
            let active = state(&engine, topic).await;
            assert_eq!(waiting(&active), [UncompactedReason::Active], "{active:?}");
        }
        assert!(engine.stats().compaction_passes > before + 3, "in several passes");
    }
}

#[tokio::test]
async fn the_dirtiest_log_comes_first() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk.clone());
    let engine = bench.with(gate.clone()).open();
    let mut ids = Vec::new();
    for topic in ["a-less", "b-most"] {
        compacted_topic(&engine, topic, 1, &[("min.cleanable.dirty.ratio", json!(0.1)), small()]).await;
        for key in 0..8 {
            store(&engine, topic, &[(&format!("k{key}"), &"v".repeat(300))]).await;
        }
        if topic == "a-less" {
            compact(&engine, topic).await;
        }
        updates(&engine, topic, 12).await;
        ids.push(engine.describe_topic(&me(), &name(topic)).expect("there").id.to_string());
    }
    let (less, most) = (state(&engine, "a-less").await.dirty_ratio, state(&engine, "b-most").await.dirty_ratio);
    assert!(less > 0.1 && less < most, "{less} {most}");
    gate.shut_for_copies();
    let other = engine.clone();
    let round = tokio::task::spawn_blocking(move || other.run_compaction());
    gate.until_waiting(1).await;
    let at_work =
        || ids.iter().position(|id| disk.paths().iter().any(|path| path.contains(id) && path.ends_with(".cleaned")));
    assert_eq!(at_work(), Some(1));
    gate.open();
    round.await.expect("no panic");
    for topic in ["a-less", "b-most"] {
        assert_eq!(state(&engine, topic).await.dirty_bytes, 0, "{topic}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_cleaner_looks_by_itself_at_every_interval() {
    let (bench, _) = Bench::sim();
    let interval = Duration::from_millis(1);
    let engine = Engine::open(EngineOptions { maintenance_interval: interval, ..bench.options() }).expect("opens");
    compacted_topic(&engine, "t", 1, &[small()]).await;
    updates(&engine, "t", 12).await;
    until("the cleaner has cleaned", async || engine.stats().compaction_passes > 0).await;
}
