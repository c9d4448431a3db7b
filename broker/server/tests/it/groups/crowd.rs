//! Many members at once.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::Harness;

const MEMBERS: usize = 1_000;
const AT_ONCE: usize = 50;

/// Joins, and reads until it holds what it shall; its partitions.
async fn member(harness: &Harness) -> Vec<u64> {
    let join = json!({ "topics": ["t"] });
    let joined = harness.json(Method::POST, "/v1/groups/crowd/members", &join).await.expect(201).json();
    let path = format!("/v1/groups/crowd/members/{}/records", joined["member_id"].as_str().expect("an id"));
    let mut cursor = String::new();
    loop {
        let answer = harness.get(&format!("{path}?wait_ms=1000&cursor={cursor}")).await.expect(200).json();
        cursor = answer["cursor"].as_str().expect("a cursor").to_owned();
        let is_settled =
            answer["state"] == "stable" && answer["assignment"].as_array().is_some_and(|held| held.len() == 1);
        if is_settled {
            return super::member::partitions(&answer["assignment"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_members_that_join_at_once_are_all_assigned() {
    let harness = Arc::new(Harness::start(|_| {}).await);
    let topic = json!({ "name": "t", "partitions": MEMBERS });
    harness.json(Method::POST, "/v1/topics", &topic).await.expect(201);
    let mut members = JoinSet::new();
    for _ in 0..MEMBERS {
        let harness = Arc::clone(&harness);
        members.spawn(async move { member(&harness).await });
    }
    let mut held: Vec<u64> = members.join_all().await.concat();
    held.sort_unstable();
    assert!(held.iter().copied().eq(0..MEMBERS as u64), "each partition has one owner: {held:?}");
    let group = harness.get("/v1/groups/crowd").await.expect(200).json();
    assert_eq!((&group["state"], group["members"].as_array().map(Vec::len)), (&json!("stable"), Some(MEMBERS)));
}

#[tokio::test]
async fn groups_are_listed_page_by_page_by_name() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    for n in 0..AT_ONCE {
        let join = json!({ "topics": ["t"] });
        harness.json(Method::POST, &format!("/v1/groups/g{n:02}/members"), &join).await.expect(201);
    }
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = harness.get(&format!("/v1/groups?limit=7{cursor}")).await.expect(200).json();
        let groups = page["groups"].as_array().expect("groups");
        assert!(groups.iter().all(|group| group["members"] == 1 && group["state"] != "empty"));
        names.extend(groups.iter().map(|group| group["group"].as_str().expect("a name").to_owned()));
        match &page["next_cursor"] {
            Value::String(next) => cursor = format!("&cursor={next}"),
            _ => break,
        }
    }
    assert!(names.is_sorted() && names.len() == AT_ONCE, "{names:?}");
}
