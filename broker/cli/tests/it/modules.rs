//! `levada module` and `levada serve` with real modules: the examples in Rust, through every command.

use std::path::PathBuf;

use levada_examples::example;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Server, levada, program, run, write_file};

const QUAKES: &str =
    "{\"id\":\"a\",\"magnitude\":5.5}\n{\"id\":\"b\",\"magnitude\":1.0}\n{\"id\":\"c\",\"magnitude\":6}\n";

/// A folder with the `.wasm` of an example.
fn file_of(name: &str) -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a temporary directory");
    let path = dir.path().join("module.wasm");
    write_file(&path, example(name).expect("an example").wasm);
    (dir, path)
}

fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn a_module_is_pushed_used_and_deleted() {
    let server = Server::new(&[]);
    assert_eq!(server.levada(&["module", "list"]).ok(), "there are no modules\n");
    let (_dir, wasm) = file_of("strong-quakes");
    let pushed = server.levada(&["module", "push", "strong", text(&wasm)]).ok();
    assert_eq!(pushed, "version 1 of strong is new; it is active\n");
    let again = server.levada(&["module", "push", "strong", text(&wasm), "--activate"]).ok();
    assert_eq!(again, "version 1 of strong was there already; it is active\n");
    assert!(server.levada(&["module", "list"]).ok().contains("strong  transform  1       1         0"));

    server.levada(&["topic", "create", "quakes"]).ok();
    server.pipe(&["produce", "quakes", "--key-pointer", "/id"], QUAKES).ok();
    let path = "v1/topics/quakes/records?filter=module:strong&filter_config=%7B%22at_least%22:5%7D";
    let read: Value = get(&server, path);
    let ids: Vec<_> = read["records"].as_array().expect("records").iter().map(|it| it["key"].clone()).collect();
    assert_eq!(ids, ["a", "c"]);

    server.levada(&["topic", "alter", "quakes", "--config", "validator=module:strong"]).failed(1);
    let config = ["topic", "alter", "quakes", "--config", "validator=module:strong", "--config"];
    server.levada(&[&config[..], &["validator.config={\"at_least\":5}"]].concat()).ok();
    let described = server.levada(&["module", "describe", "strong"]).ok();
    assert!(described.contains("used by: validator of quakes") && described.contains("calls"), "{described}");
    let refused = server.levada(&["module", "delete", "strong"]).failed(1);
    assert!(refused.contains("validator of quakes"), "{refused}");
    server.levada(&["topic", "alter", "quakes", "--reset", "validator", "--reset", "validator.config"]).ok();
    server.levada(&["module", "logs", "strong"]).ok();
    let (_other, redact) = file_of("redact-fields");
    let pushed = server.levada(&["module", "push", "strong", text(&redact)]).ok();
    assert_eq!(pushed, "version 2 of strong is new; version 1 is active\n");
    server.levada(&["module", "activate", "strong", "2"]).ok();
    assert_eq!(server.levada(&["module", "activate", "strong", "1"]).ok(), "version 1 of strong is active\n");
    assert_eq!(server.levada(&["module", "delete", "strong"]).ok(), "deleted module strong\n");
}

/// The JSON at a path.
fn get(server: &Server, path: &str) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let url = format!("{}/{path}", server.url);
    let answer = runtime.block_on(async { reqwest::get(url).await.expect("an answer").text().await.expect("a body") });
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn what_is_no_module_is_refused_in_words() {
    let server = Server::new(&[]);
    let dir = TempDir::new().expect("a temporary directory");
    let path = dir.path().join("module.wasm");
    write_file(&path, b"no wasm");
    let refused = server.levada(&["module", "push", "bad", text(&path)]).failed(1);
    assert!(refused.contains("no usable module") && refused.contains("invalid-module"), "{refused}");
    write_file(&path, b"\0asm\x01\0\0\0");
    let empty = server.levada(&["module", "push", "bad", text(&path)]).failed(1);
    assert!(empty.contains("invalid-module"), "{empty}");
    assert_eq!(server.levada(&["module", "list"]).ok(), "there are no modules\n");
    let missing = server.levada(&["module", "push", "bad", "/no/such/file"]).failed(1);
    assert!(missing.contains("/no/such/file cannot be read"), "{missing}");
}

