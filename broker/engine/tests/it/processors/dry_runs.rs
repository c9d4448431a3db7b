//! Trials of documents.

use levada_engine::{From, ProcessorDryRun};
use levada_model::Offset;
use serde_json::json;

use super::*;
use crate::modules::{self, module};
use crate::support::{create, produce, to};

fn rows(tried: &ProcessorDryRun) -> Vec<(u32, u64, String)> {
    let text = |record: &levada_model::Record| {
        String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned()
    };
    tried.rows.iter().map(|(partition, offset, _, record)| (partition.0, offset.0, text(record))).collect()
}

#[tokio::test]
async fn a_trial_says_what_would_come_out_and_stores_nothing() {
    let (engine, _) = modules::engine();
    modules::put(&engine, "f", module(&["transform"], json!({"upper": true}))).await;
    create(&engine, "in", 2, &[]).await;
    create(&engine, "out", 1, &[]).await;
    let values = ["a", "drop", "twice", "trap", "reject", "b"];
    produce(&engine, "in", values.map(|value| to(0, value)).into()).await;
    produce(&engine, "in", vec![to(1, "c")]).await;
    let trial = async |start, max| {
        engine.dry_run_processor(&me(), spec(vec![transform("f")]), start, max).await.expect("tried")
    };
    let tried = trial(From::Earliest, 100).await;
    let wanted = [(0, 0, "A"), (0, 2, "twice/1"), (0, 2, "twice/2"), (0, 5, "B"), (1, 0, "C")];
    assert_eq!(rows(&tried), wanted.map(|(partition, offset, value)| (partition, offset, value.to_owned())));
    let mut failed: Vec<_> = tried.failed.iter().map(|(_, offset, reason)| (offset.0, &**reason)).collect();
    failed.sort();
    assert_eq!(failed, [(3, "it trapped"), (4, "reject is not for us")]);
    assert_eq!(tried.records_in, 7);
    assert_eq!(rows(&trial(From::Offset(Offset(5)), 100).await).len(), 1, "the other partition has nothing there");
    assert_eq!(trial(From::Earliest, 2).await.records_in, 2, "one of each partition");
    assert!(out(&engine, "out", 0).await.is_empty());
    assert!(engine.processors(&me(), None, 9).await.expect("a list").0.is_empty());
}

#[tokio::test]
async fn a_trial_out_of_which_too_much_comes_ends_and_says_so() {
    let (engine, _) = modules::engine();
    modules::put(&engine, "f", module(&["transform"], json!({}))).await;
    create(&engine, "in", 1, &[]).await;
    create(&engine, "out", 1, &[]).await;
    let large = format!("twice{}", "x".repeat(900_000));
    for _ in 0..12 {
        produce(&engine, "in", vec![to(0, &large)]).await;
    }
    let twice = vec![transform("f"); 3];
    let tried = engine.dry_run_processor(&me(), spec(twice), From::Earliest, 100).await.expect("tried");
    let bytes: usize = tried.rows.iter().map(|(.., record)| record.size_bytes()).sum();
    assert!(tried.truncated);
    assert!(bytes > 16 << 20 && bytes <= levada_model::limits::DRY_RUN_OUTPUT_BYTES_MAX, "{bytes}");
    let few = engine.dry_run_processor(&me(), spec(vec![transform("f")]), From::Earliest, 2).await.expect("tried");
    assert_eq!((few.rows.len(), few.truncated), (4, false));
}
