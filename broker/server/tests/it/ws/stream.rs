//! Subscriptions: where they begin, what they deliver, and for how much credit.

use futures_util::StreamExt;
use http::Method;
use serde_json::{Value, json};

use super::client::{Client, offsets};
use crate::harness::Harness;
use crate::produce::{store, topic};

async fn numbers(harness: &Harness, range: std::ops::Range<u64>) {
    let values: Vec<String> = range.map(|n| n.to_string()).collect();
    store(harness, "t", &values.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn records_come_with_topic_partition_offset_and_the_place_to_go_on() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    store(&harness, "t", &[r#"{"n":  1.10}"#]).await;
    let mut client = Client::open(&harness).await;
    let subscribed = client.subscribe(json!({ "from": "earliest" })).await;
    assert_eq!(subscribed["positions"], json!([{ "topic": "t", "partition": 0, "offset": 0 }]));
    assert_eq!(subscribed["resumed"], false, "no exact place was asked for");
    client.is_quiet().await;
    client.credit(5).await;
    let message = client.message().await.expect("a frame").into_text().expect("text");
    assert!(message.contains(r#""value":{"n":  1.10}"#), "verbatim: {message}");
    let frame: Value = serde_json::from_str(&message).expect("JSON");
    assert_eq!((&frame["type"], &frame["id"], &frame["lag"]), (&json!("records"), &json!("s"), &json!(0)));
    let record = &frame["records"][0];
    assert_eq!((&record["topic"], &record["partition"], &record["offset"]), (&json!("t"), &json!(0), &json!(0)));
    let caught_up = client.expect("caught_up").await;
    assert_eq!(caught_up["cursor"], frame["cursor"]);
}

#[tokio::test]
async fn pc_12_exactly_what_credit_was_granted_for_is_sent() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    numbers(&harness, 0..5).await;
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({ "from": 0 })).await;
    for records in [0, 2, 1] {
        client.credit(records).await;
        let sent = client.records(usize::try_from(records).expect("small")).await;
        assert_eq!(sent.len() as u64, records);
        client.is_quiet().await;
    }
    client.credit(9_007_199_254_740_991).await;
    client.credit(9_007_199_254_740_991).await;
    assert_eq!(offsets(&client.records(2).await), [3, 4]);
    client.expect("caught_up").await;
    numbers(&harness, 5..6).await;
    assert_eq!(offsets(&client.records(1).await), [5], "a huge sum goes on");
}

#[tokio::test]
async fn a_record_larger_than_the_bytes_left_is_sent_alone() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let large = format!("\"{}\"", "x".repeat(200_000));
    store(&harness, "t", &["1", &large, "3"]).await;
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({ "from": 0 })).await;
    client.send(json!({ "type": "credit", "id": "s", "bytes": 1_000 })).await;
    assert_eq!(offsets(client.expect("records").await["records"].as_array().expect("a list")), [0]);
    let alone = client.expect("records").await;
    assert_eq!((offsets(alone["records"].as_array().expect("a list")), &alone["lag"]), (vec![1], &json!(1)));
    client.is_quiet().await;
    client.send(json!({ "type": "credit", "id": "s", "bytes": 1 })).await;
    assert_eq!(offsets(client.expect("records").await["records"].as_array().expect("a list")), [2]);
}

#[tokio::test]
async fn pc_11_who_was_cut_resumes_without_gap_or_repeat() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    numbers(&harness, 0..10).await;
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({ "from": "earliest" })).await;
    client.credit(5).await;
    let frame = client.expect("records").await;
    assert_eq!(offsets(frame["records"].as_array().expect("a list")), [0, 1, 2, 3, 4]);
    let cursor = frame["cursor"].as_str().expect("a cursor").to_owned();
    drop(client);
    numbers(&harness, 10..13).await;
    for start in [
        json!({ "from": 5 }),
        json!({ "from": cursor }),
        json!({ "cursor": cursor }),
        json!({ "positions": [{ "topic": "t", "partition": 0, "offset": 5 }] }),
    ] {
        let mut client = Client::open(&harness).await;
        let subscribed = client.subscribe(start).await;
        assert_eq!((&subscribed["resumed"], &subscribed["positions"][0]["offset"]), (&json!(true), &json!(5)));
        client.credit(100).await;
        assert_eq!(offsets(&client.records(8).await), [5, 6, 7, 8, 9, 10, 11, 12]);
        client.expect("caught_up").await;
    }
    let mut client = Client::open(&harness).await;
    client.send(json!({ "type": "subscribe", "id": "s", "topics": ["t"], "from": 999 })).await;
    let error = client.expect("error").await;
    let problem = &error["problem"];
    assert_eq!((&problem["code"], &problem["high_watermark"]), (&json!("offset-beyond-end"), &json!(13)));

    let truncate = json!({ "offsets": [{ "partition": 0, "before": 7 }] });
    harness.json(Method::POST, "/v1/topics/t/truncate", &truncate).await.expect(200);
    let subscribed = client.subscribe(json!({ "from": 5 })).await;
    assert_eq!((&subscribed["resumed"], &subscribed["positions"][0]["offset"]), (&json!(false), &json!(5)));
    let gap = client.expect("gap").await;
    let told =
        json!({ "type": "gap", "id": "s", "topic": "t", "partition": 0, "from": 5, "to": 7, "cause": "retention" });
    assert_eq!(gap, told, "before any credit");
    client.is_quiet().await;
    client.credit(100).await;
    assert_eq!(offsets(&client.records(6).await), [7, 8, 9, 10, 11, 12]);
    client.expect("caught_up").await;
    numbers(&harness, 13..14).await;
    assert_eq!(offsets(&client.records(1).await), [13], "and on");
}

