//! What is stored once though it is sent again.

use http::Method;
use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::{count, read, topic};
use crate::harness::{Answer, Harness};

fn with_key(harness: &Harness, topic: &str, key: &str, body: &Value) -> RequestBuilder {
    harness.request(Method::POST, &format!("/v1/topics/{topic}/records")).header("idempotency-key", key).json(body)
}

/// Case PC-31.
#[tokio::test]
async fn a_request_with_an_idempotency_key_is_stored_once_also_over_restarts_and_deletion() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let body = json!({ "records": [{ "value": "a", "headers": [["Msg-Id", "1"]] }, { "value": "b" }] });
    let first = harness.send(with_key(&harness, "t", "1", &body)).await.expect(200);
    assert_eq!(first.header("idempotent-replayed"), "");
    let offsets = |answer: &Answer| {
        answer.json()["records"].as_array().expect("places").iter().map(|r| r["offset"].clone()).collect::<Vec<_>>()
    };
    let replay = harness.send(with_key(&harness, "t", "1", &body)).await.expect(200);
    assert_eq!((replay.header("idempotent-replayed"), offsets(&replay)), ("true", offsets(&first)));
    let harness = harness.restart(|_| {}).await;
    let replay = harness.send(with_key(&harness, "t", "1", &body)).await.expect(200);
    assert_eq!((replay.header("idempotent-replayed"), offsets(&replay)), ("true", offsets(&first)));
    let all = json!({ "offsets": [{ "partition": 0, "before": 2 }] });
    harness.json(Method::POST, "/v1/topics/t/truncate", &all).await.expect(200);
    let harness = harness.restart(|_| {}).await;
    let replay = harness.send(with_key(&harness, "t", "1", &body)).await.expect(200);
    assert_eq!((replay.header("idempotent-replayed"), offsets(&replay)), ("true", offsets(&first)));
    let similar = json!({ "records": [{ "value": "c", "headers": [["Orig-Msg-Id", "1"], ["Idempotency-Key", "1"]] }] });
    harness.json(Method::POST, "/v1/topics/t/records", &similar).await.expect(200);
    assert_eq!(count(&harness, "t").await, 3, "a record's header is no key");
}

#[tokio::test]
async fn an_idempotency_key_with_another_request_is_refused() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 3, json!({})).await;
    harness.send(with_key(&harness, "t", "1", &json!({ "records": [{ "value": 1 }] }))).await.expect(200);
    let other = harness.send(with_key(&harness, "t", "1", &json!({ "records": [{ "value": 2 }] }))).await.expect(422);
    assert_eq!(other.code(), "idempotency-key-reused");
    let raw = |key: &str, value: &'static str| {
        harness.request(Method::POST, &format!("/v1/topics/t/raw?key={key}")).header("idempotency-key", "2").body(value)
    };
    harness.send(raw("k", "v")).await.expect(200);
    let replay = harness.send(raw("k", "v").header("traceparent", "00-1-1-00")).await.expect(200);
    assert_eq!(replay.header("idempotent-replayed"), "true");
    assert_eq!(replay.json().get("duplicate"), None);
    assert_eq!(harness.send(raw("k", "w")).await.expect(422).code(), "idempotency-key-reused");
    assert_eq!(count(&harness, "t").await, 2);
}

fn numbered(harness: &Harness, producer: &Value, sequence: u64, values: &[u64]) -> RequestBuilder {
    let records: Vec<_> = values.iter().map(|value| json!({ "value": value, "partition": 0 })).collect();
    harness
        .request(Method::POST, "/v1/topics/t/records")
        .header("producer-id", producer["producer_id"].to_string())
        .header("producer-epoch", producer["producer_epoch"].to_string())
        .header("producer-sequence", sequence)
        .json(&json!({ "records": records }))
}

async fn producer(harness: &Harness) -> Value {
    let body = json!({ "transactional_id": null });
    harness.json(Method::POST, "/v1/producers", &body).await.expect(200).json()
}

