//! Compaction through HTTP: the seed's exercise and cases PC-34 to 36, literally.

use std::sync::Arc;

use http::Method;
use levada_engine::{Engine, EngineOptions};
use levada_log::{BatchBuilder, NewBatch, SimStorage};
use levada_model::{LeaderEpoch, Offset, Record, SystemClock, Timestamp};
use serde_json::{Value, json};

use crate::contract::Contract;
use crate::harness::{Answer, Harness};
use crate::produce::{produce, read, topic};
use crate::raw::PATIENCE;

/// A server with one compacted topic.
async fn compacted(config: Value) -> Harness {
    let harness = Harness::start(|_| {}).await;
    let mut settings = json!({ "cleanup.policy": "compact" });
    settings.as_object_mut().expect("an object").extend(config.as_object().expect("an object").clone());
    topic(&harness, "t", 1, settings).await;
    harness
}

async fn compact(harness: &Harness) -> Value {
    harness.send(harness.request(Method::POST, "/v1/topics/t/compact")).await.expect(200).json()
}

async fn store(harness: &Harness, key: &str, value: Value) {
    produce(harness, "t", json!({ "records": [{ "key": key, "value": value }] }).to_string()).await.expect(200);
}

async fn partition(harness: &Harness) -> Value {
    harness.get("/v1/topics/t").await.expect(200).json()["partitions"][0].clone()
}

fn offsets(answer: &Value) -> Vec<u64> {
    let records = answer["records"].as_array().expect("records").iter();
    records.map(|record| record["offset"].as_u64().expect("an offset")).collect()
}

#[tokio::test]
async fn ten_updates_of_ten_customers_leave_ten_and_a_tombstone_takes_one_of_them_away() {
    let harness = compacted(json!({ "delete.retention.ms": 1 })).await;
    for update in 0..10 {
        for customer in 0..10 {
            store(&harness, &format!("customer-{customer}"), json!({ "customer": customer, "update": update })).await;
        }
    }
    let before = partition(&harness).await;
    assert_eq!(before["compaction"]["cleaned_to"], 0);
    assert_eq!(before["compaction"]["uncompacted"], json!([{ "from": 0, "to": 100, "waiting_for": "active-segment" }]));
    let done = compact(&harness).await["partitions"][0].clone();
    let after = partition(&harness).await;
    assert_eq!((&done["before_records"], &done["after_records"]), (&json!(100), &json!(10)));
    assert_eq!((&done["before_bytes"], &done["after_bytes"]), (&before["size_bytes"], &after["size_bytes"]));
    assert!(after["size_bytes"].as_u64() < before["size_bytes"].as_u64(), "the size on disk has shrunk: {after}");
    let left = read(&harness, "t", 0, "").await;
    assert_eq!(offsets(&left), (90..100).collect::<Vec<_>>(), "in order of offset");
    for (customer, record) in left["records"].as_array().expect("records").iter().enumerate() {
        assert_eq!(record["key"], format!("customer-{customer}"));
        assert_eq!(record["value"], json!({ "customer": customer, "update": 9 }));
    }
    assert_eq!(
        after["compaction"],
        json!({ "dirty_bytes": 0, "dirty_ratio": 0.0, "cleaned_to": 100, "uncompacted": [] })
    );

    store(&harness, "customer-3", Value::Null).await;
    compact(&harness).await;
    // The mark stays for a millisecond after it was met first.
    while offsets(&read(&harness, "t", 0, "").await).len() > 9 {
        compact(&harness).await;
    }
    let left = read(&harness, "t", 0, "").await;
    assert_eq!((offsets(&left), &left["next_offset"]), (vec![90, 91, 92, 94, 95, 96, 97, 98, 99], &json!(101)));
    let page = harness.get("/metrics").await.expect(200);
    let page = String::from_utf8_lossy(&page.body).into_owned();
    let counted = page.lines().find_map(|line| line.strip_prefix("levada_compaction_passes_total "));
    assert!(counted.is_some_and(|count| count.parse::<u64>().expect("a number") >= 3), "{page}");
}

