//! `application/x-ndjson`, both ways.

use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{count, read, topic};
use crate::harness::Harness;
use crate::raw::{PATIENCE, Raw};

const MEDIA: &str = "application/x-ndjson";
const PATH: &str = "/v1/topics/t/records";

fn lines(body: &[u8]) -> Vec<Value> {
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("a line of JSON")).collect()
}

/// A body that is sent piece by piece.
fn body(mut pieces: mpsc::Receiver<Bytes>) -> reqwest::Body {
    reqwest::Body::wrap_stream(stream::poll_fn(move |cx| pieces.poll_recv(cx).map(|p| p.map(Ok::<_, Infallible>))))
}

/// Reads lines of an answer as they come.
struct Answers {
    response: reqwest::Response,
    read: Vec<u8>,
}

impl Answers {
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("a line of JSON"));
            }
            let piece = timeout(PATIENCE, self.response.chunk()).await.expect("an answer in time");
            self.read.extend_from_slice(&piece.expect("a whole body")?);
        }
    }
}

/// Case PC-08.
#[tokio::test]
async fn a_bad_line_is_named_by_its_number_and_refused_alone() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 2, json!({ "max.message.bytes": 100 })).await;
    let long = format!("{{\"value_text\":\"{}\"}}", "x".repeat(200));
    let sent = [
        r#"{"key":"a","value":"a"}"#,
        r#"{"value":"#,
        "",
        r#"{"key":"a","value":"c"}"#,
        r#"{"value":1,"partition":9}"#,
        "   \r",
        r#"{"value":1,"vlaue":2}"#,
        &long,
        r#"{"key":"a","value":"d"}"#,
    ];
    let answer = harness.body(Method::POST, PATH, MEDIA, sent.join("\n")).await.expect(200);
    assert_eq!(answer.header("content-type"), MEDIA);
    let answers = lines(&answer.body);
    let told = |answer: &Value| (answer["line"].clone(), answer["problem"]["code"].clone());
    let expected = [
        (json!(1), json!(null)),
        (json!(2), json!("invalid-json")),
        (json!(4), json!(null)),
        (json!(5), json!("invalid-record")),
        (json!(7), json!("invalid-field")),
        (json!(8), json!("record-too-large")),
        (json!(9), json!(null)),
    ];
    assert_eq!(answers[..7].iter().map(told).collect::<Vec<_>>(), expected);
    assert_eq!(answers[1]["problem"]["detail"], "EOF while parsing a value at column 9");
    assert_eq!(answers[4]["problem"]["errors"][0]["pointer"], "/vlaue");
    assert_eq!(answers[7..], [json!({ "done": true, "accepted": 3, "refused": 4 })]);
    let partition = u32::try_from(answers[0]["partition"].as_u64().expect("a number")).expect("small");
    let records = read(&harness, "t", partition, "").await["records"].clone();
    let values: Vec<_> = records.as_array().expect("records").iter().map(|record| record["value"].clone()).collect();
    assert_eq!(values, ["a", "c", "d"]);
}

#[tokio::test]
async fn results_are_told_as_asked_for() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    for (query, told) in [("", 3), ("?results=all", 3), ("?results=refused", 2), ("?results=none", 1)] {
        let answer =
            harness.body(Method::POST, &format!("{PATH}{query}"), MEDIA, "{\"value\":1}\nx\n").await.expect(200);
        let answers = lines(&answer.body);
        assert_eq!(answers.len(), told, "{query}");
        assert_eq!(answers.last(), Some(&json!({ "done": true, "accepted": 1, "refused": 1 })));
    }
    harness.body(Method::POST, &format!("{PATH}?results=some"), MEDIA, "").await.expect(400);
    let empty = harness.body(Method::POST, PATH, MEDIA, "").await.expect(200);
    assert_eq!(empty.json(), json!({ "done": true, "accepted": 0, "refused": 0 }));
}

#[tokio::test]
async fn the_answer_comes_while_the_stream_goes_on() {
    let harness = Harness::start(|options| options.body_timeout = Duration::from_secs(600)).await;
    harness.topic("t").await;
    let (send, pieces) = mpsc::channel(1);
    let request = harness.request(Method::POST, PATH).header("content-type", MEDIA).body(body(pieces));
    let response = timeout(PATIENCE, harness.stream(request)).await.expect("an answer before any line is sent");
    let mut answers = Answers { response, read: Vec::new() };
    for n in 0..5 {
        send.send(Bytes::from("{\"value\":1}\n{\"val")).await.expect("taken");
        assert_eq!(answers.next().await, Some(json!({ "line": 2 * n + 1, "partition": 0, "offset": 2 * n })));
        send.send(Bytes::from("ue\":2}\n")).await.expect("taken");
        assert_eq!(answers.next().await, Some(json!({ "line": 2 * n + 2, "partition": 0, "offset": 2 * n + 1 })));
    }
    drop(send);
    assert_eq!(answers.next().await, Some(json!({ "done": true, "accepted": 10, "refused": 0 })));
    assert_eq!(answers.next().await, None);
}

