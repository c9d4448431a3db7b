//! What a processor does from its first record to its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use levada_engine::{From, Guarantee, ModuleError, ModuleUse, ProcessorError, ProcessorSpec, ProcessorState, Then};
use levada_extension::JsonTest;
use levada_model::{Header, Offset, PartitionIndex, Record, Timestamp, limits};
use serde_json::json;

use super::*;
use crate::modules::{self, module};
use crate::support::{START, create, fetch, produce, record, to};

#[tokio::test]
async fn records_that_pass_a_filter_go_to_the_sink_as_they_are_and_in_order() {
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce] {
        let (engine, _) = modules::engine();
        create(&engine, "in", 1, &[]).await;
        create(&engine, "out", 3, &[]).await;
        let mut first = record("a", r#"{"n": 1, "ok": true}"#);
        first.record.headers = vec![Header { name: "h".to_owned(), value: None }];
        first.timestamp = Some(Timestamp(START.0 - 5));
        produce(&engine, "in", vec![first.clone(), record("a", r#"{"n": 2}"#), record("b", "no json")]).await;
        let steps = vec![equals("/ok", json!(true)), exists("/n")];
        let (info, is_new) = put(&engine, ProcessorSpec { guarantee, ..spec(steps) }).await;
        assert!(is_new);
        assert_eq!((info.version, &*info.document, info.owner), (1, r#"{"a":  "document"}"#, me()));
        produce(&engine, "in", vec![record("a", r#"{"n": 3, "ok": true}"#)]).await;
        caught_up(&engine).await;
        let partition = levada_extension::Murmur2::default();
        let PartitionIndex(by_key) = levada_extension::Partitioner::partition(&partition, &[Some(b"a")], 3)[0];
        let fetched = fetch(&engine, "out", by_key, From::Earliest).await.expect("read");
        let found: Vec<_> = fetched.records().map(|record| record.expect("sound")).collect();
        assert_eq!(found.len(), 2, "{guarantee:?}");
        assert_eq!((found[0].record.clone(), found[0].timestamp), (first.record, Timestamp(START.0 - 5)));
        assert_eq!(found[1].record.value.as_deref(), Some(br#"{"n": 3, "ok": true}"#.as_slice()));
        let task = counted(&engine, 4).await;
        assert_eq!((task.position, task.records_in, task.records_out), (Offset(4), 4, 2));
        assert_eq!((task.skipped, task.errors, task.stream_time), (0, 0, Some(START)));
        let stats = engine.stats();
        assert_eq!((stats.processors, stats.processor_records_in, stats.processor_records_out), (1, 4, 2));
    }
}

#[tokio::test]
async fn modules_and_filters_follow_one_another_in_one_call_for_many_small_batches() {
    let (engine, host) = modules::engine();
    modules::put(&engine, "f", module(&["transform"], json!({}))).await;
    modules::put(&engine, "u", module(&["transform"], json!({"upper": true}))).await;
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    for value in ["a", "drop", "twice", "b"] {
        produce(&engine, "in", vec![record("k", value)]).await;
    }
    let texts = filter("", JsonTest::Exists(false));
    put(&engine, spec(vec![texts, transform("f"), transform("u")])).await;
    caught_up(&engine).await;
    // The second module doubles what the first one has doubled.
    let doubled = ["twice/1/1", "twice/1/2", "twice/2/1", "twice/2/2"];
    assert_eq!(out(&engine, "out", 0).await, [&["A"], &doubled[..], &["B"]].concat());
    assert_eq!(*host.0.calls.lock(), [4, 4], "one call a module");
    let uses = engine.module(&me(), &modules::named("f")).expect("there").used_by;
    assert_eq!(uses, [ModuleUse::Processor(called(P))]);
    let refused = engine.delete_module(&me(), &modules::named("f")).await;
    assert!(matches!(refused, Err(ModuleError::InUse { .. })), "{refused:?}");
    engine.delete_processor(&me(), &called(P), false).await.expect("deleted");
    engine.delete_module(&me(), &modules::named("f")).await.expect("nothing uses it");
}

#[tokio::test]
async fn the_time_of_a_record_may_be_in_its_value_and_what_has_none_is_passed_over() {
    let (engine, _) = modules::engine();
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    let values = [r#"{"at": 1700000000123}"#, "none", r#"{"at": "2023-11-14T22:13:20.456Z"}"#, r#"{"at": true}"#];
    produce(&engine, "in", values.map(|value| record("k", value)).into()).await;
    put(&engine, ProcessorSpec { timestamp: Some("/at".to_owned()), ..spec(vec![]) }).await;
    caught_up(&engine).await;
    let fetched = fetch(&engine, "out", 0, From::Earliest).await.expect("read");
    let times: Vec<_> = fetched.records().map(|record| record.expect("sound").timestamp.0).collect();
    assert_eq!(times, [1_700_000_000_123, 1_700_000_000_456]);
    let task = counted(&engine, 4).await;
    assert_eq!((task.skipped, task.records_in, task.records_out), (2, 4, 2));
    assert_eq!(task.stream_time, Some(Timestamp(1_700_000_000_456)));
}

#[tokio::test]
async fn a_processor_begins_where_its_document_says_and_new_partitions_at_their_start() {
    let (engine, _) = modules::engine();
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    produce(&engine, "in", vec![record("k", "before")]).await;
    let sources = vec![from("in", From::Latest)];
    put(&engine, ProcessorSpec { sources, ..spec(vec![]) }).await;
    caught_up(&engine).await;
    produce(&engine, "in", vec![record("k", "behind")]).await;
    let more = levada_engine::AlterTopic { partitions: Some(3), ..Default::default() };
    engine.alter_topic(&me(), &name("in"), more).await.expect("grown");
    produce(&engine, "in", vec![to(2, "of a new partition")]).await;
    caught_up(&engine).await;
    until("the new partition is read", async || engine.stats().processor_records_in == 2).await;
    let mut found = out(&engine, "out", 0).await;
    found.sort();
    assert_eq!(found, ["behind", "of a new partition"]);
    assert_eq!(info(&engine).await.tasks.len(), 3);
}

#[tokio::test]
async fn who_is_deleted_leaves_no_positions_unless_they_are_kept() {
    let (engine, _) = modules::engine();
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    produce(&engine, "in", vec![record("k", "a")]).await;
    put(&engine, spec(vec![])).await;
    caught_up(&engine).await;
    engine.delete_processor(&me(), &called(P), true).await.expect("deleted");
    let gone = engine.processor(&me(), &called(P)).await;
    assert!(matches!(gone, Err(ProcessorError::NotFound(_))), "{gone:?}");
    produce(&engine, "in", vec![record("k", "b")]).await;
    assert!(put(&engine, spec(vec![])).await.1, "it is new");
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, ["a", "b"], "it went on");
    engine.delete_processor(&me(), &called(P), false).await.expect("deleted");
    assert!(engine.group_offsets(&me(), &group()).await.is_err(), "the group is gone");
    put(&engine, spec(vec![])).await;
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, ["a", "b", "a", "b"], "it began anew");
}

#[tokio::test]
async fn users_see_the_group_of_a_processor_and_change_nothing_of_it() {
    let (engine, _) = modules::engine();
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    put(&engine, spec(vec![])).await;
    produce(&engine, "in", vec![record("k", "a")]).await;
    caught_up(&engine).await;
    let described = engine.describe_group(&me(), &group()).await.expect("there");
    assert_eq!((described.offsets[0].offset.committed, described.offsets[0].offset.lag), (Offset(1), 0));
    let refused = engine.delete_group(&me(), &group()).await;
    assert!(matches!(refused, Err(levada_engine::GroupError::Internal(_))), "{refused:?}");
    let commit =
        levada_engine::OffsetCommit { topic: name("in"), partition: PartitionIndex(0), offset: From::Earliest };
    let refused = engine.commit_group_offsets(&me(), &group(), vec![commit], false).await;
    assert!(matches!(refused, Err(levada_engine::GroupError::Internal(_))), "{refused:?}");
    let id = levada_model::TransactionalId::new("__processor.p.x.0").expect("an id");
    let refused = engine.init_transactional_producer(&me(), &id, 1_000).await;
    assert!(matches!(refused, Err(levada_engine::TransactionError::ReservedId)), "{refused:?}");
}

#[tokio::test]
async fn positions_do_not_expire_with_time() {
    let (bench, _) = crate::support::Bench::sim();
    let engine = modules::open(&bench, &modules::HostHandle::default());
    create(&engine, "in", 1, &[("retention.ms", json!(-1))]).await;
    create(&engine, "out", 1, &[("retention.ms", json!(-1))]).await;
    put(&engine, spec(vec![])).await;
    produce(&engine, "in", vec![record("k", "a")]).await;
    caught_up(&engine).await;
    pause(&engine, true).await;
    for _ in 0..2 {
        bench.clock.advance(i64::try_from(limits::OFFSETS_RETENTION_MS).expect("small") + 1);
        engine.run_maintenance();
    }
    engine.close().await.expect("closed");
    drop(engine);
    let engine = modules::open(&bench, &modules::HostHandle::default());
    engine.run_maintenance();
    pause(&engine, false).await;
    produce(&engine, "in", vec![record("k", "b")]).await;
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, ["a", "b"]);
}

#[tokio::test]
async fn a_document_that_cannot_be_is_refused_with_pointers() {
    let (engine, _) = modules::engine();
    modules::put(&engine, "f", module(&["transform"], json!({}))).await;
    modules::put(&engine, "p", module(&["partitioner"], json!({}))).await;
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    let refused = async |spec: ProcessorSpec| match engine.put_processor(&me(), &called(P), spec).await {
        Err(ProcessorError::Document(faults)) => faults.into_iter().map(|(at, _)| at).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let good = || spec(vec![]);
    assert_eq!(refused(ProcessorSpec { sources: vec![], ..good() }).await, ["/sources"]);
    let sources = ["in", "none", "in", "__consumer_offsets"].map(|topic| from(topic, From::Earliest)).into();
    let at = ["/sources/1/topic", "/sources/2/topic", "/sources/3/topic"];
    assert_eq!(refused(ProcessorSpec { sources, ..good() }).await, at);
    for sink in ["none", "in", "__consumer_offsets"] {
        assert_eq!(refused(ProcessorSpec { sink: name(sink), ..good() }).await, ["/sink/topic"]);
    }
    assert_eq!(refused(ProcessorSpec { timestamp: Some("at".to_owned()), ..good() }).await, ["/timestamp/json"]);
    assert_eq!(refused(failing(Then::DeadLetter(Some(name("in"))), good())).await, ["/on_error/topic"]);
    let on_error = OnError { attempts: 0, then: Then::Skip };
    assert_eq!(refused(ProcessorSpec { on_error, ..good() }).await, ["/on_error/attempts"]);
    for commit_interval_ms in [0, 60_001] {
        assert_eq!(refused(ProcessorSpec { commit_interval_ms, ..good() }).await, ["/commit_interval_ms"]);
    }
    let refuse = ProcessorStep::Transform { module: of("f"), config: r#"{"refuse": true}"#.to_owned() };
    let steps = vec![transform("f"), transform("none"), transform("f@2"), transform("p"), refuse];
    let at = [1, 2, 3].map(|place| format!("/steps/{place}/transform/module"));
    assert_eq!(refused(spec(steps)).await, [&at[..], &["/steps/4/transform/config".to_owned()]].concat());
    assert_eq!(refused(spec(vec![transform("f"); 17])).await, ["/steps"]);
    assert_eq!(refused(documented(json!("x".repeat(300_000)), good())).await, [""]);
    assert!(engine.processors(&me(), None, 9).await.expect("a list").0.is_empty());
}

#[tokio::test]
async fn the_end_of_a_source_or_sink_is_told() {
    for (deleted, what) in [("in", "source"), ("out", "sink")] {
        let (engine, _) = modules::engine();
        create(&engine, "in", 1, &[]).await;
        create(&engine, "out", 1, &[]).await;
        put(&engine, spec(vec![])).await;
        produce(&engine, "in", vec![record("k", "a")]).await;
        caught_up(&engine).await;
        engine.delete_topic(&me(), &name(deleted)).await.expect("deleted");
        assert_eq!(failed(&engine).await, (format!("the {what} topic {deleted} was deleted"), None));
        assert_eq!(engine.stats().processors_failed, 1);
        create(&engine, deleted, 1, &[]).await;
        assert_eq!(pause(&engine, false).await.state, ProcessorState::Running, "it can go on with the new one");
        produce(&engine, "in", vec![record("k", "b")]).await;
        caught_up(&engine).await;
        assert_eq!(out(&engine, "out", 0).await.last().map(String::as_str), Some("b"));
    }
}

#[tokio::test]
async fn records_of_a_sink_without_a_key_go_somewhere() {
    let (engine, _) = modules::engine();
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 2, &[]).await;
    let tombstone = levada_engine::ProduceRecord { record: Record::default(), ..Default::default() };
    produce(&engine, "in", vec![record("", "a"), tombstone]).await;
    put(&engine, spec(vec![])).await;
    caught_up(&engine).await;
    assert_eq!([out(&engine, "out", 0).await, out(&engine, "out", 1).await].concat(), ["a", ""]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_of_a_module_does_not_count_for_the_version_that_became_active_meanwhile() {
    let (engine, host) = modules::engine();
    modules::put(&engine, "m", module(&["transform"], json!({"gated_init": true}))).await;
    let other = module(&["partitioner"], json!({}));
    engine.put_module(&me(), &modules::named("m"), other, false).await.expect("taken");
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    host.hold(true);
    let engine = Arc::new(engine);
    let puts = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.put_processor(&me(), &called(P), spec(vec![transform("m")])).await })
    };
    until("the module is asked", async || host.0.waiting.load(Ordering::SeqCst) > 0).await;
    engine.activate_module(&me(), &modules::named("m"), 2).await.expect("nobody follows yet");
    host.hold(false);
    match puts.await.expect("no panic") {
        Err(ProcessorError::Document(faults)) => assert_eq!(faults[0].0, "/steps/0/transform/module", "{faults:?}"),
        other => panic!("it is no transform now: {other:?}"),
    }
}
