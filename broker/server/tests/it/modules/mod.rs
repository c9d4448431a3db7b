//! Modules over HTTP, on a host that runs native ones.

mod calls;
mod contract;
mod faces;
mod filtering;
mod logs;
mod settings;
mod subscriptions;
mod trials;

use bytes::Bytes;
use http::Method;
pub(crate) use levada_doubles::module;
use serde_json::{Value, json};

use crate::harness::{Answer, Harness};

/// Puts the bytes of a module.
pub(crate) async fn put(harness: &Harness, path: &str, wasm: Bytes) -> Answer {
    harness.body(Method::PUT, &format!("/v1/modules/{path}"), "application/wasm", wasm).await
}

/// Puts a transform; `more` says what it does.
pub(crate) async fn put_transform(harness: &Harness, name: &str, more: Value) -> Value {
    put(harness, name, module(&["transform"], more)).await.expect(201).json()
}

/// Stores texts in partition 0, each with a key.
pub(crate) async fn store(harness: &Harness, topic: &str, texts: &[&str]) {
    let record = |text: &&str| json!({ "key": "k", "value_text": text, "partition": 0 });
    let body = json!({ "records": texts.iter().map(record).collect::<Vec<_>>() });
    harness.json(Method::POST, &format!("/v1/topics/{topic}/records"), &body).await.expect(200);
}

/// The texts of the records of an answer.
pub(crate) fn texts(records: &Value) -> Vec<String> {
    let text = |record: &Value| record["value_text"].as_str().expect("a text").to_owned();
    records.as_array().expect("records").iter().map(text).collect()
}
