//! Reads through a filter: JSON, NDJSON, whole topics, event streams, and what is refused.

use serde_json::json;

use super::{put_transform, store, texts};
use crate::harness::Harness;

async fn three_records() -> Harness {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    put_transform(&harness, "f", json!({})).await;
    store(&harness, "t", &["one", "drop me", "twice"]).await;
    harness
}

#[tokio::test]
async fn a_partition_is_read_through_a_filter_and_the_position_moves_on_over_what_it_drops() {
    let harness = three_records().await;
    let read = harness.get("/v1/topics/t/partitions/0/records?filter=module:f").await.expect(200).json();
    assert_eq!(texts(&read["records"]), ["one", "twice/1", "twice/2"]);
    let offsets: Vec<_> = read["records"].as_array().expect("records").iter().map(|it| it["offset"].clone()).collect();
    assert_eq!((offsets, &read["next_offset"]), (vec![json!(0), json!(2), json!(2)], &json!(3)));

    let path = "/v1/topics/t/partitions/0/records?filter=module:f@1&filter_config=%7B%22drop%22:%22n%22%7D";
    let request = harness.request(http::Method::GET, path).header("accept", "application/x-ndjson");
    let lines = harness.send(request).await.expect(200);
    let text = String::from_utf8(lines.body.to_vec()).expect("text");
    assert_eq!(text.lines().count(), 3, "config says what is dropped: {text}");
    assert!(text.contains("drop me") && !text.contains("\"one\""), "{text}");
    assert_eq!(lines.header("levada-next-offset"), "3");
}

#[tokio::test]
async fn a_topic_is_read_and_followed_through_a_filter() {
    let harness = three_records().await;
    let read = harness.get("/v1/topics/t/records?filter=module:f").await.expect(200).json();
    assert_eq!(texts(&read["records"]), ["one", "twice/1", "twice/2"]);
    let cursor = read["cursor"].as_str().expect("a cursor");
    let on = harness.get(&format!("/v1/topics/t/records?from={cursor}&filter=module:f")).await.expect(200).json();
    assert_eq!(on["records"], json!([]));

    let request = harness.request(http::Method::GET, "/v1/topics/t/records?from=earliest&filter=module:f");
    let mut stream = harness.stream(request.header("accept", "text/event-stream")).await;
    let mut text = String::new();
    while !text.contains("twice/2") {
        text.push_str(&String::from_utf8_lossy(&stream.chunk().await.expect("a piece").expect("it goes on")));
    }
    assert!(text.contains("\"one\"") && !text.contains("drop me"), "{text}");
}

#[tokio::test]
async fn a_filter_that_cannot_be_is_refused_before_anything_is_read() {
    let harness = three_records().await;
    let read = async |query: &str| harness.get(&format!("/v1/topics/t/partitions/0/records?{query}")).await;
    assert_eq!(read("filter=f").await.expect(400).code(), "invalid-parameter");
    assert_eq!(read("filter_config=%7B%7D").await.expect(400).code(), "invalid-parameter");
    assert_eq!(read("filter=module:none").await.expect(404).code(), "module-not-found");
    assert_eq!(read("filter=module:f@9").await.expect(404).code(), "module-not-found");
    assert_eq!(read("filter=module:f&filter_config=7").await.expect(422).code(), "invalid-module-config");
    let request = harness.request(http::Method::GET, "/v1/topics/t/partitions/0/records?filter=module:f");
    let batches = harness.send(request.header("accept", "application/vnd.levada.record-batch")).await;
    assert_eq!(batches.expect(400).code(), "invalid-parameter");
}

#[tokio::test]
async fn a_filter_that_fails_is_a_refusal_that_names_it_and_says_that_it_may_pass() {
    let harness = three_records().await;
    store(&harness, "t", &["trap"]).await;
    let refused = harness.get("/v1/topics/t/partitions/0/records?offset=3&filter=module:f").await.expect(503).json();
    assert_eq!((&refused["code"], &refused["retryable"]), (&json!("module-failed"), &json!(true)));
    assert!(
        refused["detail"].as_str().is_some_and(|it| it.contains("filter f") && it.contains("trapped")),
        "{refused}"
    );
}
