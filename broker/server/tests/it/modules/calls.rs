//! Versions come, are told of, activated, downloaded and deleted.

use http::Method;
use levada_api::Module;
use serde_json::json;

use super::{module, put, put_transform};
use crate::harness::Harness;

#[tokio::test]
async fn the_first_version_is_active_at_once_and_later_ones_when_they_are_activated() {
    let harness = Harness::start(|_| {}).await;
    let wasm = module(&["transform"], json!({ "schema": { "type": "object" } }));
    let first = put(&harness, "m", wasm.clone()).await.expect(201).json();
    assert_eq!(first["version"], 1);
    assert_eq!((&first["name"], &first["worlds"]), (&json!("m"), &json!(["transform"])));
    assert_eq!((&first["size_bytes"], &first["active_version"]), (&json!(wasm.len()), &json!(1)));
    assert_eq!(first["config_schema"], json!({ "type": "object" }));
    assert!(first["digest"].as_str().is_some_and(|digest| digest.starts_with("sha256:") && digest.len() == 71));

    let again = put(&harness, "m", wasm.clone()).await.expect(200).json();
    assert_eq!(again, first, "the same bytes are the same version");
    let second = put_transform(&harness, "m", json!({ "n": 2 })).await;
    assert_eq!((&second["version"], &second["active_version"]), (&json!(2), &json!(1)));
    let third = put(&harness, "m?activate=true", module(&["transform"], json!({ "n": 3 }))).await.expect(201).json();
    assert_eq!((&third["version"], &third["active_version"]), (&json!(3), &json!(3)));

    let back = harness.request(Method::POST, "/v1/modules/m/versions/2/activate");
    let told: Module = serde_json::from_value(harness.send(back).await.expect(200).json()).expect("a module");
    assert_eq!((told.active_version, told.versions.len(), told.used_by.len()), (2, 3, 0));
    assert_eq!(harness.get("/v1/modules/m").await.expect(200).json()["active_version"], 2);
    let bytes = harness.get("/v1/modules/m/versions/1/wasm").await.expect(200);
    assert_eq!((bytes.header("content-type"), &bytes.body), ("application/wasm", &wasm));
}

#[tokio::test]
async fn modules_are_listed_page_by_page() {
    let harness = Harness::start(|_| {}).await;
    for name in ["b", "a", "c"] {
        put_transform(&harness, name, json!({})).await;
    }
    let first = harness.get("/v1/modules?limit=2").await.expect(200).json();
    let names = |page: &serde_json::Value| {
        let modules = page["modules"].as_array().expect("a list").iter();
        modules.map(|module| module["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&first), ["a", "b"]);
    let cursor = first["next_cursor"].as_str().expect("there is more");
    let rest = harness.get(&format!("/v1/modules?cursor={cursor}")).await.expect(200).json();
    assert_eq!((names(&rest), &rest["next_cursor"]), (vec!["c".to_owned()], &json!(null)));
}

#[tokio::test]
async fn what_is_no_module_is_refused_in_words_and_the_version_in_force_stays() {
    let harness = Harness::start(|_| {}).await;
    put_transform(&harness, "m", json!({})).await;
    let refused = put(&harness, "m?activate=true", "no wasm at all".into()).await.expect(422);
    assert_eq!(refused.code(), "invalid-module");
    assert!(refused.json()["detail"].as_str().is_some_and(|detail| detail.contains("no valid module")));
    let nothing = put(&harness, "other", r#"{"worlds":[]}"#.into()).await.expect(422);
    assert!(nothing.json()["detail"].as_str().is_some_and(|detail| detail.contains("does not export a world")));
    assert_eq!(harness.get("/v1/modules/m").await.expect(200).json()["versions"].as_array().map(Vec::len), Some(1));
    assert_eq!(harness.get("/v1/modules/other").await.expect(404).code(), "module-not-found");
}

#[tokio::test]
async fn a_module_that_is_too_large_is_refused_by_the_name_of_the_setting_before_it_is_taken_in() {
    let harness = Harness::start(|options| options.max_module_bytes = 1_000).await;
    let answer = put(&harness, "m", vec![b' '; 1_001].into()).await.expect(413);
    assert_eq!((answer.code().as_str(), &answer.json()["limit"]), ("body-too-large", &json!("--max-module-bytes")));
    // A stream without a length is cut where the limit is.
    let endless = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![0_u8; 400]));
    let answer = harness.body(Method::PUT, "/v1/modules/m", "application/wasm", reqwest::Body::wrap_stream(endless));
    assert_eq!(answer.await.expect(413).json()["limit_value"], 1_000);
    assert!(harness.modules.0.artifacts.lock().is_empty(), "nothing was compiled");
}

#[tokio::test]
async fn a_module_may_be_larger_than_any_other_body() {
    let harness = Harness::start(|options| options.max_body_bytes = 10).await;
    put_transform(&harness, "m", json!({ "long": "more than ten bytes" })).await;
}

#[tokio::test]
async fn one_that_is_in_use_is_not_deleted_and_the_refusal_names_by_whom() {
    let harness = Harness::start(|_| {}).await;
    put_transform(&harness, "m", json!({})).await;
    let topic = json!({ "name": "t", "config": { "validator": "module:m" } });
    harness.json(Method::POST, "/v1/topics", &topic).await.expect(201);
    let refused = harness.delete("/v1/modules/m").await.expect(409).json();
    assert_eq!(refused["code"], "module-in-use");
    assert_eq!(refused["used_by"], json!([{ "kind": "validator", "name": "t" }]));
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("validator of t")), "{refused}");
    assert_eq!(harness.get("/v1/modules/m").await.expect(200).json()["used_by"], refused["used_by"]);

    harness.json(Method::PATCH, "/v1/topics/t", &json!({ "config": { "validator": null } })).await.expect(200);
    harness.delete("/v1/modules/m").await.expect(204);
    harness.get("/v1/modules/m").await.expect(404);
}

#[tokio::test]
async fn modules_are_there_after_a_restart() {
    let harness = Harness::start(|_| {}).await;
    put_transform(&harness, "m", json!({})).await;
    let before = harness.get("/v1/modules/m").await.expect(200).json();
    let harness = harness.restart(|_| {}).await;
    assert_eq!(harness.get("/v1/modules/m").await.expect(200).json(), before);
}
