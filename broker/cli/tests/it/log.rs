//! `levada log`, on segments that a real server wrote, whole and damaged.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use levada_client::{NewRecord, NewValue};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{FEED, Printed, Server, levada};

/// A data directory with the feed in several segments of one partition, cleanly closed.
fn stored() -> TempDir {
    let server = Server::new(&[]);
    let config = ["--config", "segment.bytes=16384", "--config", "compression.type=zstd"];
    server.levada(&[&["topic", "create", "quakes"][..], &config].concat()).ok();
    server.pipe(&["produce", "quakes", "--key-pointer", "/id", "--batch", "20"], FEED).ok();
    let (status, dir) = server.terminate();
    assert!(status.success());
    dir.expect("it is its own")
}

/// The segments below a directory, by name.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(segments(&path));
        } else if path.extension().is_some_and(|extension| extension == "log") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn log(what: &str, path: &Path, more: &[&str]) -> Printed {
    levada(&[&["log", what, path.to_str().expect("it is text")], more].concat())
}

fn lines(printed: Printed) -> Vec<Value> {
    printed.ok().lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn write_at(path: &Path, position: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).expect("a segment");
    file.write_all_at(bytes, position).expect("it is written");
}

fn damage(path: &Path) -> Vec<Value> {
    let printed = log("verify", path, &["--output", "json"]);
    assert_eq!(printed.code, Some(1), "{printed:?}");
    let report: Value = serde_json::from_str(&printed.out).expect("it is JSON");
    report["damage"].as_array().expect("a list").clone()
}

#[test]
fn a_dump_explains_every_batch_and_record() {
    let dir = stored();
    let batches = lines(log("dump", dir.path(), &["--output", "ndjson", "--records"]));
    let mut next = 0;
    let mut values = String::new();
    for batch in &batches {
        assert_eq!(batch["base_offset"], next);
        next = batch["last_offset"].as_u64().expect("a number") + 1;
        assert_eq!((&batch["compression"], &batch["crc_ok"]), (&"zstd".into(), &true.into()));
        assert_eq!(batch["record_count"].as_u64(), batch["records"].as_array().map(|list| list.len() as u64));
        for record in batch["records"].as_array().expect("a list") {
            let value = record["value"].as_str().expect("text");
            let report: Value = serde_json::from_str(value).expect("it is JSON");
            assert_eq!(record["key"], report["id"]);
            values.push_str(value);
            values.push('\n');
        }
    }
    assert_eq!((next, values == FEED), (1707, true));

    let first = &segments(dir.path())[0];
    let text = log("dump", first, &[]).ok();
    assert!(text.starts_with(&format!("{}\nposition 0  offsets 0..", first.display())), "{text}");
    assert!(text.contains("zstd  create time ") && text.contains(" crc ") && !text.contains("key"), "{text}");
    assert!(log("dump", first, &["--records"]).ok().contains("  offset 0  timestamp "));
}

#[test]
fn a_whole_directory_is_verified() {
    let dir = stored();
    let report = log("verify", dir.path(), &["--output", "json"]).json();
    assert_eq!((&report["records"], &report["damage"]), (&1707.into(), &json!([])));
    assert_eq!(report["segments"], segments(dir.path()).len());
    assert!(segments(dir.path()).len() > 2, "the test is about several segments");
    let text = log("verify", dir.path(), &[]).ok();
    assert!(text.starts_with("whole: "), "{text}");
    for segment in segments(dir.path()) {
        log("verify", &segment, &[]).ok();
    }
}

