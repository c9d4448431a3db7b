//! Reads of one partition.

use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::Harness;
use crate::produce::{produce, read, store, topic};
use crate::raw::PATIENCE;

const PATH: &str = "/v1/topics/t/partitions/0/records";

fn offsets(answer: &Value) -> Vec<u64> {
    let records = answer["records"].as_array().expect("records").iter();
    records.map(|record| record["offset"].as_u64().expect("an offset")).collect()
}

async fn truncate(harness: &Harness, before: u64) {
    let offsets = json!({ "offsets": [{ "partition": 0, "before": before }] });
    harness.json(Method::POST, "/v1/topics/t/truncate", &offsets).await.expect(200);
}

#[tokio::test]
async fn a_read_begins_where_it_was_asked_to() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let timed: Vec<_> = (0..5).map(|n| json!({ "value": n, "timestamp": 1_700_000_000_000_u64 + n * 10 })).collect();
    produce(&harness, "t", json!({ "records": timed }).to_string()).await.expect(200);
    for (query, expected) in [
        ("", vec![0, 1, 2, 3, 4]),
        ("offset=earliest", vec![0, 1, 2, 3, 4]),
        ("offset=3", vec![3, 4]),
        ("offset=5", vec![]),
        ("offset=latest", vec![]),
        ("offset=latest&isolation=read_uncommitted", vec![]),
        ("offset=tail:2", vec![3, 4]),
        ("offset=tail:0", vec![]),
        ("offset=tail:9007199254740991", vec![0, 1, 2, 3, 4]),
        ("offset=time:1700000000011", vec![2, 3, 4]),
        ("offset=time:0", vec![0, 1, 2, 3, 4]),
        ("offset=time:1700000000041", vec![]),
        ("offset=1&max_records=2", vec![1, 2]),
        ("max_records=9007199254740991&max_bytes=9007199254740991", vec![0, 1, 2, 3, 4]),
    ] {
        let answer = read(&harness, "t", 0, query).await;
        assert_eq!(offsets(&answer), expected, "{query}");
        let next = expected.last().map_or(5, |last| last + 1);
        assert_eq!(answer["next_offset"], next, "{query}");
        assert_eq!((&answer["high_watermark"], &answer["last_stable_offset"]), (&json!(5), &json!(5)));
        assert_eq!(answer.get("gaps"), None);
    }
    truncate(&harness, 2).await;
    assert_eq!(offsets(&read(&harness, "t", 0, "").await), [2, 3, 4]);
    assert_eq!(offsets(&read(&harness, "t", 0, "offset=tail:100").await), [2, 3, 4]);
}

#[tokio::test]
async fn offsets_outside_of_the_log_are_refused_with_its_ends() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    store(&harness, "t", &["1", "2", "3"]).await;
    truncate(&harness, 2).await;
    let gone = harness.get(&format!("{PATH}?offset=1")).await.expect(410);
    assert_eq!((gone.code().as_str(), &gone.json()["log_start_offset"]), ("offset-out-of-range", &json!(2)));
    let beyond = harness.get(&format!("{PATH}?offset=4")).await.expect(416);
    assert_eq!((beyond.code().as_str(), &beyond.json()["high_watermark"]), ("offset-beyond-end", &json!(3)));
    for bad in [
        "offset=-1",
        "offset=now",
        "max_records=0",
        "max_records=x",
        "wait_ms=-1",
        "isolation=none",
        "format=json",
        "filter=a",
        "filter=module:a@0",
        "filter_config=1",
        "offset=1&offset=2",
    ] {
        harness.get(&format!("{PATH}?{bad}")).await.expect(400);
    }
    harness.get("/v1/topics/t/partitions/1/records").await.expect(404);
    harness.get("/v1/topics/t/partitions/x/records").await.expect(400);
    harness.get("/v1/topics/nowhere/partitions/0/records").await.expect(404);
}

/// Case PC-05.
#[tokio::test]
async fn the_first_record_comes_whole_however_small_max_bytes_is() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 1, json!({ "max.message.bytes": 4 << 20 })).await;
    let large = format!("\"{}\"", "x".repeat(2 << 20));
    store(&harness, "t", &[&large]).await;
    store(&harness, "t", &["1234567890"]).await;
    for max_bytes in [1_000_000, 1] {
        let first = read(&harness, "t", 0, &format!("max_bytes={max_bytes}")).await;
        assert_eq!(offsets(&first), [0]);
        assert_eq!(first["records"][0]["value"].as_str().map(str::len), Some(2 << 20));
        let second = read(&harness, "t", 0, &format!("max_bytes={max_bytes}&offset={}", first["next_offset"])).await;
        assert_eq!(offsets(&second), [1]);
    }
}

