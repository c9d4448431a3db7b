//! `levada dlq`, on letters that somebody wrote. How records become letters is in `exercise.rs`.

use levada_client::NewRecord;
use serde_json::{Value, json};

use crate::program::{Running, Server};

const TOPIC: &str = "orders.dead-letter";

/// A letter of `orders`, as the broker writes it.
fn bury(server: &Server, key: &str, value: &str, headers: &[&str]) {
    let headers = [&["error=no such customer", "original_topic=orders", "original_partition=1"], headers].concat();
    let flags: Vec<_> = headers.iter().flat_map(|header| ["--header", header]).collect();
    server.pipe(&[&["produce", TOPIC, "--key-separator", "|"], &flags[..]].concat(), format!("{key}|{value}\n")).ok();
}

fn server() -> Server {
    let server = Server::new(&[]);
    server.levada(&["topic", "create", "orders", "--partitions", "3"]).ok();
    server
}

fn redrive(server: &Server, args: &[&str]) -> Vec<Value> {
    let args = [&["dlq", "redrive", TOPIC, "--output", "json"], args].concat();
    server.levada(&args).json().as_array().expect("a list").clone()
}

/// What a topic holds: its record objects.
fn records(server: &Server, topic: &str) -> Vec<Value> {
    server.levada(&["consume", topic, "--output", "json"]).json().as_array().expect("a list").clone()
}

#[test]
fn topics_of_letters_are_listed_by_their_name_or_by_what_they_hold() {
    let server = server();
    assert_eq!(server.levada(&["dlq", "list"]).ok(), "no topic holds dead letters\n");
    bury(&server, "k", "1", &["original_offset=7"]);
    bury(&server, "k", "2", &["original_offset=8"]);
    server.levada(&["topic", "create", "quiet.dead-letter"]).ok();
    server.pipe(&["produce", "morgue", "--header", "original_topic=payments"], "1\n").ok();
    let text = server.levada(&["dlq", "list"]).ok();
    let rows: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows.iter().skip(1).map(|row| row[..4].to_vec()).collect::<Vec<_>>(),
        [["morgue", "1", "1", "1"], [TOPIC, "1", "2", "2"], ["quiet.dead-letter", "1", "0", "0"],]
    );
    assert!(text.contains("orders 1:8") && text.contains("no such customer"), "{text}");
    redrive(&server, &["--max", "1"]);
    let list = server.levada(&["dlq", "list", "--output", "json"]).json();
    assert_eq!((&list[1]["offsets"], &list[1]["to_redrive"]), (&2.into(), &1.into()));
    assert_eq!((&list[1]["newest"]["original_topic"], &list[2]["newest"]), (&"orders".into(), &Value::Null));
}

#[test]
fn a_letter_is_shown_with_its_origin_its_reason_and_what_it_holds() {
    let server = server();
    bury(&server, "user-7", "{\"n\":1}", &["original_offset=7", "attempts=3"]);
    server.pipe(&["produce", TOPIC], "2\n").ok();
    let text = server.levada(&["dlq", "show", TOPIC]).ok();
    let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][0], "0:0");
    assert_eq!(lines[1], ["from", "orders", "1:7"]);
    assert_eq!(lines[2], ["error", "no", "such", "customer"]);
    assert_eq!((&lines[3][..], &lines[4][..]), (&["attempts", "3"][..], &["key", "\"user-7\""][..]));
    assert_eq!(lines[5], ["value", "{\"n\":1}"]);
    assert_eq!(lines[7], ["from", "unknown:", "it", "has", "no", "original_topic"]);
    let list = server.levada(&["dlq", "show", TOPIC, "--max", "1", "--output", "json"]).json();
    assert_eq!(list.as_array().map(Vec::len), Some(1));
    assert_eq!((&list[0]["original_offset"], &list[0]["attempts"]), (&7.into(), &3.into()));
    assert_eq!(list[0]["record"]["value"], json!({ "n": 1 }));
}

