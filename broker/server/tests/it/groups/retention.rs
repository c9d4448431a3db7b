//! PC-15: how long the offsets of a group are kept. And positions that the log has left behind, PC-34 among them.

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::member::{Member, places, store_in};
use super::timed::Timed;
use crate::produce::topic;

const RETENTION: i64 = 120_000;

/// Reads what is there, commits it, and leaves.
async fn visit(timed: &Timed, group: &str) -> Vec<(u64, u64)> {
    let mut member = Member::join(&timed.harness, group, &["t"]).await;
    timed.advance(500).await;
    let records = member.until(|member| member.state() == "stable").await;
    member.commit().await.expect(200);
    member.leave().await.expect(204);
    places(&records)
}

#[tokio::test]
async fn offsets_expire_only_in_empty_groups_and_the_next_poll_says_so() {
    let timed =
        Timed::start(|options| options.offsets_retention = Duration::from_millis(RETENTION.unsigned_abs())).await;
    let harness = &timed.harness;
    harness.topic("t").await;
    store_in(harness, "t", 0, 3).await;
    assert_eq!(visit(&timed, "h").await.len(), 3);
    let mut member = Member::join(harness, "g", &["t"]).await;
    timed.advance(500).await;
    assert_eq!(member.until(|member| member.state() == "stable").await.len(), 3);
    member.commit().await.expect(200);
    // Three minutes of silence in the topic: the member of G lives, H is empty.
    let mut silence = async |minutes: u32| {
        for _ in 0..3 * minutes {
            timed.advance(20_000).await;
            assert!(member.fetch("").await.is_empty());
        }
    };
    silence(3).await;
    assert_eq!(harness.get("/v1/groups/h").await.expect(404).code(), "group-not-found");
    let mut late = Member::join(harness, "h", &["t"]).await;
    timed.advance(500).await;
    let records = late.until(|member| member.state() == "stable").await;
    assert_eq!(places(&records), [(0, 0), (0, 1), (0, 2)]);
    let reset = json!([{ "topic": "t", "partition": 0, "offset": 0, "cause": "expired" }]);
    assert_eq!(late.last["resets"], reset);
    late.fetch("").await;
    assert_eq!(late.last.get("resets"), None, "it is said once");

    // Two minutes more.
    silence(2).await;
    member.leave().await.expect(204);
    store_in(harness, "t", 0, 1).await;
    assert_eq!(visit(&timed, "g").await, [(0, 3)], "it goes on at its commit");
}

#[tokio::test]
async fn a_commit_that_the_log_start_has_passed_goes_on_there_and_says_so() {
    let timed = Timed::start(|_| {}).await;
    let harness = &timed.harness;
    harness.topic("t").await;
    store_in(harness, "t", 0, 3).await;
    visit(&timed, "g").await;
    store_in(harness, "t", 0, 7).await;
    let before = json!({ "offsets": [{ "partition": 0, "before": 8 }] });
    harness.json(Method::POST, "/v1/topics/t/truncate", &before).await.expect(200);
    let mut member = Member::join(harness, "g", &["t"]).await;
    timed.advance(500).await;
    let records = member.until(|member| member.state() == "stable").await;
    assert_eq!(places(&records), [(0, 8), (0, 9)]);
    let reset = json!([{ "topic": "t", "partition": 0, "offset": 8, "cause": "below-start" }]);
    assert_eq!(member.last["resets"], reset);
    let gap = json!([{ "topic": "t", "partition": 0, "from": 3, "to": 8, "cause": "removed" }]);
    assert_eq!(member.last["gaps"], gap);
}

/// PC-34 over HTTP.
#[tokio::test]
async fn a_commit_in_a_hole_that_compaction_left_goes_on_at_the_first_survivor() {
    let timed = Timed::start(|_| {}).await;
    let harness = &timed.harness;
    topic(harness, "t", 1, json!({ "cleanup.policy": "compact" })).await;
    let store = |key: String| async move {
        let record = json!({ "records": [{ "key": key, "value": key }] });
        harness.json(Method::POST, "/v1/topics/t/records", &record).await.expect(200);
    };
    for key in "abcdabcabc".chars() {
        store(key.to_string()).await;
    }
    harness.send(harness.request(Method::POST, "/v1/topics/t/compact")).await.expect(200);
    store("e".to_owned()).await;
    let commit = json!({ "offsets": [{ "topic": "t", "partition": 0, "offset": 4 }] });
    harness.json(Method::PUT, "/v1/groups/g/offsets", &commit).await.expect(200);
    let mut member = Member::join(harness, "g", &["t"]).await;
    timed.advance(500).await;
    let records = member.until(|member| member.state() == "stable").await;
    assert_eq!(places(&records), [(0, 7), (0, 8), (0, 9), (0, 10)]);
    assert_eq!((member.last.get("gaps"), member.last.get("resets")), (None, None), "a hole is no loss");
    member.commit().await.expect(200);
    let lag = |group: serde_json::Value| (group["offsets"][0]["committed"].clone(), group["offsets"][0]["lag"].clone());
    assert_eq!(lag(harness.get("/v1/groups/g").await.expect(200).json()), (json!(11), json!(0)));

    // A committed position inside a hole is fine, and so is one at the end of a segment that was emptied whole.
    let inside = json!({ "offsets": [{ "topic": "t", "partition": 0, "offset": 5 }] });
    member.commit_as(inside).await.expect(200);
    member.cursor.clear();
    assert_eq!(places(&member.fetch("max_records=1").await), [(0, 7)]);
    for key in ["a", "b", "c", "e"] {
        store(key.to_owned()).await;
    }
    harness.send(harness.request(Method::POST, "/v1/topics/t/compact")).await.expect(200);
    let rest = member.fetch("").await;
    assert_eq!(places(&rest), [(0, 11), (0, 12), (0, 13), (0, 14)]);
    member.commit().await.expect(200);
    assert_eq!(lag(harness.get("/v1/groups/g").await.expect(200).json()), (json!(15), json!(0)));
}
