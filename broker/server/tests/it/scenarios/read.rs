//! Every way to read that the document lists, and each way to be refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::harness::Harness;

const PARTITION: &str = "/v1/topics/read/partitions/0/records";
const TOPIC: &str = "/v1/topics/read/records";

/// Runs the scenario.
pub(crate) async fn run(harness: &Harness) {
    harness.topic("read").await;
    let records = json!({ "records": [{ "value": 1 }, { "key": "k", "value": { "n": 2 } }, { "value": null }] });
    harness.json(Method::POST, TOPIC, &records).await.expect(200);
    every_form_is_read(harness).await;
    nothing_is_there(harness).await;
    integers_are_too_large(harness).await;
    offsets_out_of_range(harness).await;
    cursors_out_of_range(harness).await;
}

async fn every_form_is_read(harness: &Harness) {
    let answer = harness.get(PARTITION).await.expect(200).json();
    assert_eq!((&answer["records"][1]["key"], &answer["next_offset"]), (&json!("k"), &json!(3)));
    for media in ["application/x-ndjson", "application/vnd.levada.record-batch"] {
        let answer = harness.send(harness.request(Method::GET, PARTITION).header("accept", media)).await.expect(200);
        assert_eq!((answer.header("content-type"), answer.header("levada-next-offset")), (media, "3"));
    }
    harness.get(TOPIC).await.expect(200);
    let events = harness.stream(harness.request(Method::GET, TOPIC).header("accept", "text/event-stream")).await;
    assert_eq!(events.status(), 200);
    assert_eq!(harness.get(&format!("{PARTITION}/1")).await.expect(200).json()["value"], json!({ "n": 2 }));
    assert_eq!(harness.get(&format!("{PARTITION}/1?raw")).await.expect(200).body, "{\"n\":2}");
    assert!(harness.get(&format!("{PARTITION}/2?raw=true")).await.expect(204).body.is_empty());
    harness.get("/v1/topics/read/offsets?time=0").await.expect(200);
}

async fn nothing_is_there(harness: &Harness) {
    for path in [
        "/v1/topics/nowhere/partitions/0/records",
        "/v1/topics/read/partitions/9/records",
        "/v1/topics/nowhere/records",
        "/v1/topics/nowhere/partitions/0/records/0",
        "/v1/topics/read/partitions/0/records/9",
        "/v1/topics/nowhere/offsets?time=0",
    ] {
        harness.get(path).await.expect(404);
    }
    for path in [
        format!("{PARTITION}?offset=x"),
        format!("{TOPIC}?from=x"),
        format!("{PARTITION}/x"),
        "/v1/topics/read/offsets".to_owned(),
        "/v1/topics/a%20b/records".to_owned(),
    ] {
        harness.get(&path).await.expect(400);
    }
}

async fn integers_are_too_large(harness: &Harness) {
    for path in [
        format!("{PARTITION}?offset=9007199254740992"),
        format!("{TOPIC}?from=time:9007199254740992"),
        format!("{PARTITION}/9007199254740992"),
        "/v1/topics/read/offsets?time=99999999999999999999999".to_owned(),
    ] {
        assert_eq!(harness.get(&path).await.expect(422).code(), "integer-too-large", "{path}");
    }
    harness.get(&format!("{PARTITION}?max_records=99999999999999999999999")).await.expect(200);
}

async fn offsets_out_of_range(harness: &Harness) {
    let before = json!({ "offsets": [{ "partition": 0, "before": 1 }] });
    harness.json(Method::POST, "/v1/topics/read/truncate", &before).await.expect(200);
    assert_eq!(harness.get(&format!("{PARTITION}?offset=0")).await.expect(410).json()["log_start_offset"], 1);
    assert_eq!(harness.get(&format!("{PARTITION}/0")).await.expect(410).code(), "offset-out-of-range");
    assert_eq!(harness.get(&format!("{PARTITION}?offset=4")).await.expect(416).json()["high_watermark"], 3);
}

async fn cursors_out_of_range(harness: &Harness) {
    let id = harness.get("/v1/topics/read").await.expect(200).json()["id"].as_str().expect("an id").to_owned();
    let beyond = format!("{TOPIC}?from={}", cursor(&id, 100));
    assert_eq!(harness.get(&beyond).await.expect(416).code(), "offset-beyond-end");
    let other = format!("{TOPIC}?from={}", cursor("00000000-0000-4000-8000-000000000000", 0));
    assert_eq!(harness.get(&other).await.expect(410).code(), "cursor-gone");
}

/// A cursor at `offset` (below 128) of partition 0, as the server makes it.
fn cursor(topic_id: &str, offset: u8) -> String {
    let id: uuid::Uuid = topic_id.parse().expect("a UUID");
    let mut bytes = [&[1_u8][..], id.as_bytes(), &[0, offset]].concat();
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest[..4]);
    URL_SAFE_NO_PAD.encode(bytes)
}
