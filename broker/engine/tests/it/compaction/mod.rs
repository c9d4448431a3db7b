//! Compaction as the engine does it: what stays, when, who waits, and what a failure costs.

mod exercise;
mod failing;
mod holes;
mod keyless;
mod life;
mod schedule;

use std::time::Duration;

use levada_engine::{CompactedTopic, Engine, PartitionCompaction, ProduceRecord, TopicError};
use serde_json::{Value, json};

use crate::support::{LONG, create, me, name, produce, record};

/// A topic that is compacted, with further settings.
async fn compacted_topic(engine: &Engine, topic: &str, partitions: u32, config: &[(&str, Value)]) {
    let policy = [("cleanup.policy", json!("compact"))];
    create(engine, topic, partitions, &[&policy[..], config].concat()).await;
}

/// Compacts by force, to the end.
async fn compact(engine: &Engine, topic: &str) -> CompactedTopic {
    let compacted = try_compact(engine, topic, LONG).await.expect("it is compacted");
    assert!(compacted.is_done, "within {LONG:?}");
    compacted
}

async fn try_compact(engine: &Engine, topic: &str, wait: Duration) -> Result<CompactedTopic, TopicError> {
    engine.compact_topic(&me(), &name(topic), wait).await
}

/// How far partition 0 is compacted.
async fn state(engine: &Engine, topic: &str) -> PartitionCompaction {
    engine.topic_compaction(&me(), &name(topic)).await.expect("told").swap_remove(0).1
}

/// A record without a value.
fn tombstone(key: &str) -> ProduceRecord {
    let mut tombstone = record(key, "");
    tombstone.record.value = None;
    tombstone
}

/// Stores one record a request, so that each is a batch.
async fn store(engine: &Engine, topic: &str, records: &[(&str, &str)]) {
    for (key, value) in records {
        produce(engine, topic, vec![record(key, value)]).await;
    }
}