#[test]
fn a_local_file_is_tried_on_local_records_without_a_server() {
    let (_dir, wasm) = file_of("strong-quakes");
    let args = ["module", "test", text(&wasm), "--config", "{\"at_least\":5}", "--key-pointer", "/id"];
    let printed = run(program().args(args), QUAKES.as_bytes());
    assert!(printed.err.contains("3 records in, 2 out"), "{printed:?}");
    let out = printed.ok();
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert!(lines[0].starts_with("1: {") && lines[0].contains("\"value\":{\"id\":\"a\",\"magnitude\":5.5}"), "{out}");
    assert!(lines[1].starts_with("3: {"), "{out}");

    let told = run(program().args(args).args(["--output", "json"]), QUAKES.as_bytes()).json();
    assert_eq!((&told["inputs"], &told["verdicts"][1]["verdict"]), (&json!(3), &json!("drop")));
    assert!(told["instructions"].as_u64().is_some_and(|count| count > 0));

    let same = run(program().args(args).args(["--compare", text(&wasm)]), QUAKES.as_bytes());
    assert!(same.err.contains("both do the same"), "{same:?}");
    let (_other, flatten) = file_of("redact-fields");
    let failed = run(program().args(["module", "test", text(&flatten), "--config", "7"]), QUAKES.as_bytes());
    assert!(failed.err.contains("invalid-module-config"), "{failed:?}");
    let nothing = run(program().args(args), b"").failed(2);
    assert!(nothing.contains("no records"), "{nothing}");
}

#[test]
fn an_assignor_is_tried_on_members_and_topics() {
    let (_dir, wasm) = file_of("weighted-assignor");
    let group = "{\"members\":[{\"member_id\":\"m1\",\"instance_id\":\"big\"},{\"member_id\":\"m2\"}],
        \"topics\":[{\"topic\":\"orders\",\"partitions\":4}]}";
    let config = "{\"weights\":{\"big\":3}}";
    let args = ["module", "test", text(&wasm), "--world", "assignor", "--config", config];
    let printed = run(program().args(args), group.as_bytes());
    assert!(printed.err.contains("2 members in, 2 out"), "{printed:?}");
    let out = printed.ok();
    let shares: Vec<_> = out.lines().map(|line| line.matches("orders").count()).collect();
    assert_eq!(shares, [3, 1], "{out}");
    let refused = run(program().args(args), b"{\"n\":1}").failed(2);
    assert!(refused.contains("members") && refused.contains("topics"), "{refused}");
}

#[test]
fn members_join_with_the_config_of_an_assignor() {
    let server = Server::new(&[]);
    let (_dir, wasm) = file_of("weighted-assignor");
    server.levada(&["module", "push", "weighted", text(&wasm)]).ok();
    server.levada(&["topic", "create", "orders", "--partitions", "2"]).ok();
    server.pipe(&["produce", "orders"], "1\n2\n").ok();
    let consume = ["consume", "orders", "--from", "earliest", "--group", "g", "--assignor", "module:weighted"];
    let configured = |config: &'static str| [&consume[..], &["--assignor-config", config]].concat();
    let refused = server.levada(&configured("{\"default_weight\":0}")).failed(1);
    assert!(refused.contains("invalid-module-config"), "{refused}");
    assert_eq!(server.levada(&configured("{\"default_weight\":2}")).ok().lines().count(), 2);
    let described = server.levada(&["group", "describe", "g"]).ok();
    assert!(described.contains("assignor module:weighted with {\"default_weight\":2}"), "{described}");
    server.levada(&["module", "delete", "weighted"]).ok();
}

