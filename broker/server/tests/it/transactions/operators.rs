//! What operators see and do, and transactions that nobody ends.

use http::Method;
use serde_json::{Value, json};

use super::{add_offsets, begin, committed, end, group_offsets, standing, store_in, transaction, try_begin};
use crate::groups::timed::Timed;
use crate::harness::Harness;
use crate::produce::{store, topic};

#[tokio::test]
async fn what_is_open_is_listed_by_transactional_id_with_all_that_an_operator_needs() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 2, json!({})).await;
    assert_eq!(
        harness.get("/v1/transactions").await.expect(200).json(),
        json!({ "transactions": [], "next_cursor": null })
    );
    let body = json!({ "transactional_id": "b/1 é", "timeout_ms": 45_000 });
    let producer = harness.json(Method::POST, "/v1/producers", &body).await.expect(200).json();
    let open = begin(&harness, &producer).await;
    store_in(&harness, &open, "t", &[json!(1)]).await;
    add_offsets(&harness, &open, &group_offsets("g", "t", 0)).await.expect(200);
    let other = transaction(&harness, "a").await;
    let list = harness.get("/v1/transactions").await.expect(200).json();
    assert_eq!(list["transactions"].as_array().map(Vec::len), Some(2));
    let empty = &list["transactions"][0];
    assert_eq!(
        (&empty["transactional_id"], &empty["transaction"], &empty["partitions"]),
        (&json!("a"), &json!(other), &json!([]))
    );
    let mut told = list["transactions"][1].clone();
    assert!(told["started_at"].as_i64().is_some_and(|at| at > 1_700_000_000_000));
    told["started_at"] = json!(0);
    let expected = json!({
        "transactional_id": "b/1 é", "transaction": open, "producer_id": producer["producer_id"],
        "producer_epoch": producer["producer_epoch"], "state": "ongoing", "started_at": 0, "timeout_ms": 45_000,
        "partitions": [{ "topic": "t", "partition": 0 }], "groups": ["g"], "unfinished": null,
    });
    assert_eq!(told, expected);
    end(&harness, &open, "commit").await.expect(200);
    end(&harness, &other, "abort").await.expect(200);
    assert_eq!(harness.get("/v1/transactions").await.expect(200).json()["transactions"], json!([]));
}

