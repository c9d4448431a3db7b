//! Trials: what a version would do.

use http::Method;
use serde_json::{Value, json};

use super::{module, put, put_transform, store};
use crate::harness::{Answer, Harness};

async fn try_out(harness: &Harness, trial: Value) -> Answer {
    harness.json(Method::POST, "/v1/modules/m/dry-run", &trial).await
}

#[tokio::test]
async fn a_transform_is_tried_on_records_and_compared_with_another_version() {
    let harness = Harness::start(|_| {}).await;
    put_transform(&harness, "m", json!({})).await;
    put_transform(&harness, "m", json!({ "upper": true })).await;
    let records = json!([
        { "value_text": "a", "timestamp": 7 }, { "value_text": "drop" }, { "value_text": "reject" }, { "value_text": "twice" }
    ]);
    let trial = json!({ "world": "transform", "version": 2, "records": records, "compare_with": 1 });
    let told = try_out(&harness, trial.clone()).await.expect(200).json();
    assert_eq!((&told["version"], &told["inputs"], &told["fault"]), (&json!(2), &json!(4), &Value::Null));
    let words: Vec<_> = told["verdicts"].as_array().expect("a list").iter().map(|it| it["verdict"].clone()).collect();
    assert_eq!(words, ["emit", "drop", "reject", "emit"]);
    assert_eq!(told["verdicts"][2]["reason"], "reject is not for us");
    let outputs: Vec<_> = told["outputs"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| (it["input"].as_u64().expect("a place"), it["record"]["value_text"].as_str().expect("a text")))
        .collect();
    assert_eq!(outputs, [(0, "A"), (3, "twice/1"), (3, "twice/2")]);
    assert_eq!(told["outputs"][0]["record"]["timestamp"], 7);
    assert_eq!((&told["instructions"], told["logs"].as_array().map(Vec::len)), (&json!(40), Some(1)));
    assert_eq!((&told["compared"]["version"], &told["differences"]), (&json!(1), &json!([{ "input": 0 }])));
    let mut again = try_out(&harness, trial).await.expect(200).json();
    again["elapsed_us"] = told["elapsed_us"].clone();
    again["compared"]["elapsed_us"] = told["compared"]["elapsed_us"].clone();
    assert_eq!(again, told, "the same trial is the same");
}

#[tokio::test]
async fn stored_records_are_tried_and_named_by_their_places() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    put_transform(&harness, "m", json!({})).await;
    store(&harness, "t", &["a", "drop", "b"]).await;
    let trial = json!({ "world": "transform", "config": {}, "topic": "t", "from": "tail:2" });
    let told = try_out(&harness, trial).await.expect(200).json();
    assert_eq!(told["verdicts"][0], json!({ "input": 0, "partition": 0, "offset": 1, "verdict": "drop" }));
    assert_eq!(told["outputs"][0]["record"]["offset"], 2);
    let end = harness.get("/v1/topics/t").await.expect(200).json()["partitions"][0]["high_watermark"].clone();
    assert_eq!(end, 3, "nothing is stored");
}

#[tokio::test]
async fn partitioners_and_aggregators_are_tried_too() {
    let harness = Harness::start(|_| {}).await;
    put(&harness, "m", module(&["partitioner", "aggregator"], json!({}))).await.expect(201);
    let records = json!([{ "key": "aa", "value": 1 }, { "key": "b", "value": 2 }, { "key": "aa", "value": 3 }]);
    let trial = json!({ "world": "partitioner", "records": records, "partition_count": 2 });
    let told = try_out(&harness, trial).await.expect(200).json();
    assert_eq!(told["outputs"][1], json!({ "input": 1, "partition": 1 }));
    let told = try_out(&harness, json!({ "world": "aggregator", "records": records })).await.expect(200).json();
    assert_eq!(told["outputs"][0], json!({ "group": { "key": "aa", "value": 2 } }));
}

#[tokio::test]
async fn an_assignor_is_tried_on_members_and_topics() {
    let harness = Harness::start(|_| {}).await;
    put(&harness, "m", module(&["assignor"], json!({}))).await.expect(201);
    let members = json!([{ "member_id": "m1" }, { "member_id": "m2", "owned": [{ "topic": "a", "partition": 0 }] }]);
    let topics = json!([{ "topic": "a", "partitions": 3, "lags": [5] }]);
    let trial = json!({ "world": "assignor", "members": members, "topics": topics, "compare_with": 1 });
    let told = try_out(&harness, trial).await.expect(200).json();
    assert_eq!((&told["inputs"], &told["fault"], &told["differences"]), (&json!(2), &Value::Null, &json!([])));
    let two = json!([{ "topic": "a", "partition": 0 }, { "topic": "a", "partition": 1 }]);
    assert_eq!(told["outputs"][0], json!({ "input": 0, "assignment": two }));
    assert_eq!(told["outputs"][1], json!({ "input": 1, "assignment": [{ "topic": "a", "partition": 2 }] }));
    let all = json!({ "world": "assignor", "members": members, "topics": topics, "config": { "only": "none" } });
    let told = try_out(&harness, all).await.expect(200).json();
    assert!(told["fault"].as_str().is_some_and(|fault| fault.contains("topic a was given to nobody")), "{told}");
}

#[tokio::test]
async fn a_version_that_gives_no_answer_has_a_fault() {
    let harness = Harness::start(|_| {}).await;
    put_transform(&harness, "m", json!({})).await;
    let trial = json!({ "world": "transform", "records": [{ "value_text": "trap" }] });
    let told = try_out(&harness, trial).await.expect(200).json();
    assert_eq!((&told["fault"], &told["outputs"]), (&json!("it trapped"), &json!([])));
}

#[tokio::test]
async fn a_trial_that_cannot_be_is_refused_at_its_place() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    put_transform(&harness, "m", json!({})).await;
    let record = json!([{ "value": 1 }]);
    for (trial, code, pointer) in [
        (json!({ "world": "transform" }), "invalid-field", ""),
        (json!({ "world": "transform", "records": record, "topic": "t" }), "invalid-field", ""),
        (json!({ "world": "transform", "records": [] }), "invalid-field", "/records"),
        (json!({ "world": "transform", "records": [{ "valeu": 1 }] }), "invalid-field", "/records/0/valeu"),
        (json!({ "world": "transform", "records": record, "from": "earliest" }), "invalid-field", "/from"),
        (json!({ "world": "transform", "topic": "t", "from": "now" }), "invalid-field", "/from"),
        (json!({ "world": "partitioner", "records": record }), "invalid-module-config", "/world"),
        (json!({ "world": "transform", "records": record, "config": [] }), "invalid-module-config", "/config"),
        (json!({ "world": "assignor", "members": [], "topics": [] }), "invalid-field", "/members"),
        (json!({ "world": "assignor", "members": [{ "member_id": "a" }] }), "invalid-field", ""),
        (json!({ "world": "assignor", "records": record }), "invalid-field", "/records"),
        (
            json!({ "world": "transform", "members": [{ "member_id": "a" }], "records": record }),
            "invalid-field",
            "/members",
        ),
        (
            json!({ "world": "assignor", "members": [{ "member_id": "a", "topics": ["t"] }], "topics": [] }),
            "invalid-field",
            "/members/0/topics/0",
        ),
    ] {
        let refused = try_out(&harness, trial.clone()).await.expect(422).json();
        assert_eq!((&refused["code"], &refused["errors"][0]["pointer"]), (&json!(code), &json!(pointer)), "{trial}");
    }
    let topic = try_out(&harness, json!({ "world": "transform", "topic": "none" })).await.expect(404);
    assert_eq!(topic.code(), "topic-not-found");
}
