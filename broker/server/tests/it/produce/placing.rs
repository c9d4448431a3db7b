//! Which partition records go to.

use http::Method;
use serde_json::json;

use super::{produce, read, topic};
use crate::harness::Harness;

/// Case PC-04.
#[tokio::test]
async fn null_empty_and_absent_keys_and_values_stay_apart() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 3, json!({})).await;
    let body = r#"{"records":[{"key":"k","value":{"n":67}},{"key":null,"value":{"n":67}},{"value":{"n":67}},
        {"key":"","value":{"n":67}},{"key":"k","value":""},{"key":"k","value":null}]}"#;
    let answer = produce(&harness, "t", body).await.expect(200).json();
    let placed = answer["records"].as_array().expect("six places").clone();
    assert_eq!(placed.len(), 6);
    assert_eq!(placed[0]["partition"], placed[4]["partition"], "a key stays in its partition");
    assert_eq!(placed[1]["partition"], placed[2]["partition"], "keyless records of one request stay together");
    let mut found = Vec::new();
    for place in &placed {
        let partition = u32::try_from(place["partition"].as_u64().expect("a number")).expect("small");
        let one = read(&harness, "t", partition, &format!("offset={}&max_records=1", place["offset"])).await;
        found.push((one["records"][0]["key"].clone(), one["records"][0]["value"].clone()));
    }
    let n = json!({ "n": 67 });
    let expected = [
        (json!("k"), n.clone()),
        (json!(null), n.clone()),
        (json!(null), n.clone()),
        (json!(""), n),
        (json!("k"), json!("")),
        (json!("k"), json!(null)),
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn keyless_requests_rotate_over_the_partitions() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 3, json!({})).await;
    let mut partitions = std::collections::BTreeSet::new();
    for _ in 0..12 {
        let answer = produce(&harness, "t", r#"{"records":[{"value":1},{"value":2}]}"#).await.expect(200).json();
        assert_eq!(answer["records"][0]["partition"], answer["records"][1]["partition"]);
        partitions.insert(answer["records"][0]["partition"].as_u64());
    }
    assert_eq!(partitions.len(), 3);
}

/// Case PC-43.
#[tokio::test]
async fn keys_go_where_kafkas_default_partitioner_puts_them() {
    let harness = Harness::start(|_| {}).await;
    for (key, partitions, expected) in
        [("100:48069", 12, 9), ("wu", 10, 0), ("thingäöüÄÖÜ", 10, 2), ("TT0124", 15, 10), ("ключ-7", 6, 1), ("", 6, 3)]
    {
        let name = format!("of-{partitions}");
        let body = json!({ "name": name, "partitions": partitions });
        harness.json(Method::POST, "/v1/topics", &body).await;
        let records = json!({ "records": [{ "key": key, "value": 1 }] }).to_string();
        let answer = produce(&harness, &name, records).await.expect(200).json();
        assert_eq!(answer["records"][0]["partition"], expected, "{key:?} of {partitions}");
        let raw = harness.request(Method::POST, &format!("/v1/topics/{name}/raw")).query(&[("key", key)]).body("1");
        assert_eq!(harness.send(raw).await.expect(200).json()["partition"], expected, "{key:?} as a raw body's");
        let line = json!({ "key": key, "value": 1 }).to_string();
        let path = format!("/v1/topics/{name}/records");
        let answer = harness.body(Method::POST, &path, "application/x-ndjson", line).await.expect(200);
        let first = answer.body.split(|byte| *byte == b'\n').next().expect("a line").to_vec();
        let first: serde_json::Value = serde_json::from_slice(&first).expect("JSON");
        assert_eq!(first["partition"], expected, "{key:?} as a line's");
    }
}
