//! Records of transactions, in every form of a produce.

use http::Method;
use levada_log::NewBatch;
use levada_model::{ProducerEpoch, ProducerId, Sequence};
use serde_json::{Value, json};

use super::{begin, committed, end, init, producing, store_in, transaction, values};
use crate::harness::{Answer, Harness};
use crate::produce::batches::batch;
use crate::produce::{read, topic};

const RECORDS: &str = "/v1/topics/t/records";
const BATCHES: &str = "application/vnd.levada.record-batch";

#[tokio::test]
async fn every_form_of_a_produce_goes_into_a_transaction() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let producer = init(&harness, "p").await;
    let transaction = begin(&harness, &producer).await;
    store_in(&harness, &transaction, "t", &[json!("json")]).await;
    let request = |path: &str, media: &str| {
        harness.request(Method::POST, path).header("transaction", &transaction).header("content-type", media)
    };
    let lines = request(RECORDS, "application/x-ndjson").body("{\"value\":\"line 1\"}\nx\n{\"value\":\"line 3\"}");
    let lines = harness.send(lines).await.expect(200);
    let last: Value =
        serde_json::from_slice(lines.body.split(|byte| *byte == b'\n').rev().nth(1).expect("a line")).expect("JSON");
    assert_eq!(last, json!({ "done": true, "accepted": 2, "refused": 1 }));
    let raw = harness.send(request("/v1/topics/t/raw", "application/json").body("\"raw\"")).await.expect(200).json();
    let number = |name: &str| producer[name].as_i64().expect("a number");
    let (id, epoch) =
        (ProducerId(number("producer_id")), ProducerEpoch(i16::try_from(number("producer_epoch")).expect("small")));
    let offset = i32::try_from(raw["offset"].as_u64().expect("an offset")).expect("small");
    let new =
        NewBatch { producer: Some((id, epoch, Sequence(offset + 1))), transactional: true, ..NewBatch::default() };
    let batches = request(&format!("{RECORDS}?partition=0"), BATCHES).body(batch(new, &["\"batch\""]));
    harness.send(batches).await.expect(200);

    assert_eq!(committed(&harness, "t").await, [] as [Value; 0]);
    end(&harness, &transaction, "commit").await.expect(200);
    let expected = ["json", "line 1", "line 3", "raw", "batch"].map(Value::from);
    assert_eq!(committed(&harness, "t").await, expected);
}

#[tokio::test]
async fn all_partitions_and_topics_of_a_transaction_end_together() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 3, json!({})).await;
    topic(&harness, "u", 2, json!({})).await;
    let all = async || {
        let mut all = Vec::new();
        for (topic, partitions) in [("t", 3), ("u", 2)] {
            for partition in 0..partitions {
                all.extend(values(&read(&harness, topic, partition, "").await));
            }
        }
        all
    };
    for (how, count) in [("abort", 0), ("commit", 5)] {
        let transaction = transaction(&harness, how).await;
        let records: Vec<_> = (0..3).map(|n| json!({ "value": n, "partition": n })).collect();
        harness.send(producing(&harness, &transaction, "t", json!(records))).await.expect(200);
        harness.send(producing(&harness, &transaction, "u", json!(records[..2]))).await.expect(200);
        assert_eq!(all().await.len(), 0);
        end(&harness, &transaction, how).await.expect(200);
        assert_eq!(all().await.len(), count);
    }
}

