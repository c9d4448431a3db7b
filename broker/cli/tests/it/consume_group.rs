//! `levada consume --group`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use levada_api::{GroupState, JoinGroup};
use rustix::process::Signal;

use crate::group_support::{Member, describe, expel, find, wait_for};
use crate::program::{Running, Server};

/// More than one page's output fits in a pipe: 100 records of some KiB.
const LARGE: usize = 100;

/// Fills a topic of one partition with records that are told apart by their first word.
fn fill(server: &Server, topic: &str) -> Vec<String> {
    let lines: Vec<_> = (0..LARGE).map(|n| format!("{n} {}", "x".repeat(4000))).collect();
    server.pipe(&["produce", topic, "--format", "text"], lines.join("\n") + "\n").ok();
    lines
}

/// Numbers to one partition.
fn numbers(server: &Server, partition: u32, range: std::ops::Range<u32>) {
    let lines: String = range.map(|n| format!("{n}\n")).collect();
    server.pipe(&["produce", "t", "--partition", &partition.to_string()], lines).ok();
}

/// A member's name and what it holds.
type Share = (Option<String>, Vec<u32>);

/// What the members of group `g` hold, in order, once there are so many and the group is stable.
fn shares_of(server: &Server, members: usize) -> Vec<Share> {
    let mut shares = Vec::new();
    wait_for(|| {
        let Some(group) = find(server, "g") else { return false };
        let share = |member: levada_api::GroupMember| -> Share {
            (member.instance_id, member.assignment.iter().map(|place| place.partition).collect())
        };
        shares = group.members.into_iter().map(share).collect();
        group.state == GroupState::Stable && shares.len() == members
    });
    shares.sort();
    shares
}

fn committed(server: &Server, group: &str) -> u64 {
    let offsets = find(server, group).map(|group| group.offsets).unwrap_or_default();
    offsets.iter().map(|offset| offset.committed).sum()
}

/// A consumer whose reader takes the first line and then nothing, so that it is in the middle of writing.
fn stuck(command: &mut Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("it is piped");
    // Of no more bytes, so that who reads on has the next line from its beginning.
    BufReader::with_capacity(1, out).read_line(&mut line).expect("a line comes");
    (child, line)
}

fn kill(mut child: Child) {
    child.kill().expect("it is our child");
    child.wait().expect("it ends");
}

#[test]
fn what_is_committed_after_writing_comes_again_after_a_kill_and_nothing_is_lost() {
    let server = Server::new(&[]);
    let lines = fill(&server, "t");
    // The name gives the next one its partitions at once.
    let args = ["consume", "t", "--group", "g", "--instance-id", "one"];
    let (child, first) = stuck(&mut server.command(&args));
    assert_eq!(first.trim_end(), lines[0]);
    kill(child);
    let again = server.levada(&args).ok();
    assert!(again.lines().eq(&lines), "all of it again, from the first record that was not committed");
    assert_eq!(server.levada(&args).ok(), "", "and now it is committed");
}

#[test]
fn what_is_committed_before_writing_does_not_come_again_after_a_kill() {
    let server = Server::new(&[]);
    let lines = fill(&server, "t");
    let args = ["consume", "t", "--group", "g", "--instance-id", "one", "--commit", "before"];
    let (child, first) = stuck(&mut server.command(&args));
    assert_eq!(first.trim_end(), lines[0]);
    kill(child);
    assert_eq!(
        server.levada(&args).ok(),
        "",
        "what the killed one had not yet written is lost, and nothing is doubled"
    );
    server.pipe(&["produce", "t"], "1\n").ok();
    assert_eq!(server.levada(&args).ok(), "1\n");
}

#[test]
fn a_member_whose_reader_takes_its_time_stays_in_the_group() {
    let server = Server::new(&[]);
    let lines = fill(&server, "t");
    let args = ["consume", "t", "--group", "g", "--session-timeout-ms", "300"];
    let (mut slow, first) = stuck(&mut server.command(&args));
    // Several sessions long another one waits for the partition.
    let other = Member::join(&server, "g", JoinGroup::new(vec!["t".into()]));
    for _ in 0..4 {
        assert_eq!(other.fetch(500).records, []);
    }
    other.leave();
    let mut rest = String::new();
    slow.stdout.take().expect("it is piped").read_to_string(&mut rest).expect("it is text");
    assert!(slow.wait().expect("it ends").success());
    assert!((first + &rest).lines().eq(&lines), "each once");
    assert_eq!(committed(&server, "g"), LARGE as u64);
}

