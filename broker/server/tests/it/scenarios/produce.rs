//! Every way to produce that the document lists, and each way to be refused.

use std::sync::Arc;

use http::Method;
use levada_log::NewBatch;
use levada_model::{ProducerEpoch, ProducerId, Sequence};
use serde_json::{Value, json};

use crate::harness::{Answer, Harness};
use crate::produce::batches::batch;

const RECORDS: &str = "/v1/topics/produced/records";
const RAW: &str = "/v1/topics/produced/raw";

/// Runs the scenario.
pub(crate) async fn run(harness: &Harness) {
    let topic = json!({ "name": "produced", "partitions": 3, "config": { "max.message.bytes": 100 } });
    harness.json(Method::POST, "/v1/topics", &topic).await.expect(201);
    every_form_is_stored(harness).await;
    some_records_fail(harness).await;
    a_reused_key_is_refused(harness).await;
    what_is_wrong_is_refused(harness).await;
    sequences_are_judged(harness).await;
    retiring_partitions_take_nothing(harness).await;
    unknown_topics_are_refused(harness).await;
}

async fn records(harness: &Harness, query: &str, records: Value) -> Answer {
    harness.json(Method::POST, &format!("{RECORDS}{query}"), &json!({ "records": records })).await
}

async fn every_form_is_stored(harness: &Harness) {
    records(harness, "", json!([{ "value": 1, "partition": 2 }])).await.expect(200);
    records(harness, "?acks=none", json!([{ "value": 1, "partition": 2 }])).await.expect(202);
    harness.body(Method::POST, RECORDS, "application/x-ndjson", "{\"value\":1}\nx").await.expect(200);
    harness.body(Method::POST, RAW, "text/plain", "x").await.expect(200);
    harness.body(Method::POST, &format!("{RAW}?acks=none"), "text/plain", "x").await.expect(202);
    let given = harness.json(Method::POST, "/v1/producers", &json!({})).await.expect(200).json();
    let next = harness.json(Method::POST, "/v1/producers", &json!({ "transactional_id": null })).await.expect(200);
    assert_ne!(given["producer_id"], next.json()["producer_id"]);
}

/// The second of two batches leaves a gap in its producer's sequence, which is known only when the first is stored.
async fn some_records_fail(harness: &Harness) {
    let given = harness.json(Method::POST, "/v1/producers", &json!({})).await.expect(200).json();
    let id = ProducerId(given["producer_id"].as_i64().expect("an id"));
    let of = |sequence| {
        let producer = Some((id, ProducerEpoch(0), Sequence(sequence)));
        batch(NewBatch { producer, ..NewBatch::default() }, &["a"])
    };
    let body = [of(0), of(5)].concat();
    let media = "application/vnd.levada.record-batch";
    let mixed = harness.body(Method::POST, &format!("{RECORDS}?partition=1"), media, body).await.expect(207).json();
    assert_eq!(mixed["records"][0]["partition"], 1);
    assert_eq!(mixed["records"][1]["problem"]["code"], "out-of-order-sequence");
}

/// Wherever the other body would go, also for a part of it.
async fn a_reused_key_is_refused(harness: &Harness) {
    let send = |records: Value| async move {
        let request = harness.request(Method::POST, RECORDS).header("idempotency-key", "of-two");
        harness.send(request.json(&json!({ "records": records }))).await
    };
    send(json!([{ "value": 1, "partition": 0 }])).await.expect(200);
    for other in [
        json!([{ "value": 3, "partition": 0 }]),
        json!([{ "value": 3, "partition": 1 }]),
        json!([{ "value": 2, "partition": 1 }, { "value": 2, "partition": 0 }]),
    ] {
        assert_eq!(send(other).await.expect(422).code(), "idempotency-key-reused");
    }
}

async fn what_is_wrong_is_refused(harness: &Harness) {
    let long = "x".repeat(101);
    assert_eq!(records(harness, "", json!([{ "value_text": long }])).await.expect(413).code(), "record-too-large");
    harness.body(Method::POST, RAW, "text/plain", long).await.expect(413);
    records(harness, "", json!([{ "value": 1, "partition": 9 }])).await.expect(422);
    harness.body(Method::POST, &format!("{RAW}?partition=9"), "text/plain", "x").await.expect(422);
    harness.json(Method::POST, "/v1/producers", &json!({ "transactional_id": "" })).await.expect(422);
    for path in ["/v1/topics/__consumer_offsets/records", "/v1/topics/__consumer_offsets/raw"] {
        let answer = harness.json(Method::POST, path, &json!({ "records": [{ "value": 1 }] })).await.expect(403);
        assert_eq!(answer.code(), "internal-topic");
    }
    for path in [format!("{RECORDS}?acks=2"), format!("{RAW}?acks=2")] {
        harness.json(Method::POST, &path, &json!({ "records": [{ "value": 1 }] })).await.expect(400);
    }
    harness.body(Method::POST, RECORDS, "text/plain", "x").await.expect(415);
    for path in [RECORDS.to_owned(), format!("{RAW}?partition=0")] {
        let request = harness.request(Method::POST, &path).header("expected-offset", "999");
        let body = json!({ "records": [{ "value": 1, "partition": 0 }] });
        assert_eq!(harness.send(request.json(&body)).await.expect(412).code(), "offset-mismatch");
    }
}

async fn sequences_are_judged(harness: &Harness) {
    let producer = harness.json(Method::POST, "/v1/producers", &json!({})).await.expect(200).json();
    let send = |path: &str, epoch: &str, sequence: &str| {
        let id = producer["producer_id"].to_string();
        let request = harness.request(Method::POST, path).header("producer-id", id);
        let request = request.header("producer-epoch", epoch).header("producer-sequence", sequence);
        harness.send(request.json(&json!({ "records": [{ "value": 1, "partition": 1 }] })))
    };
    let raw = format!("{RAW}?partition=1");
    for path in [RECORDS, &raw] {
        send(path, "1", "0").await;
        assert_eq!(send(path, "1", "0").await.expect(200).json()["duplicate"], true);
        assert_eq!(send(path, "1", "9").await.expect(409).json()["expected_sequence"], 1);
        assert_eq!(send(path, "0", "1").await.expect(403).code(), "producer-fenced");
    }
}

async fn retiring_partitions_take_nothing(harness: &Harness) {
    harness.json(Method::PATCH, "/v1/topics/produced", &json!({ "partitions": 2 })).await.expect(200);
    let refused = records(harness, "", json!([{ "value": 1, "partition": 2 }])).await.expect(409);
    assert_eq!(refused.code(), "partition-retiring");
    assert_eq!(refused.json()["errors"][0]["pointer"], "/records/0/partition");
    harness.body(Method::POST, &format!("{RAW}?partition=2"), "text/plain", "x").await.expect(409);
    harness.get("/v1/topics/produced/partitions/2/records").await.expect(200);
}

async fn unknown_topics_are_refused(harness: &Harness) {
    let strict = Harness::start_under(Arc::clone(&harness.contract), |options| {
        options.auto_create_topics = Some(false);
    })
    .await;
    for path in ["/v1/topics/nowhere/records", "/v1/topics/nowhere/raw"] {
        let answer = strict.json(Method::POST, path, &json!({ "records": [{ "value": 1 }] })).await.expect(404);
        assert_eq!(answer.code(), "topic-not-found");
    }
    let created = harness.json(Method::POST, "/v1/topics/made-by-this/raw", &json!(1)).await.expect(200).json();
    assert_eq!(created["offset"], 0);
}