#[test]
fn following_letters_logs_each_as_a_warning() {
    let server = server();
    bury(&server, "k", "1", &["original_offset=7", "attempts=3"]);
    let log = Running::start(&mut server.command(&["dlq", "consume", TOPIC]));
    let line = log.line();
    let expected = "WARN dead letter of orders 1:7 error=\"no such customer\" attempts=3 at=0:0 key=\"k\" value=1";
    assert!(line.ends_with(expected), "{line}");
    let json = Running::start(&mut server.command(&["dlq", "consume", TOPIC, "--output", "ndjson"]));
    bury(&server, "k", "2", &["original_offset=8"]);
    assert!(log.line().contains("orders 1:8"));
    let lines: Vec<Value> = (0..2).map(|_| serde_json::from_str(&json.line()).expect("JSON")).collect();
    assert_eq!((&lines[1]["severity"], &lines[1]["original_offset"]), (&"WARN".into(), &8.into()));
}

#[test]
fn a_letter_goes_back_to_its_topic_once_and_as_it_was() {
    let server = server();
    server.pipe(&["produce", "orders", "--key-separator", "|"], "user-7|{\"n\":0}\n").ok();
    let partition = records(&server, "orders")[0]["partition"].clone();
    bury(&server, "user-7", "{\"n\": 1.0}", &["original_offset=7", "trace=abc"]);
    let told = redrive(&server, &["--dry-run"]);
    assert_eq!((told[0]["outcome"].as_str(), told[0]["to"].as_str()), (Some("would-be-sent"), Some("orders")));
    assert_eq!(records(&server, "orders").len(), 1, "nothing was sent");

    let told = redrive(&server, &[]);
    let offset = json!(1);
    assert_eq!((&told[0]["to_partition"], &told[0]["to_offset"]), (&partition, &offset), "where its key belongs");
    let back = records(&server, "orders")[1].clone();
    assert_eq!((&back["key"], &back["partition"], &back["offset"]), (&"user-7".into(), &partition, &offset));
    assert_eq!(back["headers"], json!([["trace", "abc"], ["redrive_count", "1"]]));
    let raw = server.levada(&["consume", "orders", "--from", "tail:1"]).ok();
    assert!(raw.contains("{\"n\": 1.0}"), "{raw}");

    assert_eq!(redrive(&server, &[]), Vec::<Value>::new(), "it is remembered");
    bury(&server, "user-7", "2", &["original_offset=8"]);
    let told = redrive(&server, &[]);
    assert_eq!((told.len(), &told[0]["offset"]), (1, &1.into()), "only what is new");
}

#[test]
fn a_letter_that_was_sent_but_not_remembered_is_stored_once() {
    let server = server();
    bury(&server, "k", "1", &["original_offset=7"]);
    server.pipe(&["produce", TOPIC, "--header", "original_topic=orders"], "2\n").ok();
    let first = redrive(&server, &[]);
    // As if it had been killed before it could remember.
    server.levada(&["group", "reset", &format!("redrive.{TOPIC}"), "--topic", TOPIC, "--to", "earliest"]).ok();
    assert_eq!(redrive(&server, &[]), first);
    assert_eq!(records(&server, "orders").len(), 2);
}

#[test]
fn a_letter_goes_back_with_the_time_of_its_record() {
    let server = server();
    bury(&server, "k", "1", &["original_offset=7", "original_timestamp=1600000000000"]);
    assert!(server.levada(&["dlq", "show", TOPIC]).ok().contains("2020-09-13T12:26:40"));
    redrive(&server, &[]);
    let back = records(&server, "orders")[0].clone();
    assert_eq!(
        (&back["timestamp"], &back["headers"]),
        (&1_600_000_000_000_i64.into(), &json!([["redrive_count", "1"]]))
    );
}

/// The group that remembers may have expired, and the keys of what was sent with it.
#[test]
fn old_letters_of_which_nothing_is_remembered_are_sent_only_when_asked_for() {
    let server = server();
    server.levada(&["topic", "create", TOPIC, "--partitions", "2"]).ok();
    let headers = vec![("original_topic".to_owned(), Some("orders".into()))];
    let old = NewRecord { headers, timestamp: Some(1_600_000_000_000), partition: Some(1), ..NewRecord::text("old") };
    server.store(TOPIC, &[old]);
    for args in [&["dlq", "redrive", TOPIC][..], &["dlq", "redrive", TOPIC, "--dry-run"]] {
        let error = server.levada(args).failed(1);
        assert!(error.contains("nothing is remembered of partition 1") && error.contains("--from"), "{error}");
    }
    assert_eq!(records(&server, "orders").len(), 0, "nothing was sent");
    let dry = redrive(&server, &["--from", "earliest", "--dry-run"]);
    assert_eq!(dry.len(), 1);
    assert_eq!(redrive(&server, &["--from", "latest", "--dry-run"]), Vec::<Value>::new());
    assert_eq!(redrive(&server, &["--from", "earliest"]).len(), 1);
    assert_eq!(redrive(&server, &[]), Vec::<Value>::new(), "now it is remembered");
}

