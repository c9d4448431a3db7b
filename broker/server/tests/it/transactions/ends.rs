//! How transactions begin and end, and what is refused on the way.

use http::Method;
use serde_json::{Value, json};

use super::{add_offsets, begin, committed, end, group_offsets, init, producing, store_in, transaction, try_begin};
use crate::harness::Harness;

#[tokio::test]
async fn a_commit_is_answered_once_it_can_be_read_and_gives_the_epoch_of_the_next() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut producer = init(&harness, "billing-1").await;
    for round in 0..3_i64 {
        let transaction = begin(&harness, &producer).await;
        store_in(&harness, &transaction, "t", &[json!(round)]).await;
        assert_eq!(committed(&harness, "t").await.len() as i64, round, "nothing is seen before the end");
        let next = end(&harness, &transaction, "commit").await.expect(200).json();
        assert_eq!(committed(&harness, "t").await.last(), Some(&json!(round)), "seen with the answer");
        assert_eq!(next["producer_id"], producer["producer_id"]);
        assert!(next["producer_epoch"].as_i64() > producer["producer_epoch"].as_i64(), "{next}");
        producer = next;
    }
}

#[tokio::test]
async fn an_abort_leaves_nothing_to_read_and_the_producer_goes_on() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let transaction = transaction(&harness, "p").await;
    store_in(&harness, &transaction, "t", &[json!("gone"), json!("gone too")]).await;
    let next = end(&harness, &transaction, "abort").await.expect(200).json();
    assert_eq!(committed(&harness, "t").await, [] as [Value; 0]);
    let transaction = begin(&harness, &next).await;
    store_in(&harness, &transaction, "t", &[json!("kept")]).await;
    end(&harness, &transaction, "commit").await.expect(200);
    assert_eq!(committed(&harness, "t").await, [json!("kept")]);
}

#[tokio::test]
async fn the_same_end_again_answers_the_same_and_the_other_is_refused() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut producer = init(&harness, "p").await;
    for (how, other) in [("commit", "abort"), ("abort", "commit")] {
        let transaction = begin(&harness, &producer).await;
        store_in(&harness, &transaction, "t", &[json!(how)]).await;
        let first = end(&harness, &transaction, how).await.expect(200).json();
        assert_eq!(end(&harness, &transaction, how).await.expect(200).json(), first);
        let refused = end(&harness, &transaction, other).await.expect(409);
        assert_eq!((refused.code().as_str(), &refused.json()["retryable"]), ("transaction-ended", &json!(false)));
        assert_eq!(end(&harness, &transaction, how).await.expect(200).json(), first, "whatever was tried");
        producer = first;
    }
    assert_eq!(committed(&harness, "t").await, [json!("commit")]);
}

#[tokio::test]
async fn an_end_that_was_answered_is_answered_the_same_after_a_restart() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let open = transaction(&harness, "p").await;
    store_in(&harness, &open, "t", &[json!(1)]).await;
    let first = end(&harness, &open, "commit").await.expect(200).json();
    let harness = harness.restart(|_| {}).await;
    assert_eq!(end(&harness, &open, "commit").await.expect(200).json(), first);
    assert_eq!(end(&harness, &open, "abort").await.expect(409).code(), "transaction-ended");
    assert_eq!(committed(&harness, "t").await, [json!(1)]);
}

#[tokio::test]
async fn an_open_transaction_survives_a_restart() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let open = transaction(&harness, "p").await;
    store_in(&harness, &open, "t", &[json!("before")]).await;
    let harness = harness.restart(|_| {}).await;
    assert_eq!(committed(&harness, "t").await, [] as [Value; 0]);
    store_in(&harness, &open, "t", &[json!("after")]).await;
    end(&harness, &open, "commit").await.expect(200);
    assert_eq!(committed(&harness, "t").await, [json!("before"), json!("after")]);
}

#[tokio::test]
async fn a_transaction_with_nothing_in_it_ends_either_way() {
    let harness = Harness::start(|_| {}).await;
    let mut producer = init(&harness, "p").await;
    for how in ["commit", "abort", "commit"] {
        let transaction = begin(&harness, &producer).await;
        assert_eq!(begin(&harness, &producer).await, transaction, "the same begin again answers the same");
        producer = end(&harness, &transaction, how).await.expect(200).json();
    }
}

