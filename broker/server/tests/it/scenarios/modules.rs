//! Every call on modules that the document lists, and each way to be refused.

use std::sync::Arc;

use http::Method;
use levada_engine::Engine;
use serde_json::json;

use crate::harness::Harness;
use crate::modules::{module, put, put_transform};

/// Runs the scenario.
pub(crate) async fn run(harness: &Harness) {
    harness.topic("judged").await;
    let wasm = module(&["transform"], json!({}));
    put(harness, "judge", wasm.clone()).await.expect(201);
    put(harness, "judge", wasm).await.expect(200);
    put(harness, "judge", "nonsense".into()).await.expect(422);
    harness.get("/v1/modules").await.expect(200);
    harness.get("/v1/modules/judge").await.expect(200);
    harness.get("/v1/modules/judge/versions/1/wasm").await.expect(200);
    harness.get("/v1/modules/judge/logs").await.expect(200);
    harness.get("/v1/modules/judge/stats").await.expect(200);
    harness.get(&format!("/v1/modules/judge/logs?from={}", u64::MAX)).await.expect(422);
    let trial = json!({ "world": "transform", "records": [{ "value": 1 }] });
    harness.json(Method::POST, "/v1/modules/judge/dry-run", &trial).await.expect(200);
    harness.json(Method::POST, "/v1/modules/judge/dry-run", &json!({ "world": "transform" })).await.expect(422);
    harness.send(harness.request(Method::POST, "/v1/modules/judge/versions/1/activate")).await.expect(200);
    contract(harness).await;
    unknown_ones(harness).await;
    of_those_in_use(harness).await;
    without_a_host(harness).await;
}

async fn contract(harness: &Harness) {
    harness.get("/v1/wit").await.expect(200);
    harness.get("/v1/wit/types.wit").await.expect(200);
    harness.get("/v1/wit/none.wit").await.expect(404);
}

async fn unknown_ones(harness: &Harness) {
    for path in ["none", "none/logs", "none/stats", "judge/versions/9/wasm"] {
        assert_eq!(harness.get(&format!("/v1/modules/{path}")).await.expect(404).code(), "module-not-found");
    }
    let activate = harness.request(Method::POST, "/v1/modules/judge/versions/9/activate");
    assert_eq!(harness.send(activate).await.expect(404).code(), "module-not-found");
    let trial = json!({ "world": "transform", "records": [{ "value": 1 }] });
    harness.json(Method::POST, "/v1/modules/none/dry-run", &trial).await.expect(404);
    harness.delete("/v1/modules/none").await.expect(404);
    assert_eq!(harness.get("/v1/modules/a%20b").await.expect(400).code(), "invalid-module-name");
}

async fn of_those_in_use(harness: &Harness) {
    let validator = json!({ "config": { "validator": "module:judge" } });
    harness.json(Method::PATCH, "/v1/topics/judged", &validator).await.expect(200);
    assert_eq!(harness.delete("/v1/modules/judge").await.expect(409).code(), "module-in-use");
    put_transform(harness, "judge", json!({ "refuses": true })).await;
    let activate = harness.request(Method::POST, "/v1/modules/judge/versions/2/activate");
    assert_eq!(harness.send(activate).await.expect(422).code(), "invalid-module-config");
    harness.json(Method::PATCH, "/v1/topics/judged", &json!({ "config": { "validator": null } })).await.expect(200);
    harness.delete("/v1/modules/judge").await.expect(204);
}

/// A broker without a host keeps modules, and says that it runs none.
async fn without_a_host(harness: &Harness) {
    let with = Harness::start_under(Arc::clone(&harness.contract), |_| {}).await;
    put_transform(&with, "judge", json!({})).await;
    let topic = json!({ "name": "judged", "config": { "validator": "module:judge" } });
    with.json(Method::POST, "/v1/topics", &topic).await.expect(201);
    with.json(Method::POST, "/v1/topics", &json!({ "name": "out" })).await.expect(201);
    let without = with.restart_with(|_| {}, Engine::open).await;
    let settings = json!({ "config": { "validator.config": { "drop": "d" } } });
    let processor = json!({ "sources": [{ "topic": "judged" }], "sink": { "topic": "out" },
        "steps": [{ "transform": { "module": "judge" } }] });
    let trial = json!({ "world": "transform", "records": [{ "value": 1 }] });
    for refused in [
        put(&without, "judge", module(&["transform"], json!({ "n": 2 }))).await,
        without.get("/v1/modules/judge/logs").await,
        without.get("/v1/modules/judge/stats").await,
        without.json(Method::POST, "/v1/modules/judge/dry-run", &trial).await,
        without.json(Method::PATCH, "/v1/topics/judged", &settings).await,
        without.json(Method::PUT, "/v1/processors/p", &processor).await,
    ] {
        assert_eq!(refused.expect(409).code(), "modules-off");
    }
    without.get("/v1/modules/judge/versions/1/wasm").await.expect(200);
}
