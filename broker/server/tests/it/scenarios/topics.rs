//! Topics: create, list, describe, alter, delete, truncate, and each way to get it wrong.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Harness};

/// Runs the scenario.
pub(crate) async fn run(harness: &Harness) {
    created_and_described(harness).await;
    refused_at_creation(harness).await;
    altered(harness).await;
    altered_only_at_the_version_that_was_read(harness).await;
    truncated(harness).await;
    listed_page_by_page(harness).await;
    unusual_names(harness).await;
    deleted(harness).await;
    internal_topics_are_left_alone(harness).await;
}

async fn create(harness: &Harness, body: Value) -> Answer {
    harness.json(Method::POST, "/v1/topics", &body).await
}

async fn created_and_described(harness: &Harness) {
    let config = json!({ "retention.ms": 604_800_000, "durability": "page-cache" });
    let answer = create(harness, json!({ "name": "orders", "partitions": 3, "config": config })).await.expect(201);
    assert_eq!(answer.header("location"), "/v1/topics/orders");
    assert_eq!(answer.header("cache-control"), "no-store");
    let topic = answer.json();
    assert_eq!(
        (&topic["name"], &topic["partition_count"], &topic["internal"]),
        (&json!("orders"), &json!(3), &json!(false))
    );
    assert_eq!(topic["config"], config);
    assert_eq!(topic["effective_config"]["max.message.bytes"], 1 << 20);
    assert_eq!(topic["effective_config"]["durability"], "page-cache");
    let partition = json!({
        "partition": 2, "leader": 1, "leader_epoch": 0, "replicas": [1], "isr": [1], "log_start_offset": 0,
        "high_watermark": 0, "last_stable_offset": 0, "size_bytes": 0, "state": "active"
    });
    assert_eq!(topic["partitions"][2], partition);
    let again = harness.get("/v1/topics/orders").await.expect(200);
    assert_eq!((again.json(), again.header("etag")), (topic, answer.header("etag")));
    let head = harness.send(harness.request(Method::HEAD, "/v1/topics/orders")).await.expect(200);
    assert_eq!((head.header("etag"), head.body.len()), (answer.header("etag"), 0));
    let plain = create(harness, json!({ "name": "plain" })).await.expect(201);
    assert_eq!(plain.json()["partition_count"], 1);
}

async fn refused_at_creation(harness: &Harness) {
    for (body, status, code, pointer) in [
        (json!({ "name": "orders" }), 409, "topic-exists", None),
        (json!({ "name": "a", "config": { "retention": 1 } }), 422, "unknown-config", Some("/config/retention")),
        (
            json!({ "name": "a", "config": { "retention.ms": "x" } }),
            422,
            "invalid-config",
            Some("/config/retention.ms"),
        ),
        (json!({ "name": "a", "partitions": 0 }), 422, "invalid-partition-count", Some("/partitions")),
        (json!({ "name": "a", "partitions": 10_001 }), 422, "invalid-partition-count", Some("/partitions")),
        (json!({ "name": "a", "partitions": 9_007_199_254_740_992_u64 }), 422, "invalid-field", Some("/partitions")),
        (json!({ "name": "__a" }), 422, "reserved-topic-name", None),
        (json!({ "name": "a", "extra": 1 }), 422, "invalid-field", Some("/extra")),
        (json!({}), 422, "invalid-field", Some("")),
        (json!({ "name": "a/b" }), 400, "invalid-topic-name", Some("/name")),
    ] {
        let answer = create(harness, body.clone()).await.expect(status);
        assert_eq!(answer.code(), code, "{body}");
        assert_eq!(answer.json()["errors"][0]["pointer"].as_str(), pointer, "{body}");
    }
    harness.get("/v1/topics/a").await.expect(404);
}

async fn altered(harness: &Harness) {
    let patch = |body: Value| async move { harness.json(Method::PATCH, "/v1/topics/orders", &body).await };
    let topic =
        patch(json!({ "partitions": 5, "config": { "retention.ms": null, "segment.ms": 5 } })).await.expect(200).json();
    assert_eq!(
        (&topic["partition_count"], &topic["config"]),
        (&json!(5), &json!({ "durability": "page-cache", "segment.ms": 5 }))
    );
    assert_eq!(topic["effective_config"]["retention.ms"], 14 * 24 * 60 * 60 * 1000_u64);
    // Empty surplus partitions go at once.
    let topic = patch(json!({ "partitions": 3 })).await.expect(200).json();
    assert_eq!((&topic["partition_count"], topic["partitions"].as_array().map(Vec::len)), (&json!(3), Some(3)));
    for (body, status, code) in [
        (json!({ "partitions": 0 }), 422, "invalid-partition-count"),
        (json!({ "config": { "x": 1 } }), 422, "unknown-config"),
        (json!({ "config": { "x": null } }), 422, "unknown-config"),
        (json!({ "name": "b" }), 422, "invalid-field"),
        (json!([]), 422, "invalid-field"),
    ] {
        assert_eq!(patch(body.clone()).await.expect(status).code(), code, "{body}");
    }
    let answer = harness.json(Method::PATCH, "/v1/topics/nowhere", &json!({})).await.expect(404);
    assert_eq!(answer.code(), "topic-not-found");
}

