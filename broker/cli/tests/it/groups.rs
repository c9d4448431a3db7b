//! `levada group offsets`.

use crate::program::Server;

#[test]
fn offsets_are_set_shown_and_only_tried_with_dry_run() {
    let server = Server::new(&[]);
    server.levada(&["topic", "create", "t", "--partitions", "2"]).ok();
    server.pipe(&["produce", "t", "--partition", "0"], "1\n2\n3\n").ok();
    let set = |args: &[&str]| {
        let json = ["--output", "json"];
        let args = [&["group", "offsets", "set", "g", "--topic", "t"], args, &json].concat();
        let offsets = server.levada(&args).json()["offsets"].clone();
        let pairs = offsets.as_array().expect("a list").iter();
        pairs.map(|o| (o["partition"].as_u64(), o["committed"].as_u64())).collect::<Vec<_>>()
    };
    assert_eq!(set(&["--to", "latest"]), [(Some(0), Some(3)), (Some(1), Some(0))]);
    assert_eq!(set(&["--to", "1", "--partition", "0", "--dry-run"]), [(Some(0), Some(1))]);
    let show = ["group", "offsets", "show", "g"];
    let text = server.levada(&show).ok();
    let rows: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows,
        [
            vec!["TOPIC", "PARTITION", "COMMITTED", "END", "LAG"],
            vec!["t", "0", "3", "3", "0"],
            vec!["t", "1", "0", "0", "0"]
        ]
    );
    assert_eq!(set(&["--to", "earliest", "--partition", "0"]), [(Some(0), Some(0))]);
    assert_eq!(server.levada(&[&show[..], &["--output", "json"]].concat()).json()["offsets"][0]["lag"], 3);
    assert_eq!(set(&["--to", "time:0", "--partition", "0"]), [(Some(0), Some(0))]);
}

#[test]
fn wrong_offsets_are_told() {
    let server = Server::new(&[]);
    let error = server.levada(&["group", "offsets", "set", "g", "--topic", "t", "--to", "soon"]).failed(2);
    assert!(error.contains("earliest"), "{error}");
    let error = server.levada(&["group", "offsets", "set", "g", "--topic", "t", "--to", "latest"]).failed(1);
    assert!(error.contains("topic-not-found"), "{error}");
}
