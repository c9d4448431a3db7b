//! Committed offsets of consumer groups.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Harness};

const PATH: &str = "/v1/groups/billing/offsets";

/// Runs the scenario.
pub(crate) async fn run(harness: &Harness) {
    let topic = json!({ "name": "invoices", "partitions": 3 });
    harness.json(Method::POST, "/v1/topics", &topic).await.expect(201);
    assert_eq!(harness.get(PATH).await.expect(404).code(), "group-not-found");
    a_dry_run_changes_nothing(harness).await;
    what_is_set_is_told(harness).await;
    wrong_places_are_all_named(harness).await;
    assert_eq!(harness.get("/v1/groups/a%20b/offsets").await.expect(400).code(), "invalid-group-name");
}

async fn set(harness: &Harness, offsets: Value, dry_run: bool) -> Answer {
    harness.json(Method::PUT, PATH, &json!({ "offsets": offsets, "dry_run": dry_run })).await
}

async fn a_dry_run_changes_nothing(harness: &Harness) {
    let answer =
        set(harness, json!([{ "topic": "invoices", "partition": 0, "offset": "latest" }]), true).await.expect(200);
    assert_eq!((&answer.json()["dry_run"], &answer.json()["offsets"][0]["committed"]), (&json!(true), &json!(0)));
    harness.get(PATH).await.expect(404);
}

async fn what_is_set_is_told(harness: &Harness) {
    let offsets = json!([
        { "topic": "invoices", "partition": 2, "offset": "earliest" },
        { "topic": "invoices", "partition": 0, "offset": 0 },
        { "topic": "invoices", "partition": 1, "offset": "time:1700000000123" },
    ]);
    let answer = set(harness, offsets, false).await.expect(200).json();
    assert_eq!((answer["dry_run"].clone(), answer["offsets"].as_array().map(Vec::len)), (json!(false), Some(3)));
    let told = harness.get(PATH).await.expect(200).json();
    assert_eq!(told["group"], "billing");
    let partitions: Vec<_> =
        told["offsets"].as_array().expect("offsets").iter().map(|o| o["partition"].clone()).collect();
    assert_eq!(json!(partitions), json!([0, 1, 2]));
    assert!(told["offsets"][0]["committed_at"].as_i64().is_some_and(|at| at > 1_700_000_000_000));
    assert_eq!(told["offsets"][0]["lag"], 0);
}

async fn wrong_places_are_all_named(harness: &Harness) {
    let before = harness.get(PATH).await.expect(200).json();
    let offsets = json!([
        { "topic": "invoices", "partition": 0, "offset": 0 },
        { "topic": "invoices", "partition": 9, "offset": 0 },
        { "topic": "nowhere", "partition": 0, "offset": 0 },
        { "topic": "invoices", "partition": 1, "offset": 99 },
    ]);
    let answer = set(harness, offsets, false).await.expect(422);
    let errors = answer.json()["errors"].as_array().expect("places").clone();
    let pointers: Vec<_> = errors.iter().map(|error| error["pointer"].as_str().expect("a pointer")).collect();
    assert!(pointers.iter().zip(["/offsets/1", "/offsets/2", "/offsets/3"]).all(|(is, place)| is.starts_with(place)));
    assert_eq!((answer.code().as_str(), pointers.len()), ("invalid-offset", 3));
    let bad = set(harness, json!([{ "topic": "a b", "partition": 0, "offset": 0 }]), false).await.expect(422);
    assert_eq!(bad.json()["errors"][0]["pointer"], "/offsets/0/topic");
    let bad = set(harness, json!([{ "topic": "invoices", "partition": 0, "offset": "soon" }]), false).await.expect(422);
    assert_eq!(bad.json()["errors"][0]["pointer"], "/offsets/0/offset");
    let twice = json!({ "topic": "invoices", "partition": 1, "offset": 0 });
    let bad = set(harness, json!([twice, { "topic": "invoices", "partition": 2, "offset": 0 }, twice]), false).await;
    let bad = bad.expect(422);
    assert_eq!((bad.code().as_str(), bad.json()["errors"].as_array().map(Vec::len)), ("invalid-field", Some(1)));
    assert_eq!(bad.json()["errors"][0]["pointer"], "/offsets/2/partition");
    assert_eq!(harness.get(PATH).await.expect(200).json(), before, "nothing was committed");
}
