//! Records on their way in: each form of a produce, what is refused, and what is stored once.

pub(crate) mod batches;
mod feeds;
mod json;
mod ndjson;
mod once;
mod placing;
mod raw;

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Harness};

/// Sends a JSON body as it is to a topic's records.
pub(crate) async fn produce(harness: &Harness, topic: &str, body: impl Into<reqwest::Body>) -> Answer {
    harness.body(Method::POST, &format!("/v1/topics/{topic}/records"), "application/json", body).await
}

/// Stores values given as JSON texts.
pub(crate) async fn store(harness: &Harness, topic: &str, values: &[&str]) -> Value {
    let records: Vec<_> = values.iter().map(|value| format!("{{\"value\":{value}}}")).collect();
    produce(harness, topic, format!("{{\"records\":[{}]}}", records.join(","))).await.expect(200).json()
}

/// Creates a topic with partitions and settings.
pub(crate) async fn topic(harness: &Harness, name: &str, partitions: u32, config: Value) {
    let body = json!({ "name": name, "partitions": partitions, "config": config });
    harness.json(Method::POST, "/v1/topics", &body).await.expect(201);
}

/// A read of a partition from its beginning.
pub(crate) async fn read(harness: &Harness, topic: &str, partition: u32, query: &str) -> Value {
    harness.get(&format!("/v1/topics/{topic}/partitions/{partition}/records?{query}")).await.expect(200).json()
}

/// How many records a partition has.
pub(crate) async fn count(harness: &Harness, topic: &str) -> u64 {
    let topic = harness.get(&format!("/v1/topics/{topic}")).await.expect(200).json();
    let ends = topic["partitions"].as_array().expect("partitions").iter();
    ends.map(|partition| partition["high_watermark"].as_u64().expect("an offset")).sum()
}

/// The value's bytes as they are stored.
pub(crate) async fn raw_value(harness: &Harness, topic: &str, partition: u32, offset: u64) -> Vec<u8> {
    let path = format!("/v1/topics/{topic}/partitions/{partition}/records/{offset}?raw");
    let response = harness.stream(harness.request(Method::GET, &path)).await;
    assert_eq!(response.status().as_u16(), 200, "{path}");
    response.bytes().await.expect("a whole body").to_vec()
}
