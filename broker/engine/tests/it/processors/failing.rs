//! Records that fail, and hosts that do.

use std::sync::atomic::Ordering;

use levada_engine::{From, Guarantee, ProcessorSpec, ProcessorState, Then};
use levada_model::{Offset, limits};
use serde_json::json;

use super::*;
use crate::modules::{self, HostHandle, module};
use crate::support::{START, create, fetch, produce, record, request};

/// An engine whose topic `in` holds these values in one batch, with a module `f`.
async fn holding(values: &[&str]) -> (Engine, HostHandle) {
    let (engine, host) = modules::engine();
    modules::put(&engine, "f", module(&["transform"], json!({}))).await;
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    if !values.is_empty() {
        produce(&engine, "in", values.iter().map(|value| record("k", value)).collect()).await;
    }
    (engine, host)
}

/// Values of the dead letters, and the headers of the last one.
async fn letters(engine: &Engine, topic: &str) -> (Vec<String>, Vec<(String, String)>) {
    let fetched = fetch(engine, topic, 0, From::Earliest).await.expect("a read");
    let text =
        |bytes: &Option<bytes::Bytes>| String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned();
    let records: Vec<_> = fetched.records().map(|record| record.expect("sound").record).collect();
    let last = records.last().map(|record| record.headers.clone()).unwrap_or_default();
    let headers = last.iter().map(|header| (header.name.clone(), text(&header.value))).collect();
    (records.iter().map(|record| text(&record.value)).collect(), headers)
}

#[tokio::test]
async fn one_poison_record_goes_to_the_dead_letters_and_all_others_pass() {
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce] {
        let mut values: Vec<String> = (0..100).map(|i| format!("v{i}")).collect();
        values[37] = "trap".to_owned();
        let (engine, host) = holding(&values.iter().map(String::as_str).collect::<Vec<_>>()).await;
        put(&engine, ProcessorSpec { guarantee, ..spec(vec![transform("f")]) }).await;
        caught_up(&engine).await;
        let (letters, headers) = letters(&engine, "in.dead-letter").await;
        assert_eq!(letters, ["trap"]);
        let expected = [
            ("error", "it trapped"),
            ("original_topic", "in"),
            ("original_partition", "0"),
            ("original_offset", "37"),
            ("original_timestamp", &START.0.to_string()),
            ("group", "__processor.p"),
            ("module", "f"),
            ("attempts", "2"),
        ];
        assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        values.remove(37);
        assert_eq!(out(&engine, "out", 0).await, values, "in order, each once");
        let task = counted(&engine, 100).await;
        assert_eq!((task.errors, task.skipped, task.records_in, task.records_out), (1, 0, 100, 99));
        assert_eq!(engine.stats().dead_letters, 1);
        let calls = host.0.calls.lock();
        assert_eq!(calls.iter().filter(|count| **count == 1).count(), 2, "the record alone, twice");
        assert!(calls.len() < 20, "{calls:?}");
    }
}

#[tokio::test]
async fn what_a_module_rejects_is_set_aside_without_a_second_try() {
    let (engine, host) = holding(&["a", "reject", "b"]).await;
    put(&engine, failing(Then::DeadLetter(Some(name("letters"))), spec(vec![transform("f")]))).await;
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, ["a", "b"]);
    let (letters, headers) = letters(&engine, "letters").await;
    assert_eq!((letters, &*headers[0].1, &*headers[7].1), (vec!["reject".to_owned()], "reject is not for us", "1"));
    assert_eq!(*host.0.calls.lock(), [3]);
}

#[tokio::test]
async fn what_the_sink_does_not_take_fails_too() {
    let (engine, _) = modules::engine();
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[("max.message.bytes", json!(100))]).await;
    let long = "x".repeat(100);
    produce(&engine, "in", ["a", &long, "b"].map(|value| record("k", value)).into()).await;
    put(&engine, spec(vec![])).await;
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, ["a", "b"]);
    let (letters, headers) = letters(&engine, "in.dead-letter").await;
    assert_eq!(letters, [long]);
    assert!(headers.iter().all(|(name, _)| name != "module"), "{headers:?}");
}

#[tokio::test]
async fn skipped_records_are_counted() {
    let (engine, _) = holding(&["trap", "a", "reject"]).await;
    put(&engine, failing(Then::Skip, spec(vec![transform("f")]))).await;
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, ["a"]);
    let task = counted(&engine, 3).await;
    assert_eq!((task.errors, task.skipped), (2, 2));
    assert!(fetch(&engine, "in.dead-letter", 0, From::Earliest).await.is_err(), "there is no such topic");
}

