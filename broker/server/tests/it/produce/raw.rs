//! `POST …/raw`.

use http::Method;
use serde_json::json;

use super::{raw_value, read, topic};
use crate::harness::Harness;

#[tokio::test]
async fn the_body_is_the_value_and_headers_are_kept() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 2, json!({})).await;
    let request = harness
        .request(Method::POST, "/v1/topics/t/raw?key=a%20b&partition=1&timestamp=1700000000123")
        .header("content-type", "image/PNG; x=1")
        .header("record-header-Source", "cam 1")
        .header("record-header-n", "1")
        .header("record-header-n", "2");
    let answer = harness.send(request.body(vec![0xff, 0, b'\n'])).await.expect(200).json();
    assert_eq!(answer, json!({ "partition": 1, "offset": 0, "timestamp": 1_700_000_000_123_u64 }));
    let record = read(&harness, "t", 1, "").await["records"][0].clone();
    assert_eq!((&record["key"], &record["value_base64"]), (&json!("a b"), &json!("/wAK")));
    let headers = json!([["content-type", "image/PNG; x=1"], ["source", "cam 1"], ["n", "1"], ["n", "2"]]);
    assert_eq!(record["headers"], headers);
    assert_eq!(raw_value(&harness, "t", 1, 0).await, [0xff, 0, b'\n']);
}

#[tokio::test]
async fn an_empty_body_is_an_empty_value_and_no_key_is_no_empty_key() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    harness.send(harness.request(Method::POST, "/v1/topics/t/raw")).await.expect(200);
    harness.send(harness.request(Method::POST, "/v1/topics/t/raw?key=")).await.expect(200);
    let records = read(&harness, "t", 0, "").await["records"].clone();
    assert_eq!((&records[0]["value_text"], &records[0]["key"]), (&json!(""), &json!(null)));
    assert_eq!((&records[0]["headers"], &records[1]["key"]), (&json!([]), &json!("")));
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused() {
    let harness = Harness::start(|options| options.auto_create_topics = Some(false)).await;
    topic(&harness, "t", 1, json!({ "max.message.bytes": 4 })).await;
    for (path, body, status) in [
        ("/v1/topics/t/raw", "12345", 413),
        ("/v1/topics/t/raw?partition=1", "1", 422),
        ("/v1/topics/t/raw?partition=x", "1", 400),
        ("/v1/topics/t/raw?timestamp=9007199254740991", "1", 422),
        ("/v1/topics/t/raw?partiton=0", "1", 400),
        ("/v1/topics/nowhere/raw", "1", 404),
        ("/v1/topics/__consumer_offsets/raw", "1", 403),
    ] {
        harness.send(harness.request(Method::POST, path).body(body)).await.expect(status);
    }
    harness.send(harness.request(Method::POST, "/v1/topics/t/raw?acks=none").body("1")).await.expect(202);
}
