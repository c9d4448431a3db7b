//! Modules on every face by which records come in and go out: what they refuse, place and fail over is told on each in its
//! words.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use levada_log::NewBatch;
use serde_json::{Value, json};

use super::{module, put, put_transform, store, texts};
use crate::harness::{Answer, Harness};
use crate::produce::batches::batch;
use crate::produce::{count, topic};
use crate::ws::client::Client;

const RECORDS: &str = "/v1/topics/t/records";

async fn json_produce(harness: &Harness, texts: &[&str]) -> Answer {
    let records: Vec<_> = texts.iter().map(|text| json!({ "key": "k", "value_text": text })).collect();
    harness.json(Method::POST, RECORDS, &json!({ "records": records })).await
}

async fn raw(harness: &Harness, text: &str) -> Answer {
    harness.send(harness.request(Method::POST, "/v1/topics/t/raw?key=k").body(text.to_owned())).await
}

async fn batches(harness: &Harness, texts: &[&'static str]) -> Answer {
    let bytes = batch(NewBatch::default(), texts);
    harness.body(Method::POST, &format!("{RECORDS}?partition=0"), "application/vnd.levada.record-batch", bytes).await
}

/// The lines of an answer to a stream of these values.
async fn lines(harness: &Harness, texts: &[&str]) -> Vec<Value> {
    let body: String = texts.iter().map(|text| format!("{{\"key\":\"k\",\"value_text\":\"{text}\"}}\n")).collect();
    let answer = harness.body(Method::POST, RECORDS, "application/x-ndjson", body).await.expect(200);
    answer.body.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

async fn execute(harness: &Harness, texts: &[&str]) -> Answer {
    let record = |text: &&str| json!({ "topic": "t", "key": "k", "value_text": text });
    let body = json!({ "records": texts.iter().map(record).collect::<Vec<_>>() });
    harness.json(Method::POST, "/v1/transactions/execute", &body).await
}

async fn socket(client: &mut Client, texts: &[&str]) -> Value {
    let records: Vec<_> = texts.iter().map(|text| json!({ "key": "k", "value_text": text })).collect();
    client.send(json!({ "type": "produce", "id": 1, "topic": "t", "records": records })).await;
    client.next().await
}

#[tokio::test]
async fn a_record_that_the_validator_rejects_is_refused_on_every_face_and_nothing_is_stored() {
    let harness = Harness::start(|_| {}).await;
    put_transform(&harness, "v", json!({})).await;
    topic(&harness, "t", 1, json!({ "validator": "module:v" })).await;
    let mut client = Client::open(&harness).await;
    let two = ["fine", "reject this"];
    let problems = [
        (json_produce(&harness, &two).await.expect(422).json(), Some("/records/1")),
        (raw(&harness, two[1]).await.expect(422).json(), None),
        (batches(&harness, &two).await.expect(422).json(), None),
        (execute(&harness, &two).await.expect(422).json(), Some("/records/1")),
        (socket(&mut client, &two).await["problem"].clone(), Some("/records/1")),
        (lines(&harness, &two[1..]).await[0]["problem"].clone(), Some("")),
    ];
    for (problem, pointer) in problems {
        assert_eq!((&problem["code"], &problem["effect"]), (&json!("record-rejected"), &json!("none")), "{problem}");
        assert_eq!(problem["errors"][0]["pointer"].as_str(), pointer, "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|it| it.contains("reject this is not for us")), "{problem}");
    }
    assert_eq!(count(&harness, "t").await, 0);
    assert_eq!(lines(&harness, &two).await.last(), Some(&json!({ "done": true, "accepted": 1, "refused": 1 })));
    assert_eq!(count(&harness, "t").await, 1, "of a stream the others are stored");
}

#[tokio::test]
async fn a_validator_that_takes_too_long_has_a_code_of_its_own_on_every_face() {
    let harness = Harness::start(|_| {}).await;
    put_transform(&harness, "v", json!({})).await;
    topic(&harness, "t", 1, json!({ "validator": "module:v" })).await;
    let mut client = Client::open(&harness).await;
    for (value, code) in [("deadline", "module-timeout"), ("trap", "module-failed")] {
        for problem in [
            json_produce(&harness, &[value]).await.expect(503).json(),
            raw(&harness, value).await.expect(503).json(),
            batches(&harness, &[value]).await.expect(503).json(),
            execute(&harness, &[value]).await.expect(503).json(),
            socket(&mut client, &[value]).await["problem"].clone(),
            lines(&harness, &[value]).await[0]["problem"].clone(),
        ] {
            let told = (&problem["code"], &problem["retryable"], &problem["effect"], &problem["status"]);
            assert_eq!(told, (&json!(code), &json!(true), &json!("none"), &json!(503)), "{problem}");
            assert!(
                problem["detail"].as_str().is_some_and(|it| it.contains("validator v gave no answer")),
                "{problem}"
            );
        }
    }
    assert_eq!(count(&harness, "t").await, 0);
}

#[tokio::test]
async fn a_partitioner_places_records_on_every_face_that_names_no_partition() {
    let harness = Harness::start(|_| {}).await;
    put(&harness, "p", module(&["partitioner"], json!({}))).await.expect(201);
    let config = json!({ "partitioner": "module:p", "partitioner.config": { "to": 2 } });
    topic(&harness, "t", 3, config).await;
    let mut client = Client::open(&harness).await;
    let placed = [
        json_produce(&harness, &["v"]).await.expect(200).json()["records"][0].clone(),
        raw(&harness, "v").await.expect(200).json(),
        execute(&harness, &["v"]).await.expect(200).json()["records"][0].clone(),
        socket(&mut client, &["v"]).await["records"][0].clone(),
        lines(&harness, &["v"]).await[0].clone(),
    ];
    assert_eq!(placed.map(|placed| placed["partition"].clone()), [2, 2, 2, 2, 2].map(Value::from));
    let described = harness.get("/v1/topics/t").await.expect(200).json();
    assert_eq!(described.get("partitioner_fallbacks"), None);
}

#[tokio::test]
async fn a_topic_says_that_murmur2_stood_in_for_its_partitioner_and_why() {
    let harness = Harness::start(|_| {}).await;
    put(&harness, "p", module(&["partitioner"], json!({}))).await.expect(201);
    topic(&harness, "t", 3, json!({ "partitioner": "module:p", "partitioner.config": { "to": 3 } })).await;
    for _ in 0..2 {
        json_produce(&harness, &["v", "w"]).await.expect(200);
    }
    let wanted = |told: &Value| {
        assert_eq!(told["count"], 2, "requests, not records: {told}");
        let reason = told["reason"].as_str().expect("a reason");
        assert!(reason.starts_with("module p: ") && reason.contains('3'), "{told}");
    };
    wanted(&harness.get("/v1/topics/t").await.expect(200).json()["partitioner_fallbacks"]);
    wanted(&harness.get("/v1/topics").await.expect(200).json()["topics"][0]["partitioner_fallbacks"]);
    let metrics = harness.get("/metrics").await.expect(200).body;
    let metrics = String::from_utf8(metrics.to_vec()).expect("text");
    assert!(metrics.lines().any(|line| line == "levada_partitioner_fallbacks_total 2"), "{metrics}");
}

/// That a problem names the record over which a filter failed.
fn names(problem: &Value, code: &str, offset: u64) {
    let at = (&problem["code"], &problem["topic"], &problem["partition"], &problem["offset"]);
    assert_eq!(at, (&json!(code), &json!("t"), &json!(0), &json!(offset)), "{problem}");
}

#[tokio::test]
async fn a_record_over_which_a_filter_fails_is_named_on_every_face_behind_what_is_before_it() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    put_transform(&harness, "f", json!({})).await;
    store(&harness, "t", &["one", "drop", "trap", "deadline", "last"]).await;
    let read = async |query: &str| harness.get(&format!("/v1/topics/t/{query}&filter=module:f")).await;
    let front = read("partitions/0/records?offset=0").await.expect(200).json();
    assert_eq!((texts(&front["records"]), &front["next_offset"]), (vec!["one".to_owned()], &json!(2)));
    names(&read("partitions/0/records?offset=1").await.expect(503).json(), "module-failed", 2);
    names(&read("partitions/0/records?offset=3").await.expect(503).json(), "module-timeout", 3);
    let behind = read("partitions/0/records?offset=4").await.expect(200).json();
    assert_eq!(texts(&behind["records"]), ["last"], "who knows where it is goes on behind it");

    let front = read("records?from=earliest").await.expect(200).json();
    assert_eq!(texts(&front["records"]), ["one"]);
    let on = format!("records?from={}", front["cursor"].as_str().expect("a cursor"));
    names(&read(&on).await.expect(503).json(), "module-failed", 2);

    let request = harness.request(Method::GET, "/v1/topics/t/records?from=earliest&filter=module:f");
    let stream = harness.stream(request.header("accept", "text/event-stream")).await;
    let text = stream.text().await.expect("it ends");
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data.map(|data| serde_json::from_str(data).expect("JSON")).collect();
    assert_eq!((events.len(), &events[0]["value_text"]), (2, &json!("one")), "{text}");
    names(&events[1], "module-failed", 2);

    let mut client = Client::open(&harness).await;
    client.subscribe(json!({ "from": "earliest", "filter": "module:f" })).await;
    client.credit(10).await;
    assert_eq!(texts(&client.until("records").await["records"]), ["one"]);
    names(&client.until("error").await["problem"], "module-failed", 2);
}

#[tokio::test]
async fn a_subscription_delivers_all_before_a_record_over_which_its_filter_fails_however_slowly_it_is_taken() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    put_transform(&harness, "f", json!({})).await;
    let before = ["a", "b", "c", "d"];
    store(&harness, "t", &before).await;
    store(&harness, "t", &["trap"]).await;
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({ "from": "earliest", "filter": "module:f" })).await;
    let calls = || harness.modules.0.calls.lock().len();
    let mut first = 0;
    for text in before {
        client.credit(1).await;
        assert_eq!(texts(&client.until("records").await["records"]), [text]);
        match text {
            "a" => first = calls(),
            // It reads on while half of what it has is sent.
            "c" => {
                while calls() == first {
                    tokio::task::yield_now().await
                }
            }
            _ => {}
        }
    }
    names(&client.until("error").await["problem"], "module-failed", 4);
}

