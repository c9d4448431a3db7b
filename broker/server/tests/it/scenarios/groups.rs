//! Consumer groups: their members, and their committed offsets.

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
    members_come_and_go(harness).await;
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

/// Members come, read, commit, reject and go; each answer that the document lists, once.
async fn members_come_and_go(harness: &Harness) {
    let records = json!({ "records": [{ "value": 1, "partition": 0 }, { "value": 2, "partition": 0 }] });
    harness.json(Method::POST, "/v1/topics/invoices/records", &records).await.expect(200);
    let join = json!({ "topics": ["invoices"], "instance_id": "desk-1" });
    let path = "/v1/groups/clerks/members";
    harness.json(Method::POST, path, &json!({ "topics": ["nowhere"] })).await.expect(404);
    harness.json(Method::POST, path, &json!({ "topics": [] })).await.expect(422);
    let joined = harness.json(Method::POST, path, &join).await.expect(201);
    let member = joined.header("location").to_owned();
    // Joining never waits, and the assignment may take several looks.
    let mut fetched = json!({ "records": [] });
    while fetched["records"] == json!([]) {
        fetched = harness.get(&format!("{member}/records?wait_ms=60000")).await.expect(200).json();
    }
    assert_eq!((&fetched["records"][0]["topic"], &fetched["state"]), (&json!("invoices"), &json!("stable")));
    let standing = harness.send(harness.request(Method::POST, &format!("{member}/heartbeat"))).await.expect(200).json();
    assert_eq!(standing["assignment"], fetched["assignment"]);

    let commit = |body: Value| {
        let path = format!("{member}/commit");
        async move { harness.json(Method::POST, &path, &body).await }
    };
    let place = |offset: u64| json!({ "topic": "invoices", "partition": 0, "offset": offset });
    commit(json!({ "cursor": fetched["cursor"] })).await.expect(200);
    commit(json!({ "offsets": [place(99)] })).await.expect(422);
    commit(json!({ "offsets": [{ "topic": "orders", "partition": 0, "offset": 0 }] })).await.expect(409);
    let reject = |offset: u64| {
        let (path, body) = (format!("{member}/reject"), json!({ "records": [place(offset)], "reason": "illegible" }));
        async move { harness.json(Method::POST, &path, &body).await }
    };
    let letters = reject(0).await.expect(200).json();
    assert_eq!(letters["dead_letters"][0]["topic"], "invoices.dead-letter");
    reject(99).await.expect(422);

    what_groups_there_are(harness, "clerks").await;
    strangers(harness, &member, &fetched["cursor"]).await;
    let replaced = harness.json(Method::POST, path, &join).await.expect(201);
    let cursor = fetched["cursor"].as_str().expect("a cursor");
    every_call(harness, &member, cursor, 409, "fenced-instance").await;
    harness.delete(replaced.header("location")).await.expect(204);
    harness.delete("/v1/groups/clerks").await.expect(204);
    harness.delete("/v1/groups/clerks").await.expect(404);
}

/// The group is listed and described, and keeps its offsets to its members.
async fn what_groups_there_are(harness: &Harness, group: &str) {
    let list = harness.get("/v1/groups?limit=1000").await.expect(200).json();
    let stable = json!({ "group": group, "state": "stable", "members": 1 });
    assert!(list["groups"].as_array().expect("groups").contains(&stable), "{list}");
    assert_eq!(harness.get("/v1/groups?cursor=%3F").await.expect(400).code(), "invalid-cursor");
    let path = format!("/v1/groups/{group}");
    let described = harness.get(&path).await.expect(200).json();
    assert_eq!((&described["assignor"], described.get("fallback")), (&json!("cooperative-sticky"), None));
    let offset = described["offsets"].as_array().expect("offsets").iter().find(|offset| offset["partition"] == 0);
    let offset = offset.expect("it was committed");
    assert_eq!((&offset["committed"], &offset["lag"], &offset["lag_ms"]), (&json!(2), &json!(0), &json!(0)));
    assert_eq!(harness.get("/v1/groups/nobody").await.expect(404).code(), "group-not-found");
    assert_eq!(harness.delete(&path).await.expect(409).code(), "group-not-empty");
    let reset = json!({ "offsets": [{ "topic": "invoices", "partition": 0, "offset": "earliest" }] });
    let refused = harness.json(Method::PUT, &format!("{path}/offsets"), &reset).await.expect(409);
    assert_eq!(refused.code(), "group-not-empty");
}

/// Nobody is a member whom the group does not know, and no group's cursor is another's.
async fn strangers(harness: &Harness, member: &str, cursor: &Value) {
    let cursor = cursor.as_str().expect("a cursor");
    for stranger in
        ["/v1/groups/clerks/members/nobody", "/v1/groups/no-group/members/nobody", "/v1/groups/clerks/members/%20"]
    {
        // The cursor of another group is told before the member is looked for.
        every_call(harness, stranger, "", 404, "unknown-member").await;
    }
    let other = member.replace("clerks", "painters");
    harness.get(&format!("{other}/records?cursor={cursor}")).await.expect(410);
    harness.json(Method::POST, &format!("{other}/commit"), &json!({ "cursor": cursor })).await.expect(410);
    harness.get(&format!("{member}/records?cursor=x")).await.expect(400);
}

/// Every call of a member is refused so.
async fn every_call(harness: &Harness, member: &str, cursor: &str, status: u16, code: &str) {
    let reject = json!({ "records": [{ "topic": "invoices", "partition": 0, "offset": 0 }], "reason": "r" });
    for answer in [
        harness.get(&format!("{member}/records?cursor={cursor}")).await,
        harness.json(Method::POST, &format!("{member}/commit"), &json!({ "cursor": cursor })).await,
        harness.send(harness.request(Method::POST, &format!("{member}/heartbeat"))).await,
        harness.json(Method::POST, &format!("{member}/reject"), &reject).await,
        harness.delete(member).await,
    ] {
        assert_eq!(answer.expect(status).code(), code);
    }
}
