//! PC-13: a member works long on a batch while others join.

use http::Method;
use serde_json::{Value, json};

use super::member::{Member, store_in};
use super::timed::Timed;
use crate::produce::topic;

const SESSION: i64 = 6_000;

fn join() -> Value {
    json!({ "topics": ["t"], "session_timeout_ms": SESSION, "rebalance_timeout_ms": 30_000 })
}

async fn alive(members: &[&Member<'_>]) {
    for member in members {
        member.heartbeat().await.expect(200);
    }
}

/// A holds both partitions and has a batch of each; B and C have joined. Five seconds have passed since A's fetch.
async fn begin(timed: &Timed) -> [Member<'_>; 3] {
    let harness = &timed.harness;
    topic(harness, "t", 2, json!({})).await;
    store_in(harness, "t", 0, 500).await;
    store_in(harness, "t", 1, 500).await;
    let mut a = Member::join_as(harness, "g", join()).await;
    timed.advance(500).await;
    a.until(|a| a.assignment() == [0, 1]).await;
    a.fetch("max_records=500").await;
    for _ in 0..2 {
        timed.advance(2_500).await;
        alive(&[&a]).await;
    }
    let b = Member::join_as(harness, "g", join()).await;
    let c = Member::join_as(harness, "g", join()).await;
    timed.advance(200).await;
    [a, b, c]
}

/// The heartbeats of A until it is told to give something up.
async fn told(a: &Member<'_>) -> Value {
    loop {
        let told = a.heartbeat().await.expect(200).json();
        if told["revoked"] != json!([]) {
            return told;
        }
    }
}

#[tokio::test]
async fn heartbeats_keep_members_alive_in_a_rebalance_and_a_long_worker_is_told_when_to_give_up() {
    let timed = Timed::start(|_| {}).await;
    let [mut a, mut b, c] = begin(&timed).await;
    let first = told(&a).await;
    let now = 1_700_000_000_000_i64 + 500 + 5_000 + 200;
    let deadline = first["revoke_deadline_ms"].as_i64().expect("a deadline");
    assert!((now..=now + 30_000).contains(&deadline), "{deadline}");
    let revoked = first["revoked"][0]["partition"].clone();
    // Fifteen seconds more of work: nobody is removed, and nothing is taken early.
    for _ in 0..7 {
        timed.advance(2_000).await;
        alive(&[&a, &b, &c]).await;
    }
    let during = timed.harness.get("/v1/groups/g").await.expect(200).json();
    assert_eq!((&during["state"], during["members"].as_array().map(Vec::len)), (&json!("reconciling"), Some(3)));
    let committed = a.commit().await.expect(200).json();
    assert_eq!((committed["committed"].as_array().map(Vec::len), &committed["refused"]), (Some(2), &json!([])));
    a.fetch("max_records=1").await;
    assert_eq!((a.assignment().len(), a.revoked()), (1, vec![]));

    // What A gave up begins at B or C, behind A's commit.
    store_in(&timed.harness, "t", 0, 1).await;
    store_in(&timed.harness, "t", 1, 1).await;
    let got = loop {
        let got = b.fetch("max_records=1&wait_ms=50").await;
        if b.state() != "reconciling" {
            break got;
        }
    };
    let after = timed.harness.get("/v1/groups/g").await.expect(200).json();
    assert_eq!((&after["state"], &after["members"][0]["revoked"]), (&json!("stable"), &json!([])));
    assert!(after["generation"].as_u64().expect("a number") <= 3, "{after}");
    if b.state() == "stable" {
        let committed = &after["offsets"][usize::try_from(revoked.as_u64().expect("a number")).expect("small")];
        assert_eq!((&got[0]["partition"], &got[0]["offset"]), (&revoked, &committed["committed"]));
    }
    // C only sends heartbeats, and is a member still.
    c.heartbeat().await.expect(200);
}

#[tokio::test]
async fn who_misses_the_deadline_loses_that_partition_and_nothing_else() {
    let timed = Timed::start(|_| {}).await;
    let [mut a, b, c] = begin(&timed).await;
    let revoked = told(&a).await["revoked"][0]["partition"].clone();
    for _ in 0..16 {
        timed.advance(2_000).await;
        alive(&[&a, &b, &c]).await;
    }
    while a.heartbeat().await.expect(200).json()["revoked"] != json!([]) {}
    let committed = a.commit().await.expect(200).json();
    assert_eq!(committed["refused"][0]["partition"], revoked, "{committed}");
    assert_eq!(committed["committed"].as_array().map(Vec::len), Some(1), "{committed}");
    let only = json!({ "offsets": [{ "topic": "t", "partition": revoked, "offset": 1 }] });
    let refused = a.commit_as(only).await.expect(409);
    assert_eq!(refused.code(), "illegal-generation");
    assert_eq!(refused.json()["refused"][0]["partition"], revoked);
    a.fetch("max_records=1").await;
    assert_eq!(a.assignment().len(), 1);
    alive(&[&a, &b, &c]).await;
}

#[tokio::test]
async fn silence_beyond_the_session_and_heartbeats_alone_beyond_the_poll_interval_remove_a_member() {
    let timed = Timed::start(|_| {}).await;
    let harness = &timed.harness;
    harness.topic("t").await;
    let silent = Member::join_as(harness, "g", join()).await;
    let mut words = join();
    words["max_poll_interval_ms"] = json!(9_000);
    let idler = Member::join_as(harness, "g", words).await;
    for _ in 0..4 {
        timed.advance(2_000).await;
        idler.heartbeat().await.expect(200);
    }
    let gone = loop {
        let answer = silent.heartbeat().await;
        // An answer of 200 would be a sign of life, so it must not come after the session's end.
        if answer.status != 200 {
            break answer;
        }
        timed.advance(SESSION + 1).await;
    };
    assert_eq!((gone.status.as_u16(), gone.code().as_str()), (404, "unknown-member"));
    assert!(gone.json()["detail"].as_str().is_some_and(|detail| detail.contains("join again")));
    timed.advance(2_000).await;
    while idler.heartbeat().await.status != 404 {}
    let group = harness.get("/v1/groups/g").await;
    assert!(group.status == 404 || group.json()["members"] == json!([]));
    harness.send(harness.request(Method::GET, "/v1/groups")).await.expect(200);
}
