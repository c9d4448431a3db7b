//! Topics that come, go and grow under a group.

use http::Method;
use serde_json::json;

use super::member::{Member, store_in};
use crate::harness::Harness;

#[tokio::test]
async fn a_topic_that_is_deleted_under_a_member_is_taken_from_it_and_the_rest_goes_on() {
    let harness = Harness::start(|options| options.group_initial_rebalance_delay = Default::default()).await;
    harness.topic("gone").await;
    harness.topic("stays").await;
    store_in(&harness, "gone", 0, 2).await;
    store_in(&harness, "stays", 0, 1).await;
    let mut member = Member::join(&harness, "g", &["gone", "stays"]).await;
    member.until(|member| member.assignment().len() == 2).await;
    member.commit().await.expect(200);
    let (old, id) = (member.clone(), harness.get("/v1/topics/gone").await.expect(200).json()["id"].clone());
    harness.delete("/v1/topics/gone").await.expect(204);
    store_in(&harness, "stays", 0, 1).await;
    let records =
        member.until(|member| member.last["assignment"] == json!([{ "topic": "stays", "partition": 0 }])).await;
    assert!(records.iter().all(|record| record["topic"] == "stays"), "{records:?}");
    let answer = old.commit().await.expect(200).json();
    assert_eq!((&answer["committed"][0]["topic"], &answer["refused"][0]["topic"]), (&json!("stays"), &id), "{answer}");
    let group = harness.get("/v1/groups/g").await.expect(200).json();
    assert_eq!(group["offsets"].as_array().map(Vec::len), Some(1), "{group}");

    // Created anew it is another topic, and begins at its start.
    harness.topic("gone").await;
    store_in(&harness, "gone", 0, 1).await;
    let records = member.until(|member| member.assignment().len() == 2).await;
    assert!(records.iter().any(|record| record["topic"] == "gone" && record["offset"] == 0), "{records:?}");
}

#[tokio::test]
async fn new_partitions_are_shared_too() {
    let harness = Harness::start(|options| options.group_initial_rebalance_delay = Default::default()).await;
    harness.topic("t").await;
    let mut member = Member::join(&harness, "g", &["t"]).await;
    member.until(|member| member.assignment() == [0]).await;
    harness.json(Method::PATCH, "/v1/topics/t", &json!({ "partitions": 3 })).await.expect(200);
    member.until(|member| member.assignment() == [0, 1, 2]).await;
    store_in(&harness, "t", 2, 1).await;
    assert_eq!(member.fetch("wait_ms=60000").await[0]["partition"], 2);
}

#[tokio::test]
async fn a_join_names_the_topics_that_are_not_there() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let join = |topics: serde_json::Value| {
        let body = json!({ "topics": topics });
        let harness = &harness;
        async move { harness.json(Method::POST, "/v1/groups/g/members", &body).await }
    };
    let answer = join(json!(["t", "nowhere", "neither"])).await.expect(404);
    let places: Vec<_> =
        answer.json()["errors"].as_array().expect("places").iter().map(|e| e["pointer"].clone()).collect();
    assert_eq!((answer.code().as_str(), json!(places)), ("topic-not-found", json!(["/topics/1", "/topics/2"])));
    for (topics, pointer) in [
        (json!([]), "/topics"),
        (json!(["t", "t"]), "/topics/1"),
        (json!(["a b"]), "/topics/0"),
        (json!("t"), "/topics"),
    ] {
        let answer = join(topics).await.expect(422);
        assert_eq!(
            (answer.code().as_str(), answer.json()["errors"][0]["pointer"].as_str()),
            ("invalid-field", Some(pointer))
        );
    }
    let unknown = json!({ "topics": ["t"], "assignor": "module:fair" });
    let answer = harness.json(Method::POST, "/v1/groups/g/members", &unknown).await.expect(422).json();
    assert_eq!(answer["errors"][0]["pointer"], "/assignor");
    assert!(answer["detail"].as_str().is_some_and(|detail| detail.contains("no assignor module:fair")), "{answer}");
    harness.get("/v1/groups/g").await.expect(404);
}