#[tokio::test]
async fn a_start_under_the_same_id_fences_and_aborts_before_it_answers() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let old = init(&harness, "p").await;
    let zombie = begin(&harness, &old).await;
    store_in(&harness, &zombie, "t", &[json!("zombie")]).await;
    let new = init(&harness, "p").await;
    assert!(
        new["producer_epoch"].as_i64() > old["producer_epoch"].as_i64() || new["producer_id"] != old["producer_id"]
    );

    let late = producing(&harness, &zombie, "t", json!([{ "value": "late", "partition": 0 }]));
    for refused in [
        harness.send(late).await,
        add_offsets(&harness, &zombie, &group_offsets("g", "t", 0)).await,
        end(&harness, &zombie, "commit").await,
        end(&harness, &zombie, "abort").await,
        try_begin(&harness, &old).await,
    ] {
        assert_eq!(refused.expect(403).code(), "producer-fenced");
    }
    // What the zombie left holds nobody up.
    let transaction = begin(&harness, &new).await;
    store_in(&harness, &transaction, "t", &[json!("new")]).await;
    end(&harness, &transaction, "commit").await.expect(200);
    assert_eq!(committed(&harness, "t").await, [json!("new")]);
}

#[tokio::test]
async fn a_late_word_about_one_transaction_never_touches_the_next() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let first = transaction(&harness, "p").await;
    store_in(&harness, &first, "t", &[json!("first")]).await;
    let next = end(&harness, &first, "commit").await.expect(200).json();
    let second = begin(&harness, &next).await;
    store_in(&harness, &second, "t", &[json!("second")]).await;
    assert_eq!(end(&harness, &first, "commit").await.expect(200).json(), next);
    assert_eq!(end(&harness, &first, "abort").await.expect(409).code(), "transaction-ended");
    let late = producing(&harness, &first, "t", json!([{ "value": "late", "partition": 0 }]));
    assert_eq!(harness.send(late).await.expect(409).code(), "transaction-ended");
    assert_eq!(committed(&harness, "t").await, [json!("first")]);
    end(&harness, &second, "abort").await.expect(200);
    assert_eq!(committed(&harness, "t").await, [json!("first")]);
}

#[tokio::test]
async fn what_has_ended_takes_nothing_any_more() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    harness.topic("u").await;
    for how in ["commit", "abort"] {
        let transaction = transaction(&harness, how).await;
        store_in(&harness, &transaction, "t", &[json!(how)]).await;
        end(&harness, &transaction, how).await.expect(200);
        for topic in ["t", "u"] {
            let late = producing(&harness, &transaction, topic, json!([{ "value": "late", "partition": 0 }]));
            assert_eq!(harness.send(late).await.expect(409).code(), "transaction-ended", "{how} {topic}");
        }
        let late = add_offsets(&harness, &transaction, &group_offsets("g", "t", 0)).await.expect(409);
        assert_eq!(late.code(), "transaction-ended");
    }
    assert_eq!(committed(&harness, "t").await, [json!("commit")]);
    assert_eq!(committed(&harness, "u").await, [] as [Value; 0]);
}

#[tokio::test]
async fn ids_that_no_transaction_has_are_not_found() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let own = transaction(&harness, "p").await;
    let parts: Vec<i64> = own.split('-').map(|part| part.parse().expect("a number")).collect();
    let [coordinator, id, epoch] = parts[..] else { panic!("{own}") };
    let huge = "9".repeat(4_000);
    for other in [
        "x",
        "%20",
        "..%2F..",
        "0",
        &format!("{own}-0"),
        &format!("0{own}"),
        &format!("{}-{id}-{epoch}", (coordinator + 1) % 50),
        &format!("{}-{id}-{epoch}", u32::MAX),
        &format!("{coordinator}-{}-{epoch}", id + 1_000_000),
        &format!("{coordinator}-{}-{epoch}", i64::MAX),
        &format!("{coordinator}-{id}-{}", epoch + 1),
        &format!("{coordinator}-{id}-32767"),
        &huge,
    ] {
        for how in ["commit", "abort"] {
            let answer = end(&harness, other, how).await.expect(404);
            assert_eq!(answer.code(), "transaction-not-found", "{other}");
            assert!(answer.body.len() < 1_000, "{other}");
        }
        let answer = add_offsets(&harness, other, &group_offsets("g", "t", 0)).await.expect(404);
        assert_eq!(answer.code(), "transaction-not-found");
        if !other.contains('%') {
            let late = producing(&harness, other, "t", json!([{ "value": 1, "partition": 0 }]));
            assert_eq!(harness.send(late).await.expect(404).code(), "transaction-not-found", "{other}");
        }
    }
    end(&harness, &own, "commit").await.expect(200);
}