#[tokio::test]
async fn a_sequence_makes_a_retry_safe_and_needs_no_other_header() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let producer = init(&harness, "p").await;
    let transaction = begin(&harness, &producer).await;
    let send = async |sequence: &str, named: bool, values: &[u64]| -> Answer {
        let records: Vec<_> = values.iter().map(|value| json!({ "value": value, "partition": 0 })).collect();
        let mut request = producing(&harness, &transaction, "t", json!(records)).header("producer-sequence", sequence);
        if named {
            request = request.header("producer-id", producer["producer_id"].to_string());
            request = request.header("producer-epoch", producer["producer_epoch"].to_string());
        }
        harness.send(request).await
    };
    let first = send("0", false, &[1, 2]).await.expect(200).json();
    let again = send("0", true, &[1, 2]).await.expect(200).json();
    let offsets = |answer: &Value| [0, 1].map(|at| answer["records"][at]["offset"].clone());
    assert_eq!((offsets(&again), &again["duplicate"]), (offsets(&first), &json!(true)));
    assert_eq!(first.get("duplicate"), None);
    assert_eq!(send("5", false, &[9]).await.expect(409).json()["expected_sequence"], 2);
    send("2", false, &[3]).await.expect(200);
    // Without a number the partition counts on.
    store_in(&harness, &transaction, "t", &[json!(4)]).await;
    send("4", true, &[5]).await.expect(200);
    let next = end(&harness, &transaction, "commit").await.expect(200).json();
    assert_eq!(committed(&harness, "t").await, [1, 2, 3, 4, 5].map(Value::from));

    let transaction = begin(&harness, &next).await;
    let fresh = producing(&harness, &transaction, "t", json!([{ "value": 6, "partition": 0 }]));
    harness.send(fresh.header("producer-sequence", "0")).await.expect(200);
    end(&harness, &transaction, "commit").await.expect(200);
    assert_eq!(committed(&harness, "t").await.len(), 6, "sequences begin anew in each transaction");
}

#[tokio::test]
async fn one_raw_record_is_numbered_too() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let transaction = transaction(&harness, "p").await;
    let send = || {
        let request = harness.request(Method::POST, "/v1/topics/t/raw?partition=0").header("transaction", &transaction);
        harness.send(request.header("producer-sequence", "0").header("content-type", "text/plain").body("x"))
    };
    let first = send().await.expect(200).json();
    let again = send().await.expect(200).json();
    assert_eq!((&again["offset"], &again["duplicate"], first.get("duplicate")), (&first["offset"], &json!(true), None));
}

#[tokio::test]
async fn what_does_not_go_with_a_transaction_is_refused_by_name_and_stores_nothing() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let producer = init(&harness, "p").await;
    let transaction = begin(&harness, &producer).await;
    let record = || producing(&harness, &transaction, "t", json!([{ "value": 1, "partition": 0 }]));
    for (name, value) in [
        ("idempotency-key", "k"),
        ("producer-id", "999"),
        ("producer-epoch", "999"),
        ("producer-sequence", "-1"),
        ("transaction", &transaction),
    ] {
        let refused = harness.send(record().header(name, value)).await.expect(400);
        assert_eq!(refused.code(), "invalid-parameter", "{name}");
        assert!(refused.json()["detail"].as_str().is_some_and(|text| text.to_lowercase().contains(name)), "{name}");
    }
    for acks in ["leader", "none"] {
        let body = json!({ "records": [{ "value": 1 }] });
        let request =
            harness.request(Method::POST, &format!("{RECORDS}?acks={acks}")).header("transaction", &transaction);
        let refused = harness.send(request.json(&body)).await.expect(400);
        assert!(refused.json()["detail"].as_str().is_some_and(|text| text.contains("acks=all")), "{refused:?}");
    }
    let lines = harness.request(Method::POST, RECORDS).header("content-type", "application/x-ndjson");
    let lines = lines.header("transaction", &transaction).header("producer-sequence", "0").body("{\"value\":1}");
    harness.send(lines).await.expect(400);
    let number = |name: &str| producer[name].as_i64().expect("a number");
    let (id, epoch) =
        (ProducerId(number("producer_id")), ProducerEpoch(i16::try_from(number("producer_epoch")).expect("small")));
    let of = |producer, transactional| batch(NewBatch { producer, transactional, ..NewBatch::default() }, &["1"]);
    let own = Some((id, epoch, Sequence(0)));
    for (bytes, with) in [
        (of(None, false), true),
        (of(own, false), true),
        (of(Some((id, ProducerEpoch(epoch.0 + 1), Sequence(0))), true), true),
        (of(own, true), false),
    ] {
        let request = harness.request(Method::POST, &format!("{RECORDS}?partition=0")).header("content-type", BATCHES);
        let request = if with { request.header("transaction", &transaction) } else { request };
        assert_eq!(harness.send(request.body(bytes)).await.expect(422).code(), "invalid-batch");
    }
    end(&harness, &transaction, "commit").await.expect(200);
    assert_eq!(committed(&harness, "t").await, [] as [Value; 0]);
}

