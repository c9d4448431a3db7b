//! The endless event stream.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::Harness;
use crate::produce::{produce, store, topic};
use crate::raw::PATIENCE;

const PATH: &str = "/v1/topics/t/records";

/// One event as a browser sees it.
#[derive(Debug)]
struct Event {
    name: String,
    data: Value,
    id: String,
}

/// An event stream, read as WHATWG HTML §9.2 says.
struct Feed {
    response: reqwest::Response,
    read: Vec<u8>,
    last_id: String,
}

impl Feed {
    async fn open(harness: &Harness, query: &str, last_event_id: Option<&str>) -> Self {
        let request = harness.request(Method::GET, &format!("{PATH}{query}")).header("accept", "text/event-stream");
        let request = last_event_id.into_iter().fold(request, |request, id| request.header("last-event-id", id));
        let response = timeout(PATIENCE, harness.stream(request)).await.expect("an answer at once");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        let mut feed = Self { response, read: Vec::new(), last_id: String::new() };
        // What comes first names the place where the stream begins, and no event.
        assert!(feed.block().await.expect("a beginning").starts_with("retry: "));
        feed
    }

    /// The lines up to the next empty one.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.read.drain(..end + 2).collect();
                let block = String::from_utf8(block).expect("UTF-8");
                if let Some(id) = block.lines().find_map(|line| line.strip_prefix("id: ")) {
                    id.clone_into(&mut self.last_id);
                }
                return Some(block);
            }
            let piece = timeout(PATIENCE, self.response.chunk()).await.expect("something in time");
            self.read.extend_from_slice(&piece.expect("a whole stream")?);
        }
    }

    async fn event(&mut self) -> Option<Event> {
        let block = self.block().await?;
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
        let data = serde_json::from_str(&field("data: ")).expect("JSON");
        Some(Event { name: field("event: "), data, id: self.last_id.clone() })
    }

    /// The next event that is no heartbeat.
    async fn next(&mut self) -> Event {
        let told = async {
            loop {
                let event = self.event().await.expect("the stream goes on");
                if event.name != "heartbeat" {
                    return event;
                }
            }
        };
        timeout(PATIENCE, told).await.expect("an event in time")
    }
}

#[tokio::test]
async fn a_stream_begins_at_the_end_and_follows() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    store(&harness, "t", &["\"before\""]).await;
    let mut feed = Feed::open(&harness, "", None).await;
    produce(&harness, "t", r#"{"records":[{"key":"k","value":{"n":1}}]}"#).await.expect(200);
    let event = feed.next().await;
    assert_eq!((event.name.as_str(), &event.data["offset"], &event.data["key"]), ("record", &json!(1), &json!("k")));
    let mut text = Feed::open(&harness, "?from=earliest&format=text", None).await;
    assert_eq!(text.next().await.data["value_text"], "\"before\"");
}

#[tokio::test]
async fn a_stream_resumes_without_gap_or_repeat_over_reconnects() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 3, json!({})).await;
    let keyed: Vec<_> = (0..300).map(|n| json!({ "key": format!("k{n}"), "value": n })).collect();
    produce(&harness, "t", json!({ "records": keyed }).to_string()).await.expect(200);
    let mut seen = Vec::new();
    let mut last_id: Option<String> = None;
    for events in [1, 2, 50, 97, 150] {
        let mut feed = Feed::open(&harness, "?from=earliest", last_id.as_deref()).await;
        for _ in 0..events {
            let event = feed.next().await;
            assert_eq!(event.name, "record");
            seen.push(event.data["value"].as_u64().expect("a number"));
            last_id = Some(event.id);
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..300).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_reader_that_is_cut_before_its_first_record_misses_nothing() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let cut = Feed::open(&harness, "", None).await;
    let id = cut.last_id.clone();
    drop(cut);
    store(&harness, "t", &["1"]).await;
    let mut feed = Feed::open(&harness, "", Some(&id)).await;
    assert_eq!(feed.next().await.data["value"], 1);
    let request = harness.request(Method::GET, PATH).header("accept", "text/event-stream");
    let answer = harness.send(request.header("last-event-id", "rubbish")).await.expect(400);
    assert_eq!(answer.code(), "invalid-cursor");
}

#[tokio::test]
async fn a_silent_stream_beats() {
    let harness = Harness::start(|options| options.sse_heartbeat = Duration::from_millis(1)).await;
    harness.topic("t").await;
    let mut feed = Feed::open(&harness, "", None).await;
    for _ in 0..3 {
        let event = feed.event().await.expect("a heartbeat");
        assert_eq!((event.name.as_str(), event.data), ("heartbeat", json!({})));
    }
    store(&harness, "t", &["1"]).await;
    assert_eq!(feed.next().await.data["value"], 1);
}

#[tokio::test]
async fn what_was_removed_before_it_was_read_is_told_as_a_gap() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let id = Feed::open(&harness, "", None).await.last_id;
    store(&harness, "t", &["1", "2", "3"]).await;
    let before = json!({ "offsets": [{ "partition": 0, "before": 2 }] });
    harness.json(Method::POST, "/v1/topics/t/truncate", &before).await.expect(200);
    let mut feed = Feed::open(&harness, "", Some(&id)).await;
    let gap = feed.next().await;
    assert_eq!(
        (gap.name.as_str(), gap.data),
        ("gap", json!({ "partition": 0, "from": 0, "to": 2, "cause": "removed" }))
    );
    let record = feed.next().await;
    assert_eq!((record.name.as_str(), &record.data["offset"]), ("record", &json!(2)));
    let mut behind = Feed::open(&harness, "", Some(&gap.id)).await;
    assert_eq!(behind.next().await.data["offset"], 2, "a gap is told once");
}

#[tokio::test]
async fn a_stream_of_a_deleted_topic_ends_with_the_reason() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut feed = Feed::open(&harness, "", None).await;
    harness.delete("/v1/topics/t").await.expect(204);
    let event = feed.next().await;
    assert_eq!((event.name.as_str(), &event.data["code"]), ("error", &json!("topic-not-found")));
    assert!(feed.event().await.is_none());
}

#[tokio::test]
async fn a_shutdown_ends_streams_with_the_reason() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut feed = Feed::open(&harness, "", None).await;
    let (stopped, event) = tokio::join!(harness.server.shutdown(), feed.next());
    stopped.expect("clean");
    assert_eq!((event.name.as_str(), &event.data["code"]), ("error", &json!("shutting-down")));
}

#[tokio::test]
async fn a_stream_sees_partitions_that_are_added() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let mut feed = Feed::open(&harness, "", None).await;
    harness.json(Method::PATCH, "/v1/topics/t", &json!({ "partitions": 2 })).await.expect(200);
    produce(&harness, "t", r#"{"records":[{"value":1,"partition":1}]}"#).await.expect(200);
    let event = feed.next().await;
    assert_eq!(event.data["partition"], 1);
    produce(&harness, "t", r#"{"records":[{"value":2,"partition":1}]}"#).await.expect(200);
    let mut resumed = Feed::open(&harness, "", Some(&event.id)).await;
    assert_eq!(resumed.next().await.data["value"], 2);
}

#[tokio::test]
async fn an_endless_read_takes_no_sizes() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    for query in ["max_records=1", "wait_ms=1", "max_bytes=1"] {
        let request = harness.request(Method::GET, &format!("{PATH}?{query}")).header("accept", "text/event-stream");
        assert_eq!(harness.send(request).await.expect(400).code(), "unknown-parameter");
    }
}
