//! The seed exercise, literally, with every request over a connection of its own; and PC-06.

use http::Method;
use serde_json::{Value, json};

use super::member::{Member, Seen, places, settle, store, work};
use crate::harness::Harness;
use crate::produce::topic;

fn counts(members: &[Member<'_>]) -> Vec<usize> {
    let mut counts: Vec<_> = members.iter().map(|member| member.assignment().len()).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

#[tokio::test]
async fn two_three_and_five_members_share_four_partitions_and_no_record_is_lost_or_doubled() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "orders", 4, json!({})).await;
    let mut members = Vec::new();
    for _ in 0..2 {
        members.push(Member::join(&harness, "billing", &["orders"]).await);
    }
    store(&harness, "orders", 100).await;
    let seen = Seen::default();
    settle(&mut members, 4, &seen).await;
    assert_eq!(counts(&members), [2, 2]);

    members.push(Member::join(&harness, "billing", &["orders"]).await);
    settle(&mut members, 4, &seen).await;
    assert_eq!(counts(&members), [2, 1, 1]);
    while seen.count() < 100 {
        work(&mut members, &seen).await;
    }
    assert_eq!((seen.count(), seen.doubled()), (100, vec![]));

    for _ in 0..2 {
        members.push(Member::join(&harness, "billing", &["orders"]).await);
    }
    settle(&mut members, 4, &seen).await;
    assert_eq!(counts(&members), [1, 1, 1, 1, 0]);
    let states: Vec<_> = members.iter().map(Member::state).collect();
    assert_eq!(states.iter().filter(|state| **state == "idle").count(), 1, "{states:?}");
    store(&harness, "orders", 100).await;
    while seen.count() < 200 {
        work(&mut members, &seen).await;
    }
    assert_eq!((seen.count(), seen.doubled()), (200, vec![]));

    let group = harness.get("/v1/groups/billing").await.expect(200).json();
    let lags: Vec<_> =
        group["offsets"].as_array().expect("offsets").iter().map(|offset| offset["lag"].clone()).collect();
    assert_eq!((&group["state"], json!(lags)), (&json!("stable"), json!([0, 0, 0, 0])));
    assert_eq!(group["members"].as_array().map(Vec::len), Some(5));
}

/// PC-06.
#[tokio::test]
async fn the_first_poll_waits_for_the_assignment_and_the_subscription_is_readable_at_once() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    store(&harness, "t", 3).await;
    let join = json!({ "topics": ["t"], "start": "earliest" });
    let request = harness.request(Method::POST, "/v1/groups/g/members").header("user-agent", "poller/1.0").json(&join);
    let joined = harness.send(request).await.expect(201).json();
    assert_eq!((&joined["assignment"], &joined["state"]), (&json!([]), &json!("assigning")));
    let group = harness.get("/v1/groups/g").await.expect(200).json();
    let member = &group["members"][0];
    assert_eq!((&member["topics"], &member["client"]), (&json!(["t"]), &json!("poller/1.0")));
    assert_eq!(member["member_id"], joined["member_id"]);

    let path = format!("/v1/groups/g/members/{}/records", joined["member_id"].as_str().expect("an id"));
    let pending = harness.get(&path).await.expect(200).json();
    assert_eq!(
        (&pending["records"], &pending["state"]),
        (&json!([]), &json!("assigning")),
        "it says what it waits for"
    );
    let answer = harness.get(&format!("{path}?wait_ms=5000")).await.expect(200).json();
    let records = answer["records"].as_array().expect("records");
    assert_eq!(places(records), [(0, 0), (0, 1), (0, 2)]);
    assert!(records.iter().all(|record| record["topic"] == "t"));
    assert_eq!(
        (&answer["assignment"], &answer["state"]),
        (&json!([{ "topic": "t", "partition": 0 }]), &json!("stable"))
    );
    assert_eq!((&answer["revoked"], &answer["revoke_deadline_ms"]), (&json!([]), &Value::Null));
}

#[tokio::test]
async fn whatever_a_client_calls_itself_it_can_join_and_is_shown_by_its_beginning() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    for (agent, shown) in [
        (vec![b'a'; 5_000], "a".repeat(256)),
        ("é".repeat(200).into_bytes(), "é".repeat(128)),
        (b"bad \xff bytes".to_vec(), "bad \u{fffd} bytes".to_owned()),
        (Vec::new(), String::new()),
    ] {
        let request = harness.request(Method::POST, "/v1/groups/g/members").header("user-agent", agent);
        let joined = harness.send(request.json(&json!({ "topics": ["t"] }))).await.expect(201).json();
        let group = harness.get("/v1/groups/g").await.expect(200).json();
        let members = group["members"].as_array().expect("members");
        let member = members.iter().find(|member| member["member_id"] == joined["member_id"]);
        assert_eq!(member.expect("it has joined")["client"], shown);
    }
}