#[test]
fn a_flipped_bit_costs_one_batch_and_is_told_with_its_place() {
    let dir = stored();
    let segment = &segments(dir.path())[1];
    let batches = lines(log("dump", segment, &["--output", "ndjson"]));
    let hurt = &batches[1];
    let position = hurt["position"].as_u64().expect("a number");
    let mut byte = [0];
    let file = fs::File::open(segment).expect("a segment");
    file.read_exact_at(&mut byte, position + 70).expect("it is there");
    write_at(segment, position + 70, &[byte[0] ^ 1]);

    let found = damage(dir.path());
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["position"], &found[0]["size_bytes"]), (&hurt["position"], &hurt["size_bytes"]));
    assert_eq!(found[0]["from_offset"], hurt["base_offset"]);
    assert_eq!(found[0]["to_offset"].as_u64(), hurt["last_offset"].as_u64().map(|last| last + 1));
    assert!(found[0]["detail"].as_str().is_some_and(|detail| detail.contains("CRC-32C")), "{found:?}");
    let text = log("verify", dir.path(), &[]).failed(1);
    assert!(text.contains("gap"), "{text}");
    let dumped = lines(log("dump", segment, &["--output", "ndjson"]));
    assert_eq!(dumped.len(), batches.len());
    assert!(dumped[1]["damage"].is_string() && dumped[2] == batches[2]);
}

#[test]
fn a_head_that_is_gone_costs_its_batch_only() {
    let dir = stored();
    let segment = &segments(dir.path())[0];
    let batches = lines(log("dump", segment, &["--output", "ndjson"]));
    write_at(segment, batches[0]["position"].as_u64().expect("a number"), &[0xff; 61]);
    let found = damage(segment);
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["from_offset"], &found[0]["to_offset"]), (&0.into(), &batches[1]["base_offset"]));
}

#[test]
fn a_lost_end_of_a_sealed_segment_is_told_up_to_the_next_segment() {
    let dir = stored();
    let all = segments(dir.path());
    let batches = lines(log("dump", &all[0], &["--output", "ndjson"]));
    let last = batches.last().expect("there are batches");
    let cut = last["position"].as_u64().expect("a number") + 30;
    OpenOptions::new().write(true).open(&all[0]).and_then(|file| file.set_len(cut)).expect("it is cut");
    let next = lines(log("dump", &all[1], &["--output", "ndjson"]))[0]["base_offset"].clone();
    let found = damage(dir.path());
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["from_offset"], &found[0]["to_offset"]), (&last["base_offset"], &next));
    assert_eq!(found[0]["size_bytes"], 30);
}

#[test]
fn zeros_are_damage_in_a_sealed_segment_and_none_at_the_end_of_the_newest() {
    let dir = stored();
    let all = segments(dir.path());
    let newest = all.last().expect("there are segments");
    let length = fs::metadata(newest).expect("a segment").len();
    write_at(newest, length, &[0; 5000]);
    let report = log("verify", dir.path(), &["--output", "json"]).json();
    assert_eq!(report["zero_bytes"], 5000);
    let dumped = lines(log("dump", newest, &["--output", "ndjson"]));
    assert_eq!(dumped.last().expect("a line")["zeros"], true);
    write_at(&all[0], fs::metadata(&all[0]).expect("a segment").len(), &[0; 100]);
    let found = damage(dir.path());
    assert_eq!((found.len(), &found[0]["size_bytes"]), (1, &100.into()));
}

#[test]
fn a_missing_segment_is_told_by_its_offsets() {
    let dir = stored();
    let all = segments(dir.path());
    let base = |path: &Path| lines(log("dump", path, &["--output", "ndjson"]))[0]["base_offset"].clone();
    let (from, to) = (base(&all[1]), base(&all[2]));
    fs::remove_file(&all[1]).expect("it is removed");
    let found = damage(dir.path());
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0]["from_offset"], &found[0]["to_offset"]), (&from, &to));
}

#[test]
fn offsets_that_come_twice_are_told() {
    let dir = stored();
    let all = segments(dir.path());
    let base = lines(log("dump", &all[1], &["--output", "ndjson"]))[0]["base_offset"].as_u64().expect("a number");
    fs::copy(&all[1], all[1].with_file_name(format!("{:020}.log", base - 5))).expect("it is copied");
    let found = damage(dir.path());
    let detail = found[0]["detail"].as_str().expect("words");
    assert!(detail.contains("in the next segment too"), "{found:?}");
    assert_eq!((&found[0]["file"], &found[0]["size_bytes"]), (&json!(all[0]), &0.into()));
}