#[tokio::test]
async fn a_producer_of_transactions_stores_nothing_beside_them_whether_one_is_open_or_not() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let producer = init(&harness, "p").await;
    let beside = async |sequence: &str| {
        let request = harness.request(Method::POST, RECORDS).header("producer-sequence", sequence);
        let request = request.header("producer-id", producer["producer_id"].to_string());
        let request = request.header("producer-epoch", producer["producer_epoch"].to_string());
        let request = request.json(&json!({ "records": [{ "value": "beside", "partition": 0 }] }));
        assert_eq!(harness.send(request).await.expect(422).code(), "unknown-producer", "{sequence}");
    };
    beside("0").await;
    let transaction = begin(&harness, &producer).await;
    store_in(&harness, &transaction, "t", &[json!(1)]).await;
    beside("1").await;
    end(&harness, &transaction, "commit").await.expect(200);
    beside("1").await;
    assert_eq!(committed(&harness, "t").await, [json!(1)]);
}

#[tokio::test]
async fn a_topic_is_created_for_records_of_a_transaction_that_is_open_alone() {
    let harness = Harness::start(|options| options.auto_create_topics = Some(true)).await;
    let ended = transaction(&harness, "p").await;
    end(&harness, &ended, "commit").await.expect(200);
    for (transaction, code) in [(&*ended, "transaction-ended"), ("0-999-0", "transaction-not-found")] {
        let refused = harness.send(producing(&harness, transaction, "t", json!([{ "value": 1 }]))).await;
        assert_eq!(refused.code(), code);
        harness.get("/v1/topics/t").await.expect(404);
    }
    let open = transaction(&harness, "p").await;
    harness.send(producing(&harness, &open, "t", json!([{ "value": 1 }]))).await.expect(200);
}

#[tokio::test]
async fn lines_of_a_transaction_that_has_ended_are_refused_each_by_itself() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let transaction = transaction(&harness, "p").await;
    end(&harness, &transaction, "abort").await.expect(200);
    let lines = harness.request(Method::POST, RECORDS).header("content-type", "application/x-ndjson");
    let lines = lines.header("transaction", &transaction).body("{\"value\":1}\n{\"value\":2}\n");
    let answer = harness.send(lines).await.expect(200);
    let lines: Vec<Value> = answer
        .body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[..2].iter().all(|line| line["problem"]["code"] == "transaction-ended"), "{lines:?}");
    assert_eq!(lines[2], json!({ "done": true, "accepted": 0, "refused": 2 }));
}

#[tokio::test]
async fn wrong_records_are_named_by_their_places_and_the_transaction_goes_on() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let transaction = transaction(&harness, "p").await;
    let refused = harness
        .send(producing(&harness, &transaction, "t", json!([{ "value": 1 }, { "value": 2, "partition": 7 }])))
        .await;
    assert_eq!(refused.expect(422).json()["errors"][0]["pointer"], "/records/1/partition");
    let refused = harness.send(producing(&harness, &transaction, "__consumer_offsets", json!([{ "value": 1 }]))).await;
    assert_eq!(refused.expect(403).code(), "internal-topic");
    store_in(&harness, &transaction, "t", &[json!("kept")]).await;
    end(&harness, &transaction, "commit").await.expect(200);
    assert_eq!(committed(&harness, "t").await, [json!("kept")]);
}

#[tokio::test]
async fn an_expected_offset_holds_in_a_transaction_too() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let transaction = transaction(&harness, "p").await;
    let send = |offset: &'static str| {
        let request = producing(&harness, &transaction, "t", json!([{ "value": offset, "partition": 0 }]));
        harness.send(request.header("expected-offset", offset))
    };
    assert_eq!(send("7").await.expect(412).json()["next_offset"], 0);
    send("0").await.expect(200);
    end(&harness, &transaction, "commit").await.expect(200);
    assert_eq!(committed(&harness, "t").await, [json!("0")]);
}