#[test]
fn a_killed_members_partitions_go_to_others_when_its_session_ends() {
    let server = Server::new(&[]);
    let lines = fill(&server, "t");
    let args = ["consume", "t", "--group", "g", "--follow", "--max", "100", "--session-timeout-ms", "500"];
    let (child, _) = stuck(&mut server.command(&args));
    kill(child);
    assert!(server.levada(&args).ok().lines().eq(&lines));
}

#[test]
fn members_share_the_partitions_and_one_that_ends_hands_its_own_over() {
    let server = Server::new(&[]);
    server.levada(&["topic", "create", "t", "--partitions", "4"]).ok();
    let start = || {
        let args = ["consume", "t", "--group", "g", "--follow"];
        Running::start(server.command(&args).stderr(Stdio::null()))
    };
    let (mut one, other) = (start(), start());
    let shares = shares_of(&server, 2);
    assert!(shares.iter().all(|(_, partitions)| partitions.len() == 2), "{shares:?}");
    for partition in 0..4 {
        numbers(&server, partition, partition * 25..partition * 25 + 25);
    }
    let mut read: Vec<Vec<u32>> = Vec::new();
    for member in [&one, &other] {
        let mut lines: Vec<u32> = (0..50).map(|_| member.line().parse().expect("a number")).collect();
        lines.sort_unstable();
        read.push(lines);
    }
    let numbers_of = |(_, partitions): &Share| -> Vec<u32> {
        partitions.iter().flat_map(|partition| partition * 25..partition * 25 + 25).collect()
    };
    let mut expected: Vec<_> = shares.iter().map(numbers_of).collect();
    expected.sort();
    read.sort();
    assert_eq!(read, expected, "each reads its own");
    one.signal(Signal::TERM);
    assert_eq!(one.rest(), Vec::<String>::new(), "nothing twice");
    assert!(one.wait().success());
    assert_eq!(shares_of(&server, 1)[0].1.len(), 4);
    for partition in 0..4 {
        numbers(&server, partition, 100 + partition..101 + partition);
    }
    let mut lines: Vec<_> = (0..4).map(|_| other.line()).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["100", "101", "102", "103"], "and nothing that the other one had committed");
}

#[test]
fn a_named_member_that_is_stopped_keeps_its_partitions_for_its_next_start_until_it_is_removed() {
    let server = Server::new(&[]);
    server.levada(&["topic", "create", "t", "--partitions", "4"]).ok();
    let start = |name| {
        let args = ["consume", "t", "--group", "g", "--follow", "--instance-id", name];
        Running::start(server.command(&args).stderr(Stdio::null()))
    };
    let (mut a, _b) = (start("a"), start("b"));
    let shares = shares_of(&server, 2);
    let generation = describe(&server, "g").generation;
    a.signal(Signal::TERM);
    assert!(a.wait().success());
    assert_eq!(shares_of(&server, 2), shares, "it has not left");
    let a = start("a");
    let partition = shares.iter().find(|(name, _)| name.as_deref() == Some("a")).expect("it is there").1[0];
    numbers(&server, partition, 7..8);
    assert_eq!(a.line(), "7");
    assert_eq!((shares_of(&server, 2), describe(&server, "g").generation), (shares, generation), "nothing was moved");
    drop(a);
    let members = describe(&server, "g").members;
    let a = members.iter().find(|member| member.instance_id.as_deref() == Some("a")).expect("it is there");
    expel(&server, "g", &a.member_id);
    let shares = shares_of(&server, 1);
    assert_eq!((shares[0].0.as_deref(), shares[0].1.len()), (Some("b"), 4));
}

#[test]
fn each_run_goes_on_where_the_last_one_committed() {
    let server = Server::new(&[]);
    numbers(&server, 0, 0..10);
    let read = |args: &[&str]| server.levada(&[&["consume", "t", "--group", "g"], args].concat()).ok();
    assert_eq!(read(&["--max", "3"]), "0\n1\n2\n");
    assert_eq!(read(&["--max", "2", "--commit", "before"]), "3\n4\n");
    assert_eq!(committed(&server, "g"), 5);
    assert_eq!(read(&["--from", "latest"]), "5\n6\n7\n8\n9\n", "what is committed wins over --from");
    let fresh = |group, from| server.levada(&["consume", "t", "--group", group, "--from", from]).ok();
    assert_eq!(fresh("i", "latest"), "");
    assert_eq!(fresh("j", "time:0").lines().count(), 10);
    let objects = server.levada(&["consume", "t", "--group", "h", "--output", "json"]).json();
    assert_eq!((&objects[9]["topic"], &objects[9]["value"]), (&"t".into(), &9.into()));
}

