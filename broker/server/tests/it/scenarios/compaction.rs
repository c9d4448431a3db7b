//! Compaction asked for, and each way to be refused.

use http::Method;
use serde_json::json;

use crate::harness::{Answer, Harness};
use crate::produce::{store, topic};

/// Runs the scenario.
pub(crate) async fn run(harness: &Harness) {
    topic(harness, "compacted", 2, json!({ "cleanup.policy": "compact" })).await;
    let done = compact(harness, "compacted", "").await.expect(200).json();
    let empty = |partition: u32| json!({ "partition": partition, "before_bytes": 0, "after_bytes": 0, "before_records": 0, "after_records": 0 });
    assert_eq!(done, json!({ "partitions": [empty(0), empty(1)] }));
    let asked = compact(harness, "compacted", "?wait_ms=0").await.expect(202).json();
    assert_eq!(asked, json!({ "partitions": [] }), "it is only asked for");
    compact(harness, "compacted", "?wait_ms=9007199254740992").await.expect(200);
    assert_eq!(compact(harness, "compacted", "?wait_ms=-1").await.expect(400).code(), "invalid-parameter");

    harness.topic("not-compacted").await;
    assert_eq!(compact(harness, "not-compacted", "").await.expect(409).code(), "not-compacted");
    assert_eq!(compact(harness, "nowhere", "").await.expect(404).code(), "topic-not-found");
    assert_eq!(compact(harness, "__consumer_offsets", "").await.expect(403).code(), "internal-topic");

    store(harness, "not-compacted", &["1"]).await;
    let policy = json!({ "config": { "cleanup.policy": "compact" } });
    let refused = harness.json(Method::PATCH, "/v1/topics/not-compacted", &policy).await.expect(409);
    assert_eq!(refused.code(), "keyless-records");
    assert_eq!(refused.json()["errors"][0]["pointer"], "/config/cleanup.policy");
}

async fn compact(harness: &Harness, topic: &str, query: &str) -> Answer {
    harness.send(harness.request(Method::POST, &format!("/v1/topics/{topic}/compact{query}"))).await
}