#[test]
fn a_project_is_written_and_says_how_to_go_on() {
    let dir = TempDir::new().expect("a temporary directory");
    let folder = dir.path().join("shout");
    let args = ["module", "new", "shout", "--world", "transform", "--lang", "js", "--dir", text(&folder)];
    let told = levada(&args).ok();
    assert!(told.contains("npm run build") && told.contains("levada module push shout"), "{told}");
    assert!(folder.join("module.js").exists());
    let occupied = levada(&args).failed(1);
    assert!(occupied.contains("not an empty folder"), "{occupied}");
    levada(&["module", "new", "No Name", "--world", "transform"]).failed(2);
    levada(&["module", "new", "name", "--world", "filter"]).failed(2);
}

#[test]
fn the_demo_brings_modules_and_a_broker_may_run_none() {
    let server = Server::new(&["--demo", "--demo-pace-ms=1000"]);
    let names = |server: &Server| {
        let listed = server.levada(&["module", "list", "--output", "json"]).json();
        let names = listed.as_array().expect("a list").iter().map(|it| it["name"].as_str().expect("a name").to_owned());
        names.collect::<Vec<_>>()
    };
    let expected: Vec<_> = levada_examples::examples().iter().map(|example| example.name.to_owned()).collect();
    assert!((0..100_000).any(|_| names(&server) == expected), "all come");
    let (status, dir) = server.terminate();
    assert!(status.success());
    let dir = dir.expect("it is its own");
    let server = Server::on(dir.path(), &["--modules=false"]);
    assert_eq!(names(&server), expected, "they are kept");
    let (_file, wasm) = file_of("strong-quakes");
    assert!(server.levada(&["module", "push", "x", text(&wasm)]).failed(1).contains("modules-off"));
}

#[test]
fn a_processor_runs_an_example_from_topic_to_topic() {
    let server = Server::new(&[]);
    let (dir, wasm) = file_of("strong-quakes");
    server.levada(&["module", "push", "strong-quakes", text(&wasm)]).ok();
    for topic in ["quakes", "strong"] {
        server.levada(&["topic", "create", topic]).ok();
    }
    server.pipe(&["produce", "quakes", "--key-pointer", "/id"], QUAKES).ok();
    let document = dir.path().join("strong.json");
    let steps = json!([
        { "filter": { "json": "/magnitude", "greater": 2 } },
        { "transform": { "module": "strong-quakes", "config": { "at_least": 6 } } }
    ]);
    let wanted = json!({ "sources": [{ "topic": "quakes" }], "steps": steps, "sink": { "topic": "strong" } });
    write_file(&document, wanted.to_string());
    let trial = server.levada(&["processor", "dry-run", text(&document)]);
    assert!(trial.err.contains("3 records in, 1 out, 0 failed"), "{trial:?}");
    let put = server.levada(&["processor", "put", "strong", text(&document)]).ok();
    assert_eq!(put, "version 1 of strong runs\n");
    let args = ["consume", "strong", "--from", "earliest", "--follow", "--max", "1", "--output", "ndjson"];
    let record: Value = serde_json::from_str(server.levada(&args).ok().trim()).expect("a record");
    assert_eq!(record["key"], "c");
    assert!(server.levada(&["processor", "list"]).ok().contains("strong     running"));
    assert!(server.levada(&["processor", "reset", "strong", "--to", "earliest"]).failed(1).contains("pause"));
    assert!(server.levada(&["processor", "pause", "strong"]).ok().starts_with("strong is paused"));
    assert!(server.levada(&["processor", "reset", "strong", "--to", "earliest", "--dry-run"]).ok().contains("quakes"));
    server.levada(&["processor", "resume", "strong"]).ok();
    assert!(server.levada(&["processor", "describe", "strong"]).ok().starts_with("strong is running"));
    assert_eq!(server.levada(&["processor", "delete", "strong"]).ok(), "deleted processor strong\n");
}
