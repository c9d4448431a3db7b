//! `levada bench`. Nothing here looks at seconds.

use serde_json::Value;

use crate::program::Server;

const FIGURES: &[&str] = &[
    "records",
    "requests",
    "failed",
    "seconds",
    "records_per_second",
    "mb_per_second",
    "latency_ms_avg",
    "latency_ms_max",
    "latency_ms_p50",
    "latency_ms_p95",
    "latency_ms_p99",
    "latency_ms_p99_9",
];

fn bench(server: &Server, args: &[&str]) -> Value {
    let figures = server.levada(&[&["bench"], args, &["--output", "json"]].concat()).json();
    let names: Vec<_> = figures.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(names.len(), FIGURES.len(), "{names:?}");
    assert!(FIGURES.iter().all(|name| figures[*name].as_f64().is_some()), "{figures}");
    figures
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures of the exercise, for whoever runs it with --nocapture")]
fn lingering_needs_fewer_requests_for_the_same_records() {
    let server = Server::new(&[]);
    let run = |linger: &str| {
        bench(&server, &["produce", "--topic", "linger", "--create", "--records", "300", "--linger-ms", linger])
    };
    let (one_by_one, gathered) = (run("0"), run("20"));
    println!("linger 0:  {one_by_one}\nlinger 20: {gathered}");
    assert_eq!((&one_by_one["records"], &one_by_one["requests"]), (&300.into(), &300.into()));
    assert_eq!(gathered["records"], 300);
    assert!(gathered["requests"].as_u64() <= Some(150), "{gathered}");
    assert_eq!(server.levada(&["consume", "linger"]).ok().lines().count(), 600);
}

#[test]
fn what_is_stored_is_what_was_asked_for() {
    let server = Server::new(&[]);
    let args =
        ["produce", "--topic", "b", "--create", "--partitions", "3", "--durability", "page-cache", "--records", "100"];
    let more =
        ["--record-size", "50", "--connections", "4", "--batch", "10", "--linger-ms", "1000000", "--acks", "leader"];
    let figures = bench(&server, &[&args[..], &more].concat());
    // Each of the four sends its 25 in requests of 10, 10 and 5.
    assert_eq!((&figures["records"], &figures["requests"]), (&100.into(), &12.into()));
    let topic = server.levada(&["topic", "describe", "b", "--output", "json"]).json();
    assert_eq!((&topic["partition_count"], &topic["config"]["durability"]), (&3.into(), &"page-cache".into()));
    let values = server.levada(&["consume", "b"]).ok();
    assert_eq!(values.lines().map(str::len).collect::<Vec<_>>(), vec![50; 100]);

    let read = bench(&server, &["consume", "--topic", "b", "--connections", "2", "--batch", "20"]);
    assert_eq!(read["records"], 100);
    let read = bench(&server, &["consume", "--topic", "b", "--records", "30", "--batch", "10"]);
    assert_eq!((&read["records"], &read["requests"]), (&30.into(), &3.into()));
}

#[test]
fn a_run_by_time_tells_each_second() {
    let server = Server::new(&[]);
    let produced =
        server.levada(&["bench", "produce", "--seconds", "2", "--create", "--durability", "page-cache"]).ok();
    let read = server.levada(&["bench", "consume", "--seconds", "2"]).ok();
    for (text, verb) in [(produced, "sent"), (read, "read")] {
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.len() >= 2, "{text}");
        assert!(lines.iter().all(|line| line.contains(&format!(" records {verb}")) && line.contains("MB/s")), "{text}");
        let summary = lines.last().expect("there is one");
        assert!(["p50", "p95", "p99", "p99.9", "requests"].iter().all(|word| summary.contains(word)), "{summary}");
    }
}

#[test]
fn a_topic_that_is_another_is_not_measured() {
    let server = Server::new(&["--auto-create-topics=false"]);
    server.levada(&["topic", "create", "bench", "--config", "durability=page-cache"]).ok();
    let error = server.levada(&["bench", "produce", "--create", "--records", "1"]).failed(1);
    assert!(error.contains("page-cache"), "{error}");
    let error = server.levada(&["bench", "produce", "--topic", "nope", "--records", "1"]).failed(1);
    assert!(error.contains("topic-not-found"), "{error}");
    server.levada(&["bench", "produce", "--records", "1", "--seconds", "1"]).failed(2);
}