#[tokio::test]
async fn a_sender_that_reads_late_loses_nothing() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 1, json!({ "durability": "page-cache" })).await;
    let total = 60_000_u64;
    let (send, pieces) = mpsc::channel(1);
    let request = harness.request(Method::POST, PATH).header("content-type", MEDIA).body(body(pieces));
    let response = harness.stream(request).await;
    // Results back up into the sockets until the server stops reading; then the sender waits for its reader.
    let sender = tokio::spawn(async move {
        for thousand in 0..total / 1000 {
            let lines: String = (0..1000).map(|n| format!("{{\"value\":{}}}\n", thousand * 1000 + n)).collect();
            send.send(Bytes::from(lines)).await.expect("taken");
        }
    });
    let mut answers = Answers { response, read: Vec::new() };
    for line in 1..=total {
        let answer = answers.next().await.expect("an answer a line");
        assert_eq!((answer["line"].as_u64(), answer["offset"].as_u64()), (Some(line), Some(line - 1)));
    }
    assert_eq!(answers.next().await, Some(json!({ "done": true, "accepted": total, "refused": 0 })));
    sender.await.expect("all was sent");
}

#[tokio::test]
async fn keyless_lines_of_one_request_go_to_one_partition_in_order() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 3, json!({})).await;
    let sent: String = (0..3000).map(|n| format!("{{\"value\":{n}}}\n")).collect();
    let answer = harness.body(Method::POST, PATH, MEDIA, sent).await.expect(200);
    let answers = lines(&answer.body);
    assert_eq!(answers.len(), 3001);
    assert!(answers[..3000].iter().zip(0..).all(|(answer, n)| answer["offset"] == n));
    assert!(answers[..3000].iter().all(|answer| answer["partition"] == answers[0]["partition"]));
}

#[tokio::test]
async fn a_line_that_is_too_long_is_refused_alone() {
    let harness = Harness::start(|options| options.max_body_bytes = 1000).await;
    harness.topic("t").await;
    let long = "x".repeat(100_000);
    let sent = format!("{{\"value\":1}}\n{long}\n{{\"value\":2}}\n{long}");
    let answers = lines(&harness.body(Method::POST, PATH, MEDIA, sent).await.expect(200).body);
    let told: Vec<_> = answers.iter().map(|answer| answer["problem"]["limit"].clone()).collect();
    assert_eq!(told, [json!(null), json!("--max-body-bytes"), json!(null), json!("--max-body-bytes"), json!(null)]);
    assert_eq!(answers[4], json!({ "done": true, "accepted": 2, "refused": 2 }));
}

#[tokio::test]
async fn of_a_stream_that_is_cut_whole_lines_are_stored_and_no_half_one() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut raw = Raw::connect(harness.server.address()).await;
    let sent = "{\"value\":1}\n{\"value\":2}\n{\"value\":3}";
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {MEDIA}\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    raw.send(format!("{head}{:x}\r\n{sent}\r\n", sent.len())).await;
    let stored = read(&harness, "t", 0, "wait_ms=60000").await;
    assert_eq!((&stored["records"][1]["value"], &stored["next_offset"]), (&json!(2), &json!(2)));
    drop(raw);
    // Whoever comes later finds the log as the cut left it.
    let answer = harness.body(Method::POST, PATH, MEDIA, "{\"value\":4}").await.expect(200);
    assert_eq!(lines(&answer.body)[0]["offset"], 2);
    assert_eq!(count(&harness, "t").await, 3);
}

#[tokio::test]
async fn a_stream_that_breaks_off_says_so_in_its_last_line() {
    let harness = Harness::start(|options| options.body_timeout = Duration::from_millis(50)).await;
    harness.topic("t").await;
    let (send, pieces) = mpsc::channel(1);
    let request = harness.request(Method::POST, PATH).header("content-type", MEDIA).body(body(pieces));
    let response = harness.stream(request).await;
    send.send(Bytes::from("{\"value\":1}\n{\"value\":")).await.expect("taken");
    let mut answers = Answers { response, read: Vec::new() };
    assert_eq!(answers.next().await, Some(json!({ "line": 1, "partition": 0, "offset": 0 })));
    let last = answers.next().await.expect("the sum");
    assert_eq!((&last["done"], &last["accepted"], &last["refused"]), (&json!(false), &json!(1), &json!(0)));
    assert_eq!(last["problem"]["code"], "request-timeout");
    assert_eq!(count(&harness, "t").await, 1);
}

