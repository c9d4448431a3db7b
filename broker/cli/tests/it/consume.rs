//! `levada consume`.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::program::{FEED, Running, Server, program, run};

fn numbers(server: &Server, topic: &str, from: u32, to: u32) {
    let lines: String = (from..to).map(|n| format!("{n}\n")).collect();
    server.pipe(&["produce", topic], lines).ok();
}

#[test]
fn reading_begins_where_it_is_told() {
    let server = Server::new(&[]);
    numbers(&server, "t", 0, 5);
    let read = |args: &[&str]| server.levada(&[&["consume", "t"], args].concat()).ok();
    for partition in [&[][..], &["--partition", "0"]] {
        let from = |from| read(&[&["--from", from], partition].concat());
        assert_eq!(read(partition), "0\n1\n2\n3\n4\n");
        assert_eq!(from("earliest"), "0\n1\n2\n3\n4\n");
        assert_eq!(from("latest"), "");
        assert_eq!(from("tail:2"), "3\n4\n");
        assert_eq!(from("time:0"), "0\n1\n2\n3\n4\n");
        assert_eq!(from("time:99999999999999"), "");
    }
    assert_eq!(read(&["--partition", "0", "--from", "3"]), "3\n4\n");
    let error = server.levada(&["consume", "t", "--partition", "0", "--from", "9"]).failed(1);
    assert!(error.contains("offset-beyond-end") && error.contains("levada topic describe"), "{error}");
    let error = server.levada(&["consume", "t", "--partition", "7"]).failed(1);
    assert!(error.contains("partition-not-found"), "{error}");
    server.levada(&["consume", "t", "--from", "yesterday"]).failed(1);
}

#[test]
fn max_ends_it_and_the_cursor_goes_on() {
    let server = Server::new(&[]);
    server.levada(&["topic", "create", "t", "--partitions", "2"]).ok();
    for partition in ["0", "1"] {
        server.pipe(&["produce", "t", "--partition", partition], "1\n2\n3\n").ok();
    }
    let printed = server.levada(&["consume", "t", "--max", "4"]);
    let cursor = printed.err.trim().strip_prefix("go on with --from ").expect("it tells the cursor").to_owned();
    let first = printed.ok();
    let rest = server.levada(&["consume", "t", "--from", &cursor]).ok();
    let mut all: Vec<_> = first.lines().chain(rest.lines()).collect();
    assert_eq!((first.lines().count(), rest.lines().count()), (4, 2));
    all.sort_unstable();
    assert_eq!(all, ["1", "1", "2", "2", "3", "3"]);
    assert_eq!(server.levada(&["consume", "t", "--partition", "1", "--max", "2"]).ok(), "1\n2\n");
}

#[test]
fn every_format_has_all_records() {
    let server = Server::new(&[]);
    server.pipe(&["produce", "t", "--key-separator", ":"], "a:1\nb:\"x\"\n").ok();
    let array = server.levada(&["consume", "t", "--output", "json"]).json();
    assert_eq!((&array[0]["key"], &array[1]["value"]), (&"a".into(), &"x".into()));
    let lines = server.levada(&["consume", "t", "--output", "ndjson"]).ok();
    let objects: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(serde_json::Value::from(objects), array);
    assert_eq!(server.levada(&["consume", "t", "--from", "latest", "--output", "json"]).ok(), "[]\n");
    server.levada(&["consume", "t", "--output", "json", "--key-separator", ":"]).failed(2);
}

#[test]
fn a_json_value_with_line_breaks_is_one_line_of_ndjson() {
    let server = Server::new(&[]);
    // As a curl user may send it.
    let client = levada_client::Client::new(&server.url).expect("a good address");
    let record = levada_client::NewRecord::json("{\n  \"a\": 1\n}").expect("it is JSON");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(client.produce("t", &[record], levada_client::AcksWord::All)).expect("it is stored");
    let out = server.levada(&["consume", "t", "--output", "ndjson"]).ok();
    assert_eq!(out.lines().count(), 1, "{out}");
    let record: serde_json::Value = serde_json::from_str(&out).expect("it is JSON");
    assert_eq!(record["value_text"], "{\n  \"a\": 1\n}");
}

#[test]
fn following_sees_what_comes_live() {
    let server = Server::new(&[]);
    numbers(&server, "t", 0, 2);
    for partition in [&[][..], &["--partition", "0"]] {
        let args = [&["consume", "t", "--follow", "--from", "tail:2"], partition].concat();
        let reader = Running::start(&mut server.command(&args));
        reader.line();
        reader.line();
        server.pipe(&["produce", "t"], "\"live\"\n").ok();
        assert_eq!(reader.line(), "\"live\"");
    }
}

#[test]
fn following_begins_with_what_comes_next() {
    let server = Server::new(&[]);
    numbers(&server, "t", 0, 3);
    let reader = Running::start(&mut server.command(&["consume", "t", "--follow", "--max", "1"]));
    // Where it began is known only once something comes; so something comes until it does.
    let mut child = Running::start(&mut server.command(&["bench", "produce", "--topic", "t", "--linger-ms", "0"]));
    let first = reader.line();
    assert!(first.len() > 100, "it is one of the bench's values: {first}");
    child.signal(Signal::KILL);
    child.wait();
}

#[test]
fn following_goes_on_after_the_server_was_restarted() {
    let server = Server::new(&[]);
    numbers(&server, "t", 0, 2);
    let reader = Running::start(&mut server.command(&["consume", "t", "--follow", "--from", "earliest"]));
    let by_partition =
        Running::start(&mut server.command(&["consume", "t", "--follow", "--from", "earliest", "--partition", "0"]));
    for reader in [&reader, &by_partition] {
        assert_eq!((reader.line(), reader.line()), ("0".to_owned(), "1".to_owned()));
    }
    let port = server.port();
    let (status, dir) = server.terminate();
    assert!(status.success());
    let dir = dir.expect("it is its own");
    let server = Server::on_port(dir.path(), port, &[]);
    numbers(&server, "t", 2, 4);
    for reader in [&reader, &by_partition] {
        assert_eq!((reader.line(), reader.line()), ("2".to_owned(), "3".to_owned()));
    }
}

#[test]
fn an_interrupt_ends_following_with_a_whole_document() {
    let server = Server::new(&[]);
    numbers(&server, "t", 0, 2);
    let args = ["consume", "t", "--follow", "--from", "earliest", "--output", "json"];
    let mut reader = Running::start(&mut server.command(&args));
    // The bracket, and the first record with the comma that comes with the second.
    let mut text: Vec<String> = (0..2).map(|_| reader.line()).collect();
    reader.signal(Signal::INT);
    text.extend(reader.rest());
    assert!(reader.wait().success());
    let records: serde_json::Value = serde_json::from_str(&text.join("\n")).expect("it is a whole array");
    assert_eq!(records.as_array().map(Vec::len), Some(2));
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let server = Server::new(&[]);
    server.pipe(&["produce", "t"], FEED.repeat(3)).ok();
    let mut reader =
        server.command(&["consume", "t"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let out = reader.stdout.take().expect("it is piped");
    let head = Command::new("head").arg("-n1").stdin(out).output().expect("head is there");
    assert_eq!(head.stdout, FEED.lines().next().map(|line| format!("{line}\n")).expect("a line").as_bytes());
    let output = reader.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_quiet_command_is_quiet() {
    let server = Server::new(&[]);
    numbers(&server, "t", 0, 1);
    let printed = run(program().args(["consume", "t", "--url", &server.url]), b"");
    assert_eq!((printed.out.as_str(), printed.err.as_str()), ("0\n", ""));
}
