//! Processors over HTTP: documents, what comes out, and the calls of operators.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Harness};
use crate::modules::{put_transform, store, texts};

/// A document of one source.
pub(crate) fn document(from: &str, to: &str, steps: Value) -> Value {
    json!({ "sources": [{ "topic": from }], "steps": steps, "sink": { "topic": to }, "commit_interval_ms": 2 })
}

/// Puts a processor.
pub(crate) async fn put(harness: &Harness, name: &str, document: &Value) -> Answer {
    harness.json(Method::PUT, &format!("/v1/processors/{name}"), document).await
}

/// A call without a body.
pub(crate) async fn post(harness: &Harness, path: &str) -> Answer {
    harness.send(harness.request(Method::POST, &format!("/v1/processors/{path}"))).await
}

/// The texts of a topic, once there are so many.
async fn output(harness: &Harness, topic: &str, count: usize) -> Vec<String> {
    let mut got = Vec::new();
    let mut next = 0;
    while got.len() < count {
        let path = format!("/v1/topics/{topic}/partitions/0/records?offset={next}&wait_ms=10000");
        let read = harness.get(&path).await.expect(200).json();
        got.extend(texts(&read["records"]));
        next = read["next_offset"].as_u64().expect("a number");
    }
    got
}

async fn topics(harness: &Harness) {
    for topic in ["in", "out"] {
        harness.topic(topic).await;
    }
    put_transform(harness, "shout", json!({ "upper": true })).await;
}

#[tokio::test]
async fn records_go_through_the_steps_into_the_sink_and_the_position_is_told() {
    let harness = Harness::start(|_| {}).await;
    topics(&harness).await;
    store(&harness, "in", &["a", "drop", "b"]).await;
    let steps = json!([{ "transform": { "module": "shout", "config": {} } }]);
    let document = document("in", "out", steps);
    let told = put(&harness, "p", &document).await.expect(201).json();
    assert_eq!((&told["name"], &told["version"], &told["state"]), (&json!("p"), &json!(1), &json!("running")));
    assert_eq!(told["document"], document);
    assert_eq!(output(&harness, "out", 2).await, ["A", "B"]);
    loop {
        let task = harness.get("/v1/processors/p").await.expect(200).json()["tasks"][0].clone();
        // The position is committed before the counts are told.
        if task["position"] == 3 && task["records_in"] == 3 {
            assert_eq!((&task["topic"], &task["partition"], &task["lag"]), (&json!("in"), &json!(0), &json!(0)));
            assert_eq!(task["records_out"], 2);
            break;
        }
    }
    let again = put(&harness, "p", &document).await.expect(200).json();
    assert_eq!(again["name"], "p");
    let used = harness.delete("/v1/modules/shout").await.expect(409).json();
    assert_eq!(used["used_by"], json!([{ "kind": "processor", "name": "p" }]));
    let listed = harness.get("/v1/processors").await.expect(200).json();
    assert_eq!((&listed["processors"][0]["name"], &listed["next_cursor"]), (&json!("p"), &Value::Null));
    let metrics = harness.get("/metrics").await.expect(200);
    assert!(String::from_utf8_lossy(&metrics.body).contains("levada_processors 1"));
}

#[tokio::test]
async fn a_processor_stands_still_is_set_back_and_goes_on() {
    let harness = Harness::start(|_| {}).await;
    topics(&harness).await;
    store(&harness, "in", &["a"]).await;
    put(&harness, "p", &document("in", "out", json!([]))).await.expect(201);
    assert_eq!(output(&harness, "out", 1).await, ["a"]);
    assert_eq!(post(&harness, "p/pause").await.expect(200).json()["state"], "paused");
    let reset = json!({ "start": "earliest", "dry_run": true });
    let told = harness.json(Method::POST, "/v1/processors/p/reset", &reset).await.expect(200).json();
    assert_eq!((&told["dry_run"], &told["tasks"][0]["position"]), (&json!(true), &json!(0)));
    assert_eq!(harness.get("/v1/processors/p").await.expect(200).json()["tasks"][0]["position"], 1);
    let reset = json!({ "start": "earliest" });
    harness.json(Method::POST, "/v1/processors/p/reset", &reset).await.expect(200);
    assert_eq!(post(&harness, "p/resume").await.expect(200).json()["state"], "running");
    assert_eq!(output(&harness, "out", 2).await, ["a", "a"]);
    harness.delete("/v1/processors/p?keep_state=true").await.expect(204);
    harness.get("/v1/processors/p").await.expect(404);
}

