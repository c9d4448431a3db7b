//! Many records through modules in the whole broker, compared with a native computation. Assignors and aggregators are held
//! so at the host (`runtime/host/tests`).
//!
//! 50,000 of them; with `LEVADA_SOAK` a million.

use std::collections::HashMap;

use levada_client::NewRecord;
use levada_examples::example;
use levada_fixtures::stamp;
use serde_json::{Value, json};

use super::broker::{Broker, document, texts};
use super::soak;

/// How many records.
fn count() -> u64 {
    if soak() == 1 { 50_000 } else { 1_000_000 }
}

/// The value of a record; some are no quake, some no JSON.
fn value(number: u64) -> String {
    let scrambled = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    match scrambled % 50 {
        0 => format!("no JSON {number}"),
        1 => format!("{{\"n\":\"{number}\"}}"),
        _ => format!("{{\"n\":{},\"user\":\"user-{}\",\"id\":{number}}}", scrambled % 1_000, scrambled % 777),
    }
}

fn wasm(name: &str) -> &'static [u8] {
    example(name).expect("an example").wasm
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partitioner_places_records_where_the_built_in_one_does_by_the_same_key() {
    let broker = Broker::new(&[]);
    broker.put("by-field", wasm("partition-by-field")).await;
    let config = json!({ "partitioner": "module:by-field", "partitioner.config": { "field": "/user" } });
    broker.topic("by-module", 7, config).await;
    broker.topic("native", 7, json!({})).await;
    // Placed by the field where there is one, and else by their own key.
    let records: Vec<_> =
        (0..count()).map(|number| NewRecord::text(value(number)).with_key(number.to_string())).collect();
    broker.store("by-module", &records).await;
    let key = |number: u64| {
        let field = serde_json::from_str::<Value>(&value(number))
            .ok()
            .and_then(|value| Some(value["user"].as_str()?.to_owned()));
        field.unwrap_or_else(|| number.to_string())
    };
    let records: Vec<_> =
        (0..count()).map(|number| NewRecord::text(number.to_string()).with_key(key(number))).collect();
    broker.store("native", &records).await;
    let mut placed = HashMap::new();
    for record in broker.all("native").await {
        placed.insert(record.value.expect("a value"), record.partition);
    }
    let by_module = broker.all("by-module").await;
    assert_eq!((by_module.len(), placed.len()), (records.len(), records.len()));
    for record in by_module {
        let number = record.key.expect("a key");
        assert_eq!(placed.remove(&number), Some(record.partition), "record {number:?}");
    }
    assert!(placed.is_empty(), "each is there once");
    let stats = broker.client.module_stats("by-field", None).await.expect("numbers");
    assert_eq!((stats.records, stats.fallbacks), (count(), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transforms_keep_change_and_multiply_as_native_code_does() {
    let broker = Broker::new(&[]);
    broker.put("filter", wasm("json-filter")).await;
    broker.put("stamp", stamp(7)).await;
    for topic in ["in", "kept", "stamped"] {
        broker.topic(topic, 1, json!({})).await;
    }
    let values: Vec<_> = (0..count()).map(value).collect();
    broker.store("in", &values.iter().map(|value| NewRecord::text(value).with_key("k")).collect::<Vec<_>>()).await;
    let mut kept = document("in", "filter", "kept", json!({}));
    kept["steps"][0]["transform"]["config"] = json!({ "field": "/n", "at_least": 500 });
    broker.processor("kept", &kept).await;
    let at_least = json!({ "guarantee": "at-least-once" });
    broker.processor("stamped", &document("in", "stamp", "stamped", at_least)).await;
    for name in ["kept", "stamped"] {
        let standing = broker.processor_that(name, |it| it.tasks.iter().any(|task| task.records_in == count())).await;
        assert_eq!((standing.tasks[0].lag, standing.tasks[0].errors), (0, 0), "{standing:?}");
    }
    let is_kept = |value: &&String| {
        serde_json::from_str::<Value>(value).is_ok_and(|value| value["n"].as_f64().is_some_and(|n| n >= 500.0))
    };
    same(&texts(&broker.all("kept").await), values.iter().filter(is_kept).cloned());
    same(
        &texts(&broker.all("stamped").await),
        values.iter().map(|value| format!("{{\"version\":7,\"value\":{value}}}")),
    );
}

/// That the values are these, without printing all of them where they are not.
fn same(found: &[Option<String>], expected: impl Iterator<Item = String>) {
    let mut count = 0;
    for (at, expected) in expected.enumerate() {
        assert_eq!(found.get(at).and_then(Option::as_ref), Some(&expected), "record {at}");
        count += 1;
    }
    assert_eq!(found.len(), count, "and no more");
}
