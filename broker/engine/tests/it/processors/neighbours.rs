//! Processors that wait, what they say of it, and those beside them.

use std::sync::atomic::Ordering;

use levada_engine::{From, TopicError};
use levada_model::{Offset, limits};
use serde_json::json;

use super::*;
use crate::modules::{self, HostHandle, module};
use crate::support::{create, produce, record, to};

/// More partitions than there is room for batches.
const MANY: u32 = 20;

/// From topic `other` to topic `beside`, without steps.
async fn put_beside(engine: &Engine, commit_interval_ms: u64) {
    create(engine, "other", 1, &[]).await;
    create(engine, "beside", 1, &[]).await;
    let sources = vec![from("other", From::Earliest)];
    let beside = ProcessorSpec { sources, sink: name("beside"), commit_interval_ms, ..spec(vec![]) };
    engine.put_processor(&me(), &called("q"), beside).await.expect("taken");
}

async fn many(values: &str, more: serde_json::Value) -> (Engine, HostHandle) {
    let (engine, host) = modules::engine();
    modules::put(&engine, "f", module(&["transform"], more)).await;
    create(&engine, "in", MANY, &[]).await;
    create(&engine, "out", 1, &[]).await;
    produce(&engine, "in", (0..MANY).map(|partition| to(partition, values)).collect()).await;
    (engine, host)
}

#[tokio::test]
async fn poisoned_tasks_wait_without_holding_others_up_and_say_over_which_record() {
    let (engine, _) = many("trap", json!({})).await;
    let on_error = OnError { attempts: 100, then: Then::Pause };
    put(&engine, ProcessorSpec { on_error, ..spec(vec![transform("f")]) }).await;
    until("all tasks try again", async || {
        let tasks = info(&engine).await.tasks;
        tasks.len() == MANY as usize && tasks.iter().all(|task| task.waiting.is_some())
    })
    .await;
    let told = info(&engine).await;
    assert_eq!(told.state, ProcessorState::Running);
    let waiting = told.tasks[7].waiting.clone().expect("it waits");
    assert_eq!((&*waiting.reason, waiting.offset), ("it trapped", Some(Offset(0))));
    assert!(waiting.attempts.is_some_and(|attempts| (1..100).contains(&attempts)), "{waiting:?}");
    put_beside(&engine, 2).await;
    produce(&engine, "other", vec![record("k", "a")]).await;
    caught_up_as(&engine, "q").await;
    assert_eq!(out(&engine, "beside", 0).await, ["a"]);
    assert_eq!(pause(&engine, true).await.state, ProcessorState::Paused);
    assert!(info(&engine).await.tasks.iter().all(|task| task.waiting.is_none()), "nobody waits any more");
}

#[tokio::test]
async fn where_there_is_no_room_what_is_done_is_committed_and_a_pause_is_followed() {
    let (engine, host) = many("slow", json!({"gated": true})).await;
    put_beside(&engine, 1_000).await;
    produce(&engine, "other", vec![record("k", "a")]).await;
    until("it is stored", async || {
        engine.describe_topic(&me(), &name("beside")).expect("there").partitions[0].high_watermark.0 == 1
    })
    .await;
    host.hold(true);
    put(&engine, spec(vec![transform("f")])).await;
    until("there is no room", async || host.0.calls.lock().len() == limits::PROCESSOR_BATCHES_AT_ONCE_MAX).await;
    produce(&engine, "other", vec![record("k", "b")]).await;
    until("what is done is committed", async || out(&engine, "beside", 0).await == ["a"]).await;
    let paused = engine.pause_processor(&me(), &called("q"), true).await.expect("there");
    assert_eq!((paused.state, paused.tasks[0].position), (ProcessorState::Paused, Offset(1)));
    host.hold(false);
    caught_up(&engine).await;
}

