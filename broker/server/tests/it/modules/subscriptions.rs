//! Subscriptions of a WebSocket through a filter.

use serde_json::json;

use super::{put_transform, store, texts};
use crate::harness::Harness;
use crate::ws::client::Client;

#[tokio::test]
async fn a_subscription_delivers_what_passes_its_filter_and_its_cursor_moves_on_over_the_rest() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    put_transform(&harness, "f", json!({})).await;
    store(&harness, "t", &["one", "noise", "twice", "noise"]).await;
    let mut client = Client::open(&harness).await;
    let filter = json!({ "from": "earliest", "filter": "module:f", "filter_config": { "drop": "noise" } });
    client.subscribe(filter).await;
    client.credit(10).await;
    let mut got = Vec::new();
    let mut last = json!(null);
    while got.len() < 3 {
        last = client.until("records").await;
        got.extend(texts(&last["records"]));
    }
    assert_eq!(got, ["one", "twice/1", "twice/2"]);
    let end = client.until("caught_up").await;
    store(&harness, "t", &["last"]).await;
    let mut next = Client::open(&harness).await;
    next.subscribe(json!({ "cursor": end["cursor"] })).await;
    next.credit(10).await;
    assert_eq!(texts(&next.until("records").await["records"]), ["last"], "{last}");
}

#[tokio::test]
async fn a_filter_that_cannot_be_is_refused_at_its_place() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    put_transform(&harness, "f", json!({})).await;
    let mut client = Client::open(&harness).await;
    for (wish, code, pointer) in [
        (json!({ "filter": "f" }), "invalid-field", "/filter"),
        (json!({ "filter": "module:none" }), "module-not-found", "/filter"),
        (json!({ "filter": "module:f", "filter_config": 7 }), "invalid-module-config", "/filter_config"),
    ] {
        let mut frame = json!({ "type": "subscribe", "id": "s", "topics": ["t"] });
        frame.as_object_mut().expect("an object").extend(wish.as_object().expect("an object").clone());
        client.send(frame).await;
        let problem = client.expect("error").await["problem"].clone();
        assert_eq!((&problem["code"], &problem["errors"][0]["pointer"]), (&json!(code), &json!(pointer)));
    }
}