/// PC-34.
#[tokio::test]
async fn a_reader_of_a_compacted_topic_never_stops_in_a_hole() {
    let harness = compacted(json!({})).await;
    for key in ["a", "b", "c", "d", "a", "b", "c", "a", "b", "c"] {
        store(&harness, key, json!("v")).await;
    }
    store(&harness, "e", json!("v")).await;
    compact(&harness).await;
    let survivors = [3, 7, 8, 9, 10];
    assert_eq!(offsets(&read(&harness, "t", 0, "").await), survivors);
    let at_4 = read(&harness, "t", 0, "offset=4").await;
    assert_eq!((offsets(&at_4), &at_4["next_offset"], at_4.get("gaps")), (vec![7, 8, 9, 10], &json!(11), None));
    let one = read(&harness, "t", 0, "offset=4&max_records=1&max_bytes=1").await;
    assert_eq!((offsets(&one), &one["next_offset"]), (vec![7], &json!(8)));
    assert_eq!(
        offsets(&read(&harness, "t", 0, "offset=tail:6").await),
        [7, 8, 9, 10],
        "offsets are counted, not records"
    );

    let request = harness.request(Method::GET, "/v1/topics/t/partitions/0/records?offset=4");
    let lines = harness.send(request.header("accept", "application/x-ndjson")).await.expect(200);
    assert_eq!(
        (lines.body.iter().filter(|byte| **byte == b'\n').count(), lines.header("levada-next-offset")),
        (4, "11")
    );
    let request = harness.request(Method::GET, "/v1/topics/t/partitions/0/records?offset=4");
    harness.send(request.header("accept", "application/vnd.levada.record-batch")).await.expect(200);

    for (offset, status) in [(3, 200), (4, 404), (6, 404), (7, 200), (10, 200)] {
        let answer = harness.get(&format!("/v1/topics/t/partitions/0/records/{offset}")).await.expect(status);
        assert!(status == 200 || answer.code() == "no-record");
    }
    a_committed_place_in_a_hole_has_lag_and_loses_it(&harness).await;
    an_event_stream_goes_on_from_a_hole(&harness).await;
}

async fn a_committed_place_in_a_hole_has_lag_and_loses_it(harness: &Harness) {
    for (offset, lag) in [(4, 7), (11, 0)] {
        let commit = json!({ "offsets": [{ "topic": "t", "partition": 0, "offset": offset }] });
        harness.json(Method::PUT, "/v1/groups/g/offsets", &commit).await.expect(200);
        let told = harness.get("/v1/groups/g/offsets").await.expect(200).json();
        assert_eq!((&told["offsets"][0]["committed"], &told["offsets"][0]["lag"]), (&json!(offset), &json!(lag)));
    }
}

async fn an_event_stream_goes_on_from_a_hole(harness: &Harness) {
    let before = harness.get("/v1/topics/t/records?from=earliest&max_records=1").await.expect(200).json();
    assert_eq!(offsets(&before), [3]);
    let cursor = before["cursor"].as_str().expect("a cursor");
    let page = harness.get(&format!("/v1/topics/t/records?from={cursor}")).await.expect(200).json();
    assert_eq!((offsets(&page), page.get("gaps")), (vec![7, 8, 9, 10], None));
    let request = harness.request(Method::GET, "/v1/topics/t/records").header("accept", "text/event-stream");
    let mut response = harness.stream(request.header("last-event-id", cursor)).await;
    let mut text = String::new();
    while !text.contains("\"offset\":10") {
        let piece = tokio::time::timeout(PATIENCE, response.chunk()).await.expect("events in time");
        text.push_str(std::str::from_utf8(&piece.expect("a stream").expect("it goes on")).expect("text"));
    }
    let events: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(events, ["record"; 4], "a hole is no gap: {text}");
}

