//! What a `page-cache` topic costs its producers and the next start: no sync on a producer's thread, a short scan.

use std::sync::Arc;

use levada_log::{LogOptions, PartitionLog, Recovery, SimStorage};
use levada_model::TopicId;
use serde_json::json;

use crate::gate::Gate;
use crate::support::{Bench, START, create, offsets, produce, record, until};

/// What the next start finds of partition 0 after a kill -9 now.
fn killed(disk: &SimStorage, topic: TopicId) -> Recovery {
    let options = LogOptions {
        segment_bytes: 64 << 20,
        segment_ms: i64::MAX,
        retention_bytes: None,
        retention_ms: None,
        producer_expiration_ms: i64::MAX,
        write_ahead_zeros: false,
        compaction: None,
        retains: true,
    };
    let path = format!("data/log/{topic}/0");
    let (_, recovery) =
        PartitionLog::open(Arc::new(disk.restart()), path.as_ref(), options, START, false).expect("the log opens");
    recovery
}

#[tokio::test]
async fn a_page_cache_producer_never_syncs_on_its_own_thread() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk.clone());
    let engine = bench.with(gate.clone()).open();
    let config = [("durability", json!("page-cache")), ("segment.bytes", json!(4_096))];
    let topic = create(&engine, "t", 1, &config).await;
    gate.take_sync_threads();
    let value = "v".repeat(500);
    for i in 0..40 {
        assert_eq!(offsets(&produce(&engine, "t", vec![record("", &value)]).await), [i]);
    }
    let segments = disk.paths().into_iter().filter(|path| path.contains(&topic.id.to_string()));
    assert!(segments.filter(|path| path.ends_with(".log")).count() > 3, "it has rolled, which syncs");
    let threads = gate.take_sync_threads();
    assert!(!threads.is_empty() && threads.iter().all(|name| name.starts_with("log-")), "{threads:?}");
}

#[tokio::test]
async fn a_kill_after_many_appends_costs_a_short_scan_without_any_housekeeping() {
    const APPENDS: u64 = 24;
    for durability in ["page-cache", "fsync"] {
        let (bench, disk) = Bench::sim();
        let engine = bench.open();
        let config = [("durability", json!(durability)), ("segment.bytes", json!(64 << 20))];
        let topic = create(&engine, "t", 1, &config).await;
        let value = "v".repeat(512 << 10);
        for _ in 0..APPENDS {
            produce(&engine, "t", vec![record("", &value)]).await;
        }
        // A sixteenth of a segment, and what was appended while a log thread looked after it.
        until("the recovery point follows", async || killed(&disk, topic.id).scanned_bytes < 5 << 20).await;
    }
}
