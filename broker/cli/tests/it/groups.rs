//! `levada group`: list, describe, reset and delete.

use std::io::Write as _;

use levada_api::{JoinGroup, MemberState};
use serde_json::Value;

use crate::group_support::{Member, describe, find, wait_for};
use crate::program::{Server, terminal};

/// A server with the topic `t` of two partitions, and three records in the first.
fn server() -> Server {
    let server = Server::new(&[]);
    server.levada(&["topic", "create", "t", "--partitions", "2"]).ok();
    server.pipe(&["produce", "t", "--partition", "0"], "1\n2\n3\n").ok();
    server
}

/// Partition and offset of what a reset tells.
fn reset(server: &Server, args: &[&str]) -> Vec<(u64, u64)> {
    let args = [&["group", "reset", "g", "--output", "json"], args].concat();
    let offsets = server.levada(&args).json()["offsets"].clone();
    let number = |value: &Value| value.as_u64().expect("a number");
    offsets.as_array().expect("a list").iter().map(|o| (number(&o["partition"]), number(&o["committed"]))).collect()
}

#[test]
fn a_reset_goes_where_it_is_told_and_only_tries_with_dry_run() {
    let server = server();
    let reset = |args: &[&str]| reset(&server, args);
    assert_eq!(reset(&["--topic", "t", "--to", "latest"]), [(0, 3), (1, 0)]);
    assert_eq!(reset(&["--topic", "t:0", "--to", "1", "--dry-run"]), [(0, 1)]);
    assert_eq!(reset(&["--topic", "t:0", "--to", "-2"]), [(0, 1)], "the dry run set nothing");
    assert_eq!(reset(&["--topic", "t:0", "--topic", "t", "--to", "+1"]), [(0, 2), (1, 0)], "and never beyond the end");
    assert_eq!(reset(&["--topic", "t:0", "--to", "-9"]), [(0, 0)]);
    assert_eq!(reset(&["--topic", "t:0", "--to", "time:0"]), [(0, 0)]);
    let text = server.levada(&["group", "reset", "g", "--topic", "t:0", "--to", "2", "--dry-run"]).ok();
    let rows: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["TOPIC", "PARTITION", "BEFORE", "WOULD", "BE", "END", "LAG"]);
    assert_eq!(rows[1], ["t", "0", "0", "2", "3", "1"]);
}

#[test]
fn a_reset_that_cannot_be_is_told() {
    let server = server();
    let error = server.levada(&["group", "reset", "g", "--topic", "t", "--to", "soon"]).failed(2);
    assert!(error.contains("earliest"), "{error}");
    let error = server.levada(&["group", "reset", "g", "--topic", "nope", "--to", "latest"]).failed(1);
    assert!(error.contains("topic-not-found"), "{error}");
    let error = server.levada(&["group", "reset", "g", "--topic", "t:7", "--to", "+1"]).failed(1);
    assert!(error.contains("no partition 7"), "{error}");
    let error = server.levada(&["group", "reset", "g", "--topic", "t", "--to", "+1"]).failed(1);
    assert!(error.contains("nothing is committed"), "{error}");
}

#[test]
fn groups_are_listed_described_and_deleted() {
    let server = server();
    assert_eq!(server.levada(&["group", "list"]).ok(), "there are no groups\n");
    assert_eq!(server.levada(&["group", "list", "--output", "json"]).ok(), "[]\n");
    reset(&server, &["--topic", "t:0", "--to", "1"]);
    let text = server.levada(&["group", "list"]).ok();
    let rows: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows, [["GROUP", "STATE", "MEMBERS"], ["g", "empty", "0"]]);
    let text = server.levada(&["group", "describe", "g"]).ok();
    assert!(text.starts_with("group g, empty, ") && text.contains("it has no members"), "{text}");
    let row: Vec<_> = text.lines().last().expect("a line").split_whitespace().collect();
    assert_eq!(row[..5], ["t", "0", "1", "3", "2"]);
    assert_eq!(server.levada(&["group", "describe", "g", "--output", "json"]).json()["offsets"][0]["lag"], 2);

    let error = server.levada(&["group", "delete", "g"]).failed(2);
    assert!(error.contains("--yes"), "nobody can be asked: {error}");
    assert_eq!(server.levada(&["group", "delete", "g", "--yes"]).ok(), "deleted group g\n");
    for args in [&["group", "describe", "g"][..], &["group", "delete", "g", "--yes"]] {
        let error = server.levada(args).failed(1);
        assert!(error.contains("group-not-found") && error.contains("levada group list"), "{error}");
    }
}

#[test]
fn who_sits_at_a_terminal_is_asked_before_a_group_is_deleted() {
    let server = server();
    reset(&server, &["--topic", "t", "--to", "earliest"]);
    for (answer, code) in [("\n", 1), ("n\n", 1), ("y\n", 0)] {
        assert!(find(&server, "g").is_some());
        let (mut person, terminal) = terminal();
        let mut command = server.command(&["group", "delete", "g"]);
        person.write_all(answer.as_bytes()).expect("it is typed");
        let output = command.stdin(terminal).output().expect("it ends");
        assert_eq!(output.status.code(), Some(code), "{answer:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("Delete group g"), "{output:?}");
    }
    assert!(find(&server, "g").is_none());
}

#[test]
fn a_member_without_a_partition_is_idle_and_said_to_be() {
    let server = server();
    let members: Vec<_> = (0..3).map(|_| Member::join(&server, "g", JoinGroup::new(vec!["t".into()]))).collect();
    wait_for(|| {
        members.iter().for_each(|member| drop(member.fetch(0)));
        let group = describe(&server, "g");
        group.members.iter().filter(|member| member.state == MemberState::Idle).count() == 1
    });
    let text = server.levada(&["group", "describe", "g"]).ok();
    let idle: Vec<_> = text.lines().filter(|line| line.contains(" idle  ")).collect();
    assert_eq!(idle.len(), 1, "{text}");
    assert!(text.contains("more members than partitions"), "{text}");
    let list = server.levada(&["group", "list", "--output", "json"]).json();
    assert_eq!(list[0]["members"], 3);
}

#[test]
fn a_group_with_members_is_neither_reset_nor_deleted() {
    let server = server();
    let member = Member::join(&server, "g", JoinGroup::new(vec!["t".into()]));
    for args in [&["group", "reset", "g", "--topic", "t", "--to", "earliest"][..], &["group", "delete", "g", "--yes"]] {
        let error = server.levada(args).failed(1);
        assert!(error.contains("group-not-empty") && error.contains("1 active member"), "the server's words: {error}");
        assert!(error.contains("stop its members first"), "{error}");
    }
    member.leave();
    reset(&server, &["--topic", "t", "--to", "earliest"]);
}