#[tokio::test]
async fn a_subscription_without_a_start_begins_at_the_end() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    numbers(&harness, 0..3).await;
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({})).await;
    client.expect("caught_up").await;
    client.credit(10).await;
    client.is_quiet().await;
    numbers(&harness, 3..4).await;
    assert_eq!(offsets(&client.records(1).await), [3]);
}

#[tokio::test]
async fn several_topics_are_one_subscription_with_one_cursor() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "a", 2, json!({})).await;
    harness.topic("b").await;
    for n in 0..20 {
        store(&harness, if n % 2 == 0 { "a" } else { "b" }, &[&n.to_string()]).await;
    }
    let mut seen = Vec::new();
    let mut cursor = Value::Null;
    for take in [3, 8, 9] {
        let mut client = Client::open(&harness).await;
        let start = if cursor.is_null() { json!({ "from": "earliest" }) } else { json!({ "cursor": cursor }) };
        let mut frame = json!({ "topics": ["b", "a"] });
        frame.as_object_mut().expect("an object").extend(start.as_object().expect("an object").clone());
        let subscribed = client.subscribe(frame).await;
        assert_eq!(subscribed["positions"].as_array().map(Vec::len), Some(3));
        client.credit(take).await;
        let mut count = 0;
        while count < take {
            let frame = client.expect("records").await;
            let records = frame["records"].as_array().expect("a list");
            count += records.len() as u64;
            seen.extend(records.iter().map(|record| record["value"].as_u64().expect("a number")));
            cursor = frame["cursor"].clone();
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    let mut client = Client::open(&harness).await;
    client.send(json!({ "type": "subscribe", "id": 1, "topics": ["a"], "cursor": cursor })).await;
    assert_eq!(client.refusal().await.1, "cursor-gone", "the cursor has a topic more");
}

#[tokio::test]
async fn a_topic_deleted_under_a_subscription_ends_it_with_an_error() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({})).await;
    client.expect("caught_up").await;
    client.credit(10).await;
    harness.delete("/v1/topics/t").await.expect(204);
    assert_eq!(client.refusal().await, (json!("s"), "topic-not-found".to_owned()));
    client.credit(1).await;
    assert_eq!(client.refusal().await.1, "unknown-subscription");
}

#[tokio::test]
async fn a_cursor_goes_from_the_event_stream_to_the_socket_and_back() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    numbers(&harness, 0..6).await;
    let page = harness.get("/v1/topics/t/records?max_records=2").await.expect(200).json();
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({ "cursor": page["cursor"] })).await;
    client.credit(2).await;
    let frame = client.expect("records").await;
    assert_eq!(offsets(frame["records"].as_array().expect("a list")), [2, 3]);
    let request = harness.request(Method::GET, "/v1/topics/t/records").header("accept", "text/event-stream");
    let request = request.header("last-event-id", frame["cursor"].as_str().expect("a cursor"));
    let mut events = harness.stream(request).await.bytes_stream();
    let mut text = String::new();
    while !text.contains("\"offset\":5") {
        text.push_str(std::str::from_utf8(&events.next().await.expect("more").expect("bytes")).expect("UTF-8"));
    }
    assert!(text.contains("\"offset\":4") && !text.contains("\"offset\":3"));
}

#[tokio::test]
async fn stored_batches_come_as_they_are_where_they_are_asked_for() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    for n in 0..3 {
        numbers(&harness, n * 4..n * 4 + 4).await;
    }
    let mut client = Client::open(&harness).await;
    client.subscribe(json!({ "from": 5, "format": "batches" })).await;
    client.credit(4).await;
    let (header, mut batches) = client.binary().await;
    let batch = levada_log::Batch::parse(&mut batches).expect("a batch");
    assert!(batches.is_empty(), "what credit is left for is sent");
    let values: Vec<_> = batch.records().expect("sound").map(|record| record.expect("sound").offset.0).collect();
    assert_eq!(values, [4, 5, 6, 7], "from the batch that holds the offset");
    assert_eq!((&header["type"], &header["id"], &header["topic"]), (&json!("records"), &json!("s"), &json!("t")));
    assert_eq!((&header["partition"], &header["next_offset"], &header["lag"]), (&json!(0), &json!(8), &json!(4)));
    client.is_quiet().await;
    client.credit(1).await;
    let (header, mut batches) = client.binary().await;
    assert_eq!((levada_log::Batch::parse(&mut batches).is_ok(), &header["next_offset"]), (true, &json!(12)));
    client.expect("caught_up").await;
}
