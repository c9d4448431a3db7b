//! `levada produce`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::json;

use crate::program::{FEED, Server, levada, program, run, terminal, write_file};

/// The records of a topic as the interface writes them.
fn records(server: &Server, topic: &str) -> Vec<serde_json::Value> {
    let out = server.levada(&["consume", topic, "--output", "ndjson"]).ok();
    out.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

#[test]
fn the_feed_comes_back_byte_for_byte() {
    let server = Server::new(&[]);
    let file = server.dir.join("feed.ndjson");
    write_file(&file, FEED);
    let args = ["produce", "quakes", "--file", file.to_str().expect("it is text"), "--key-pointer", "/id"];
    let said = server.levada(&[&args[..], &["--output", "json"]].concat()).json();
    assert_eq!((&said["stored"], &said["refused"]), (&1707.into(), &0.into()));
    assert_eq!(server.levada(&["consume", "quakes"]).ok(), FEED);
    let quake = &records(&server, "quakes")[0];
    assert_eq!((&quake["key"], &quake["value"]["id"]), (&"ak18247005".into(), &"ak18247005".into()));
}

#[test]
fn numbers_and_spaces_in_json_are_kept() {
    let server = Server::new(&[]);
    let lines = "{\"n\": 1.0e2,  \"big\":123456789012345678901234567890}\n\"\\u00fc\"\n-0\nnull\n";
    server.pipe(&["produce", "t"], lines).ok();
    assert_eq!(server.levada(&["consume", "t"]).ok(), lines);
}

#[test]
fn any_line_can_be_text() {
    let server = Server::new(&[]);
    let lines = b"not json\n\n {\r\n last";
    server.pipe(&["produce", "t", "--format", "text"], lines).ok();
    assert_eq!(server.levada(&["consume", "t"]).ok().as_bytes(), b"not json\n\n {\r\n last\n");
    server.pipe(&["produce", "bytes", "--format", "text"], b"\xff\xfe\n").ok();
    assert_eq!(records(&server, "bytes")[0]["value_base64"], "//4=");
}

#[test]
fn keys_come_from_a_separator_and_go_to_one() {
    let server = Server::new(&[]);
    let lines = "k1\t{\"n\":1}\nk2\t\"x\"\n";
    server.pipe(&["produce", "t", "--key-separator", "\\t"], lines).ok();
    let keys: Vec<_> = records(&server, "t").iter().map(|record| record["key"].clone()).collect();
    assert_eq!(keys, ["k1", "k2"]);
    assert_eq!(server.levada(&["consume", "t", "--key-separator", "\\t"]).ok(), lines);
}

#[test]
fn partition_and_headers_are_those_named() {
    let server = Server::new(&[]);
    server.levada(&["topic", "create", "t", "--partitions", "3"]).ok();
    let args = ["produce", "t", "--partition", "2", "--header", "trace=a=b", "--header", "empty=", "--header", "null"];
    server.pipe(&args, "1\n").ok();
    let record = &records(&server, "t")[0];
    assert_eq!(record["partition"], 2);
    assert_eq!(record["headers"], json!([["trace", "a=b"], ["empty", ""], ["null", null]]));
    let error = server.pipe(&["produce", "t", "--partition", "3"], "1\n").failed(1);
    assert!(error.contains("line 1: "), "{error}");
    server.pipe(&["produce", "t", "--header", "=x"], "").failed(2);
}

#[test]
fn refused_lines_are_told_by_number_and_the_others_are_stored() {
    let server = Server::new(&[]);
    server.levada(&["topic", "create", "t", "--config", "max.message.bytes=10"]).ok();
    let lines = "1\n{broken\n\n\"12345678901234567890\"\n5\n";
    let printed = server.pipe(&["produce", "t", "--output", "json"], lines);
    assert_eq!(printed.code, Some(1));
    let said: serde_json::Value = serde_json::from_str(&printed.out).expect("it is JSON");
    assert_eq!((&said["stored"], &said["refused"]), (&2.into(), &2.into()));
    let failed: Vec<_> = said["failures"].as_array().expect("a list").iter().map(|f| f["line"].as_u64()).collect();
    assert_eq!(failed, [Some(2), Some(4)]);
    assert!(printed.err.contains("line 2: not JSON") && printed.err.contains("max.message.bytes"), "{}", printed.err);
    assert_eq!(server.levada(&["consume", "t"]).ok(), "1\n5\n");
}

#[test]
fn a_key_that_is_not_there_refuses_its_line() {
    let server = Server::new(&[]);
    let error = server.pipe(&["produce", "t", "--key-pointer", "/id"], "{\"id\":1}\n{}\n").failed(1);
    assert!(error.contains("line 2: there is nothing at /id"), "{error}");
    let error = server.pipe(&["produce", "t", "--key-separator", ":"], "a:1\n2\n").failed(1);
    assert!(error.contains("line 2: the separator"), "{error}");
    server.pipe(&["produce", "t", "--key-separator", ":", "--key-pointer", "/id"], "").failed(2);
}

#[test]
fn linger_and_batch_decide_how_many_requests_there_are() {
    let server = Server::new(&[]);
    let lines: String = (0..100).map(|n| format!("{n}\n")).collect();
    let requests = |args: &[&str]| {
        let json = server.pipe(&[&["produce", "t", "--output", "json"], args].concat(), &lines).json();
        json["requests"].as_u64().expect("a number")
    };
    assert_eq!(requests(&["--linger-ms", "0"]), 100);
    assert_eq!(requests(&["--linger-ms", "100000", "--batch", "30"]), 4);
    assert!(requests(&["--linger-ms", "100000"]) < 4);
}

#[test]
fn every_acks_stores() {
    let server = Server::new(&[]);
    for acks in ["all", "leader", "none"] {
        let said = server.pipe(&["produce", "t", "--acks", acks, "--output", "json"], "1\n").json();
        assert_eq!(said["stored"], 1, "{acks}");
    }
    // Nobody waits for the last one; the reader does.
    let out = server.levada(&["consume", "t", "--follow", "--from", "earliest", "--max", "3"]).ok();
    assert_eq!(out, "1\n1\n1\n");
}

#[test]
fn an_acks_that_is_none_is_a_usage_error_that_names_those_that_are() {
    let error = levada(&["produce", "t", "--acks", "most"]).failed(2);
    assert!(error.contains("--acks") && error.contains("all, leader, none"), "{error}");
}

#[test]
fn the_acks_that_were_chosen_are_asked_for() {
    for (flags, asked) in
        [(&["--acks", "leader"][..], "/records?acks=leader "), (&["--acks", "none"], "/records?acks=none ")]
    {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let mut command = program();
        command.args(["produce", "t", "--url", &url]).args(flags);
        let running = std::thread::spawn(move || run(&mut command, b"1\n"));
        let (mut stream, _) = listener.accept().expect("it connects");
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).expect("it asks");
        assert!(line.contains(asked), "{line}");
        let refusal = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        stream.write_all(refusal.as_bytes()).expect("it listens");
        running.join().expect("it does not panic").failed(1);
    }
}