#[test]
fn a_running_server_is_read_with_what_it_wrote_ahead() {
    let server = Server::new(&[]);
    for n in 0..10 {
        server.pipe(&["produce", "t"], format!("{n}\n")).ok();
    }
    let report = log("verify", &server.dir, &["--output", "json"]).json();
    assert_eq!((&report["records"], &report["damage"]), (&10.into(), &json!([])));
}

#[test]
fn what_is_no_log_is_told() {
    let dir = TempDir::new().expect("a temporary directory");
    let error = log("verify", dir.path(), &[]).failed(1);
    assert!(error.contains("no segments"), "{error}");
    let error = log("dump", &dir.path().join("nowhere.log"), &[]).failed(1);
    assert!(error.contains("nowhere.log"), "{error}");
}

/// Of twelve records, two in a batch, these stay: the newest of each key, and the mark that a key is gone.
#[test]
fn a_compacted_log_is_whole_and_what_went_from_it_is_told_calmly() {
    let server = Server::new(&[]);
    let config = ["--config", "cleanup.policy=compact", "--config", "compression.type=zstd"];
    server.levada(&[&["topic", "create", "t"][..], &config].concat()).ok();
    let record = |key: &'static str, n: u32| NewRecord::text(format!("{key} {n}")).with_key(key);
    for n in 0..4 {
        // Of all these only their places stay.
        server.store("t", &[record("a", n), record("b", n)]);
    }
    let gone = NewRecord { value: NewValue::Tombstone, ..record("b", 4) };
    server.store("t", &[record("a", 4), gone]);
    server.store("t", &[record("a", 5), record("c", 5)]);
    server.levada(&["topic", "compact", "t"]).ok();
    server.levada(&["consume", "t", "--group", "g"]).ok();
    server.levada(&["group", "reset", "g", "--topic", "t", "--to", "5"]).ok();
    let (status, dir) = server.terminate();
    assert!(status.success());
    let dir = dir.expect("it is its own");

    let said = log("verify", dir.path(), &[]);
    assert!(said.out.starts_with("whole: ") && said.out.trim_end().ends_with("0 damaged places"), "{said:?}");
    assert_eq!(said.err, "", "nothing to say");
    said.ok();
    let text = log("dump", dir.path(), &["--records"]).ok();
    assert!(!text.contains("DAMAGED") && !text.contains(" -1"), "{text}");
    let holds = |words: &str| text.lines().any(|line| line.contains(words));
    assert!(holds("offsets 0..7  no records, all were compacted away"), "{text}");
    assert!(holds("offsets 8..9  1 of 2 records") && holds("create time up to "), "{text}");
    assert!(holds("tombstones go after "), "{text}");
    assert!(holds("offsets 10..11  2 records"), "{text}");
    let batches = lines(log("dump", dir.path(), &["--output", "ndjson", "--records"]));
    let mut next = std::collections::BTreeMap::new();
    for batch in &batches {
        let next = next.entry(batch["file"].to_string()).or_insert(batch["base_offset"].as_u64());
        assert_eq!(batch["base_offset"].as_u64(), *next, "each offset is in a batch");
        *next = batch["last_offset"].as_u64().map(|last| last + 1);
        assert_eq!(batch["record_count"].as_u64(), batch["records"].as_array().map(|list| list.len() as u64));
        assert_eq!(batch["base_timestamp"].is_null(), batch["delete_horizon"].is_i64());
    }
    let marks: Vec<_> = batches.iter().filter(|batch| batch["delete_horizon"].is_i64()).collect();
    let mark = &marks[0]["records"][0];
    assert_eq!((marks.len(), &mark["offset"], &mark["key"], &mark["value"]), (1, &9.into(), &"b".into(), &Value::Null));
    let now = mark["timestamp"].as_i64().expect("a time");
    assert!(
        now > 1_600_000_000_000 && now <= marks[0]["max_timestamp"].as_i64().expect("a time"),
        "its own time: {mark}"
    );
}
