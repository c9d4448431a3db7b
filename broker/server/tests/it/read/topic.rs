//! Reads of a whole topic with a cursor.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use crate::harness::Harness;
use crate::produce::{produce, store, topic};

const PATH: &str = "/v1/topics/t/records";

#[tokio::test]
async fn a_cursor_goes_through_all_partitions_without_gap_or_repeat() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 3, json!({})).await;
    let keyed: Vec<_> = (0..50).map(|n| json!({ "key": format!("k{n}"), "value": n })).collect();
    produce(&harness, "t", json!({ "records": keyed }).to_string()).await.expect(200);
    let mut found: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut query = "max_records=7".to_owned();
    loop {
        let answer = harness.get(&format!("{PATH}?{query}")).await.expect(200).json();
        let records = answer["records"].as_array().expect("records").clone();
        assert!(records.len() <= 7);
        if records.is_empty() {
            break;
        }
        for record in records {
            let number = |name: &str| record[name].as_u64().expect("a number");
            found.entry(number("partition")).or_default().push(number("offset"));
        }
        query = format!("max_records=7&from={}", answer["cursor"].as_str().expect("a cursor"));
    }
    assert_eq!(found.values().map(Vec::len).sum::<usize>(), 50);
    assert!(found.values().all(|offsets| offsets.iter().copied().eq(0..offsets.len() as u64)), "{found:?}");
    store(&harness, "t", &["\"later\""]).await;
    let answer = harness.get(&format!("{PATH}?{query}&wait_ms=60000")).await.expect(200).json();
    assert_eq!(answer["records"][0]["value"], "later");
}

#[tokio::test]
async fn a_topic_is_read_from_every_kind_of_place() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let timed: Vec<_> = (0..3).map(|n| json!({ "value": n, "timestamp": 1000 + n })).collect();
    produce(&harness, "t", json!({ "records": timed }).to_string()).await.expect(200);
    for (from, expected) in
        [("earliest", json!([0, 1, 2])), ("latest", json!([])), ("time:1002", json!([2])), ("tail:2", json!([1, 2]))]
    {
        let answer = harness.get(&format!("{PATH}?from={from}")).await.expect(200).json();
        let values: Vec<Value> =
            answer["records"].as_array().expect("records").iter().map(|record| record["value"].clone()).collect();
        assert_eq!(json!(values), expected, "{from}");
    }
    for bad in ["0", "now", "AAAA", ""] {
        assert_eq!(harness.get(&format!("{PATH}?from={bad}")).await.expect(400).code(), "invalid-cursor");
    }
}

#[tokio::test]
async fn a_cursor_of_a_deleted_topic_is_gone() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let answer = harness.get(PATH).await.expect(200).json();
    let cursor = answer["cursor"].as_str().expect("a cursor");
    harness.delete("/v1/topics/t").await.expect(204);
    harness.get(&format!("{PATH}?from={cursor}")).await.expect(404);
    harness.topic("t").await;
    assert_eq!(harness.get(&format!("{PATH}?from={cursor}")).await.expect(410).code(), "cursor-gone");
    let request = harness.request(Method::GET, PATH).header("accept", "text/event-stream");
    let answer = harness.send(request.header("last-event-id", cursor)).await.expect(410);
    assert_eq!(answer.code(), "cursor-gone");
}

#[tokio::test]
async fn a_cursor_that_was_overtaken_tells_what_is_missing() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let cursor = harness.get(PATH).await.expect(200).json()["cursor"].as_str().expect("a cursor").to_owned();
    store(&harness, "t", &["1", "2", "3"]).await;
    let before = json!({ "offsets": [{ "partition": 0, "before": 2 }] });
    harness.json(Method::POST, "/v1/topics/t/truncate", &before).await.expect(200);
    let answer = harness.get(&format!("{PATH}?from={cursor}")).await.expect(200).json();
    assert_eq!(answer["gaps"], json!([{ "partition": 0, "from": 0, "to": 2, "cause": "removed" }]));
    let again = harness.get(&format!("{PATH}?from={}", answer["cursor"].as_str().expect("a cursor"))).await.expect(200);
    assert_eq!(again.json().get("gaps"), None);
}
