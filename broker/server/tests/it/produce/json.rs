//! `application/json`.

use http::Method;
use serde_json::{Value, json};

use super::{count, produce, raw_value, read, store, topic};
use crate::harness::Harness;

/// Case PC-01.
#[tokio::test]
async fn text_is_never_taken_for_base64() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    produce(&harness, "t", r#"{"records":[{"value":"plain words"}]}"#).await.expect(200);
    produce(&harness, "t", r#"{"records":[{"value_base64":"abcd"}]}"#).await.expect(200);
    for bad in [r#"{"records":[{"value_base64":"plain words!"}]}"#, r#"{"records":[{"value_base64":{"n":1}}]}"#] {
        let answer = produce(&harness, "t", bad).await.expect(422);
        assert_eq!(answer.json()["errors"][0]["pointer"], "/records/0/value_base64");
    }
    assert_eq!(count(&harness, "t").await, 2, "nothing bad was stored");
    let records = read(&harness, "t", 0, "").await["records"].clone();
    assert_eq!(records[0]["value"], "plain words");
    assert_eq!(records[1]["value_base64"], "abcd");
    assert_eq!(raw_value(&harness, "t", 0, 0).await, b"\"plain words\"");
    assert_eq!(raw_value(&harness, "t", 0, 1).await, [0x69, 0xb7, 0x1d]);
}

/// Case PC-02.
#[tokio::test]
async fn json_values_come_back_digit_for_digit_and_text_without_its_quotes() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let values = [
        r#"{"foo":"bar","aaa":5}"#,
        r#""value""#,
        r#"[1,{"é":"\u0000"}]"#,
        "9007199254740993",
        "1.10",
        "{ \"spaced\" : [ 1 , 2 ] }",
    ];
    store(&harness, "t", &values).await;
    produce(&harness, "t", r#"{"records":[{"value_text":"value"}]}"#).await.expect(200);
    let answer = harness.get("/v1/topics/t/partitions/0/records").await.expect(200);
    let text = String::from_utf8(answer.body.to_vec()).expect("JSON is UTF-8");
    for (offset, value) in values.iter().enumerate() {
        assert!(text.contains(&format!("\"value\":{value},")), "{value} is not in {text}");
        assert_eq!(raw_value(&harness, "t", 0, offset as u64).await, value.as_bytes());
    }
    assert_eq!(raw_value(&harness, "t", 0, 1).await.len(), 7, "the JSON text");
    assert_eq!(raw_value(&harness, "t", 0, 6).await.len(), 5, "the text");
    assert_eq!(answer.json()["records"][6]["value_text"], "value");
}

/// Case PC-03.
#[tokio::test]
async fn other_types_are_refused_with_the_list_of_those_taken() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let path = "/v1/topics/t/records";
    let body = r#"{"records":[{"value":{"a":1}}]}"#;
    for media in ["application/json", "Application/JSON; charset=utf-8"] {
        harness.body(Method::POST, path, media, body).await.expect(200);
    }
    let taken = json!(["application/json", "application/x-ndjson", "application/vnd.levada.record-batch"]);
    for media in ["application/vnd.kafka.json.v2+json", "text/plain", ""] {
        let answer = harness.body(Method::POST, path, media, body).await.expect(415);
        assert_eq!((answer.code().as_str(), &answer.json()["accepted"]), ("unsupported-media-type", &taken));
        assert!(answer.header("accept-post").contains("application/x-ndjson"));
    }
    harness.send(harness.request(Method::POST, path).body(body)).await.expect(415);
    assert_eq!(count(&harness, "t").await, 2);
}