async fn altered_only_at_the_version_that_was_read(harness: &Harness) {
    let etag = harness.get("/v1/topics/orders").await.expect(200).header("etag").to_owned();
    let patch = |condition: String| async move {
        let request = harness.request(Method::PATCH, "/v1/topics/orders").header("if-match", condition);
        harness.send(request.json(&json!({ "config": { "segment.ms": 7 } }))).await
    };
    assert_eq!(patch("\"other\"".to_owned()).await.expect(412).code(), "precondition-failed");
    assert_eq!(patch(format!("W/{etag}")).await.expect(412).code(), "precondition-failed");
    let changed = patch(format!("\"other\", {etag}")).await.expect(200);
    assert_ne!(changed.header("etag"), etag);
    patch(etag).await.expect(412);
    patch("*".to_owned()).await.expect(200);
}

async fn truncated(harness: &Harness) {
    let path = "/v1/topics/orders/truncate";
    let truncate =
        |offsets: Value| async move { harness.json(Method::POST, path, &json!({ "offsets": offsets })).await };
    let answer = truncate(json!([{ "partition": 0, "before": 0 }])).await.expect(200);
    assert_eq!(answer.json(), json!({ "partitions": [{ "partition": 0, "log_start_offset": 0 }] }));
    for (offsets, pointer) in [
        (json!([{ "partition": 0, "before": 0 }, { "partition": 1, "before": 1 }]), "/offsets/1/before"),
        (json!([{ "partition": 99, "before": 0 }]), "/offsets/0/partition"),
        (json!([{ "partition": 0, "before": 0 }, { "partition": 0, "before": 0 }]), "/offsets/1/partition"),
        (json!([{ "partition": 0, "before": -1 }]), "/offsets/0/before"),
    ] {
        let answer = truncate(offsets).await.expect(422);
        assert_eq!(answer.json()["errors"][0]["pointer"], pointer);
    }
    harness.json(Method::POST, "/v1/topics/nowhere/truncate", &json!({ "offsets": [] })).await.expect(404);
}

async fn listed_page_by_page(harness: &Harness) {
    for n in 0..5 {
        harness.topic(&format!("page-{n}")).await;
    }
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = harness.get(&format!("/v1/topics?limit=2{cursor}")).await.expect(200).json();
        let topics = page["topics"].as_array().expect("topics");
        assert!((1..=2).contains(&topics.len()));
        names.extend(topics.iter().map(|topic| topic["name"].as_str().expect("a name").to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let whole = harness.get("/v1/topics?limit=9007199254740991").await.expect(200).json();
    let all: Vec<_> = whole["topics"].as_array().expect("topics").iter().map(|topic| topic["name"].clone()).collect();
    assert_eq!(json!(names), json!(all));
    assert!(names.is_sorted() && names.iter().filter(|name| name.starts_with("page-")).count() == 5);
    assert_eq!(harness.get("/v1/topics?cursor=%3F").await.expect(400).code(), "invalid-cursor");
    assert_eq!(harness.get("/v1/topics?limit=0").await.expect(400).code(), "invalid-parameter");
    assert_eq!(harness.get("/v1/topics?limit=2&limit=3").await.expect(400).code(), "invalid-parameter");
}

/// PC-33.
async fn unusual_names(harness: &Harness) {
    for bad in ["", ".", "..", "a/b", "a%2Fb", "a b", "ümlaut", "日本", "a\u{0}", &"a".repeat(250)] {
        let problem = create(harness, json!({ "name": bad })).await.expect(400).json();
        assert_eq!(problem["code"], "invalid-topic-name", "{bad}");
        assert!(problem["detail"].as_str().expect("text").contains("1 to 249 characters of a-z A-Z 0-9 . _ -"));
    }
    for good in [&"a".repeat(249), "x.y", "x_y", "Topic", "topic", "..."] {
        harness.topic(good).await;
        assert_eq!(harness.get(&format!("/v1/topics/{good}")).await.expect(200).json()["name"], *good);
    }
    // In a path the name is decoded exactly once.
    assert_eq!(harness.get("/v1/topics/%74opic").await.expect(200).json()["name"], "topic");
    for bad in ["a%2Fb", "a%252Fb", "%E6%97%A5", "%zz", "a%20b", "%00"] {
        assert_eq!(harness.get(&format!("/v1/topics/{bad}")).await.expect(400).code(), "invalid-topic-name", "{bad}");
    }
    assert_eq!(harness.get("/v1/topics/%ff").await.expect(400).code(), "invalid-request");
    assert_eq!(harness.get("/v1/topics/").await.expect(400).code(), "invalid-topic-name");
    assert_eq!(harness.get("/v1/topics//records").await.expect(400).code(), "invalid-topic-name");
}

async fn deleted(harness: &Harness) {
    let before = harness.get("/v1/topics/plain").await.expect(200).json();
    harness.delete("/v1/topics/plain").await.expect(204);
    harness.get("/v1/topics/plain").await.expect(404);
    harness.delete("/v1/topics/plain").await.expect(404);
    harness.topic("plain").await;
    let after = harness.get("/v1/topics/plain").await.expect(200).json();
    assert_ne!(before["id"], after["id"], "a topic created anew is another");
}

async fn internal_topics_are_left_alone(harness: &Harness) {
    let commit = json!({ "offsets": [{ "topic": "orders", "partition": 0, "offset": 0 }] });
    harness.json(Method::PUT, "/v1/groups/makes-it/offsets", &commit).await.expect(200);
    let path = "/v1/topics/__consumer_offsets";
    assert_eq!(harness.get(path).await.expect(200).json()["internal"], true);
    assert_eq!(harness.delete(path).await.expect(403).code(), "internal-topic");
    let answer = harness.json(Method::PATCH, path, &json!({ "partitions": 60 })).await.expect(403);
    assert_eq!(answer.code(), "internal-topic");
    let truncate = json!({ "offsets": [{ "partition": 0, "before": 0 }] });
    harness.json(Method::POST, &format!("{path}/truncate"), &truncate).await.expect(403);
}
