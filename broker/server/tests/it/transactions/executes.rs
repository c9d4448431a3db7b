//! Whole transactions in one request.

use http::Method;
use serde_json::{Value, json};

use super::{committed, group_offsets, standing, values};
use crate::groups::member::Member;
use crate::harness::{Answer, Harness};
use crate::produce::{read, store, topic};

const PATH: &str = "/v1/transactions/execute";

async fn execute(harness: &Harness, body: &Value) -> Answer {
    harness.json(Method::POST, PATH, body).await
}

async fn with_key(harness: &Harness, key: &str, body: &Value) -> Answer {
    harness.send(harness.request(Method::POST, PATH).header("idempotency-key", key).json(body)).await
}

#[tokio::test]
async fn records_of_several_topics_and_offsets_are_done_together_and_answered_in_order() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "a", 2, json!({})).await;
    harness.topic("b").await;
    store(&harness, "b", &["0"]).await;
    let body = json!({
        "records": [
            { "topic": "b", "value": 1, "headers": [["trace", "abc"]], "timestamp": 1_700_000_000_123_u64 },
            { "topic": "a", "value": 2, "partition": 1 },
            { "topic": "b", "value_text": "3" },
            { "topic": "a", "key": "k", "value": null, "partition": 0 },
        ],
        "group_offsets": group_offsets("g", "b", 1),
    });
    let answer = execute(&harness, &body).await.expect(200).json();
    let placed: Vec<_> = answer["records"]
        .as_array()
        .expect("records")
        .iter()
        .map(|record| {
            (record["topic"].as_str().expect("a topic"), record["partition"].as_u64(), record["offset"].as_u64())
        })
        .collect();
    assert_eq!(
        placed,
        [("b", Some(0), Some(1)), ("a", Some(1), Some(0)), ("b", Some(0), Some(2)), ("a", Some(0), Some(0))]
    );
    assert_eq!(answer["records"][0]["timestamp"], 1_700_000_000_123_u64);
    assert_eq!(committed(&harness, "b").await, [0, 1, 3].map(Value::from));
    assert_eq!(values(&read(&harness, "a", 1, "").await), [json!(2)]);
    assert_eq!(read(&harness, "b", 0, "offset=1").await["records"][0]["headers"], json!([["trace", "abc"]]));
    assert_eq!(standing(&harness, "g").await, Some(1));
    assert_eq!(harness.get("/v1/transactions").await.expect(200).json()["transactions"], json!([]));
}

#[tokio::test]
async fn either_part_may_stand_alone() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    execute(&harness, &json!({ "records": [{ "topic": "t", "value": 1 }], "group_offsets": null })).await.expect(200);
    let answer = execute(&harness, &json!({ "group_offsets": group_offsets("g", "t", 1) })).await.expect(200).json();
    assert_eq!((answer["records"].as_array().map(Vec::len), standing(&harness, "g").await), (Some(0), Some(1)));
    for nothing in [json!({}), json!({ "records": [] })] {
        let refused = execute(&harness, &nothing).await.expect(422);
        assert_eq!(
            (refused.code().as_str(), &refused.json()["errors"][0]["pointer"]),
            ("invalid-field", &json!("/records"))
        );
    }
}

#[tokio::test]
async fn a_key_makes_it_happen_once_also_over_a_restart() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let body = json!({ "records": [{ "topic": "t", "value": 1 }, { "topic": "t", "value": 2 }] });
    let first = with_key(&harness, "k", &body).await.expect(200);
    assert_eq!(first.header("idempotent-replayed"), "");
    let harness = harness.restart(|_| {}).await;
    for _ in 0..2 {
        let again = with_key(&harness, "k", &body).await.expect(200);
        assert_eq!((again.header("idempotent-replayed"), again.json()), ("true", first.json()));
    }
    let other = json!({ "records": [{ "topic": "t", "value": 3 }] });
    assert_eq!(with_key(&harness, "k", &other).await.expect(422).code(), "idempotency-key-reused");
    with_key(&harness, "l", &other).await.expect(200);
    execute(&harness, &body).await.expect(200);
    assert_eq!(committed(&harness, "t").await, [1, 2, 3, 1, 2].map(Value::from));
}

#[tokio::test]
async fn a_key_whose_request_was_refused_may_be_used_again() {
    let harness = Harness::start(|options| options.auto_create_topics = Some(false)).await;
    let body = json!({ "records": [{ "topic": "t", "value": 1 }] });
    with_key(&harness, "k", &body).await.expect(404);
    harness.topic("t").await;
    with_key(&harness, "k", &body).await.expect(200);
    assert_eq!(committed(&harness, "t").await, [json!(1)]);
}

