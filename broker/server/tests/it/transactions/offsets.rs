//! Offsets of groups in transactions.

use http::Method;
use serde_json::{Value, json};

use super::{add_offsets, begin, end, group_offsets, init, standing, transaction};
use crate::groups::member::{Member, store};
use crate::harness::Harness;
use crate::produce::topic;

async fn with_records(harness: &Harness) {
    harness.topic("in").await;
    store(harness, "in", 10).await;
}

#[tokio::test]
async fn offsets_are_pending_until_the_end_and_count_only_with_a_commit() {
    let harness = Harness::start(|_| {}).await;
    with_records(&harness).await;
    let producer = init(&harness, "p").await;
    let aborted = begin(&harness, &producer).await;
    let offsets = group_offsets("g", "in", 3);
    let answer = add_offsets(&harness, &aborted, &offsets).await.expect(200).json();
    assert_eq!(answer["pending"], offsets["offsets"]);
    assert_eq!(standing(&harness, "g").await, None);
    let producer = end(&harness, &aborted, "abort").await.expect(200).json();
    assert_eq!(standing(&harness, "g").await, None);

    let committed = begin(&harness, &producer).await;
    add_offsets(&harness, &committed, &offsets).await.expect(200);
    add_offsets(&harness, &committed, &group_offsets("g", "in", 5)).await.expect(200);
    assert_eq!(standing(&harness, "g").await, None);
    let producer = end(&harness, &committed, "commit").await.expect(200).json();
    assert_eq!(standing(&harness, "g").await, Some(5), "the later offset of the two");

    let open = begin(&harness, &producer).await;
    add_offsets(&harness, &open, &group_offsets("g", "in", 9)).await.expect(200);
    assert_eq!(standing(&harness, "g").await, Some(5), "the last stable one meanwhile");
    let harness = harness.restart(|_| {}).await;
    assert_eq!(standing(&harness, "g").await, Some(5));
    end(&harness, &open, "commit").await.expect(200);
    assert_eq!(standing(&harness, "g").await, Some(9));
}

#[tokio::test]
async fn a_member_is_judged_as_in_its_own_commit() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "in", 2, json!({})).await;
    store(&harness, "in", 10).await;
    let mut member = Member::join(&harness, "g", &["in"]).await;
    member.until(|member| member.assignment().len() == 2).await;
    let transaction = transaction(&harness, "p").await;
    let mut offsets = group_offsets("g", "in", 1);

    let nobody = add_offsets(&harness, &transaction, &offsets).await.expect(409);
    assert_eq!(nobody.code(), "group-not-empty", "the group has members, and none is named");
    for stranger in ["nobody", "no member", ""] {
        offsets["member_id"] = json!(stranger);
        let refused = add_offsets(&harness, &transaction, &offsets).await.expect(404);
        assert_eq!(
            (refused.code().as_str(), &refused.json()["errors"][0]["pointer"]),
            ("unknown-member", &json!("/member_id"))
        );
    }
    offsets["member_id"] = json!(member.id);
    add_offsets(&harness, &transaction, &offsets).await.expect(200);
    let mut others = group_offsets("g", "in", 1);
    harness.topic("other").await;
    others["offsets"][0] = json!({ "topic": "other", "partition": 0, "offset": 0 });
    others["member_id"] = json!(member.id);
    let refused = add_offsets(&harness, &transaction, &others).await.expect(409);
    assert_eq!(
        (refused.code().as_str(), &refused.json()["refused"][0]["topic"]),
        ("illegal-generation", &json!("other"))
    );
    assert_eq!(standing(&harness, "g").await, None);
    end(&harness, &transaction, "commit").await.expect(200);
    assert_eq!(standing(&harness, "g").await, Some(1));
}