/// PC-35.
#[tokio::test]
async fn the_time_that_delete_marks_are_kept_is_what_was_set() {
    let harness = compacted(json!({})).await;
    let patch = |config: Value| {
        let body = json!({ "config": config });
        let harness = &harness;
        async move { harness.json(Method::PATCH, "/v1/topics/t", &body).await }
    };
    let topic = patch(json!({ "delete.retention.ms": 1_000 })).await.expect(200).json();
    assert_eq!(
        (&topic["config"]["delete.retention.ms"], &topic["effective_config"]["delete.retention.ms"]),
        (&json!(1_000), &json!(1_000))
    );
    assert_eq!(harness.get("/v1/topics/t").await.expect(200).json()["config"], topic["config"]);
    let unknown = patch(json!({ "delete.retention": 1_000 })).await.expect(422);
    assert_eq!(
        (unknown.code().as_str(), &unknown.json()["errors"][0]["pointer"]),
        ("unknown-config", &json!("/config/delete.retention"))
    );
    let bad = patch(json!({ "delete.retention.ms": -5 })).await.expect(422);
    let detail = bad.json()["detail"].as_str().expect("text").to_owned();
    assert!(bad.code() == "invalid-config" && detail.contains("an integer from 0 to 2^53 - 1"), "{detail}");
    assert_eq!(harness.get("/v1/topics/t").await.expect(200).json()["config"], topic["config"], "nothing was changed");

    store(&harness, "k", json!(1)).await;
    store(&harness, "k", Value::Null).await;
    compact(&harness).await;
    let at_once = read(&harness, "t", 0, "").await;
    assert_eq!((offsets(&at_once), &at_once["records"][0]["value"]), (vec![1], &Value::Null), "the mark is visible");
    loop {
        compact(&harness).await;
        let left = read(&harness, "t", 0, "").await;
        assert_eq!(left["next_offset"], 2);
        match offsets(&left).as_slice() {
            [] => break,
            [1] => tokio::task::yield_now().await,
            other => panic!("the old value is back: {other:?}"),
        }
    }
}

/// PC-36.
#[tokio::test]
async fn a_record_without_a_key_is_refused_on_every_face_at_its_place() {
    let harness = compacted(json!({})).await;
    let is_refused = |answer: Answer, pointer: Option<&str>| {
        let problem = answer.expect(422).json();
        assert_eq!((&problem["code"], &problem["retryable"]), (&json!("key-required"), &json!(false)), "{problem}");
        assert_eq!(problem["errors"][0]["pointer"].as_str(), pointer, "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("needs one")), "{problem}");
    };
    let json = |records: Value| json!({ "records": records }).to_string();
    is_refused(produce(&harness, "t", json(json!([{ "value": "x" }]))).await, Some("/records/0/key"));
    let three = json!([{ "key": "a", "value": 1 }, { "value": 2 }, { "key": "b", "value": 3 }]);
    is_refused(produce(&harness, "t", json(three)).await, Some("/records/1/key"));
    is_refused(harness.body(Method::POST, "/v1/topics/t/raw", "text/plain", "x").await, None);
    let media = "application/vnd.levada.record-batch";
    let refused =
        harness.body(Method::POST, "/v1/topics/t/records?partition=0", media, batch(&[Some("a"), None])).await;
    assert!(
        refused.json()["detail"].as_str().is_some_and(|detail| detail.starts_with("batch 0: record 1")),
        "{refused:?}"
    );
    is_refused(refused, None);
    assert_eq!(offsets(&read(&harness, "t", 0, "").await), [0; 0], "nothing was stored");

    let lines = "{\"key\":\"a\",\"value\":1}\n{\"value\":2}\n{\"key\":null,\"value\":2}\n{\"key\":\"b\",\"value\":3}\n";
    let answer = harness.body(Method::POST, "/v1/topics/t/records", "application/x-ndjson", lines).await.expect(200);
    let answers: Vec<Value> =
        String::from_utf8_lossy(&answer.body).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let codes: Vec<_> = answers.iter().map(|answer| answer["problem"]["code"].as_str()).collect();
    assert_eq!(codes, [None, Some("key-required"), Some("key-required"), None, None]);
    assert_eq!(answers[1]["problem"]["errors"][0]["pointer"], "/key");
    assert_eq!((&answers[4]["accepted"], &answers[4]["refused"]), (&json!(2), &json!(2)));

    produce(&harness, "t", json(json!([{ "key": "", "value": "x" }]))).await.expect(200);
    produce(&harness, "t", json(json!([{ "key": "a", "value": null }]))).await.expect(200);
    harness.body(Method::POST, "/v1/topics/t/raw?key=", "text/plain", "x").await.expect(200);
    compact(&harness).await;
    assert_eq!(offsets(&read(&harness, "t", 0, "").await), [1, 3, 4]);
}

/// PC-36, its second half.
#[tokio::test]
async fn a_topic_that_holds_records_without_a_key_stays_as_it_is() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let records = json!([{ "key": "a", "value": 1 }, { "value": 2 }, { "value": 3 }]);
    produce(&harness, "t", json!({ "records": records }).to_string()).await.expect(200);
    let before = harness.get("/v1/topics/t").await.expect(200);
    for policy in ["compact", "compact,delete"] {
        let change = json!({ "config": { "cleanup.policy": policy, "segment.ms": 5 } });
        let refused = harness.json(Method::PATCH, "/v1/topics/t", &change).await.expect(409);
        let detail = refused.json()["detail"].as_str().expect("text").to_owned();
        assert!(refused.code() == "keyless-records" && detail.contains("offset 1"), "{detail}");
        assert_eq!(refused.json()["retryable"], false);
    }
    let after = harness.get("/v1/topics/t").await.expect(200);
    assert_eq!((after.json(), after.header("etag")), (before.json(), before.header("etag")), "nothing was changed");
    produce(&harness, "t", json!({ "records": [{ "value": 4 }] }).to_string()).await.expect(200);
    let truncate = json!({ "offsets": [{ "partition": 0, "before": 4 }] });
    harness.json(Method::POST, "/v1/topics/t/truncate", &truncate).await.expect(200);
    let change = json!({ "config": { "cleanup.policy": "compact" } });
    let topic = harness.json(Method::PATCH, "/v1/topics/t", &change).await.expect(200).json();
    assert_eq!(topic["partitions"][0]["compaction"]["cleaned_to"], 4);
}

