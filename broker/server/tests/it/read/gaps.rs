//! Damage below the recovery point: skipped, told, never served.

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::contract::Contract;
use crate::harness::Harness;
use crate::produce::{read, store};
use crate::raw::PATIENCE;

/// The segments below a directory that are not empty.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(segments(&path));
        } else if path.extension().is_some_and(|ext| ext == "log") && path.metadata().expect("a file").len() > 0 {
            found.push(path);
        }
    }
    found
}

/// Flips a bit in the middle of the text `at` of a segment.
fn damage(segment: &Path, at: &str) {
    let mut file = OpenOptions::new().read(true).write(true).open(segment).expect("a segment");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("it is read");
    let place = bytes.windows(at.len()).position(|window| window == at.as_bytes()).expect("the value is there");
    file.seek(SeekFrom::Start(place as u64)).expect("a place");
    file.write_all(&[bytes[place] ^ 1]).expect("it is written");
}

#[tokio::test]
async fn damage_costs_its_batch_and_is_told_in_every_form_of_a_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let contract = Arc::new(Contract::load());
    let harness = Harness::start_under(Arc::clone(&contract), |options| options.data_dir = dir.path().into()).await;
    harness.topic("t").await;
    let cursor = harness.get("/v1/topics/t/records").await.expect(200).json()["cursor"].clone();
    let cursor = cursor.as_str().expect("a cursor").to_owned();
    for values in [["\"first\""], ["\"damaged\""], ["\"last\""]] {
        store(&harness, "t", &values).await;
    }
    harness.server.shutdown().await.expect("clean");
    let segments = segments(dir.path());
    assert_eq!(segments.len(), 1, "{segments:?}");
    damage(&segments[0], "\"damaged\"");

    let harness = Harness::start_under(contract, |options| options.data_dir = dir.path().into()).await;
    let gap = json!({ "partition": 0, "from": 1, "to": 2, "cause": "damaged" });
    let whole = read(&harness, "t", 0, "").await;
    let values: Vec<_> =
        whole["records"].as_array().expect("records").iter().map(|record| record["value"].clone()).collect();
    assert_eq!((values, &whole["gaps"]), (vec![json!("first"), json!("last")], &json!([gap])));
    assert_eq!(whole["next_offset"], 3);
    assert_eq!(read(&harness, "t", 0, "offset=2").await.get("gaps"), None, "only what lies on the way");
    assert_eq!(harness.get("/v1/topics/t/partitions/0/records/1").await.expect(404).code(), "no-record");

    for media in ["application/x-ndjson", "application/vnd.levada.record-batch"] {
        let request = harness.request(Method::GET, "/v1/topics/t/partitions/0/records").header("accept", media);
        let answer = harness.send(request).await.expect(200);
        let told: Value = serde_json::from_str(answer.header("levada-gaps")).expect("JSON");
        assert_eq!((told, answer.header("levada-next-offset")), (json!([gap]), "3"));
    }
    let topic = harness.get(&format!("/v1/topics/t/records?from={cursor}")).await.expect(200).json();
    assert_eq!(topic["gaps"], json!([gap]));

    let request = harness.request(Method::GET, &format!("/v1/topics/t/records?from={cursor}"));
    let mut response = harness.stream(request.header("accept", "text/event-stream")).await;
    let mut text = String::new();
    while !text.contains("\"last\"") {
        let piece = tokio::time::timeout(PATIENCE, response.chunk()).await.expect("events in time");
        text.push_str(std::str::from_utf8(&piece.expect("a stream").expect("it goes on")).expect("text"));
    }
    let events: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(events, ["record", "gap", "record"], "{text}");
    assert!(text.contains(&format!("data: {}\n", r#"{"partition":0,"from":1,"to":2,"cause":"damaged"}"#)), "{text}");
}