#[tokio::test]
async fn what_is_wrong_is_refused_with_its_place_and_nothing_is_taken() {
    let harness = Harness::start(|_| {}).await;
    with_records(&harness).await;
    let transaction = transaction(&harness, "p").await;
    let place =
        |topic: &str, partition: u64, offset: u64| json!({ "topic": topic, "partition": partition, "offset": offset });
    let of = |offsets: Value| json!({ "group": "g", "offsets": offsets });
    let well = place("in", 0, 1);
    for (body, status, code, pointer) in [
        (of(json!([well, place("nowhere", 0, 0)])), 422, "invalid-offset", "/offsets/1"),
        (of(json!([place("in", 7, 0)])), 422, "invalid-offset", "/offsets/0"),
        (of(json!([place("in", 0, 11)])), 422, "invalid-offset", "/offsets/0"),
        (of(json!([place("a b", 0, 0)])), 422, "invalid-offset", "/offsets/0/topic"),
        (of(json!([well, well])), 422, "invalid-field", "/offsets/1/partition"),
        (of(json!([{ "topic": "in", "partition": 0 }])), 422, "invalid-field", "/offsets/0"),
        (of(json!([{ "topic": "in", "partition": 0, "offset": -1 }])), 422, "invalid-field", "/offsets/0/offset"),
        (
            of(json!([{ "topic": "in", "partition": 0, "offset": 9_007_199_254_740_992_u64 }])),
            422,
            "invalid-field",
            "/offsets/0/offset",
        ),
        (
            of(json!([{ "topic": "in", "partition": 4_294_967_296_u64, "offset": 0 }])),
            422,
            "invalid-field",
            "/offsets/0/partition",
        ),
        (
            of(json!([{ "topic": "in", "partition": 0, "offset": 1, "metadata": "" }])),
            422,
            "invalid-field",
            "/offsets/0/metadata",
        ),
        (of(json!({})), 422, "invalid-field", "/offsets"),
        (json!({ "group": "g" }), 422, "invalid-field", ""),
        (json!({ "offsets": [well] }), 422, "invalid-field", ""),
        (json!({ "group": "a b", "offsets": [well] }), 400, "invalid-group-name", "/group"),
        (json!({ "group": "", "offsets": [well] }), 400, "invalid-group-name", "/group"),
        (json!({ "group": 7, "offsets": [well] }), 422, "invalid-field", "/group"),
        (json!({ "group": "g", "member_id": 7, "offsets": [well] }), 422, "invalid-field", "/member_id"),
        (json!({ "group": "g", "offsets": [well], "generation": 1 }), 422, "invalid-field", "/generation"),
    ] {
        let refused = add_offsets(&harness, &transaction, &body).await.expect(status);
        assert_eq!(refused.code(), code, "{body}");
        let found = refused.json()["errors"][0]["pointer"].as_str().expect("a pointer").to_owned();
        assert!(found == pointer || (code == "invalid-offset" && found.starts_with(pointer)), "{body}: {found}");
    }
    let path = format!("/v1/transactions/{transaction}/offsets");
    harness.body(Method::POST, &path, "application/json", "{").await.expect(400);
    harness.body(Method::POST, &path, "text/plain", "{}").await.expect(415);
    end(&harness, &transaction, "commit").await.expect(200);
    assert_eq!(standing(&harness, "g").await, None);
}

#[tokio::test]
async fn several_groups_are_committed_with_one_transaction() {
    let harness = Harness::start(|_| {}).await;
    with_records(&harness).await;
    let transaction = transaction(&harness, "p").await;
    for (group, offset) in [("a", 1), ("b", 2), ("c", 3)] {
        add_offsets(&harness, &transaction, &group_offsets(group, "in", offset)).await.expect(200);
    }
    let list = harness.get("/v1/transactions").await.expect(200).json();
    assert_eq!(list["transactions"][0]["groups"], json!(["a", "b", "c"]));
    end(&harness, &transaction, "commit").await.expect(200);
    for (group, offset) in [("a", 1), ("b", 2), ("c", 3)] {
        assert_eq!(standing(&harness, group).await, Some(offset));
    }
}
