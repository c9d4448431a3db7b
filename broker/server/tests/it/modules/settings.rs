//! Modules in the settings of topics: validators and partitioners on the way of what is produced.

use http::Method;
use serde_json::json;

use super::{module, put, put_transform};
use crate::harness::Harness;

#[tokio::test]
async fn a_record_that_the_validator_rejects_is_named_at_its_place_and_nothing_is_stored() {
    let harness = Harness::start(|_| {}).await;
    put_transform(&harness, "v", json!({})).await;
    let topic = json!({ "name": "t", "config": { "validator": "module:v", "validator.config": {} } });
    harness.json(Method::POST, "/v1/topics", &topic).await.expect(201);
    let records = json!({ "records": [{ "value_text": "fine" }, { "value_text": "reject this" }] });
    let refused = harness.json(Method::POST, "/v1/topics/t/records", &records).await.expect(422).json();
    assert_eq!((&refused["code"], &refused["errors"][0]["pointer"]), (&json!("record-rejected"), &json!("/records/1")));
    assert!(refused["errors"][0]["detail"].as_str().is_some_and(|it| it.contains("reject this is not for us")));
    assert_eq!(harness.get("/v1/topics/t").await.expect(200).json()["partitions"][0]["high_watermark"], 0);

    let line = harness.body(
        Method::POST,
        "/v1/topics/t/records",
        "application/x-ndjson",
        "{\"value_text\":\"reject\"}\n{\"value_text\":\"fine\"}\n",
    );
    let text = String::from_utf8(line.await.expect(200).body.to_vec()).expect("text");
    assert!(text.contains("record-rejected") && text.ends_with("\"accepted\":1,\"refused\":1}\n"), "{text}");

    let failed = json!({ "records": [{ "value_text": "trap" }] });
    let refused = harness.json(Method::POST, "/v1/topics/t/records", &failed).await.expect(503).json();
    assert_eq!((&refused["code"], &refused["effect"]), (&json!("module-failed"), &json!("none")));
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("validator v")), "{refused}");
}

#[tokio::test]
async fn a_partitioner_places_what_names_no_partition() {
    let harness = Harness::start(|_| {}).await;
    put(&harness, "p", module(&["partitioner"], json!({}))).await.expect(201);
    let config = json!({ "partitioner": "module:p", "partitioner.config": { "to": 2 } });
    let topic = json!({ "name": "t", "partitions": 3, "config": config });
    harness.json(Method::POST, "/v1/topics", &topic).await.expect(201);
    let records = json!({ "records": [{ "key": "a", "value": 1 }, { "key": "b", "value": 1, "partition": 0 }] });
    let placed = harness.json(Method::POST, "/v1/topics/t/records", &records).await.expect(200).json();
    assert_eq!((&placed["records"][0]["partition"], &placed["records"][1]["partition"]), (&json!(2), &json!(0)));
}

#[tokio::test]
async fn a_setting_that_names_no_fitting_module_is_refused_at_its_place() {
    let harness = Harness::start(|_| {}).await;
    put_transform(&harness, "m", json!({})).await;
    for (setting, value) in [("validator", "module:none"), ("partitioner", "module:m"), ("validator", "m")] {
        let topic = json!({ "name": "t", "config": { setting: value } });
        let refused = harness.json(Method::POST, "/v1/topics", &topic).await.expect(422).json();
        assert_eq!(refused["code"], "invalid-config");
        assert_eq!(refused["errors"][0]["pointer"], format!("/config/{setting}"), "{refused}");
    }
}

#[tokio::test]
async fn members_join_with_an_assignor_that_is_a_module() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    put(&harness, "fair", module(&["assignor"], json!({}))).await.expect(201);
    for (assignor, config, code, pointer) in [
        ("module:fair", json!({ "refuse": true }), "invalid-module-config", "/assignor_config"),
        ("module:fair", json!([]), "invalid-field", "/assignor_config"),
        ("range", json!({}), "invalid-field", "/assignor_config"),
    ] {
        let join = json!({ "topics": ["t"], "assignor": assignor, "assignor_config": config });
        let refused = harness.json(Method::POST, "/v1/groups/g/members", &join).await.expect(422).json();
        assert_eq!((&refused["code"], &refused["errors"][0]["pointer"]), (&json!(code), &json!(pointer)), "{refused}");
    }
    let config = json!({ "a": 1 });
    let join = json!({ "topics": ["t"], "assignor": "module:fair", "assignor_config": config });
    let joined = harness.json(Method::POST, "/v1/groups/g/members", &join).await.expect(201).json();
    let member = joined["member_id"].as_str().expect("an id");
    let read = harness.get(&format!("/v1/groups/g/members/{member}/records?wait_ms=30000")).await.expect(200).json();
    assert_eq!(read["assignment"], json!([{ "topic": "t", "partition": 0 }]));
    let group = harness.get("/v1/groups/g").await.expect(200).json();
    assert_eq!(
        (&group["assignor"], group.get("fallback").unwrap_or(&json!(null))),
        (&json!("module:fair"), &json!(null))
    );
    assert_eq!(group["assignor_config"], config);
}
