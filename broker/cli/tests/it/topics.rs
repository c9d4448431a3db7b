//! `levada topic`.

use crate::program::Server;

#[test]
fn a_topic_is_created_described_altered_and_deleted() {
    let server = Server::new(&[]);
    let created = server.levada(&["topic", "create", "orders", "--partitions", "3", "--config", "retention.ms=5000"]);
    assert_eq!(created.ok(), "created topic orders with 3 partitions\n");

    let topic = server.levada(&["topic", "describe", "orders", "--output", "json"]).json();
    assert_eq!((&topic["partition_count"], &topic["config"]["retention.ms"]), (&3.into(), &5000.into()));
    let text = server.levada(&["topic", "describe", "orders"]).ok();
    let retention: Vec<_> = text.lines().filter(|line| line.starts_with("retention.ms")).collect();
    assert_eq!(retention.len(), 1);
    assert!(retention[0].contains("5000") && retention[0].ends_with("set"), "{text}");

    let change = ["topic", "alter", "orders", "--partitions", "4", "--config", "durability=page-cache"];
    let topic = server.levada(&[&change[..], &["--reset", "retention.ms", "--output", "json"]].concat()).json();
    assert_eq!(topic["partition_count"], 4);
    assert_eq!(topic["config"], serde_json::json!({ "durability": "page-cache" }));

    assert_eq!(server.levada(&["topic", "delete", "orders"]).ok(), "deleted topic orders\n");
    let error = server.levada(&["topic", "describe", "orders"]).failed(1);
    assert!(error.contains("topic-not-found"), "{error}");
}

#[test]
fn topics_are_listed_in_every_format() {
    let server = Server::new(&[]);
    assert_eq!(server.levada(&["topic", "list"]).ok(), "there are no topics\n");
    assert_eq!(server.levada(&["topic", "list", "--output", "json"]).ok(), "[]\n");
    for name in ["b", "a"] {
        server.levada(&["topic", "create", name]).ok();
    }
    server.pipe(&["produce", "b"], "1\n2\n").ok();
    let text = server.levada(&["topic", "list"]).ok();
    let rows: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows[0][0], rows[1][0], &rows[2][..3]), ("TOPIC", "a", &["b", "1", "2"][..]));
    let json = server.levada(&["topic", "list", "--output", "json"]).json();
    assert_eq!((&json[0]["name"], &json[1]["name"]), (&"a".into(), &"b".into()));
    assert_eq!(server.levada(&["topic", "list", "--output", "ndjson"]).ok().lines().count(), 2);
}

#[test]
fn old_records_are_truncated() {
    let server = Server::new(&[]);
    server.pipe(&["produce", "t"], "1\n2\n3\n").ok();
    let said = server.levada(&["topic", "truncate", "t", "--before", "0:2"]).ok();
    assert_eq!(said, "partition 0 begins at offset 2\n");
    assert_eq!(server.levada(&["consume", "t"]).ok(), "3\n");
    let error = server.levada(&["topic", "truncate", "t", "--before", "0:9"]).failed(1);
    assert!(error.contains('9'), "{error}");
}

#[test]
fn wrong_command_lines_are_usage_errors() {
    let server = Server::new(&[]);
    for args in [
        &["topic", "create"][..],
        &["topic", "create", "t", "--config", "retention.ms"],
        &["topic", "alter", "t"],
        &["topic", "truncate", "t"],
        &["topic", "truncate", "t", "--before", "1"],
        &["topic", "create", "t", "--partitions", "many"],
    ] {
        server.levada(args).failed(2);
    }
    let error = server.levada(&["topic", "create", "t", "--config", "retention=1"]).failed(1);
    assert!(error.contains("unknown-config") && error.contains("retention.ms"), "{error}");
    let error = server.levada(&["topic", "create", "a/b"]).failed(1);
    assert!(error.contains("invalid-topic-name"), "{error}");
}
