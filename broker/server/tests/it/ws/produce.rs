//! Produces through a socket.

use serde_json::json;

use super::client::{Client, offsets};
use crate::harness::Harness;

#[tokio::test]
async fn produces_are_answered_in_order_with_their_places() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut client = Client::open(&harness).await;
    for n in 0..300 {
        client.send(json!({ "type": "produce", "id": n, "topic": "t", "records": [{ "key": "k", "value": n }] })).await;
    }
    for n in 0..300 {
        let answer = client.expect("produced").await;
        assert_eq!((&answer["id"], &answer["records"][0]["offset"]), (&json!(n), &json!(n)));
        assert!(answer["records"][0]["timestamp"].is_i64());
    }
}

#[tokio::test]
async fn a_bad_record_refuses_its_produce_and_nothing_of_it_is_stored() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut client = Client::open(&harness).await;
    for (n, records, code, pointer) in [
        (0, json!([{ "value": 1 }, { "value": 2, "partition": 7 }]), "invalid-record", "/records/1/partition"),
        (1, json!([{ "value": 1 }, { "values": 2 }]), "invalid-field", "/records/1/values"),
        (2, json!([]), "invalid-field", "/records"),
        (3, json!("all"), "invalid-field", "/records"),
        (4, json!([{ "value": 1 }, { "value_text": "x".repeat(2 << 20) }]), "record-too-large", "/records/1"),
    ] {
        client.send(json!({ "type": "produce", "id": n, "topic": "t", "records": records })).await;
        let error = client.expect("error").await;
        assert_eq!((&error["id"], &error["problem"]["code"]), (&json!(n), &json!(code)), "{error}");
        assert_eq!(error["problem"]["errors"][0]["pointer"], pointer, "{error}");
    }
    for (topic, code) in [("a b", "invalid-topic-name"), ("__consumer_offsets", "internal-topic")] {
        client.send(json!({ "type": "produce", "id": "x", "topic": topic, "records": [{ "value": 1 }] })).await;
        assert_eq!(client.refusal().await, (json!("x"), code.to_owned()));
    }
    client
        .send(json!({ "type": "produce", "id": "ok", "topic": "t", "acks": "none", "records": [{ "value": 1 }] }))
        .await;
    let answer = client.expect("produced").await;
    assert_eq!((&answer["id"], answer["records"][0].get("offset")), (&json!("ok"), None));
    client.subscribe(json!({ "from": 0 })).await;
    client.credit(10).await;
    assert_eq!(offsets(&client.records(1).await), [0], "only what was accepted is there");
}

#[tokio::test]
async fn the_order_of_a_sockets_produces_holds_whatever_their_sizes() {
    let harness = Harness::start(|_| {}).await;
    let mut client = Client::open(&harness).await;
    // The first creates the topic, and large ones are parsed elsewhere; the small ones behind them do not overtake.
    for n in 0..40 {
        let filler = if n % 4 == 0 { "x".repeat(900_000) } else { String::new() };
        let records = json!([{ "key": "k", "value": { "n": n, "filler": filler } }]);
        client.send(json!({ "type": "produce", "id": n, "topic": "made", "records": records })).await;
    }
    for n in 0..40 {
        let answer = client.expect("produced").await;
        assert_eq!((&answer["id"], &answer["records"][0]["offset"]), (&json!(n), &json!(n)));
    }
}