/// Case PC-03.
#[tokio::test]
async fn bad_bodies_are_refused_with_the_place_and_nothing_is_stored() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    for (body, status, pointer) in [
        ("", 400, None),
        (r#"{"records":[{"value":1}"#, 400, None),
        (r#"{"records":[{"value":1}]}]"#, 400, None),
        (r#"{"records":[{"value":01}]}"#, 400, None),
        ("null", 422, Some("")),
        ("{}", 422, Some("")),
        (r#"{"records":[]}"#, 422, Some("/records")),
        (r#"{"records":[{}]}"#, 422, Some("/records/0")),
        (r#"{"records":[{"key":"a","key":"b","value":1}]}"#, 422, Some("/records/0/key")),
        (r#"{"records":[{"vlaue":1}]}"#, 422, Some("/records/0/vlaue")),
        (r#"{"records":[{"value":1}],"acks":"all"}"#, 422, Some("/acks")),
        (r#"{"records":[{"value":1},{"value":1,"timestamp":9007199254740992}]}"#, 422, Some("/records/1/timestamp")),
        (r#"{"records":[{"value":1,"partition":18446744073709551616}]}"#, 422, Some("/records/0/partition")),
        (r#"{"records":[{"value":1,"key":"\ud800"}]}"#, 422, Some("/records/0/key")),
        (r#"{"records":[{"value":1,"timestamp":9007199254740991}]}"#, 422, Some("/records/0/timestamp")),
        (r#"{"records":[{"value":1},{"value":1,"partition":1}]}"#, 422, Some("/records/1/partition")),
    ] {
        let problem = produce(&harness, "t", body).await.expect(status).json();
        assert_eq!(problem["errors"][0]["pointer"].as_str(), pointer, "{body}: {problem}");
        assert_eq!((&problem["effect"], &problem["retryable"]), (&json!("none"), &json!(false)));
    }
    assert_eq!(count(&harness, "t").await, 0);
}

#[tokio::test]
async fn json_that_is_not_utf8_is_refused_with_its_line_and_column() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let answer = produce(&harness, "t", &b"{\"records\":\n[{\"value\":\"\xff\"}]}"[..]).await.expect(400);
    assert_eq!(answer.code(), "invalid-json");
    assert!(answer.json()["detail"].as_str().expect("text").contains("line 2 column 12"), "{answer:?}");
}

/// Case PC-49.
#[tokio::test]
async fn deep_json_is_refused_and_costs_nothing() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    store(&harness, "t", &[&nested(128)]).await;
    for depth in [129, 100_000] {
        let body = format!("{{\"records\":[{{\"value\":{}}}]}}", nested(depth));
        let answer = produce(&harness, "t", body).await.expect(422);
        assert_eq!(answer.json()["errors"][0]["pointer"], "/records/0/value");
    }
    produce(&harness, "t", "[".repeat(100_000)).await.expect(400);
    assert_eq!(count(&harness, "t").await, 1);
    // Our own reader of JSON gives up at 128 for the whole answer, so only the value is looked at.
    let answer = harness.stream(harness.request(Method::GET, "/v1/topics/t/partitions/0/records")).await;
    let text = answer.text().await.expect("a whole body");
    assert!(text.contains(&format!("\"value\":{},", nested(128))), "{text}");
}

/// Case PC-08.
#[tokio::test]
async fn one_bad_record_refuses_the_whole_request() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 2, json!({})).await;
    let body = json!({ "records": [
        { "partition": 0, "value": "a" }, { "partition": 99, "value": "b" }, { "partition": 0, "value": "c" },
    ] });
    let problem = produce(&harness, "t", body.to_string()).await.expect(422).json();
    let places = problem["errors"].as_array().expect("places").iter().map(|error| error["pointer"].clone());
    assert_eq!(places.collect::<Vec<_>>(), ["/records/1/partition"]);
    assert_eq!(count(&harness, "t").await, 0);
}

#[tokio::test]
async fn records_over_the_topics_limit_are_named_with_limit_and_setting() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 1, json!({ "max.message.bytes": 10 })).await;
    store(&harness, "t", &["1234567890"]).await;
    let body =
        json!({ "records": [{ "value": 1 }, { "value_text": "12345678901" }, { "key": "k", "value": 1234567890 }] });
    let problem = produce(&harness, "t", body.to_string()).await.expect(413).json();
    assert_eq!((&problem["code"], &problem["limit"]), (&json!("record-too-large"), &json!("max.message.bytes")));
    assert_eq!(problem["limit_value"], 10);
    let places = problem["errors"].as_array().expect("places").iter().map(|error| error["pointer"].clone());
    assert_eq!(places.collect::<Vec<_>>(), ["/records/1", "/records/2"]);
    assert_eq!(count(&harness, "t").await, 1);
}

#[tokio::test]
async fn acks_say_when_the_answer_comes() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 1, json!({})).await;
    topic(&harness, "two", 1, json!({ "min.insync.replicas": 2 })).await;
    let send = |topic: &'static str, acks: &'static str| {
        let path = format!("/v1/topics/{topic}/records?acks={acks}");
        let harness = &harness;
        async move { harness.json(Method::POST, &path, &json!({ "records": [{ "value": 1 }] })).await }
    };
    assert_eq!(send("t", "all").await.expect(200).json()["records"][0]["offset"], 0);
    assert_eq!(send("t", "leader").await.expect(200).json()["records"][0]["offset"], 1);
    let answer = send("t", "none").await.expect(202).json();
    assert_eq!((&answer["records"][0]["partition"], answer["records"][0].get("offset")), (&json!(0), None));
    assert_eq!(send("two", "all").await.expect(503).code(), "not-enough-replicas");
    send("two", "leader").await.expect(200);
    send("t", "some").await.expect(400);
}

#[tokio::test]
async fn a_traceparent_is_kept_on_every_record_that_has_none() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = harness.request(Method::POST, "/v1/topics/t/records").header("traceparent", trace);
    let body = json!({ "records": [
        { "value": 1, "headers": [["a", "b"]] }, { "value": 2, "headers": [["traceparent", "own"]] },
    ] });
    harness.send(request.json(&body)).await.expect(200);
    let records = read(&harness, "t", 0, "").await["records"].clone();
    assert_eq!(records[0]["headers"], json!([["a", "b"], ["traceparent", trace]]));
    assert_eq!(records[1]["headers"], json!([["traceparent", "own"]]));
}

#[tokio::test]
async fn headers_and_timestamps_come_back_as_they_were_sent() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let headers = json!([["dup", "1"], ["dup", "2"], ["", null], ["bytes", { "base64": "/wA=" }], ["empty", ""]]);
    let record = json!({ "key_base64": "/w==", "value": null, "headers": headers, "timestamp": 1_700_000_000_123_u64 });
    let answer = produce(&harness, "t", json!({ "records": [record] }).to_string()).await.expect(200).json();
    assert_eq!(answer, json!({ "records": [{ "partition": 0, "offset": 0, "timestamp": 1_700_000_000_123_u64 }] }));
    let read = read(&harness, "t", 0, "").await;
    let expected: Value = json!({ "records": [{
        "partition": 0, "offset": 0, "timestamp": 1_700_000_000_123_u64, "timestamp_type": "create",
        "key_base64": "/w==", "value": null, "headers": headers
    }], "next_offset": 1, "high_watermark": 1, "last_stable_offset": 1, "log_start_offset": 0 });
    assert_eq!(read, expected);
}

#[tokio::test]
async fn more_wrong_records_than_a_problem_names_are_counted_and_pointed_at_their_members() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let records = |record: Value, count: usize| json!({ "records": vec![record; count] }).to_string();
    let lost = produce(&harness, "t", records(json!({ "value": 1, "partition": 9 }), 5_000)).await.expect(422).json();
    assert_eq!(lost["errors"].as_array().map(Vec::len), Some(100));
    assert_eq!(lost["errors"][99]["pointer"], "/records/99/partition");
    assert!(lost["detail"].as_str().is_some_and(|detail| detail.contains("5000")), "{}", lost["detail"]);
    let late = json!({ "value": 1, "timestamp": 9_007_199_254_740_991_u64 });
    let late = produce(&harness, "t", records(late, 1)).await.expect(422).json();
    assert_eq!(late["errors"][0]["pointer"], "/records/0/timestamp");
    assert_eq!(count(&harness, "t").await, 0);
}

#[tokio::test]
async fn more_records_than_a_request_may_have_are_refused_by_the_limit() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let body = format!("{{\"records\":[{}]}}", vec!["{\"value\":1}"; 100_001].join(","));
    let answer = produce(&harness, "t", body).await.expect(413).json();
    assert_eq!((&answer["limit"], &answer["limit_value"]), (&json!("REQUEST_RECORDS_MAX"), &json!(100_000)));
    assert_eq!(count(&harness, "t").await, 0);
}