#[tokio::test]
async fn a_body_where_none_is_wanted_changes_nothing() {
    let harness = Harness::start(|_| {}).await;
    for body in ["{}", "no json", "{\"producer_epoch\":7}"] {
        let transaction = transaction(&harness, "p").await;
        let path = format!("/v1/transactions/{transaction}/commit");
        harness.body(Method::POST, &path, "application/json", body).await.expect(200);
    }
}

#[tokio::test]
async fn a_producer_is_asked_for_with_an_id_and_a_time_out_within_bounds() {
    let harness = Harness::start(|_| {}).await;
    let ask = |body: Value| {
        let harness = &harness;
        async move { harness.json(Method::POST, "/v1/producers", &body).await }
    };
    for timeout in [Value::Null, json!(100), json!(60_000), json!(900_000)] {
        ask(json!({ "transactional_id": "p", "timeout_ms": timeout })).await.expect(200);
    }
    for (body, pointer) in [
        (json!({ "transactional_id": "p", "timeout_ms": 99 }), "/timeout_ms"),
        (json!({ "transactional_id": "p", "timeout_ms": 900_001 }), "/timeout_ms"),
        (json!({ "transactional_id": "p", "timeout_ms": 9_007_199_254_740_992_u64 }), "/timeout_ms"),
        (json!({ "transactional_id": "p", "timeout_ms": -1 }), "/timeout_ms"),
        (json!({ "transactional_id": "p", "timeout_ms": "1000" }), "/timeout_ms"),
        (json!({ "timeout_ms": 1_000 }), "/timeout_ms"),
        (json!({ "transactional_id": "" }), "/transactional_id"),
        (json!({ "transactional_id": "a\nb" }), "/transactional_id"),
        (json!({ "transactional_id": "é".repeat(256) }), "/transactional_id"),
        (json!({ "transactional_id": "__execute-1" }), "/transactional_id"),
        (json!({ "transactional_id": 7 }), "/transactional_id"),
        (json!({ "transactional_id": "p", "epoch": 1 }), "/epoch"),
    ] {
        let refused = ask(body.clone()).await.expect(422);
        assert_eq!(
            (refused.code().as_str(), &refused.json()["errors"][0]["pointer"]),
            ("invalid-field", &json!(pointer)),
            "{body}"
        );
    }
    ask(json!({ "transactional_id": "é".repeat(255) })).await.expect(200);
}

#[tokio::test]
async fn only_a_producer_of_a_transactional_id_begins() {
    let harness = Harness::start(|_| {}).await;
    let plain = harness.json(Method::POST, "/v1/producers", &json!({})).await.expect(200).json();
    let own = init(&harness, "p").await;
    let later = json!({ "producer_id": own["producer_id"], "producer_epoch": own["producer_epoch"].as_i64().expect("a number") + 1 });
    for unknown in [plain, later, json!({ "producer_id": 9_007_199_254_740_991_u64, "producer_epoch": 0 })] {
        assert_eq!(try_begin(&harness, &unknown).await.expect(422).code(), "unknown-producer", "{unknown}");
    }
    let wrong = try_begin(&harness, &json!({ "producer_id": "7", "producer_epoch": 0 })).await.expect(422);
    assert_eq!(wrong.json()["errors"][0]["pointer"], "/producer_id");
    begin(&harness, &own).await;
}
