//! The real feeds, there and back.

use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::produce;
use crate::harness::Harness;

const EARTHQUAKES: &str = include_str!("../../data/earthquakes.ndjson");
const FLIGHTS: &str = include_str!("../../data/flights.ndjson");

/// A record as it is read, with its value as it is spelt.
#[derive(Deserialize)]
struct Spelt<'a> {
    #[serde(borrow)]
    value: &'a RawValue,
}

#[tokio::test]
async fn a_feed_sent_as_lines_comes_back_byte_for_byte() {
    let harness = Harness::start(|_| {}).await;
    for (topic, feed) in [("earthquakes", EARTHQUAKES), ("flights", FLIGHTS)] {
        harness.topic(topic).await;
        let lines: String = feed.lines().map(|line| format!("{{\"value\":{line}}}\n")).collect();
        let path = format!("/v1/topics/{topic}/records?results=refused");
        let answer = harness.body(Method::POST, &path, "application/x-ndjson", lines).await.expect(200);
        let count = feed.lines().count();
        assert_eq!(answer.json(), serde_json::json!({ "done": true, "accepted": count, "refused": 0 }));
        assert!(read_back(&harness, topic).await == feed, "{topic} came back otherwise");
    }
}

#[tokio::test]
async fn a_feed_sent_as_json_comes_back_byte_for_byte() {
    let harness = Harness::start(|_| {}).await;
    for (topic, feed) in [("earthquakes", EARTHQUAKES), ("flights", FLIGHTS)] {
        harness.topic(topic).await;
        let records: Vec<_> = feed.lines().map(|line| format!("{{\"value\":{line}}}")).collect();
        for hundreds in records.chunks(500) {
            produce(&harness, topic, format!("{{\"records\":[{}]}}", hundreds.join(","))).await.expect(200);
        }
        assert!(read_back(&harness, topic).await == feed, "{topic} came back otherwise");
    }
}

async fn read_back(harness: &Harness, topic: &str) -> String {
    let (mut text, mut offset) = (String::new(), "0".to_owned());
    loop {
        let path = format!("/v1/topics/{topic}/partitions/0/records?offset={offset}&max_records=10000");
        let request = harness.request(Method::GET, &path).header("accept", "application/x-ndjson");
        // Not held against the document, line by line, for the sake of time.
        let response = harness.stream(request).await;
        offset = response.headers()["levada-next-offset"].to_str().expect("text").to_owned();
        let end = response.headers()["levada-high-watermark"].clone();
        for line in response.text().await.expect("a whole body").lines() {
            text.push_str(serde_json::from_str::<Spelt>(line).expect("a record").value.get());
            text.push('\n');
        }
        if end.to_str().expect("text") == offset {
            return text;
        }
    }
}
