//! PC-26 to PC-30 of the cases that others got wrong, as they are written there, and forged artifacts.

use std::path::{Path, PathBuf};

use levada_client::{AcksWord, FetchQuery, NewRecord};
use levada_fixtures::{CASES, Guest, embed, stamp};
use serde_json::json;
use tempfile::TempDir;

use super::broker::{Broker, document, says, texts};
use super::soak;
use crate::program::{Server, write_file};

/// Bytes of a batch before its records, and where in them is what is looked at (Kafka's v2).
const BATCH_HEAD_BYTES: usize = 61;

/// `(partition, value)` as records.
fn placed(values: &[(u32, &str)]) -> Vec<NewRecord> {
    let record = |(partition, value): &(u32, &str)| NewRecord {
        partition: Some(*partition),
        ..NewRecord::text(*value).with_key((*value).to_owned())
    };
    values.iter().map(record).collect()
}

/// PC-26: partition 0 has ok1, bad, ok2; partition 1 has ok3, ok4.
async fn with_poison(broker: &Broker) {
    broker.topic("in", 2, json!({})).await;
    let values = [(0, "ok1"), (0, "bad"), (0, "ok2"), (1, "ok3"), (1, "ok4")];
    broker.store("in", &placed(&values)).await;
    broker.put("cases", CASES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pc_26_one_record_that_fails_follows_the_rule_and_all_others_come_out() {
    let broker = Broker::new(&[]);
    with_poison(&broker).await;
    for (name, rule) in
        [("set-aside", json!({ "then": "dead_letter", "topic": "aside" })), ("skip", json!({ "then": "skip" }))]
    {
        broker.topic(name, 2, json!({})).await;
        broker.processor(name, &document("in", "cases", name, json!({ "on_error": rule }))).await;
        let standing = broker.worked_off(name).await;
        let positions: Vec<_> = standing.tasks.iter().map(|task| (task.partition, task.position)).collect();
        assert_eq!(positions, [(0, 3), (1, 2)], "the offset moves: {standing:?}");
        let mut values = texts(&broker.all(name).await);
        values.sort_unstable();
        assert_eq!(values, ["ok1", "ok2", "ok3", "ok4"].map(|value| Some(value.to_owned())));
        broker.processor_that(name, |it| it.tasks.iter().map(|task| task.errors).sum::<u64>() == 1).await;
    }
    let letters = broker.all("aside").await;
    assert_eq!(texts(&letters), [Some("bad".to_owned())]);
    let header = |name: &str| {
        let found = letters[0].headers.iter().find(|(header, _)| header == name).and_then(|(_, text)| text.as_deref());
        String::from_utf8_lossy(found.unwrap_or_else(|| panic!("{name}"))).into_owned()
    };
    assert_eq!([header("original_topic"), header("original_partition"), header("original_offset")], ["in", "0", "1"]);
    assert_eq!(header("attempts"), "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pc_26_one_that_is_to_stop_stops_and_shows_where() {
    let broker = Broker::new(&[]);
    with_poison(&broker).await;
    broker.topic("out", 2, json!({})).await;
    broker.processor("p", &document("in", "cases", "out", json!({ "on_error": { "then": "pause" } }))).await;
    let begun = std::time::Instant::now();
    let failed = loop {
        let standing = broker.standing("p").await;
        if standing.state.as_str() == "failed" {
            break standing;
        }
        assert!(begun.elapsed() < super::broker::PATIENCE, "{standing:?}");
        tokio::task::yield_now().await;
    };
    let failure = failed.failure.expect("it says why");
    assert_eq!((failure.topic.as_deref(), failure.partition, failure.offset), (Some("in"), Some(0), Some(1)));
    let values = texts(&broker.all("out").await);
    assert!(!values.contains(&Some("ok2".to_owned())) && !values.contains(&Some("bad".to_owned())), "{values:?}");
    // Another version takes over where it stood.
    broker.put("cases", stamp(1)).await;
    broker.client.resume_processor("p").await.expect("it goes on");
    broker.worked_off("p").await;
    assert_eq!(broker.all("out").await.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pc_26_a_trap_at_the_third_call_costs_those_calls_alone() {
    let broker = Broker::new(&[]);
    let third = "(if (i32.eq (global.get $calls) (i32.const 3)) (then unreachable))";
    broker.put("third", Guest::transform(third).build()).await;
    broker.topic("judged", 1, json!({ "validator": "module:third" })).await;
    let mut passed = Vec::new();
    for call in 1..=10 {
        let answer = broker.produce("judged", &call.to_string()).await;
        if let Err(problem) = &answer {
            says(problem, "module-failed", "unreachable");
        }
        passed.push(answer.is_ok());
    }
    assert_eq!(passed, [true, true, false, true, true, false, true, true, false, true]);
    let stored: Vec<_> = texts(&broker.all("judged").await).into_iter().flatten().collect();
    assert_eq!(stored, ["1", "2", "4", "5", "7", "8", "10"]);
    let stats = broker.client.module_stats("third", None).await.expect("numbers");
    assert_eq!((stats.calls, stats.traps), (10, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pc_27_what_never_returns_is_stopped_and_no_start_waits_for_it() {
    let bare =
        "(module (memory (export \"memory\") 1) (func (export \"X\") (result i32) (loop $l (br $l)) (unreachable)))";
    let bare_start = "(module (memory (export \"memory\") 1) (func $s (loop $l (br $l))) (start $s))";
    let dir = TempDir::new().expect("a temporary directory");
    let broker = Broker::of(Server::on(dir.path(), &[]));
    for text in [bare, bare_start] {
        let wasm = wat::parse_str(text).expect("a module");
        says(&broker.put_refused("bare", wasm).await, "invalid-module", "levada:plugin/module@0.1.0");
    }
    let start = Guest { items: "(func $s (loop $l (br $l))) (start $s)".to_owned(), ..Guest::new() };
    says(&broker.put_refused("start", start.build()).await, "invalid-module", "it took too long");
    broker.put("endless", Guest::transform("(loop $l (br $l))").build()).await;
    broker.topic("held", 1, json!({ "validator": "module:endless" })).await;
    broker.topic("in", 1, json!({})).await;
    broker.topic("out", 1, json!({})).await;
    broker.produce("in", "a").await.expect("it is stored");
    let rule = json!({ "on_error": { "attempts": 100 } });
    broker.processor("p", &document("in", "endless", "out", rule)).await;
    for _ in 0..2 {
        says(&broker.produce("held", "a").await.expect_err("it is not judged"), "module-timeout", "too long");
    }
    // The server is ready with it, again and again, and whoever does not use it has nothing of it.
    let mut broker = broker;
    for _ in 0..3 {
        let Broker { server, .. } = broker;
        server.running.signal(rustix::process::Signal::KILL);
        drop(server);
        broker = Broker::of(Server::on(dir.path(), &[]));
        broker.client.ready().await.expect("it is ready");
        broker.produce("in", "a").await.expect("it is stored");
        says(&broker.produce("held", "a").await.expect_err("it is not judged"), "module-timeout", "too long");
    }
    assert_eq!((broker.stored("held").await, broker.stored("in").await), (0, 4));
    let names: Vec<_> = broker.client.modules().await.expect("a list").into_iter().map(|module| module.name).collect();
    assert_eq!(names, ["endless"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pc_28_memory_has_a_cap_for_each_and_for_all() {
    // Most memory of one is 128 MiB; of all together as little here.
    let broker = Broker::new(&["--modules-memory-bytes", &(128 << 20).to_string()]);
    broker.topic("stored", 1, json!({})).await;
    broker.produce("stored", "a").await.expect("it is stored");
    let huge = Guest { memory: "65536", ..Guest::new() };
    says(&broker.put_refused("huge", huge.build()).await, "invalid-module", "bytes of memory at its start");
    let table = Guest { items: "(table 10000000 funcref)".to_owned(), ..Guest::new() };
    says(&broker.put_refused("table", table.build()).await, "invalid-module", "elements in a table");
    // It sees a growth that fails, and copes; or traps, which is told as what it is.
    let grow = "(loop $more (br_if $more (i32.ne (i32.const -1) (memory.grow (i32.const 16)))))";
    broker.put("copes", Guest::transform(grow).build()).await;
    broker.put("traps", Guest::transform(&format!("{grow} unreachable")).build()).await;
    assert_eq!(broker.filtered("stored", "module:copes").await, Ok(vec!["a".to_owned()]));
    says(&broker.filtered("stored", "module:traps").await.expect_err("it traps"), "module-failed", "memory");
    // 16 MiB each from the start: eight fit at once, and those that are idle make way.
    let count = 16 * soak();
    let wasm = Guest { memory: "256", ..Guest::new() }.build();
    for number in 0..count {
        let mut wasm = wasm.clone();
        wasm.extend([0, 5, 0]);
        wasm.extend(u32::try_from(number).expect("small").to_le_bytes());
        broker.put(&format!("large-{number}"), wasm).await;
    }
    for number in (0..count).rev() {
        let filter = format!("module:large-{number}");
        assert_eq!(broker.filtered("stored", &filter).await, Ok(vec!["a".to_owned()]));
    }
    broker.produce("stored", "b").await.expect("the server is well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pc_28_where_all_memory_is_taken_a_module_is_told_to_come_again() {
    let broker = Broker::new(&["--modules-memory-bytes", &(32 << 20).to_string()]);
    broker.topic("stored", 1, json!({})).await;
    broker.produce("stored", "a").await.expect("it is stored");
    let large = Guest { memory: "640", ..Guest::new() }.build();
    let problem = broker.put_refused("large", large).await;
    assert_eq!((problem.code.as_str(), problem.status, problem.retryable), ("overloaded", 503, true), "{problem:?}");
    let grow = "(if (i32.eq (i32.const -1) (memory.grow (i32.const 640))) (then unreachable))";
    broker.put("grows", Guest::transform(grow).build()).await;
    says(&broker.filtered("stored", "module:grows").await.expect_err("there is no room"), "overloaded", "memory");
    broker.put("small", Guest::new().build()).await;
    assert_eq!(broker.filtered("stored", "module:small").await, Ok(vec!["a".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pc_29_no_output_three_a_tombstone_and_a_large_one_are_stored_with_right_counts() {
    let broker = Broker::new(&[]);
    broker.put("cases", CASES).await;
    broker.topic("in", 1, json!({})).await;
    for (sink, bytes) in [("small", 1 << 20), ("wide", 8 << 20)] {
        broker.topic(sink, 1, json!({ "max.message.bytes": bytes })).await;
    }
    let values = ["first", "none", "three", "null", "large", "none", "last"];
    broker.store("in", &values.map(|value| NewRecord::text(value).with_key("k"))).await;
    for sink in ["small", "wide"] {
        let more = json!({ "on_error": { "attempts": 2, "topic": format!("{sink}.aside") } });
        broker.processor(sink, &document("in", "cases", sink, more)).await;
        broker.worked_off(sink).await;
    }
    let short = |sink: &'static str| {
        let broker = &broker;
        async move {
            let shown = |text: Option<String>| {
                text.map_or("-".to_owned(), |text| if text.len() > 9 { text.len().to_string() } else { text })
            };
            texts(&broker.all(sink).await).into_iter().map(shown).collect::<Vec<_>>()
        }
    };
    assert_eq!(short("small").await, ["first", "one", "two", "three", "-", "last"]);
    assert_eq!(short("small.aside").await, ["large"], "the input, as it was");
    assert_eq!(short("wide").await, ["first", "one", "two", "three", "-", "5242880", "last"]);
    for sink in ["small", "wide"] {
        assert_eq!(batch_counts(&broker, sink).await, broker.all(sink).await.len(), "{sink}: counts of its batches");
    }
    // A read through it brings the same, and a validator that emits is at fault and stores nothing.
    assert_eq!(broker.filtered("in", "module:cases").await.expect("it is filtered").len(), 7);
    broker.topic("judged", 1, json!({ "validator": "module:cases" })).await;
    says(&broker.produce("judged", "three").await.expect_err("it emits"), "module-failed", "changes none");
    let rejected = broker.produce("judged", "reject").await.expect_err("it is rejected");
    says(&rejected, "record-rejected", "");
    assert_eq!((rejected.status, rejected.errors[0].pointer.as_str()), (422, "/records/0"), "{rejected:?}");
    assert!(rejected.errors[0].detail.contains("it asked for it"), "{rejected:?}");
    broker.produce("judged", "fine").await.expect("it passes");
    assert_eq!(broker.stored("judged").await, 1);
}

/// The records of a partition as the heads of its batches count them, without those of markers.
async fn batch_counts(broker: &Broker, topic: &str) -> usize {
    let query = FetchQuery { max_bytes: Some(32 << 20), ..FetchQuery::from(0) };
    let bytes = broker.client.fetch_batches(topic, 0, &query).await.expect("batches");
    let number = |at: usize| i32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut sum) = (0, 0);
    while at < bytes.len() {
        assert!(bytes.len() >= at + BATCH_HEAD_BYTES, "a whole batch");
        let is_control = bytes[at + 22] & 0x20 != 0;
        let (last_delta, count) = (number(at + 23), number(at + 57));
        assert_eq!(last_delta + 1, count, "offsets are dense");
        sum += if is_control { 0 } else { usize::try_from(count).expect("a count") };
        at += 12 + usize::try_from(number(at + 8)).expect("a length");
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pc_30_what_is_no_usable_module_is_refused_in_words_and_the_old_one_works_on() {
    let broker = Broker::new(&[]);
    broker.topic("stored", 1, json!({})).await;
    broker.produce("stored", "a").await.expect("it is stored");
    let good = Guest::new().build();
    assert_eq!(broker.put("m", good.clone()).await, 1);
    let signature = Guest::new().text().replace(
        r#"(func (export "levada:plugin/module@0.1.0#describe") (result i32)"#,
        r#"(func (export "levada:plugin/module@0.1.0#describe") (param i64) (result i32)"#,
    );
    let foo = Guest { imports: r#"(import "env" "foo" (func))"#.to_owned(), ..Guest::new() };
    for (wasm, words) in [
        (b"just some text\n".to_vec(), "no valid module"),
        (Vec::new(), "no valid module"),
        (wat::parse_str("(module (func (export \"f\")))").expect("a module"), "levada:plugin/module@0.1.0"),
        (embed(&signature, "transform-module"), "describe"),
        (foo.build(), "env foo"),
    ] {
        for name in ["m", "other"] {
            let problem = broker.put_refused(name, wasm.clone()).await;
            says(&problem, "invalid-module", words);
            assert_eq!(problem.status, 422);
        }
        assert_eq!(broker.filtered("stored", "module:m").await, Ok(vec!["a".to_owned()]), "it works on");
    }
    let (again, is_new) = broker.client.put_module("m", good.into(), false).await.expect("it is there");
    assert_eq!((again.version, again.active_version, is_new), (1, 1, false));
    let modules = broker.client.modules().await.expect("a list");
    assert_eq!(modules.len(), 1, "{modules:?}");
    assert_eq!(modules[0].versions.len(), 1, "{modules:?}");
}

/// Not of the cases: files that somebody puts in place of what was compiled are not run, but made anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_artifacts_are_made_anew() {
    let dir = TempDir::new().expect("a temporary directory");
    let mut broker = Broker::of(Server::on(dir.path(), &[]));
    broker.topic("stored", 1, json!({})).await;
    broker.client.produce("stored", &[NewRecord::text("1")], AcksWord::All).await.expect("it is stored");
    for version in 1..=2 {
        broker.put("m", stamp(version)).await;
    }
    type Forgery = fn(&[u8]) -> Vec<u8>;
    let forgeries: [Forgery; 4] = [
        |_| b"\x7fELF".to_vec(),
        |_| Vec::new(),
        |bytes| bytes[..bytes.len() / 2].to_vec(),
        |bytes| bytes.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == bytes.len() / 3)).collect(),
    ];
    for forge in forgeries {
        let (status, _) = broker.server.terminate();
        assert!(status.success());
        for (path, bytes) in files(&dir.path().join("compiled-modules")) {
            write_file(&path, forge(&bytes));
        }
        broker = Broker::of(Server::on(dir.path(), &[]));
        for version in 1..=2 {
            let values = broker.filtered("stored", &format!("module:m@{version}")).await.expect("it is filtered");
            assert_eq!(values, [format!("{{\"version\":{version},\"value\":1}}")]);
        }
    }
}

/// The files under a folder with what is in them.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("an entry").path());
    let inside = |path: PathBuf| match path.is_dir() {
        true => files(&path),
        false => vec![(path.clone(), std::fs::read(&path).expect("a file"))],
    };
    entries.flat_map(inside).collect()
}