#[tokio::test]
async fn one_that_fails_tells_over_which_record() {
    let harness = Harness::start(|_| {}).await;
    topics(&harness).await;
    store(&harness, "in", &["fine", "reject me"]).await;
    let mut wanted = document("in", "out", json!([{ "transform": { "module": "shout" } }]));
    wanted["on_error"] = json!({ "attempts": 1, "then": "pause" });
    put(&harness, "p", &wanted).await.expect(201);
    let failure = loop {
        let told = harness.get("/v1/processors/p").await.expect(200).json();
        if told["state"] == "failed" {
            break told["failure"].clone();
        }
    };
    assert_eq!((&failure["topic"], &failure["partition"], &failure["offset"]), (&json!("in"), &json!(0), &json!(1)));
    assert!(failure["reason"].as_str().is_some_and(|reason| reason.contains("reject me")), "{failure}");
    assert_eq!((&failure["record"]["value_text"], &failure["record"]["offset"]), (&json!("reject me"), &json!(1)));
    let behind = json!({ "start": "offset:2" });
    let told = harness.json(Method::POST, "/v1/processors/p/reset", &behind).await.expect(200).json();
    assert_eq!(told["tasks"][0]["position"], 2);
    store(&harness, "in", &["more"]).await;
    assert_eq!(post(&harness, "p/resume").await.expect(200).json()["state"], "running");
    assert_eq!(output(&harness, "out", 2).await, ["FINE", "MORE"]);
    let wrong = json!({ "start": "offset:x" });
    harness.json(Method::POST, "/v1/processors/p/reset", &wrong).await.expect(422);
}

#[tokio::test]
async fn one_that_tries_again_says_over_which_record_and_runs() {
    let harness = Harness::start(|_| {}).await;
    topics(&harness).await;
    store(&harness, "in", &["fine", "trap"]).await;
    let mut wanted = document("in", "out", json!([{ "transform": { "module": "shout" } }]));
    wanted["on_error"] = json!({ "attempts": 100, "then": "pause" });
    put(&harness, "p", &wanted).await.expect(201);
    let (state, waiting) = loop {
        let told = harness.get("/v1/processors/p").await.expect(200).json();
        if told["tasks"][0]["waiting"].is_object() {
            break (told["state"].clone(), told["tasks"][0]["waiting"].clone());
        }
    };
    assert_eq!((state, &waiting["offset"], &waiting["reason"]), (json!("running"), &json!(1), &json!("it trapped")));
    assert!(waiting["attempts"].as_u64().is_some_and(|attempts| attempts > 0), "{waiting}");
    let told = post(&harness, "p/pause").await.expect(200).json();
    assert!(told["tasks"][0].get("waiting").is_none(), "{told}");
}