#[tokio::test]
async fn a_numbered_request_is_stored_once_and_gaps_are_told() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let producer = producer(&harness).await;
    let first = harness.send(numbered(&harness, &producer, 0, &[1, 2])).await.expect(200).json();
    let again = harness.send(numbered(&harness, &producer, 0, &[1, 2])).await.expect(200).json();
    assert_eq!((again["duplicate"].clone(), first.get("duplicate")), (json!(true), None));
    assert_eq!(again["records"][1]["offset"], first["records"][1]["offset"]);
    let gap = harness.send(numbered(&harness, &producer, 3, &[4])).await.expect(409);
    assert_eq!((gap.code().as_str(), gap.json()["expected_sequence"].as_u64()), ("out-of-order-sequence", Some(2)));
    let unknown = json!({ "producer_id": 1_000_000_007, "producer_epoch": 0 });
    assert_eq!(harness.send(numbered(&harness, &unknown, 0, &[1])).await.expect(422).code(), "unknown-producer");
    let newer = json!({ "producer_id": producer["producer_id"], "producer_epoch": 1 });
    harness.send(numbered(&harness, &newer, 0, &[5])).await.expect(200);
    let fenced = harness.send(numbered(&harness, &producer, 2, &[3])).await.expect(403);
    assert_eq!(fenced.code(), "producer-fenced");
    assert_eq!(count(&harness, "t").await, 3);
}

#[tokio::test]
async fn a_numbered_request_names_one_partition_and_all_three_headers() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 2, json!({})).await;
    let producer = producer(&harness).await;
    for records in [json!([{ "value": 1 }]), json!([{ "value": 1, "partition": 0 }, { "value": 2, "partition": 1 }])] {
        let request = numbered(&harness, &producer, 0, &[]).json(&json!({ "records": records }));
        harness.send(request).await.expect(422);
    }
    let request = harness.request(Method::POST, "/v1/topics/t/records").header("producer-id", "1");
    let answer = harness.send(request.json(&json!({ "records": [{ "value": 1 }] }))).await.expect(400);
    assert_eq!(answer.code(), "invalid-parameter");
    assert_eq!(count(&harness, "t").await, 0);
}

/// Case PC-38.
#[tokio::test]
async fn a_producer_goes_on_when_all_its_records_are_gone() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let producer = producer(&harness).await;
    harness.send(numbered(&harness, &producer, 0, &[0, 1, 2, 3, 4, 5, 6])).await.expect(200);
    let all = json!({ "offsets": [{ "partition": 0, "before": 7 }] });
    harness.json(Method::POST, "/v1/topics/t/truncate", &all).await.expect(200);
    let harness = harness.restart(|_| {}).await;
    let values: Vec<u64> = (7..15).collect();
    let sent = harness.send(numbered(&harness, &producer, 7, &values)).await.expect(200).json();
    assert_eq!((sent["records"][0]["offset"].clone(), sent.get("duplicate")), (json!(7), None));
    let again = harness.send(numbered(&harness, &producer, 7, &values)).await.expect(200).json();
    assert_eq!((again["records"][0]["offset"].clone(), again["duplicate"].clone()), (json!(7), json!(true)));
    assert_eq!(count(&harness, "t").await, 15);
}

#[tokio::test]
async fn an_expected_offset_that_is_not_the_next_stores_nothing() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    topic(&harness, "two", 2, json!({})).await;
    let send = |topic: &str, expected: &str, record: Value| {
        let request = harness.request(Method::POST, &format!("/v1/topics/{topic}/records"));
        request.header("expected-offset", expected).json(&json!({ "records": [record] }))
    };
    harness.send(send("t", "0", json!({ "value": 1 }))).await.expect(200);
    let answer = harness.send(send("t", "0", json!({ "value": 2 }))).await.expect(412);
    assert_eq!((answer.code().as_str(), answer.json()["next_offset"].as_u64()), ("offset-mismatch", Some(1)));
    harness.send(send("t", "1", json!({ "value": 2 }))).await.expect(200);
    harness.send(send("two", "0", json!({ "value": 1 }))).await.expect(422);
    harness.send(send("two", "0", json!({ "value": 1, "partition": 1 }))).await.expect(200);
    harness.send(send("t", "x", json!({ "value": 1 }))).await.expect(400);
    let raw = harness.request(Method::POST, "/v1/topics/t/raw").header("expected-offset", "0").body("1");
    harness.send(raw).await.expect(412);
    assert_eq!(read(&harness, "t", 0, "").await["records"][1]["value"], 2);
    assert_eq!(count(&harness, "t").await, 2);
}