#[test]
fn letters_that_would_go_in_circles_are_skipped_and_told() {
    let server = server();
    bury(&server, "k", "1", &["redrive_count=3"]);
    server.pipe(&["produce", TOPIC, "--header", &format!("original_topic={TOPIC}")], "2\n").ok();
    server.pipe(&["produce", TOPIC], "3\n").ok();
    bury(&server, "k", "4", &["redrive_count=2"]);
    let text = server.levada(&["dlq", "redrive", TOPIC]);
    assert!(text.err.contains("1 sent back, 3 skipped, 0 refused"), "{text:?}");
    let text = text.ok();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "0:0 skipped: it was sent back 3 times already",
            "0:1 skipped: it comes from this topic itself",
            "0:2 skipped: it has no original_topic",
        ]
    );
    assert!(lines[3].starts_with("0:3 sent back to orders ") && lines[3].ends_with("(redrive 3)"), "{text}");
    let error = server.levada(&["dlq", "redrive", TOPIC, "--to", TOPIC]).failed(2);
    assert!(error.contains("itself"), "{error}");
}

#[test]
fn letters_may_go_to_another_topic_and_only_as_many_as_asked_for() {
    let server = server();
    server.levada(&["topic", "create", "mended"]).ok();
    for value in ["1", "2", "3"] {
        bury(&server, "k", value, &[]);
    }
    assert_eq!(redrive(&server, &["--to", "mended", "--max", "2"]).len(), 2);
    assert_eq!(server.levada(&["consume", "mended"]).ok(), "1\n2\n");
    assert_eq!(redrive(&server, &["--to", "mended"]).len(), 1);
    assert_eq!(server.levada(&["consume", "mended"]).ok(), "1\n2\n3\n");
    assert_eq!(server.levada(&["consume", "orders"]).ok(), "");
}

#[test]
fn a_letter_that_its_topic_refuses_is_not_passed_over() {
    let server = server();
    server.levada(&["topic", "delete", "orders"]).ok();
    bury(&server, "k", "1", &[]);
    let printed = server.levada(&["dlq", "redrive", TOPIC]);
    assert!(
        printed.out.starts_with("0:0 refused by orders: ") && printed.out.contains("topic-not-found"),
        "{printed:?}"
    );
    printed.failed(1);
    assert!(server.levada(&["consume", "orders"]).failed(1).contains("topic-not-found"), "it was not made anew");
    server.levada(&["topic", "create", "orders"]).ok();
    assert_eq!(redrive(&server, &[]).len(), 1);
}

#[test]
fn letters_go_back_no_faster_than_asked_for() {
    let server = server();
    for _ in 0..4 {
        bury(&server, "k", "1", &[]);
    }
    assert_eq!(redrive(&server, &["--rate", "20/s"]).len(), 4);
    let times: Vec<_> = records(&server, "orders").iter().map(|record| record["timestamp"].as_i64()).collect();
    let (first, last) = (times[0].expect("a time"), times[3].expect("a time"));
    assert!(last - first >= 100, "three pauses of 50 ms, less what the first one's way took: {times:?}");
    server.levada(&["dlq", "redrive", TOPIC, "--rate", "0/s"]).failed(2);
}

#[test]
fn an_unknown_topic_is_told() {
    let server = Server::new(&["--auto-create-topics=false"]);
    for args in [&["dlq", "show", "nope"][..], &["dlq", "consume", "nope"], &["dlq", "redrive", "nope"]] {
        assert!(server.levada(args).failed(1).contains("topic-not-found"), "{args:?}");
    }
}
