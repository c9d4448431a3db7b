//! One record alone.

use http::Method;
use serde_json::json;

use crate::harness::Harness;
use crate::produce::store;

const PATH: &str = "/v1/topics/t/partitions/0/records";

#[tokio::test]
async fn a_record_has_a_link_of_its_own() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    store(&harness, "t", &["{\"n\":1}", "2", "null"]).await;
    let record = harness.get(&format!("{PATH}/1")).await.expect(200).json();
    assert_eq!((&record["offset"], &record["value"]), (&json!(1), &json!(2)));
    let forced = harness.get(&format!("{PATH}/0?format=text")).await.expect(200).json();
    assert_eq!(forced["value_text"], "{\"n\":1}");
    for offset in ["3", "9007199254740991"] {
        assert_eq!(harness.get(&format!("{PATH}/{offset}")).await.expect(404).code(), "no-record");
    }
    for bad in ["x", "-1", "+1"] {
        assert_eq!(harness.get(&format!("{PATH}/{bad}")).await.expect(400).code(), "invalid-parameter");
    }
    for bad in ["9007199254740992", "99999999999999999999999"] {
        assert_eq!(harness.get(&format!("{PATH}/{bad}")).await.expect(422).code(), "integer-too-large");
    }
    harness.get(&format!("{PATH}/2?raw")).await.expect(204);
    let before = json!({ "offsets": [{ "partition": 0, "before": 1 }] });
    harness.json(Method::POST, "/v1/topics/t/truncate", &before).await.expect(200);
    assert_eq!(harness.get(&format!("{PATH}/0")).await.expect(410).json()["log_start_offset"], 1);
}

#[tokio::test]
async fn a_raw_value_never_runs_in_this_origin() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    for (offset, sent, told, disposition) in [
        (0, Some("text/html"), "text/html", "attachment"),
        (1, Some("image/svg+xml"), "image/svg+xml", "attachment"),
        (2, Some("Text/Plain; charset=utf-8"), "Text/Plain; charset=utf-8", ""),
        (3, Some("image/png"), "image/png", ""),
        (4, Some("nonsense"), "application/octet-stream", ""),
        (5, None, "application/octet-stream", ""),
    ] {
        let request = harness.request(Method::POST, "/v1/topics/t/raw").body("<script>");
        let request = sent.into_iter().fold(request, |request, media| request.header("content-type", media));
        harness.send(request).await.expect(200);
        let answer = harness.get(&format!("{PATH}/{offset}?raw")).await.expect(200);
        assert_eq!((answer.header("content-type"), answer.header("content-disposition")), (told, disposition));
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert!(answer.header("content-security-policy").contains("sandbox"));
        assert_eq!(answer.body, "<script>");
    }
    harness.get(&format!("{PATH}/0?raw&format=text")).await.expect(400);
    harness.get(&format!("{PATH}/0?raw=maybe")).await.expect(400);
}
