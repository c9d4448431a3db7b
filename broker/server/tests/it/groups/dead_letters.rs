//! Records that a member rejects.

use http::Method;
use serde_json::{Value, json};

use super::member::{Member, store_in};
use crate::harness::Harness;

const LETTERS: &str = "/v1/topics/orders.dead-letter/records";

async fn member(harness: &Harness) -> Member<'_> {
    harness.topic("orders").await;
    let record = json!({ "key": "k", "value": { "n": 1.0 }, "headers": [["trace", "abc"], ["error", "of its own"]] });
    harness.json(Method::POST, "/v1/topics/orders/records", &json!({ "records": [record] })).await.expect(200);
    store_in(harness, "orders", 0, 2).await;
    let mut member = Member::join(harness, "billing", &["orders"]).await;
    member.until(|member| member.state() == "stable").await;
    member
}

fn place(topic: &str, offset: u64) -> Value {
    json!({ "topic": topic, "partition": 0, "offset": offset })
}

#[tokio::test]
async fn a_rejected_record_is_a_dead_letter_with_its_origin_once_however_often_it_is_asked_for() {
    let harness = Harness::start(|options| options.group_initial_rebalance_delay = Default::default()).await;
    let member = member(&harness).await;
    let reject =
        json!({ "records": [place("orders", 0), place("orders", 2)], "reason": "no such customer", "attempts": 3 });
    let answer = member.reject(reject.clone()).await.expect(200).json();
    let expected = json!([place("orders.dead-letter", 0), place("orders.dead-letter", 1)]);
    assert_eq!(answer["dead_letters"], expected);
    assert_eq!(member.reject(reject).await.expect(200).json(), answer, "a retry finds what it stored");

    let letters = harness.get(LETTERS).await.expect(200).json();
    let letters = letters["records"].as_array().expect("records");
    assert_eq!(letters.len(), 2);
    assert_eq!((&letters[0]["key"], &letters[0]["value"]), (&json!("k"), &json!({ "n": 1.0 })));
    let headers = letters[0]["headers"].as_array().expect("headers");
    assert_eq!(headers[..2], [json!(["trace", "abc"]), json!(["error", "of its own"])]);
    for header in [
        json!(["error", "no such customer"]),
        json!(["original_topic", "orders"]),
        json!(["original_partition", "0"]),
        json!(["original_offset", "0"]),
        json!(["attempts", "3"]),
    ] {
        assert!(headers[2..].contains(&header), "{header} in {headers:?}");
    }
    let page = harness.get("/metrics").await.expect(200);
    let page = String::from_utf8_lossy(&page.body).into_owned();
    for line in [
        "levada_groups{state=\"stable\"} 1",
        "levada_groups{state=\"empty\"} 0",
        "levada_group_members 1",
        "levada_group_rebalances_total 1",
        "levada_dead_letters_total 2",
    ] {
        assert!(page.lines().any(|other| other == line), "{line} in {page}");
    }
    // Nothing was committed by it; the member goes on as after any other record.
    assert_eq!(harness.get("/v1/groups/billing").await.expect(200).json()["offsets"], json!([]));
    member.commit().await.expect(200);
}

#[tokio::test]
async fn only_records_that_are_there_and_held_can_be_rejected() {
    let harness = Harness::start(|options| options.group_initial_rebalance_delay = Default::default()).await;
    let member = member(&harness).await;
    harness.topic("foreign").await;
    store_in(&harness, "foreign", 0, 1).await;
    for (records, status, code, pointer) in [
        (json!([]), 422, "invalid-field", Some("/records")),
        (json!([place("orders", 0), place("orders", 3)]), 422, "invalid-offset", Some("/records/1")),
        (json!([place("orders", 1), place("orders", 1)]), 422, "invalid-field", Some("/records/1")),
        (json!([place("a b", 1)]), 422, "invalid-offset", Some("/records/0/topic")),
        (json!([place("foreign", 0)]), 409, "illegal-generation", None),
    ] {
        let answer = member.reject(json!({ "records": records, "reason": "r" })).await.expect(status);
        assert_eq!(
            (answer.code().as_str(), answer.json()["errors"][0]["pointer"].as_str()),
            (code, pointer),
            "{records}"
        );
    }
    let long = json!({ "records": [place("orders", 0)], "reason": "x".repeat(4_097) });
    assert_eq!(member.reject(long).await.expect(422).json()["errors"][0]["pointer"], "/reason");
    let stranger = Member { id: "nobody".to_owned(), ..member.clone() };
    let reject = json!({ "records": [place("orders", 0)], "reason": "r" });
    assert_eq!(stranger.reject(reject).await.expect(404).code(), "unknown-member");
    harness.get(LETTERS).await.expect(404);
}
