//! What modules log and count.

use http::Method;
use serde_json::json;

use super::{module, put, put_transform, store};
use crate::harness::Harness;

#[tokio::test]
async fn the_log_and_the_numbers_of_a_module_are_told_by_version() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    put_transform(&harness, "m", json!({})).await;
    store(&harness, "t", &["a", "b"]).await;
    let read = "/v1/topics/t/partitions/0/records?filter=module:m";
    harness.get(read).await.expect(200);
    harness.get(read).await.expect(200);
    let log = harness.get("/v1/modules/m/logs").await.expect(200).json();
    assert_eq!((&log["version"], &log["next"], &log["dropped"]), (&json!(1), &json!(2), &json!(0)));
    assert_eq!(log["lines"][1]["message"], "called with 2");
    let rest = harness.get("/v1/modules/m/logs?from=1&limit=5&version=1").await.expect(200).json();
    assert_eq!(rest["lines"].as_array().map(Vec::len), Some(1));
    let stats = harness.get("/v1/modules/m/stats").await.expect(200).json();
    assert_eq!((&stats["version"], &stats["calls"], &stats["records"]), (&json!(1), &json!(2), &json!(4)));
    assert_eq!(harness.get("/v1/modules/m/stats?version=2").await.expect(404).code(), "module-not-found");
    assert_eq!(harness.get("/v1/modules/m/logs?version=0").await.expect(400).code(), "invalid-parameter");
}

#[tokio::test]
async fn a_log_is_followed_from_version_to_version_and_resumed() {
    let harness = Harness::start(|options| options.sse_heartbeat = std::time::Duration::from_millis(50)).await;
    harness.topic("t").await;
    put_transform(&harness, "m", json!({})).await;
    store(&harness, "t", &["a"]).await;
    let follow = || harness.request(Method::GET, "/v1/modules/m/logs").header("accept", "text/event-stream");
    let mut stream = harness.stream(follow()).await;
    let mut text = String::new();
    let read = "/v1/topics/t/partitions/0/records?filter=module:m";
    harness.get(read).await.expect(200);
    while !text.contains("id: 1.0") {
        text.push_str(&String::from_utf8_lossy(&stream.chunk().await.expect("a piece").expect("it goes on")));
    }
    put(&harness, "m?activate=true", module(&["transform"], json!({ "n": 2 }))).await.expect(201);
    harness.get(read).await.expect(200);
    while !(text.contains("id: 2.0") && text.contains("event: heartbeat")) {
        text.push_str(&String::from_utf8_lossy(&stream.chunk().await.expect("a piece").expect("it goes on")));
    }
    harness.get(read).await.expect(200);
    let mut resumed = harness.stream(follow().header("last-event-id", "2.0")).await;
    let mut text = String::new();
    while !text.contains("event: log") {
        text.push_str(&String::from_utf8_lossy(&resumed.chunk().await.expect("a piece").expect("it goes on")));
    }
    assert!(text.contains("id: 2.1") && !text.contains("id: 2.0"), "{text}");

    // What one version logged since it was looked at last is told before what the next does.
    harness.get("/v1/topics/t/partitions/0/records?filter=module:m@1").await.expect(200);
    let mut behind = harness.stream(follow().header("last-event-id", "1.0")).await;
    let mut rest = String::new();
    while !rest.contains("id: 2.0") {
        rest.push_str(&String::from_utf8_lossy(&behind.chunk().await.expect("a piece").expect("it goes on")));
    }
    assert!(rest.find("id: 1.1") < rest.find("id: 2.0") && rest.contains("id: 1.1"), "{rest}");
    drop(behind);

    harness.delete("/v1/modules/m").await.expect(204);
    while let Some(piece) = resumed.chunk().await.expect("a piece") {
        text.push_str(&String::from_utf8_lossy(&piece));
    }
    assert!(text.contains("event: error\ndata: {") && text.contains("module-not-found"), "{text}");
    put_transform(&harness, "m", json!({})).await;
    let missing = harness.request(Method::GET, "/v1/modules/m/logs?version=9").header("accept", "text/event-stream");
    assert_eq!(harness.send(missing).await.expect(404).code(), "module-not-found");
    let wrong = harness.send(follow().header("last-event-id", "x")).await;
    assert_eq!(wrong.expect(400).code(), "invalid-cursor");
}
