//! Consume, transform, produce, exactly once: by requests such as `curl` sends, with workers that die in the middle.

use http::Method;
use serde_json::{Value, json};

use super::{add_offsets, begin, committed, end, init, producing, standing};
use crate::groups::member::store;
use crate::harness::Harness;

const RECORDS: usize = 60;

/// Where a worker dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    None,
    AfterProduce,
    AfterOffsets,
    /// It has sent its commit and does not know what became of it.
    AfterCommit,
}

/// One turn of a worker, which starts as all do: it asks where the group stands. Answers whether there was something.
async fn turn(harness: &Harness, death: Death) -> bool {
    let producer = init(harness, "doubler").await;
    let from = standing(harness, "g").await.unwrap_or_default();
    let path = format!("/v1/topics/in/partitions/0/records?offset={from}&max_records=7");
    let page = harness.get(&path).await.expect(200).json();
    let records = page["records"].as_array().expect("records");
    if records.is_empty() {
        return false;
    }
    let doubled: Vec<_> = records
        .iter()
        .map(|record| json!({ "value": record["value"].as_u64().expect("a number") * 2, "partition": 0 }))
        .collect();
    let transaction = begin(harness, &producer).await;
    let request = producing(harness, &transaction, "out", json!(doubled)).header("producer-sequence", "0");
    harness.send(request.try_clone().expect("text")).await.expect(200);
    if records.len() % 2 == 1 {
        // A retry whose first answer was lost.
        assert_eq!(harness.send(request).await.expect(200).json()["duplicate"], true);
    }
    if death == Death::AfterProduce {
        return true;
    }
    let offsets = json!({ "group": "g", "member_id": null,
        "offsets": [{ "topic": "in", "partition": 0, "offset": page["next_offset"] }] });
    add_offsets(harness, &transaction, &offsets).await.expect(200);
    if death == Death::AfterOffsets {
        return true;
    }
    let next = end(harness, &transaction, "commit").await.expect(200).json();
    if death != Death::AfterCommit {
        assert_eq!(end(harness, &transaction, "commit").await.expect(200).json(), next);
    }
    true
}

#[tokio::test]
async fn every_record_is_worked_on_once_whenever_workers_die_and_the_server_restarts() {
    let mut harness = Harness::start(|_| {}).await;
    harness.topic("in").await;
    harness.topic("out").await;
    store(&harness, "in", RECORDS).await;
    let deaths = [Death::None, Death::AfterProduce, Death::AfterOffsets, Death::AfterCommit];
    for round in 0_usize.. {
        if !turn(&harness, deaths[round % deaths.len()]).await {
            break;
        }
        if round % 5 == 4 {
            harness = harness.restart(|_| {}).await;
        }
        let done = committed(&harness, "out").await;
        assert_eq!(standing(&harness, "g").await.unwrap_or_default(), done.len() as u64, "both or neither");
    }
    let read = |topic: &'static str| {
        let path = format!("/v1/topics/{topic}/partitions/0/records?max_records=1000");
        let harness = &harness;
        async move { super::values(&harness.get(&path).await.expect(200).json()) }
    };
    let expected: Vec<_> = read("in").await.iter().map(|value| json!(value.as_u64().expect("a number") * 2)).collect();
    assert_eq!(expected.len(), RECORDS);
    assert_eq!(read("out").await, expected);
}

#[tokio::test]
async fn a_zombie_and_its_successor_never_both_count() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("in").await;
    harness.topic("out").await;
    store(&harness, "in", 1).await;
    let zombie = begin(&harness, &init(&harness, "doubler").await).await;
    let out = |value: &'static str| json!([{ "value": value, "partition": 0 }]);
    harness.send(producing(&harness, &zombie, "out", out("zombie"))).await.expect(200);
    let offsets = super::group_offsets("g", "in", 1);
    add_offsets(&harness, &zombie, &offsets).await.expect(200);
    // It stalls, and another takes over.
    let successor = begin(&harness, &init(&harness, "doubler").await).await;
    harness.send(producing(&harness, &successor, "out", out("successor"))).await.expect(200);
    assert_eq!(end(&harness, &zombie, "commit").await.expect(403).code(), "producer-fenced");
    assert_eq!((standing(&harness, "g").await, committed(&harness, "out").await), (None, vec![] as Vec<Value>));
    add_offsets(&harness, &successor, &offsets).await.expect(200);
    end(&harness, &successor, "commit").await.expect(200);
    assert_eq!((standing(&harness, "g").await, committed(&harness, "out").await), (Some(1), vec![json!("successor")]));
    let all = harness.get("/v1/topics/out/partitions/0/records?isolation=read_uncommitted").await.expect(200).json();
    assert_eq!(super::values(&all), ["zombie", "successor"].map(Value::from));
}

#[tokio::test]
async fn the_one_request_form_does_the_same_loop() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("in").await;
    harness.topic("out").await;
    store(&harness, "in", 20).await;
    loop {
        let from = standing(&harness, "g").await.unwrap_or_default();
        let page = harness.get(&format!("/v1/topics/in/partitions/0/records?offset={from}&max_records=3")).await;
        let page = page.expect(200).json();
        let read = page["records"].as_array().expect("records");
        if read.is_empty() {
            break;
        }
        let records: Vec<_> = read.iter().map(|record| json!({ "topic": "out", "value": record["value"] })).collect();
        let body = json!({ "records": records, "group_offsets": { "group": "g",
            "offsets": [{ "topic": "in", "partition": 0, "offset": page["next_offset"] }] } });
        // Twice, as a client does that did not hear the first answer.
        for replayed in ["", "true"] {
            let request = harness.request(Method::POST, "/v1/transactions/execute");
            let answer = harness.send(request.header("idempotency-key", format!("from {from}")).json(&body)).await;
            assert_eq!(answer.expect(200).header("idempotent-replayed"), replayed);
        }
    }
    assert_eq!(committed(&harness, "out").await, committed(&harness, "in").await);
}
