//! `levada serve --demo`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::program::{FEED, Server};

const LAP_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// The first records of the endless feed: lap after lap, with times moved by a week each.
fn endless(count: usize) -> Vec<String> {
    let lap = |lap: i64| {
        FEED.lines().map(move |line| {
            let report: Value = serde_json::from_str(line).expect("it is JSON");
            let mut moved = line.to_owned();
            for name in ["time", "updated"] {
                let time = report[name].as_i64().expect("a time");
                moved = moved.replace(&format!("\"{name}\":{time},"), &format!("\"{name}\":{},", time + lap * LAP_MS));
            }
            moved
        })
    };
    (0..).flat_map(lap).take(count).collect()
}

fn follow(server: &Server, max: &str) -> Vec<Value> {
    let args = ["consume", "earthquakes", "--follow", "--from", "earliest", "--max", max, "--output", "ndjson"];
    let out = server.levada(&args).ok();
    out.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

/// Waits until the demo has made its topic.
fn started(server: &Server) {
    let is_there = |_| server.levada(&["topic", "describe", "earthquakes"]).code == Some(0);
    assert!((0..10_000).any(is_there), "the demo makes its topic");
}

#[test]
fn the_feed_is_replayed_lap_after_lap_with_moved_times() {
    let server = Server::new(&["--demo", "--demo-pace-ms=0"]);
    started(&server);
    let records = follow(&server, "4000");
    let mut by_id: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for record in &records {
        let id = record["value"]["id"].as_str().expect("an id");
        assert_eq!(record["key"], id);
        assert!(record["timestamp"].as_i64() > Some(1_700_000_000_000), "the broker's time, not the feed's: {record}");
        by_id.entry(id).or_default().push(&record["value"]);
    }
    assert_eq!(by_id.len(), 1707);
    assert!(by_id.values().any(|laps| laps.len() > 2), "the third lap has begun");
    for laps in by_id.values() {
        for (lap, report) in (0..).zip(laps) {
            for name in ["time", "updated"] {
                let moved = report[name].as_i64().expect("a time") - laps[0][name].as_i64().expect("a time");
                assert_eq!(moved, lap * LAP_MS, "{report}");
            }
        }
    }
}

#[test]
fn after_a_restart_it_goes_on_where_it_was() {
    let flags = ["--demo", "--demo-pace-ms=0"];
    let server = Server::new(&flags);
    started(&server);
    follow(&server, "2500");
    let (status, dir) = server.terminate();
    assert!(status.success());
    let dir = dir.expect("it is its own");
    let server = Server::on(dir.path(), &flags);
    follow(&server, "6000");
    let (status, _) = server.terminate();
    assert!(status.success());

    let server = Server::on(dir.path(), &[]);
    let mut values: Vec<_> = server.levada(&["consume", "earthquakes"]).ok().lines().map(str::to_owned).collect();
    assert!(values.len() >= 6000);
    let mut expected = endless(values.len());
    values.sort_unstable();
    expected.sort_unstable();
    assert!(values == expected, "it is the start of the endless feed, each record once and byte for byte");
}

#[test]
fn the_pace_is_kept() {
    // An hour a record: the first comes at once, the second never in a test.
    let server = Server::new(&["--demo", "--demo-pace-ms=3600000"]);
    started(&server);
    follow(&server, "1");
    assert_eq!(server.levada(&["consume", "earthquakes"]).ok().lines().count(), 1);
}

#[test]
fn without_it_there_is_no_topic() {
    let server = Server::new(&[]);
    assert_eq!(server.levada(&["topic", "list"]).ok(), "there are no topics\n");
}