#[tokio::test]
async fn a_processor_that_pauses_stands_at_the_record_and_goes_on_from_there() {
    for poison in ["trap", "reject"] {
        let (engine, host) = holding(&["a", "b", poison, "c"]).await;
        put(&engine, failing(Then::Pause, spec(vec![transform("f")]))).await;
        let (reason, at) = failed(&engine).await;
        assert!(reason.contains("it trapped") || reason.contains("is not for us"), "{reason}");
        assert_eq!(at, Some(2));
        let task = info(&engine).await.tasks.remove(0);
        assert_eq!((task.position, task.lag), (Offset(2), 2));
        assert_eq!(out(&engine, "out", 0).await, ["a", "b"], "what came before is there");
        let calls = host.0.calls.lock().len();
        pause(&engine, false).await;
        failed(&engine).await;
        assert!(host.0.calls.lock().len() > calls, "it has tried again");
        put(&engine, failing(Then::Skip, spec(vec![transform("f")]))).await;
        caught_up(&engine).await;
        assert_eq!(out(&engine, "out", 0).await, ["a", "b", "c"]);
    }
}

#[tokio::test]
async fn a_record_that_fails_now_and_then_passes_in_the_end() {
    let (engine, host) = holding(&["a", "flaky", "b"]).await;
    host.0.trips.store(4, Ordering::SeqCst);
    let on_error = OnError { attempts: 9, then: Then::Pause };
    put(&engine, ProcessorSpec { on_error, ..spec(vec![transform("f")]) }).await;
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, ["a", "flaky", "b"]);
    assert_eq!(info(&engine).await.tasks[0].errors, 0);
}

#[tokio::test]
async fn a_host_without_room_is_waited_for_and_nothing_is_lost() {
    let (engine, host) = holding(&["a"]).await;
    host.0.busy.store(true, Ordering::SeqCst);
    let refused = engine.put_processor(&me(), &called(P), spec(vec![transform("f")])).await;
    assert!(matches!(refused, Err(ProcessorError::Busy { .. })), "the document cannot be checked: {refused:?}");
    host.0.busy.store(false, Ordering::SeqCst);
    put(&engine, spec(vec![transform("f")])).await;
    caught_up(&engine).await;
    host.0.busy.store(true, Ordering::SeqCst);
    produce(&engine, "in", vec![record("k", "b")]).await;
    assert_eq!(pause(&engine, true).await.state, ProcessorState::Paused, "who waits can be paused");
    assert_eq!(pause(&engine, false).await.state, ProcessorState::Running);
    assert_eq!(info(&engine).await.tasks[0].lag, 1);
    host.0.busy.store(false, Ordering::SeqCst);
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, ["a", "b"]);
}

#[tokio::test]
async fn without_a_host_a_processor_waits_for_the_next_start() {
    let (bench, _) = crate::support::Bench::sim();
    let host = HostHandle::default();
    let engine = modules::open(&bench, &host);
    modules::put(&engine, "f", module(&["transform"], json!({}))).await;
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    put(&engine, spec(vec![transform("f")])).await;
    caught_up(&engine).await;
    engine.close().await.expect("closed");
    drop(engine);
    let engine = bench.open();
    produce(&engine, "in", vec![record("k", "a")]).await;
    assert_eq!((info(&engine).await.state, info(&engine).await.tasks[0].lag), (ProcessorState::Running, 1));
    engine.close().await.expect("closed");
    drop(engine);
    let engine = modules::open(&bench, &host);
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, ["a"]);
}

#[tokio::test]
async fn more_records_than_one_call_takes_come_out_in_order() {
    let (engine, _) = holding(&[]).await;
    let values: Vec<String> = (0..limits::MODULE_CALL_RECORDS_MAX * 2 + 5).map(|i| i.to_string()).collect();
    let records = values.iter().map(|value| record("k", value)).collect();
    engine.produce(&me(), &name("in"), request(records)).await.expect("produced");
    put(&engine, spec(vec![transform("f")])).await;
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, values);
}

#[tokio::test]
async fn a_dead_letter_that_cannot_be_stored_is_told_with_its_record() {
    let (engine, _) = holding(&[]).await;
    create(&engine, "letters", 1, &[("cleanup.policy", json!("compact"))]).await;
    produce(&engine, "in", vec![record("k", "a"), record("", "reject")]).await;
    put(&engine, failing(Then::DeadLetter(Some(name("letters"))), spec(vec![transform("f")]))).await;
    let (reason, at) = failed(&engine).await;
    assert!(reason.contains("compacted"), "{reason}");
    assert_eq!(at, Some(1));
    let ProcessorState::Failed { at: Some(at), .. } = info(&engine).await.state else { panic!("it failed") };
    let (time, rejected) = at.record.expect("it can be read");
    assert_eq!((time, rejected), (START, record("", "reject").record));
}

#[tokio::test]
async fn a_dead_letter_tells_the_stored_time_where_the_document_asks_for_another() {
    let (engine, _) = holding(&[r#"{"at": 5, "why": "trap"}"#]).await;
    put(&engine, ProcessorSpec { timestamp: Some("/at".to_owned()), ..spec(vec![transform("f")]) }).await;
    caught_up(&engine).await;
    let (_, headers) = letters(&engine, "in.dead-letter").await;
    assert_eq!(headers[4], ("original_timestamp".to_owned(), START.0.to_string()));
}