#[tokio::test]
async fn values_say_what_they_are_and_can_be_forced() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    for body in ["{\"a\":\n1}", "null", "plain", "{} ", ""] {
        harness.send(harness.request(Method::POST, "/v1/topics/t/raw").body(body)).await.expect(200);
    }
    harness.send(harness.request(Method::POST, "/v1/topics/t/raw").body(vec![0xff])).await.expect(200);
    store(&harness, "t", &["null"]).await;
    let answer = harness.get(PATH).await.expect(200);
    assert!(String::from_utf8(answer.body.to_vec()).expect("text").contains("\"value\":{\"a\":\n1},"));
    let records = answer.json()["records"].clone();
    let texts: Vec<_> = (1..5).map(|at| records[at]["value_text"].clone()).collect();
    assert_eq!(texts, ["null", "plain", "{} ", ""]);
    assert_eq!((&records[5]["value_base64"], &records[6]["value"]), (&json!("/w=="), &json!(null)));
    assert!(records[6].as_object().expect("a record").contains_key("value"));
    let text = read(&harness, "t", 0, "format=text").await["records"].clone();
    assert_eq!((&text[0]["value_text"], &text[5]["value_base64"]), (&json!("{\"a\":\n1}"), &json!("/w==")));
    let base64 = read(&harness, "t", 0, "format=base64").await["records"].clone();
    assert_eq!((&base64[2]["value_base64"], &base64[6]["value"]), (&json!("cGxhaW4="), &json!(null)));
}

#[tokio::test]
async fn lines_hold_one_record_each_and_marks_are_headers() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    for body in ["[1,\n2]", "[1,2]", "[\r1]"] {
        harness.send(harness.request(Method::POST, "/v1/topics/t/raw").body(body)).await.expect(200);
    }
    let request =
        harness.request(Method::GET, &format!("{PATH}?max_records=3")).header("accept", "application/x-ndjson");
    let answer = harness.send(request).await.expect(200);
    let lines: Vec<Value> = String::from_utf8(answer.body.to_vec())
        .expect("text")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[0]["value_text"], &lines[1]["value"]), (&json!("[1,\n2]"), &json!([1, 2])));
    assert_eq!(lines[2]["value_text"], "[\r1]");
    for (name, value) in [
        ("levada-next-offset", "3"),
        ("levada-high-watermark", "3"),
        ("levada-last-stable-offset", "3"),
        ("levada-log-start-offset", "0"),
        ("levada-gaps", ""),
    ] {
        assert_eq!(answer.header(name), value, "{name}");
    }
    let other = harness.request(Method::GET, PATH).header("accept", "text/event-stream");
    harness.send(other).await.expect(406);
}

#[tokio::test]
async fn a_large_answer_is_one_json_object_all_the_same() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let values: Vec<_> = (0..2000).map(|n| format!("\"{n:0>200}\"")).collect();
    store(&harness, "t", &values.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let answer = harness.get(&format!("{PATH}?max_records=10000")).await.expect(200);
    assert_eq!(answer.header("transfer-encoding"), "chunked");
    assert_eq!(offsets(&answer.json()), (0..2000).collect::<Vec<_>>());
    assert_eq!(answer.json()["next_offset"], 2000);
    let small = harness.get(&format!("{PATH}?max_records=1")).await.expect(200);
    assert_eq!(small.header("content-length"), small.body.len().to_string());
}

#[tokio::test]
async fn a_waiting_read_is_woken_by_a_record() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    for offset in 0..5 {
        // The read is on its way first; should it be overtaken all the same, it finds the record.
        let path = format!("{PATH}?offset={offset}&wait_ms=60000");
        let waiting = harness.get(&path);
        let both = async { tokio::join!(waiting, store(&harness, "t", &["1"])) };
        let (answer, _) = timeout(PATIENCE, both).await.expect("woken long before the wait is over");
        assert_eq!(offsets(&answer.expect(200).json()), [offset]);
    }
}

#[tokio::test]
async fn a_wait_for_nothing_ends_by_itself() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let answer = read(&harness, "t", 0, "wait_ms=1").await;
    assert_eq!((offsets(&answer), &answer["next_offset"]), (vec![], &json!(0)));
}

#[tokio::test]
async fn where_a_time_is_in_each_partition() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 2, json!({})).await;
    let body = json!({ "records": [
        { "value": 1, "partition": 0, "timestamp": 1000 }, { "value": 2, "partition": 0, "timestamp": 2000 },
        { "value": 3, "partition": 1, "timestamp": 500 },
    ] });
    produce(&harness, "t", body.to_string()).await.expect(200);
    let answer = harness.get("/v1/topics/t/offsets?time=1001").await.expect(200).json();
    assert_eq!(
        answer,
        json!({ "offsets": [
        { "partition": 0, "offset": 1, "timestamp": 2000 }, { "partition": 1, "offset": 1, "timestamp": null },
    ] })
    );
    harness.get("/v1/topics/t/offsets").await.expect(400);
    harness.get("/v1/topics/nowhere/offsets?time=1").await.expect(404);
}
