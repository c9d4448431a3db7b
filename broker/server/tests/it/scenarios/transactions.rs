//! Every call on transactions that the document lists, and each way to be refused.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::groups::member::Member;
use crate::harness::Harness;
use crate::transactions::{add_offsets, begin, end, group_offsets, init, producing, store_in, transaction, try_begin};

const EXECUTE: &str = "/v1/transactions/execute";

/// Runs the scenario.
pub(crate) async fn run(harness: &Harness) {
    harness.topic("ledger").await;
    ends_are_answered_and_refused(harness).await;
    offsets_are_taken_and_refused(harness).await;
    whole_ones_are_done_and_refused(harness).await;
    zombies_are_refused(harness).await;
    while_one_is_being_ended(harness).await;
    assert_eq!(harness.get("/v1/transactions?cursor=%3F").await.expect(400).code(), "invalid-cursor");
    let unknown = json!({ "producer_id": 9_007_199_254_740_991_u64, "producer_epoch": 0 });
    assert_eq!(try_begin(harness, &unknown).await.expect(422).code(), "unknown-producer");
}

async fn ends_are_answered_and_refused(harness: &Harness) {
    for (how, other) in [("commit", "abort"), ("abort", "commit")] {
        let open = transaction(harness, "clerk").await;
        store_in(harness, &open, "ledger", &[json!(how)]).await;
        harness.get("/v1/transactions").await.expect(200);
        end(harness, &open, how).await.expect(200);
        assert_eq!(end(harness, &open, other).await.expect(409).code(), "transaction-ended");
        assert_eq!(end(harness, "0-9999999-0", how).await.expect(404).code(), "transaction-not-found");
        let late = producing(harness, &open, "ledger", json!([{ "value": 1, "partition": 0 }]));
        assert_eq!(harness.send(late).await.expect(409).code(), "transaction-ended");
    }
}

async fn offsets_are_taken_and_refused(harness: &Harness) {
    let open = transaction(harness, "clerk").await;
    add_offsets(harness, &open, &group_offsets("readers", "ledger", 1)).await.expect(200);
    let beyond = add_offsets(harness, &open, &group_offsets("readers", "ledger", 99)).await.expect(422);
    assert_eq!(beyond.code(), "invalid-offset");
    let unknown = add_offsets(harness, "0-9999999-0", &group_offsets("readers", "ledger", 1)).await.expect(404);
    assert_eq!(unknown.code(), "transaction-not-found");
    end(harness, &open, "commit").await.expect(200);
    let late = add_offsets(harness, &open, &group_offsets("readers", "ledger", 1)).await.expect(409);
    assert_eq!(late.code(), "transaction-ended");
}

async fn whole_ones_are_done_and_refused(harness: &Harness) {
    let whole =
        |topic: &str, offsets: Value| json!({ "records": [{ "topic": topic, "value": 1 }], "group_offsets": offsets });
    let body = whole("ledger", group_offsets("readers", "ledger", 1));
    for replayed in ["", "true"] {
        let request = harness.request(Method::POST, EXECUTE).header("idempotency-key", "whole").json(&body);
        assert_eq!(harness.send(request).await.expect(200).header("idempotent-replayed"), replayed);
    }
    harness.json(Method::POST, EXECUTE, &whole("__consumer_offsets", Value::Null)).await.expect(403);
    harness.json(Method::POST, EXECUTE, &json!({})).await.expect(422);
    harness.json(Method::POST, EXECUTE, &whole("a b", Value::Null)).await.expect(400);
    let mut strangers = group_offsets("readers", "ledger", 1);
    strangers["member_id"] = json!("nobody");
    assert_eq!(
        harness.json(Method::POST, EXECUTE, &whole("ledger", strangers)).await.expect(404).code(),
        "unknown-member"
    );
    let member = Member::join(harness, "active", &["ledger"]).await;
    let beside = whole("ledger", group_offsets("active", "ledger", 1));
    assert_eq!(harness.json(Method::POST, EXECUTE, &beside).await.expect(409).code(), "group-not-empty");
    member.leave().await.expect(204);
}

async fn zombies_are_refused(harness: &Harness) {
    let old = init(harness, "clerk").await;
    let zombie = begin(harness, &old).await;
    init(harness, "clerk").await;
    let late = producing(harness, &zombie, "ledger", json!([{ "value": 1, "partition": 0 }]));
    for refused in [
        try_begin(harness, &old).await,
        harness.send(late).await,
        add_offsets(harness, &zombie, &group_offsets("readers", "ledger", 1)).await,
        end(harness, &zombie, "commit").await,
        end(harness, &zombie, "abort").await,
    ] {
        assert_eq!(refused.expect(403).code(), "producer-fenced");
    }
}

/// Where partitions wait for company, the end of a transaction takes long enough to ask in the middle of it.
pub(crate) async fn while_one_is_being_ended(harness: &Harness) {
    let slow =
        Harness::start_under(Arc::clone(&harness.contract), |options| options.linger = Duration::from_millis(500))
            .await;
    slow.topic("ledger").await;
    let producer = init(&slow, "clerk").await;
    let open = begin(&slow, &producer).await;
    store_in(&slow, &open, "ledger", &[json!(1)]).await;
    let asking = async {
        loop {
            let answer = try_begin(&slow, &producer).await;
            // It comes before the end.
            if answer.status != 201 {
                break answer;
            }
        }
    };
    let (ended, refused) = tokio::join!(end(&slow, &open, "commit"), asking);
    let refused = refused.expect(409);
    assert_eq!((refused.code().as_str(), &refused.json()["retryable"]), ("concurrent-transactions", &json!(true)));
    begin(&slow, &ended.expect(200).json()).await;
}