#[tokio::test]
async fn what_is_wrong_refuses_all_and_is_named_by_its_place() {
    let harness = Harness::start(|options| options.auto_create_topics = Some(false)).await;
    harness.topic("a").await;
    topic(&harness, "b", 1, json!({ "max.message.bytes": 10, "cleanup.policy": "compact" })).await;
    let well = json!({ "topic": "a", "value": 1 });
    let records = |records: Value| json!({ "records": records });
    for (body, status, code, pointer) in [
        (
            records(
                json!([well, { "topic": "b", "key": "k", "value": 1 }, { "topic": "b", "key": "k", "value_text": "x".repeat(20) }]),
            ),
            413,
            "record-too-large",
            "/records/2",
        ),
        (
            records(json!([{ "topic": "b", "key": "k", "value": 1 }, well, { "topic": "b", "value": 1 }])),
            422,
            "key-required",
            "/records/2/key",
        ),
        (
            records(json!([well, { "topic": "a", "value": 1, "partition": 7 }])),
            422,
            "invalid-record",
            "/records/1/partition",
        ),
        (records(json!([well, { "topic": "a b", "value": 1 }])), 400, "invalid-topic-name", "/records/1/topic"),
        (records(json!([well, { "value": 1 }])), 422, "invalid-field", "/records/1"),
        (records(json!([well, { "topic": "a" }])), 422, "invalid-field", "/records/1"),
        (records(json!([well, { "topic": 7, "value": 1 }])), 422, "invalid-field", "/records/1/topic"),
        (records(json!([well, { "topic": "a", "value": 1, "acks": 1 }])), 422, "invalid-field", "/records/1/acks"),
        (records(json!({})), 422, "invalid-field", "/records"),
        (json!({ "records": [well], "transaction": "x" }), 422, "invalid-field", "/transaction"),
        (json!({ "records": [well], "group_offsets": [] }), 422, "invalid-field", "/group_offsets"),
        (json!({ "records": [well], "group_offsets": { "group": "g" } }), 422, "invalid-field", "/group_offsets"),
        (
            json!({ "records": [well], "group_offsets": { "group": "a b", "offsets": [] } }),
            400,
            "invalid-group-name",
            "/group_offsets/group",
        ),
        (
            json!({ "records": [well], "group_offsets": group_offsets("g", "a b", 0) }),
            422,
            "invalid-offset",
            "/group_offsets/offsets/0/topic",
        ),
        (
            json!({ "records": [well], "group_offsets": group_offsets("g", "nowhere", 0) }),
            422,
            "invalid-offset",
            "/group_offsets/offsets/0",
        ),
        (
            json!({ "records": [well], "group_offsets": group_offsets("g", "a", 99) }),
            422,
            "invalid-offset",
            "/group_offsets/offsets/0",
        ),
    ] {
        let refused = execute(&harness, &body).await.expect(status);
        assert_eq!((refused.code().as_str(), &refused.json()["effect"]), (code, &json!("none")), "{body}");
        let found = refused.json()["errors"][0]["pointer"].as_str().expect("a pointer").to_owned();
        assert!(found == pointer || (code == "invalid-offset" && found.starts_with(pointer)), "{body}: {found}");
    }
    let nowhere = records(json!([well, { "topic": "nowhere", "value": 1 }]));
    assert_eq!(execute(&harness, &nowhere).await.expect(404).code(), "topic-not-found");
    let own = records(json!([well, { "topic": "__transaction_state", "value": 1 }]));
    assert_eq!(execute(&harness, &own).await.expect(403).code(), "internal-topic");
    assert_eq!(committed(&harness, "a").await, [] as [Value; 0]);
    assert_eq!(standing(&harness, "g").await, None);
    execute(&harness, &records(json!([well]))).await.expect(200);
    assert_eq!(committed(&harness, "a").await, [json!(1)], "nothing holds readers up");
}

#[tokio::test]
async fn a_member_commits_with_what_it_produced_or_neither() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("in").await;
    harness.topic("out").await;
    store(&harness, "in", &["1", "2"]).await;
    let mut member = Member::join(&harness, "g", &["in"]).await;
    member.until(|member| member.assignment().len() == 1).await;
    let with = |member: Value, value: u64| {
        let mut offsets = group_offsets("g", "in", 2);
        offsets["member_id"] = member;
        json!({ "records": [{ "topic": "out", "value": value }], "group_offsets": offsets })
    };
    let refused = execute(&harness, &with(json!("nobody"), 1)).await.expect(404);
    assert_eq!(
        (refused.code().as_str(), &refused.json()["errors"][0]["pointer"]),
        ("unknown-member", &json!("/group_offsets/member_id"))
    );
    assert_eq!(execute(&harness, &with(Value::Null, 2)).await.expect(409).code(), "group-not-empty");
    assert_eq!((committed(&harness, "out").await, standing(&harness, "g").await), (vec![], None));
    execute(&harness, &with(json!(member.id), 3)).await.expect(200);
    assert_eq!((committed(&harness, "out").await, standing(&harness, "g").await), (vec![json!(3)], Some(2)));
}

#[tokio::test]
async fn headers_of_one_append_and_other_bodies_are_refused() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let body = json!({ "records": [{ "topic": "t", "value": 1 }] });
    for (name, value) in [
        ("transaction", "0-0-0"),
        ("producer-id", "1"),
        ("producer-epoch", "0"),
        ("producer-sequence", "0"),
        ("expected-offset", "0"),
        ("idempotency-key", ""),
        ("idempotency-key", &"k".repeat(256)),
    ] {
        let request = harness.request(Method::POST, PATH).header(name, value).json(&body);
        let refused = harness.send(request).await.expect(400);
        assert!(
            refused.json()["detail"].as_str().is_some_and(|text| text.to_lowercase().contains(name)),
            "{refused:?}"
        );
    }
    harness.body(Method::POST, PATH, "application/json", "{").await.expect(400);
    harness.body(Method::POST, PATH, "application/x-ndjson", "{}").await.expect(415);
    assert_eq!(committed(&harness, "t").await, [] as [Value; 0]);
}

#[tokio::test]
async fn topics_are_created_as_by_a_produce() {
    let harness = Harness::start(|_| {}).await;
    let body = json!({ "records": [{ "topic": "new", "value": 1 }] });
    execute(&harness, &body).await.expect(200);
    assert_eq!(committed(&harness, "new").await, [json!(1)]);
}
