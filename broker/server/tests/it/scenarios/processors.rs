//! Every call on processors that the document lists, and each way to be refused.

use http::Method;
use levada_model::limits::PROCESSORS_MAX;
use serde_json::json;

use crate::harness::Harness;
use crate::processors::{document, post, put};

/// Runs the scenario.
pub(crate) async fn run(harness: &Harness) {
    harness.topic("raw").await;
    harness.topic("done").await;
    let plain = document("raw", "done", json!([]));
    put(harness, "copy", &plain).await.expect(201);
    put(harness, "copy", &plain).await.expect(200);
    put(harness, "copy", &json!({})).await.expect(422);
    harness.get("/v1/processors").await.expect(200);
    harness.get("/v1/processors/copy").await.expect(200);
    let reset = json!({ "start": "earliest" });
    let refused = harness.json(Method::POST, "/v1/processors/copy/reset", &reset).await.expect(409);
    assert_eq!(refused.code(), "processor-running");
    post(harness, "copy/pause").await.expect(200);
    harness.json(Method::POST, "/v1/processors/copy/reset", &reset).await.expect(200);
    harness.json(Method::POST, "/v1/processors/copy/reset", &json!({ "start": "now" })).await.expect(422);
    post(harness, "copy/resume").await.expect(200);
    harness.json(Method::POST, "/v1/processors/copy/dry-run", &plain).await.expect(200);
    harness.json(Method::POST, "/v1/processors/copy/dry-run", &json!({})).await.expect(422);

    assert_eq!(harness.get("/v1/processors/none").await.expect(404).code(), "processor-not-found");
    post(harness, "none/pause").await.expect(404);
    post(harness, "none/resume").await.expect(404);
    harness.json(Method::POST, "/v1/processors/none/reset", &reset).await.expect(404);
    harness.delete("/v1/processors/none").await.expect(404);
    assert_eq!(harness.get("/v1/processors/a%20b").await.expect(400).code(), "invalid-processor-name");
    as_many_as_there_may_be(harness).await;
    harness.delete("/v1/processors/copy").await.expect(204);
}

async fn as_many_as_there_may_be(harness: &Harness) {
    let plain = document("raw", "done", json!([]));
    for number in 1..PROCESSORS_MAX {
        put(harness, &format!("many-{number}"), &plain).await.expect(201);
    }
    assert_eq!(put(harness, "one-more", &plain).await.expect(409).code(), "processors-full");
    for number in 1..PROCESSORS_MAX {
        harness.delete(&format!("/v1/processors/many-{number}")).await.expect(204);
    }
}