#[tokio::test]
async fn the_list_comes_in_pages() {
    let harness = Harness::start(|_| {}).await;
    let ids: Vec<_> = (0..7).map(|n| format!("p{n}")).collect();
    for id in &ids {
        transaction(&harness, id).await;
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = harness.get(&format!("/v1/transactions?limit=3{cursor}")).await.expect(200).json();
        let open = page["transactions"].as_array().expect("a list");
        assert!(open.len() <= 3);
        seen.extend(open.iter().map(|open| open["transactional_id"].as_str().expect("text").to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    assert_eq!(harness.get("/v1/transactions?cursor=%3F").await.expect(400).code(), "invalid-cursor");
    assert_eq!(harness.get("/v1/transactions?limit=0").await.expect(400).code(), "invalid-parameter");
    harness.get("/v1/transactions?limit=999999999").await.expect(200);
}

#[tokio::test]
async fn an_operator_aborts_by_the_listed_id_and_the_producer_goes_on() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let open = transaction(&harness, "p").await;
    store_in(&harness, &open, "t", &[json!("stuck")]).await;
    store(&harness, "t", &["\"behind\""]).await;
    assert_eq!(committed(&harness, "t").await, [] as [Value; 0], "it is held up");
    let listed = harness.get("/v1/transactions").await.expect(200).json()["transactions"][0]["transaction"].clone();
    let answer = end(&harness, listed.as_str().expect("an id"), "abort").await.expect(200).json();
    assert_eq!(committed(&harness, "t").await, [json!("behind")]);
    assert_eq!(end(&harness, &open, "abort").await.expect(200).json(), answer, "again, by whomever");

    assert_eq!(end(&harness, &open, "commit").await.expect(409).code(), "transaction-ended");
    let next = end(&harness, &open, "abort").await.expect(200).json();
    let second = begin(&harness, &next).await;
    store_in(&harness, &second, "t", &[json!("second")]).await;
    end(&harness, &second, "commit").await.expect(200);
    assert_eq!(committed(&harness, "t").await, ["behind", "second"].map(Value::from));
    assert_eq!(
        end(&harness, &second, "abort").await.expect(409).code(),
        "transaction-ended",
        "nothing undoes a commit"
    );
}

#[tokio::test]
async fn how_transactions_go_is_told_to_prometheus() {
    let timed = Timed::start(|_| {}).await;
    let harness = &timed.harness;
    harness.topic("t").await;
    for how in ["commit", "abort", "commit"] {
        let transaction = transaction(harness, how).await;
        store_in(harness, &transaction, "t", &[json!(1)]).await;
        end(harness, &transaction, how).await.expect(200);
    }
    for id in ["left", "open", "open too"] {
        let transaction = transaction(harness, id).await;
        store_in(harness, &transaction, "t", &[json!(1)]).await;
        if id == "left" {
            timed.advance(60_000).await;
        }
    }
    let told = async |line: &str| {
        let page = harness.get("/metrics").await.expect(200);
        String::from_utf8_lossy(&page.body).lines().any(|told| told == line)
    };
    for line in [
        "levada_transactions_timed_out_total 1",
        "levada_transactions_begun_total 6",
        "levada_transactions_committed_total 2",
        "levada_transactions_aborted_total 2",
        "levada_transactions_open 2",
    ] {
        crate::ws::client::eventually(async || told(line).await).await;
    }
}

/// PC-39 (2), and what the producer hears.
#[tokio::test]
async fn pc_39_a_transaction_that_nobody_ends_is_aborted_by_the_servers_clock() {
    let timed = Timed::start(|_| {}).await;
    let harness = &timed.harness;
    harness.topic("t").await;
    store(harness, "t", &["1", "2"]).await;
    let base = json!({ "offsets": [{ "topic": "t", "partition": 0, "offset": 1 }] });
    harness.json(Method::PUT, "/v1/groups/g/offsets", &base).await.expect(200);
    let body = json!({ "transactional_id": "p", "timeout_ms": 10_000 });
    let producer = harness.json(Method::POST, "/v1/producers", &body).await.expect(200).json();
    let open = begin(harness, &producer).await;
    store_in(harness, &open, "t", &[json!("lost")]).await;
    add_offsets(harness, &open, &group_offsets("g", "t", 2)).await.expect(200);
    timed.advance(9_000).await;
    assert_eq!(
        harness.get("/v1/transactions").await.expect(200).json()["transactions"].as_array().map(Vec::len),
        Some(1)
    );
    // Another producer does not wait for it, and neither does the group.
    let other = transaction(harness, "q").await;
    end(harness, &other, "commit").await.expect(200);
    assert_eq!(standing(harness, "g").await, Some(1));

    timed.advance(6_000).await;
    let is_over = async || harness.get("/v1/transactions").await.expect(200).json()["transactions"] == json!([]);
    crate::ws::client::eventually(is_over).await;
    assert_eq!(committed(harness, "t").await, [json!(1), json!(2)]);
    assert_eq!(standing(harness, "g").await, Some(1));
    assert_eq!(end(harness, &open, "commit").await.expect(409).code(), "transaction-ended");
    let late = super::producing(harness, &open, "t", json!([{ "value": "late", "partition": 0 }]));
    assert_eq!(harness.send(late).await.expect(409).code(), "transaction-ended");
    let next = end(harness, &open, "abort").await.expect(200).json();
    assert_eq!(try_begin(harness, &producer).await.expect(403).code(), "producer-fenced");
    begin(harness, &next).await;
}

/// PC-39 (1), as far as a restart goes: the outcome stands, and the id starts again.
#[tokio::test]
async fn pc_39_after_a_restart_nothing_is_stuck() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let open = transaction(&harness, "p").await;
    store_in(&harness, &open, "t", &[json!("lost")]).await;
    let harness = harness.restart(|_| {}).await;
    let listed = harness.get("/v1/transactions").await.expect(200).json();
    assert_eq!(listed["transactions"][0]["transaction"], json!(open));
    let again = transaction(&harness, "p").await;
    store_in(&harness, &again, "t", &[json!("kept")]).await;
    end(&harness, &again, "commit").await.expect(200);
    assert_eq!(committed(&harness, "t").await, [json!("kept")]);
    assert_eq!(end(&harness, &open, "commit").await.expect(403).code(), "producer-fenced");
}