#[tokio::test]
async fn a_document_is_kept_word_for_word_and_its_numbers_are_exact() {
    let harness = Harness::start(|_| {}).await;
    topics(&harness).await;
    let values = ["95.95808077299189", "95.9580807729919", "94.72173626215411"];
    store(&harness, "in", &values).await;
    let raw = r#"{"steps":[ {"filter":{"json":"","greater":1e1,"equals":95.95808077299189}} ],
        "sink":{"topic":"out"}, "sources":[{"topic":"in"}], "commit_interval_ms":2}"#;
    harness.body(Method::PUT, "/v1/processors/p", "application/json", format!(" {raw}\n")).await.expect(201);
    let told = harness.get("/v1/processors/p").await.expect(200);
    assert!(String::from_utf8_lossy(&told.body).contains(raw), "{}", String::from_utf8_lossy(&told.body));
    let read = harness.get("/v1/topics/out/partitions/0/records?wait_ms=10000").await.expect(200);
    assert!(String::from_utf8_lossy(&read.body).contains(r#""value":95.95808077299189"#), "{:?}", read.json());
}

#[tokio::test]
async fn processors_are_listed_page_by_page() {
    let harness = Harness::start(|_| {}).await;
    topics(&harness).await;
    for name in ["a", "b", "c"] {
        put(&harness, name, &document("in", "out", json!([]))).await.expect(201);
    }
    let (mut names, mut path) = (Vec::new(), "/v1/processors?limit=2".to_owned());
    loop {
        let page = harness.get(&path).await.expect(200).json();
        names.extend(page["processors"].as_array().expect("a list").iter().map(|one| one["name"].clone()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/processors?limit=2&cursor={cursor}");
    }
    assert_eq!(names, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_document_is_tried_without_any_effect() {
    let harness = Harness::start(|_| {}).await;
    topics(&harness).await;
    store(&harness, "in", &["a", "b", "reject"]).await;
    let mut trial = document("in", "out", json!([{ "transform": { "module": "shout" } }]));
    trial["from"] = json!("tail:2");
    let told = harness.json(Method::POST, "/v1/processors/p/dry-run", &trial).await.expect(200).json();
    assert_eq!((&told["records_in"], texts(&told["rows"])), (&json!(2), vec!["B".to_owned()]));
    assert_eq!((&told["rows"][0]["offset"], &told["failed"][0]["offset"]), (&json!(1), &json!(2)));
    let end = harness.get("/v1/topics/out").await.expect(200).json()["partitions"][0]["high_watermark"].clone();
    assert_eq!(end, 0);
    harness.get("/v1/processors/p").await.expect(404);
}

#[tokio::test]
async fn what_is_wrong_with_a_document_is_told_at_its_place() {
    let harness = Harness::start(|_| {}).await;
    topics(&harness).await;
    let with = |field: &str, value: Value| {
        let mut wanted = document("in", "out", json!([]));
        wanted[field] = value;
        wanted
    };
    for (wanted, pointer) in [
        (document("none", "out", json!([])), "/sources/0/topic"),
        (document("in", "none", json!([])), "/sink/topic"),
        (document("in", "out", json!([{ "transform": { "module": "none" } }])), "/steps/0/transform/module"),
        (with("sources", json!([])), "/sources"),
        (with("group_by", json!("key")), "/group_by"),
        (with("window", json!({ "session": { "gap_ms": 1, "grace_ms": 0 } })), "/window"),
        (with("aggregate", json!({ "count": {} })), "/aggregate"),
        (with("emit", json!("final")), "/emit"),
        (with("idle_ms", json!(1)), "/idle_ms"),
        (with("colour", json!(1)), "/colour"),
        (with("from", json!("earliest")), "/from"),
        (with("on_error", json!({ "attempts": 0 })), "/on_error/attempts"),
    ] {
        let refused = put(&harness, "p", &wanted).await.expect(422).json();
        assert_eq!((&refused["code"], &refused["errors"][0]["pointer"]), (&json!("invalid-field"), &json!(pointer)));
    }
    let raw = "{\"sources\":[{\"topic\":\"in\"}],\"sink\":{\"topic\":\"out\"},\"sink\":{\"topic\":\"out\"}}";
    let twice = harness.body(Method::PUT, "/v1/processors/p", "application/json", raw).await.expect(422);
    assert_eq!(twice.json()["errors"][0]["pointer"], "/sink");
    let both = document("no ne", "o ut", json!([]));
    assert_eq!(put(&harness, "p", &both).await.expect(422).json()["errors"].as_array().map(Vec::len), Some(2));
}