#[test]
fn several_topics_are_read_by_one_member() {
    let server = Server::new(&[]);
    server.pipe(&["produce", "a"], "1\n").ok();
    server.pipe(&["produce", "b"], "2\n").ok();
    let printed = server.levada(&["consume", "a", "b", "--group", "g", "--assignor", "range"]);
    assert!(printed.err.contains("holds a 0, b 0"), "{printed:?}");
    let mut lines: Vec<_> = printed.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1", "2"]);
    assert_eq!(describe(&server, "g").assignor.as_deref(), Some("range"));
}

#[test]
fn an_interrupt_commits_what_was_written_and_leaves() {
    let server = Server::new(&[]);
    numbers(&server, 0, 0..3);
    for signal in [Signal::INT, Signal::TERM] {
        let before = committed(&server, "g");
        let args = ["consume", "t", "--group", "g", "--follow"];
        let mut member = Running::start(server.command(&args).stderr(Stdio::null()));
        numbers(&server, 0, 3..4);
        wait_for(|| committed(&server, "g") > before);
        member.signal(signal);
        assert!(member.wait().success());
        assert!(describe(&server, "g").members.is_empty(), "it has left");
        let written = u64::try_from(member.rest().len()).expect("few");
        assert_eq!(committed(&server, "g"), before + written);
    }
}

#[test]
fn what_a_closed_pipe_did_not_take_is_not_committed() {
    let server = Server::new(&[]);
    let lines = fill(&server, "t");
    let mut reader = server
        .command(&["consume", "t", "--group", "g"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let out = reader.stdout.take().expect("it is piped");
    let head = Command::new("head").arg("-n1").stdin(out).output().expect("head is there");
    assert_eq!(String::from_utf8_lossy(&head.stdout).trim_end(), lines[0]);
    assert!(reader.wait().expect("it ends").success());
    assert_eq!(committed(&server, "g"), 0);
    assert!(describe(&server, "g").members.is_empty(), "it has left");
    assert!(server.levada(&["consume", "t", "--group", "g"]).ok().lines().eq(&lines));
}

#[test]
fn a_member_that_was_removed_joins_again_and_goes_on() {
    let server = Server::new(&[]);
    numbers(&server, 0, 0..2);
    let member = Running::start(server.command(&["consume", "t", "--group", "g", "--follow"]).stderr(Stdio::null()));
    assert_eq!((member.line(), member.line()), ("0".to_owned(), "1".to_owned()));
    wait_for(|| committed(&server, "g") == 2);
    let id = describe(&server, "g").members[0].member_id.clone();
    expel(&server, "g", &id);
    numbers(&server, 0, 2..3);
    assert_eq!(member.line(), "2");
    assert_ne!(describe(&server, "g").members[0].member_id, id);
}

#[test]
fn one_who_takes_over_the_name_ends_the_other() {
    let server = Server::new(&[]);
    numbers(&server, 0, 0..1);
    let args = ["consume", "t", "--group", "g", "--follow", "--instance-id", "one"];
    let mut first = Running::start(server.command(&args).stderr(Stdio::null()));
    assert_eq!(first.line(), "0");
    wait_for(|| committed(&server, "g") == 1);
    let second = Running::start(server.command(&args).stderr(Stdio::null()));
    assert_eq!(first.wait().code(), Some(1));
    numbers(&server, 0, 1..2);
    assert_eq!(second.line(), "1");
}

#[test]
fn a_member_goes_on_after_the_server_was_restarted() {
    let server = Server::new(&[]);
    numbers(&server, 0, 0..1);
    let member = Running::start(server.command(&["consume", "t", "--group", "g", "--follow"]).stderr(Stdio::null()));
    assert_eq!(member.line(), "0");
    wait_for(|| committed(&server, "g") == 1);
    let port = server.port();
    let (status, dir) = server.terminate();
    assert!(status.success());
    let dir = dir.expect("it is its own");
    let server = Server::on_port(dir.path(), port, &[]);
    numbers(&server, 0, 1..2);
    assert_eq!(member.line(), "1", "and nothing twice");
}

#[test]
fn what_does_not_fit_together_is_told() {
    let server = Server::new(&[]);
    numbers(&server, 0, 0..1);
    for (args, words) in [
        (&["consume", "t", "--commit", "before"][..], "--group"),
        (&["consume", "t", "--instance-id", "x"], "--group"),
        (&["consume", "t", "u"], "--group"),
        (&["consume", "t", "--group", "g", "--partition", "0"], "--partition"),
        (&["consume", "t", "--group", "g", "--from", "tail:3"], "earliest"),
        (&["consume", "t", "--group", "g", "--assignor", "fair"], "cooperative-sticky"),
    ] {
        let error = server.levada(args).failed(2);
        assert!(error.contains(words), "{args:?}: {error}");
    }
    let error = server.levada(&["consume", "nope", "--group", "g"]).failed(1);
    assert!(error.contains("topic-not-found"), "{error}");
}
