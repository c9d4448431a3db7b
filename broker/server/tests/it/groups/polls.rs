//! Fetches that wait, and clients that vanish meanwhile.

use http::Method;
use serde_json::json;

use super::member::{Member, store_in};
use crate::harness::Harness;
use crate::raw::Raw;

async fn in_flight(harness: &Harness) -> u64 {
    let page = harness.get("/metrics").await;
    let page = String::from_utf8_lossy(&page.body).into_owned();
    let line = page.lines().find_map(|line| line.strip_prefix("levada_http_requests_in_flight ")).expect("it is there");
    line.parse().expect("a number")
}

#[tokio::test]
async fn a_waiting_fetch_ends_with_the_first_record_and_one_whose_client_vanished_ends_by_itself() {
    let harness = Harness::start(|options| options.group_initial_rebalance_delay = Default::default()).await;
    harness.topic("t").await;
    let mut member = Member::join(&harness, "g", &["t"]).await;
    member.until(|member| member.state() == "stable").await;
    let path = format!("/v1/groups/g/members/{}/records?wait_ms=60000&cursor={}", member.id, member.cursor);
    let mut polls = Vec::new();
    for _ in 0..20 {
        let mut poll = Raw::connect(harness.server.address()).await;
        poll.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
        polls.push(poll);
    }
    while in_flight(&harness).await < 21 {}
    let mut kept = polls.pop().expect("one of them");
    drop(polls);
    while in_flight(&harness).await > 2 {}
    store_in(&harness, "t", 0, 1).await;
    let answer = kept.answer().await.expect("an answer").expect(200);
    assert_eq!(answer.json()["records"][0]["offset"], 0);
    // Whoever vanished took nothing with it.
    assert_eq!(member.fetch("wait_ms=60000").await.len(), 1);
    member.commit().await.expect(200);
}

#[tokio::test]
async fn a_waiting_fetch_ends_when_there_is_something_to_give_up_and_when_its_member_leaves() {
    let harness = Harness::start(|options| options.group_initial_rebalance_delay = Default::default()).await;
    harness.json(Method::POST, "/v1/topics", &json!({ "name": "t", "partitions": 2 })).await.expect(201);
    let mut first = Member::join(&harness, "g", &["t"]).await;
    first.until(|member| member.assignment() == [0, 1]).await;
    let waiting = first.clone();
    let joining = async {
        let mut second = Member::join(&harness, "g", &["t"]).await;
        second.until(|member| member.state() == "stable").await;
        second
    };
    let giving_up = async {
        let told = waiting.try_fetch("wait_ms=60000").await.expect(200).json();
        assert_eq!(told["revoked"].as_array().map(Vec::len), Some(1), "{told}");
        assert!(told["revoke_deadline_ms"].as_i64().is_some_and(|at| at > 1_700_000_000_000));
        waiting.try_fetch("").await.expect(200)
    };
    let (second, _) = tokio::join!(joining, giving_up);
    assert_eq!(second.assignment().len(), 1);
    let waiting = second.clone();
    let leaving = async {
        while in_flight(&harness).await < 2 {}
        second.leave().await.expect(204);
    };
    let (answer, ()) = tokio::join!(waiting.try_fetch("wait_ms=60000"), leaving);
    assert_eq!(answer.expect(404).code(), "unknown-member");
}