#[tokio::test]
async fn a_damaged_segment_fails_its_own_topic_says_so_and_recovers_when_it_is_mended() {
    let disk = SimStorage::new(Arc::new(SystemClock));
    let storage = disk.clone();
    let open =
        move |options| Engine::open(EngineOptions { storage: Arc::new(storage), data_dir: "data".into(), ..options });
    let mut harness = Harness::start_with(Arc::new(Contract::load()), |_| {}, open).await;
    harness.server.opened().await.expect("it opens");
    for name in ["t", "other"] {
        topic(&harness, name, 1, json!({ "cleanup.policy": "compact" })).await;
        for value in ["\"first\"", "\"damaged\"", "\"last\""] {
            let records = format!("{{\"records\":[{{\"key\":\"{name}\",\"value\":{value}}}]}}");
            produce(&harness, name, records).await.expect(200);
        }
    }
    let id = harness.get("/v1/topics/t").await.expect(200).json()["id"].as_str().expect("an id").to_owned();
    let segment =
        disk.paths().into_iter().find(|path| path.contains(&id) && path.ends_with(".log")).expect("a segment");
    let bytes = disk.contents(&segment);
    let at = bytes.windows(7).position(|window| window == b"damaged").expect("it is stored") as u64;
    disk.corrupt(&segment, at, 1);

    let ask = |name: &str| harness.send(harness.request(Method::POST, &format!("/v1/topics/{name}/compact")));
    let failed = ask("t").await.expect(503).json();
    assert_eq!(
        (&failed["code"], &failed["effect"], &failed["retryable"]),
        (&json!("compaction-failed"), &json!("partial"), &json!(true))
    );
    assert!(failed["detail"].as_str().is_some_and(|detail| detail.contains("offsets 1 to 2 are damaged")), "{failed}");
    let done = ask("other").await.expect(200).json();
    assert_eq!(done["partitions"][0]["after_records"], 1, "the other topic goes on");
    let error = partition(&harness).await["compaction"]["error"].clone();
    assert!(error["reason"].as_str().is_some_and(|reason| reason.contains("damaged")), "{error}");
    assert_eq!(error["retry_at"].as_i64(), error["since"].as_i64().map(|since| since + 1_000), "{error}");
    let page = harness.get("/metrics").await.expect(200);
    let page = String::from_utf8_lossy(&page.body).into_owned();
    for line in ["levada_compaction_failing 1", "levada_compaction_failures_total 1"] {
        assert!(page.lines().any(|is| is == line), "{line} is not in\n{page}");
    }
    produce(&harness, "t", r#"{"records":[{"key":"t","value":"goes on"}]}"#).await.expect(200);
    disk.corrupt(&segment, at, 1);
    assert_eq!(ask("t").await.expect(200).json()["partitions"][0]["after_records"], 1);
    assert_eq!(partition(&harness).await["compaction"].get("error"), None);
}

fn batch(keys: &[Option<&'static str>]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(NewBatch::default(), 0);
    for key in keys {
        let record = Record { key: key.map(Into::into), value: Some("v".into()), headers: Vec::new() };
        builder.push(Timestamp(1_700_000_000_000), &record);
    }
    builder.finish().expect("it is built").stamp(Offset(0), LeaderEpoch(0)).bytes().to_vec()
}