#[tokio::test]
async fn a_host_without_room_is_told_and_counts_nothing_twice() {
    let (engine, host) = modules::engine();
    modules::put(&engine, "f", module(&["transform"], json!({}))).await;
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    put(&engine, ProcessorSpec { timestamp: Some("/at".to_owned()), ..spec(vec![transform("f")]) }).await;
    host.0.busy.store(true, Ordering::SeqCst);
    produce(&engine, "in", vec![record("k", "none"), record("k", r#"{"at": 5}"#)]).await;
    let mut waiting = None;
    until("it waits", async || {
        waiting = info(&engine).await.tasks.remove(0).waiting;
        waiting.is_some()
    })
    .await;
    let waiting = waiting.expect("it does");
    assert_eq!((waiting.offset, waiting.attempts), (None, None));
    assert!(waiting.reason.contains("told to be busy"), "{waiting:?}");
    host.0.busy.store(false, Ordering::SeqCst);
    let task = counted(&engine, 2).await;
    assert_eq!((task.skipped, task.records_out, task.waiting), (1, 1, None));
}

#[tokio::test]
async fn a_validator_that_traps_over_a_record_is_a_fault_of_that_record() {
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce] {
        let (engine, _) = modules::engine();
        modules::put(&engine, "v", module(&["transform"], json!({}))).await;
        create(&engine, "in", 1, &[]).await;
        create(&engine, "out", 1, &[("validator", json!("module:v"))]).await;
        let mut values: Vec<_> = (0..40).map(|i| format!("v{i}")).collect();
        (values[7], values[23], values[24]) = ("reject".to_owned(), "trap".to_owned(), "trap".to_owned());
        produce(&engine, "in", values.iter().map(|value| record("k", value)).collect()).await;
        put(&engine, ProcessorSpec { guarantee, ..spec(vec![]) }).await;
        caught_up(&engine).await;
        values.retain(|value| value.starts_with('v'));
        assert_eq!(out(&engine, "out", 0).await, values, "in order, each once");
        let mut letters = out(&engine, "in.dead-letter", 0).await;
        letters.sort();
        assert_eq!(letters, ["reject", "trap", "trap"]);
        let task = counted(&engine, 40).await;
        assert_eq!((task.errors, task.records_out), (3, 37));
    }
}

#[tokio::test]
async fn a_sink_deleted_under_a_batch_does_not_come_back() {
    let (bench, _) = crate::support::Bench::sim();
    let host = HostHandle::default();
    let options = levada_engine::EngineOptions {
        modules: Some(std::sync::Arc::new(host.clone())),
        auto_create_topics: true,
        ..bench.options()
    };
    let engine = Engine::open(options).expect("the engine opens");
    modules::put(&engine, "f", module(&["transform"], json!({"gated": true}))).await;
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    put(&engine, spec(vec![transform("f")])).await;
    host.hold(true);
    produce(&engine, "in", vec![record("k", "a")]).await;
    until("a batch is worked on", async || !host.0.calls.lock().is_empty()).await;
    engine.delete_topic(&me(), &name("out")).await.expect("deleted");
    host.hold(false);
    let (reason, _) = failed(&engine).await;
    assert!(reason.contains("out"), "{reason}");
    let gone = engine.describe_topic(&me(), &name("out"));
    assert!(matches!(gone, Err(TopicError::NotFound(_))), "{gone:?}");
    assert_eq!(info(&engine).await.tasks[0].position, Offset(0), "the record is not lost");
}

#[tokio::test]
async fn what_was_made_of_a_partition_that_is_dropped_is_there() {
    let (engine, _) = modules::engine();
    create(&engine, "in", 2, &[]).await;
    create(&engine, "out", 1, &[]).await;
    put(&engine, ProcessorSpec { commit_interval_ms: 60_000, ..spec(vec![]) }).await;
    produce(&engine, "in", vec![to(1, "a")]).await;
    until("it is stored", async || {
        engine.describe_topic(&me(), &name("out")).expect("there").partitions[0].high_watermark.0 == 1
    })
    .await;
    let fewer = levada_engine::AlterTopic { partitions: Some(1), ..Default::default() };
    engine.alter_topic(&me(), &name("in"), fewer).await.expect("shrunk");
    let expired = vec![(levada_model::PartitionIndex(1), Offset(1))];
    engine.truncate_topic(&me(), &name("in"), expired).await.expect("truncated");
    engine.run_maintenance();
    until("it is committed", async || out(&engine, "out", 0).await == ["a"]).await;
    assert_eq!(info(&engine).await.tasks.len(), 1);
}

#[tokio::test]
async fn offsets_that_are_gone_before_they_are_processed_are_counted() {
    let (engine, _) = modules::engine();
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    put(&engine, spec(vec![])).await;
    pause(&engine, true).await;
    produce(&engine, "in", ["a", "b", "c", "d"].map(|value| record("k", value)).into()).await;
    let expired = vec![(levada_model::PartitionIndex(0), Offset(3))];
    engine.truncate_topic(&me(), &name("in"), expired).await.expect("truncated");
    pause(&engine, false).await;
    let task = counted(&engine, 1).await;
    assert_eq!((task.lost, task.skipped, task.position), (3, 0, Offset(4)));
    assert_eq!(out(&engine, "out", 0).await, ["d"]);
}