#[tokio::test]
async fn what_needs_one_body_is_refused_for_a_stream() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    for (name, value) in [("idempotency-key", "1"), ("expected-offset", "0"), ("producer-id", "1")] {
        let request = harness.request(Method::POST, PATH).header("content-type", MEDIA).header(name, value);
        let answer = harness.send(request.body("{\"value\":1}")).await.expect(400);
        assert!(answer.json()["detail"].as_str().expect("text").contains(name), "{answer:?}");
    }
    harness.body(Method::POST, &format!("{PATH}?partition=0"), MEDIA, "{\"value\":1}").await.expect(400);
    assert_eq!(count(&harness, "t").await, 0);
}

#[tokio::test]
async fn a_packed_stream_is_unpacked_while_it_comes() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let sent: String = (0..5000).map(|n| format!("{{\"value\":{n}}}\n")).collect();
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(sent.as_bytes()).expect("packed");
    let packed = gzip.finish().expect("packed");
    let post = |body: Vec<u8>| {
        let request = harness.request(Method::POST, &format!("{PATH}?results=none")).header("content-type", MEDIA);
        harness.send(request.header("content-encoding", "gzip").body(body))
    };
    let answer = post(packed.clone()).await.expect(200);
    assert_eq!(answer.json(), json!({ "done": true, "accepted": 5000, "refused": 0 }));
    let cut = post(packed[..packed.len() / 2].to_vec()).await.expect(200).json();
    assert_eq!((&cut["done"], &cut["problem"]["code"]), (&json!(false), &json!("invalid-body")));
    let stored = count(&harness, "t").await - 5000;
    assert_eq!(cut["accepted"], stored, "what the answer says is what is stored");
}

#[tokio::test]
async fn a_shutdown_answers_what_it_took_and_ends_the_stream() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let (send, pieces) = mpsc::channel(1);
    let request = harness.request(Method::POST, PATH).header("content-type", MEDIA).body(body(pieces));
    let response = harness.stream(request).await;
    let mut answers = Answers { response, read: Vec::new() };
    let feeder = tokio::spawn(async move {
        // Sends until nobody takes it any more.
        while send.send(Bytes::from("{\"value\":1}\n")).await.is_ok() {}
    });
    assert_eq!(answers.next().await, Some(json!({ "line": 1, "partition": 0, "offset": 0 })));
    let stopping = tokio::spawn(harness.server.shutdown());
    let mut accepted = 1;
    let last = loop {
        let answer = answers.next().await.expect("a last line");
        if answer.get("done").is_some() {
            break answer;
        }
        accepted += u64::from(answer.get("offset").is_some());
    };
    assert_eq!((&last["done"], &last["accepted"]), (&json!(false), &json!(accepted)));
    assert_eq!(last["problem"]["code"], "shutting-down");
    drop(answers);
    stopping.await.expect("no panic").expect("clean");
    feeder.await.expect("no panic");
}

#[tokio::test]
async fn a_line_that_is_refused_names_the_member() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let sent = "{\"value\":1,\"partition\":9}\n{\"value\":1,\"timestamp\":9007199254740991}\n{\"value\":1,\"odd\":1}\n";
    let answer = harness.body(Method::POST, PATH, MEDIA, sent).await.expect(200);
    let answers = lines(&answer.body);
    for (line, pointer) in ["/partition", "/timestamp", "/odd"].into_iter().enumerate() {
        assert_eq!(answers[line]["problem"]["errors"][0]["pointer"], pointer, "{}", answers[line]);
    }
}

#[tokio::test]
async fn a_shutdown_ends_a_stream_that_sends_nothing() {
    let harness = Harness::start(|options| {
        (options.body_timeout, options.shutdown_timeout) = (Duration::from_secs(600), Duration::from_secs(600));
    })
    .await;
    harness.topic("t").await;
    let (send, pieces) = mpsc::channel(1);
    let request = harness.request(Method::POST, PATH).header("content-type", MEDIA).body(body(pieces));
    let mut answers = Answers { response: harness.stream(request).await, read: Vec::new() };
    send.send(Bytes::from("{\"value\":1}\n")).await.expect("taken");
    assert_eq!(answers.next().await, Some(json!({ "line": 1, "partition": 0, "offset": 0 })));
    let dir = harness.dir();
    let stopping = tokio::spawn(harness.server.shutdown());
    let last = timeout(PATIENCE, answers.next()).await.expect("the stream ends").expect("a last line");
    assert_eq!((&last["done"], &last["accepted"], &last["refused"]), (&json!(false), &json!(1), &json!(0)));
    assert_eq!(last["problem"]["code"], "shutting-down");
    drop((send, answers));
    stopping.await.expect("no panic").expect("clean");
    drop(dir);
}
