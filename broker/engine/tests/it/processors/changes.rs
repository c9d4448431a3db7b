//! Changes whose caller goes away, changes of one processor at once, and what holds when a change is answered.

use levada_engine::From;
use levada_log::CrashPlan;
use levada_model::Offset;
use serde_json::json;

use super::*;
use crate::modules::{self, HostHandle, module};
use crate::support::{Bench, create, poll_times, produce, record};

async fn prepared() -> Engine {
    let (engine, _) = modules::engine();
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    engine
}

async fn is_there(engine: &Engine) -> bool {
    !matches!(engine.processor(&me(), &called(P)).await, Err(ProcessorError::NotFound(_)))
}

#[tokio::test]
async fn a_deletion_whose_caller_goes_away_leaves_nothing() {
    for polls in 1..3 {
        let engine = prepared().await;
        put(&engine, spec(vec![])).await;
        produce(&engine, "in", vec![record("k", "a")]).await;
        caught_up(&engine).await;
        drop(poll_times(engine.delete_processor(&me(), &called(P), false), polls).await);
        until("it is deleted", async || !is_there(&engine).await).await;
        let (info, is_new) = put(&engine, documented(json!(polls), spec(vec![]))).await;
        assert_eq!((is_new, &*info.document), (true, &*polls.to_string()));
        produce(&engine, "in", vec![record("k", "b")]).await;
        caught_up(&engine).await;
        assert_eq!(out(&engine, "out", 0).await, ["a", "a", "b"], "the new one runs, and from its start");
        assert_eq!(pause(&engine, true).await.state, ProcessorState::Paused);
    }
}

#[tokio::test]
async fn a_deletion_given_up_while_a_batch_is_worked_on_is_done_to_its_end() {
    let (engine, host) = modules::engine();
    modules::put(&engine, "f", module(&["transform"], json!({"gated": true}))).await;
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    put(&engine, spec(vec![transform("f")])).await;
    host.hold(true);
    produce(&engine, "in", vec![record("k", "a")]).await;
    until("a batch is worked on", async || !host.0.calls.lock().is_empty()).await;
    let deleted = poll_times(engine.delete_processor(&me(), &called(P), false), 1).await;
    assert!(deleted.is_none(), "it waits for the batch");
    until("it is deleted", async || !is_there(&engine).await).await;
    host.hold(false);
    assert!(put(&engine, documented(json!(2), spec(vec![]))).await.1);
    produce(&engine, "in", vec![record("k", "b")]).await;
    caught_up(&engine).await;
    let found = out(&engine, "out", 0).await;
    assert!(found.ends_with(&["a".to_owned(), "b".to_owned()]), "{found:?}");
}

#[tokio::test]
async fn what_is_put_or_paused_by_one_who_goes_away_holds_as_a_whole_or_not_at_all() {
    for polls in 1..3 {
        let engine = prepared().await;
        produce(&engine, "in", vec![record("k", "a")]).await;
        drop(poll_times(engine.put_processor(&me(), &called(P), spec(vec![])), polls).await);
        put(&engine, spec(vec![])).await;
        caught_up(&engine).await;
        assert_eq!(out(&engine, "out", 0).await, ["a"]);
        // Another document, and nobody waits for it.
        create(&engine, "other", 1, &[]).await;
        let other = documented(json!("other"), ProcessorSpec { sink: name("other"), ..spec(vec![]) });
        drop(poll_times(engine.put_processor(&me(), &called(P), other), 1).await);
        until("it is put", async || info(&engine).await.version == 2).await;
        // No pause or put behind it has to wake anybody.
        until("the other document is followed", async || {
            produce(&engine, "in", vec![record("k", "b")]).await;
            !out(&engine, "other", 0).await.is_empty()
        })
        .await;
        drop(poll_times(engine.pause_processor(&me(), &called(P), true), polls).await);
        until("it is paused", async || info(&engine).await.state == ProcessorState::Paused).await;
    }
}

#[tokio::test]
async fn latest_is_before_all_that_is_produced_after_the_answer_also_over_a_power_cut() {
    for guarantee in [Guarantee::ExactlyOnce, Guarantee::AtLeastOnce] {
        let (bench, disk) = Bench::sim();
        let host = HostHandle::default();
        let engine = modules::open(&bench, &host);
        create(&engine, "in", 1, &[]).await;
        create(&engine, "out", 1, &[]).await;
        produce(&engine, "in", vec![record("k", "before")]).await;
        let sources = vec![from("in", From::Latest)];
        put(&engine, ProcessorSpec { sources, guarantee, ..spec(vec![]) }).await;
        produce(&engine, "in", vec![record("k", "behind")]).await;
        let cut = bench.with(disk.crash(&CrashPlan::all_lost()));
        caught_up(&engine).await;
        assert_eq!(out(&engine, "out", 0).await, ["behind"], "{guarantee:?}");
        assert_eq!(info(&engine).await.tasks[0].position, Offset(2));
        engine.close().await.expect("closed");
        drop(engine);
        let engine = modules::open(&cut, &host);
        caught_up(&engine).await;
        assert_eq!(out(&engine, "out", 0).await, ["behind"], "{guarantee:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_deleted_and_put_at_once_runs_all_the_same() {
    let engine = prepared().await;
    put(&engine, spec(vec![])).await;
    for round in 0..30_u32 {
        let next = documented(json!(round), spec(vec![]));
        let name = called(P);
        let who = me();
        let (deleted, _) = tokio::join!(
            engine.delete_processor(&who, &name, round % 2 == 0),
            engine.put_processor(&who, &name, next.clone())
        );
        deleted.expect("it was there");
        put(&engine, next).await;
        produce(&engine, "in", vec![record("k", &round.to_string())]).await;
        caught_up(&engine).await;
        assert_eq!(out(&engine, "out", 0).await.last(), Some(&round.to_string()));
    }
}
