//! PC-17: members with an identity of their own.

use http::Method;
use serde_json::{Value, json};

use super::member::{Member, store_in};
use super::timed::Timed;
use crate::produce::topic;

fn words() -> Value {
    json!({ "topics": ["t"], "session_timeout_ms": 10_000, "instance_id": "pod-0/a" })
}

#[tokio::test]
async fn a_restart_within_the_session_gets_the_same_partitions_in_the_same_generation() {
    let timed = Timed::start(|_| {}).await;
    let harness = &timed.harness;
    topic(harness, "t", 4, json!({})).await;
    store_in(harness, "t", 0, 5).await;
    let mut before = Member::join_as(harness, "g", words()).await;
    let mut other = Member::join(harness, "g", &["t"]).await;
    timed.advance(500).await;
    before.until(|member| member.state() == "stable").await;
    other.until(|member| member.state() == "stable").await;
    assert_eq!((before.assignment().len(), other.assignment().len()), (2, 2));
    before.commit().await.expect(200);

    timed.advance(2_000).await;
    let mut after = Member::join_as(harness, "g", words()).await;
    assert_ne!(after.id, before.id);
    assert_eq!(after.last["generation"], before.last["generation"]);
    assert_eq!(after.last["assignment"], before.last["assignment"], "the join itself tells it");
    after.fetch("").await;
    assert_eq!((&after.last["generation"], after.assignment()), (&before.last["generation"], before.assignment()));
    assert_eq!(other.heartbeat().await.expect(200).json()["generation"], before.last["generation"]);

    // Two processes with one identity: the newer wins, the older learns of it whatever it asks.
    let mut newest = Member::join_as(harness, "g", words()).await;
    newest.fetch("").await;
    assert_eq!(newest.assignment(), before.assignment());
    for old in [&before, &after] {
        for answer in [old.heartbeat().await, old.try_fetch("").await, old.commit().await, old.leave().await] {
            assert_eq!(answer.expect(409).code(), "fenced-instance");
        }
    }
    newest.heartbeat().await.expect(200);
    let described = harness.get("/v1/groups/g").await.expect(200).json();
    let members = described["members"].as_array().expect("members");
    let known: Vec<_> = members.iter().filter(|member| member["instance_id"] == "pod-0/a").collect();
    assert_eq!((members.len(), known.len(), &known[0]["member_id"]), (2, 1, &json!(newest.id)));
}

#[tokio::test]
async fn identities_that_cannot_be_are_refused_by_their_place() {
    let timed = Timed::start(|_| {}).await;
    timed.harness.topic("t").await;
    for bad in ["", "a\u{7}", &"x".repeat(256)] {
        let join = json!({ "topics": ["t"], "instance_id": bad });
        let answer = timed.harness.json(Method::POST, "/v1/groups/g/members", &join).await.expect(422);
        assert_eq!(
            (answer.code().as_str(), &answer.json()["errors"][0]["pointer"]),
            ("invalid-field", &json!("/instance_id"))
        );
    }
}
