//! Pauses, resets, other documents and other versions, while records come.

use levada_engine::{From, ModuleError, ProcessorReset, ProcessorState};
use levada_model::Offset;
use serde_json::json;

use super::*;
use crate::modules::{self, module};
use crate::support::{Bench, create, produce, record, to};

async fn reset(engine: &Engine, start: From, dry_run: bool) -> Result<Vec<u64>, ProcessorError> {
    let tasks = engine.reset_processor(&me(), &called(P), ProcessorReset { start, dry_run }).await?;
    Ok(tasks.into_iter().map(|task| task.position.0).collect())
}

#[tokio::test]
async fn a_pause_holds_over_a_restart_and_a_resume_goes_on() {
    let (bench, _) = Bench::sim();
    let engine = modules::open(&bench, &modules::HostHandle::default());
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    put(&engine, spec(vec![])).await;
    produce(&engine, "in", vec![record("k", "a")]).await;
    caught_up(&engine).await;
    assert_eq!(pause(&engine, true).await.state, ProcessorState::Paused);
    produce(&engine, "in", vec![record("k", "b")]).await;
    engine.close().await.expect("closed");
    drop(engine);
    let engine = modules::open(&bench, &modules::HostHandle::default());
    let paused = info(&engine).await;
    assert_eq!((paused.state, paused.tasks[0].lag, paused.version), (ProcessorState::Paused, 1, 1));
    assert_eq!(out(&engine, "out", 0).await, ["a"]);
    assert_eq!(pause(&engine, false).await.state, ProcessorState::Running);
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, ["a", "b"]);
}

#[tokio::test]
async fn only_who_stands_still_is_reset() {
    let (engine, _) = modules::engine();
    create(&engine, "in", 2, &[]).await;
    create(&engine, "out", 1, &[]).await;
    put(&engine, spec(vec![])).await;
    produce(&engine, "in", vec![to(0, "a"), to(0, "b"), to(1, "c")]).await;
    caught_up(&engine).await;
    let refused = reset(&engine, From::Earliest, true).await;
    assert!(matches!(refused, Err(ProcessorError::Running)), "{refused:?}");
    pause(&engine, true).await;
    assert_eq!(reset(&engine, From::Tail(1), true).await.expect("tried"), [1, 0]);
    let positions: Vec<_> = info(&engine).await.tasks.iter().map(|task| task.position).collect();
    assert_eq!(positions, [Offset(2), Offset(1)], "nothing was moved");
    assert_eq!(reset(&engine, From::Tail(1), false).await.expect("moved"), [1, 0]);
    pause(&engine, false).await;
    caught_up(&engine).await;
    let mut found = out(&engine, "out", 0).await;
    found.sort();
    assert_eq!(found, ["a", "b", "b", "c", "c"]);
    pause(&engine, true).await;
    assert_eq!(reset(&engine, From::Offset(Offset(9)), true).await.expect("tried"), [2, 1], "never beyond the end");
}

#[tokio::test]
async fn who_failed_may_be_set_behind_the_record() {
    let (engine, _) = modules::engine();
    modules::put(&engine, "f", module(&["transform"], json!({}))).await;
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    produce(&engine, "in", ["a", "trap", "b"].map(|value| record("k", value)).into()).await;
    put(&engine, failing(Then::Pause, spec(vec![transform("f")]))).await;
    let (_, at) = failed(&engine).await;
    let behind = From::Offset(Offset(at.expect("a record") + 1));
    assert_eq!(reset(&engine, behind, false).await.expect("moved"), [2]);
    pause(&engine, false).await;
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_document_takes_over_where_the_one_before_stands() {
    let (engine, _) = modules::engine();
    create(&engine, "in", 2, &[]).await;
    create(&engine, "out", 1, &[]).await;
    create(&engine, "other", 1, &[]).await;
    put(&engine, spec(vec![])).await;
    for round in 0..20_u32 {
        let records = (0..50).map(|i| to(i % 2, &format!("{round}-{i}"))).collect();
        produce(&engine, "in", records).await;
        let sink = name(["out", "other"][round as usize % 2]);
        let next = documented(json!({ "round": round }), ProcessorSpec { sink, ..spec(vec![]) });
        let (info, is_new) = put(&engine, next).await;
        assert_eq!((info.version, is_new), (u64::from(round) + 2, false));
    }
    caught_up(&engine).await;
    let mut found = [out(&engine, "out", 0).await, out(&engine, "other", 0).await].concat();
    let mut wanted: Vec<_> = (0..20).flat_map(|round| (0..50).map(move |i| format!("{round}-{i}"))).collect();
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
    let same = documented(json!({ "round": 19 }), ProcessorSpec { sink: name("other"), ..spec(vec![]) });
    assert_eq!(put(&engine, same).await.0.version, 21, "the same document is no other");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_version_of_a_module_takes_over_between_two_batches() {
    let (engine, _) = modules::engine();
    let plain = module(&["transform"], json!({}));
    let upper = module(&["transform"], json!({"upper": true}));
    modules::put(&engine, "f", plain.clone()).await;
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    put(&engine, spec(vec![transform("f")])).await;
    for round in 0..20 {
        let wasm = if round % 2 == 0 { upper.clone() } else { plain.clone() };
        let records = (0..20).map(|i| record("k", &format!("v{round}-{i}"))).collect();
        let (swapped, _) = tokio::join!(modules::put(&engine, "f", wasm), produce(&engine, "in", records));
        assert!(swapped.version <= 2);
    }
    caught_up(&engine).await;
    let found = out(&engine, "out", 0).await;
    let wanted: Vec<_> = (0..20).flat_map(|round| (0..20).map(move |i| format!("v{round}-{i}"))).collect();
    assert_eq!(found.iter().map(|value| value.to_lowercase()).collect::<Vec<_>>(), wanted, "in order, each once");
    modules::put(&engine, "f", upper).await;
    produce(&engine, "in", vec![record("k", "last")]).await;
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await.last().map(String::as_str), Some("LAST"));
}

#[tokio::test]
async fn a_version_that_a_step_cannot_use_is_not_activated() {
    let (engine, _) = modules::engine();
    modules::put(&engine, "f", module(&["transform"], json!({}))).await;
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    put(&engine, spec(vec![transform("f")])).await;
    for other in [module(&["partitioner"], json!({})), module(&["transform"], json!({"refuses": true}))] {
        let refused = engine.put_module(&me(), &modules::named("f"), other, true).await;
        assert!(matches!(refused, Err(ModuleError::Config { .. })), "{refused:?}");
    }
    produce(&engine, "in", vec![record("k", "a")]).await;
    caught_up(&engine).await;
    assert_eq!(out(&engine, "out", 0).await, ["a"]);
}