#[tokio::test]
async fn streams_wait_for_a_filter_that_has_no_room() {
    let harness = Harness::start(|options| options.sse_heartbeat = Duration::from_millis(1)).await;
    harness.topic("t").await;
    put_transform(&harness, "f", json!({})).await;
    let request = harness.request(Method::GET, "/v1/topics/t/records?from=earliest&filter=module:f");
    let mut stream = harness.stream(request.header("accept", "text/event-stream")).await;
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({ "from": "earliest", "filter": "module:f" })).await;
    client.credit(10).await;
    harness.modules.0.busy.store(true, Ordering::SeqCst);
    store(&harness, "t", &["one"]).await;
    let refused = harness.get("/v1/topics/t/partitions/0/records?filter=module:f").await.expect(503);
    assert_eq!(refused.code(), "overloaded", "who does not wait is told");
    let mut text = String::new();
    while text.matches("heartbeat").count() < 3 {
        text.push_str(&String::from_utf8_lossy(&stream.chunk().await.expect("a piece").expect("it goes on")));
    }
    harness.modules.0.busy.store(false, Ordering::SeqCst);
    while !text.contains("\"one\"") {
        text.push_str(&String::from_utf8_lossy(&stream.chunk().await.expect("a piece").expect("it goes on")));
    }
    assert!(!text.contains("event: error"), "{text}");
    assert_eq!(texts(&client.until("records").await["records"]), ["one"]);
}