#[test]
fn a_file_that_is_not_there_is_told() {
    let server = Server::new(&[]);
    let error = server.levada(&["produce", "t", "--file", "/nowhere/lines"]).failed(1);
    assert!(error.contains("/nowhere/lines"), "{error}");
}

#[test]
fn no_bar_is_drawn_where_nobody_watches() {
    let server = Server::new(&[]);
    let printed = server.pipe(&["produce", "t"], FEED);
    assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""));
    assert!(printed.out.starts_with("1707 stored ("), "{}", printed.out);
}

#[test]
fn a_bar_is_drawn_where_somebody_watches() {
    let server = Server::new(&[]);
    let file = server.dir.join("feed.ndjson");
    write_file(&file, FEED);
    let (mut screen, terminal) = terminal();
    let mut command = server.command(&["produce", "t", "--file", file.to_str().expect("it is text")]);
    let child = command.stdout(Stdio::piped()).stderr(terminal).spawn().expect("it starts");
    // Our copy of the other side goes with the command, so that the screen ends with the program.
    drop(command);
    let mut drawn = Vec::new();
    // The end of a terminal is an error (EIO).
    let _: std::io::Result<usize> = screen.read_to_end(&mut drawn);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.stdout.starts_with(b"1707 stored ("));
    let drawn = String::from_utf8_lossy(&drawn);
    assert!(drawn.contains("KiB/392.03 KiB"), "{drawn:?}");
}
