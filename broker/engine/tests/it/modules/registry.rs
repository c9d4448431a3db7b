//! Versions, activation, uses, deletion, and what is left of them after a restart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use levada_engine::{AlterTopic, CreateTopic, Engine, EngineOptions, ModuleError, ModuleUse, TopicError};
use levada_extension::{ModuleConfigError, ModuleDigest, ModuleRefusal, ModuleWorld};
use levada_model::{Authorizer, Denied, Operation, Principal, Resource, limits};
use serde_json::{Value, json};

use super::{HostHandle, engine, module, named, of, open, put};
use crate::support::{Bench, LONG, START, create, me, name, set, until};

const TRANSFORM: [&str; 1] = ["transform"];

async fn alter(engine: &Engine, topic: &str, setting: &str, value: Value) -> Result<(), TopicError> {
    let config = BTreeMap::from([(setting.to_owned(), (!value.is_null()).then_some(value))]);
    engine.alter_topic(&me(), &name(topic), AlterTopic { config, ..AlterTopic::default() }).await.map(drop)
}

#[tokio::test]
async fn the_first_version_is_active_at_once_and_later_ones_when_they_are_activated() {
    let (engine, _) = engine();
    let one = module(&["transform", "assignor"], json!({"schema": {"type": "object"}}));
    let first = engine.put_module(&me(), &named("m"), one.clone(), false).await.expect("taken");
    assert_eq!((first.version, first.created, first.module.active_version), (1, true, 1));
    let version = &first.module.versions[0];
    assert_eq!(version.digest, ModuleDigest::of(&one));
    assert_eq!(version.worlds, [ModuleWorld::Transform, ModuleWorld::Assignor]);
    assert_eq!((version.size_bytes, version.created_at), (one.len() as u64, START));
    assert_eq!(version.config_schema, Some(json!({"type": "object"})));
    let two = module(&TRANSFORM, json!({"rev": 2}));
    let second = engine.put_module(&me(), &named("m"), two.clone(), false).await.expect("taken");
    assert_eq!((second.version, second.created, second.module.active_version), (2, true, 1));
    let third =
        engine.put_module(&me(), &named("m"), module(&TRANSFORM, json!({"rev": 3})), true).await.expect("taken");
    assert_eq!((third.version, third.module.active_version), (3, 3));
    let back = engine.activate_module(&me(), &named("m"), 2).await.expect("activated");
    assert_eq!((back.active_version, back.versions.len()), (2, 3));
    assert_eq!(engine.module(&me(), &named("m")).expect("there"), back);
    assert_eq!(engine.modules(&me()).expect("listed"), [back]);
    assert_eq!(engine.module_wasm(&me(), &named("m"), 2).await.expect("there"), two);
    let missing = engine.activate_module(&me(), &named("m"), 4).await;
    assert!(matches!(missing, Err(ModuleError::NoVersion { version: 4, .. })), "{missing:?}");
    let missing = engine.activate_module(&me(), &named("m"), 0).await;
    assert!(matches!(missing, Err(ModuleError::NoVersion { version: 0, .. })), "{missing:?}");
}

#[tokio::test]
async fn the_same_bytes_again_are_the_same_version() {
    let (engine, host) = engine();
    let (one, two) = (module(&TRANSFORM, json!({"rev": 1})), module(&TRANSFORM, json!({"rev": 2})));
    put(&engine, "m", one.clone()).await;
    put(&engine, "m", two).await;
    let compiled = host.0.compiled.load(Ordering::SeqCst);
    let again = engine.put_module(&me(), &named("m"), one.clone(), false).await.expect("taken");
    assert_eq!((again.version, again.created, again.module.active_version), (1, false, 2));
    let again = engine.put_module(&me(), &named("m"), one.clone(), true).await.expect("taken");
    assert_eq!((again.version, again.created, again.module.active_version), (1, false, 1));
    assert_eq!(again.module.versions.len(), 2);
    assert_eq!(host.0.compiled.load(Ordering::SeqCst), compiled, "nothing is compiled for it");
    let other = put(&engine, "other", one).await;
    assert_eq!((other.version, other.created), (1, true), "another module may have the same bytes");
}

#[tokio::test]
async fn what_is_no_usable_module_leaves_nothing_and_the_version_in_force_stays() {
    let (bench, disk) = Bench::sim();
    let host = HostHandle::default();
    let engine = open(&bench, &host);
    let refused = engine.put_module(&me(), &named("m"), Bytes::from_static(b"\0asm"), true).await;
    assert!(matches!(refused, Err(ModuleError::Invalid(ModuleRefusal::Invalid { .. }))), "{refused:?}");
    assert!(matches!(engine.module(&me(), &named("m")), Err(ModuleError::NotFound(_))));
    let good = put(&engine, "m", module(&TRANSFORM, json!({}))).await.module;
    let refused = engine.put_module(&me(), &named("m"), module(&[], json!({})), true).await;
    assert!(matches!(refused, Err(ModuleError::Invalid(ModuleRefusal::MissingExport { .. }))), "{refused:?}");
    let large = engine.put_module(&me(), &named("m"), vec![0; limits::MODULE_BYTES_MAX + 1].into(), true).await;
    assert!(matches!(large, Err(ModuleError::TooLarge { limit: limits::MODULE_BYTES_MAX })), "{large:?}");
    assert_eq!(engine.module(&me(), &named("m")).expect("there"), good);
    assert_eq!(blobs(&disk), [good.versions[0].digest.hex()]);
    assert_eq!(host.0.artifacts.lock().len(), 1);
}

/// The digests whose bytes lie on a disk.
fn blobs(disk: &levada_log::SimStorage) -> Vec<String> {
    let paths = disk.paths();
    let names = paths.iter().filter_map(|path| path.split_once("data/modules/")).map(|(_, name)| name);
    let names = names.map(|name| name.strip_suffix(".wasm").unwrap_or_else(|| panic!("{name} was left")).to_owned());
    names.collect()
}

#[tokio::test]
async fn a_module_in_use_is_not_deleted_and_says_by_whom() {
    let (bench, disk) = Bench::sim();
    let host = HostHandle::default();
    let engine = open(&bench, &host);
    put(&engine, "m", module(&["transform", "partitioner"], json!({}))).await;
    create(&engine, "a", 1, &[("validator", json!("module:m@1"))]).await;
    create(&engine, "b", 1, &[("partitioner", json!("module:m"))]).await;
    let uses = vec![ModuleUse::Partitioner(name("b")), ModuleUse::Validator(name("a"))];
    assert_eq!(engine.module(&me(), &named("m")).expect("there").used_by, uses);
    let in_use = engine.delete_module(&me(), &named("m")).await;
    assert!(matches!(&in_use, Err(ModuleError::InUse { by, .. }) if *by == uses), "{in_use:?}");
    alter(&engine, "a", "validator", Value::Null).await.expect("altered");
    engine.delete_topic(&me(), &name("b")).await.expect("deleted");
    engine.delete_module(&me(), &named("m")).await.expect("nothing uses it");
    assert!(matches!(engine.delete_module(&me(), &named("m")).await, Err(ModuleError::NotFound(_))));
    assert_eq!(blobs(&disk), Vec::<String>::new());
    assert!(host.0.artifacts.lock().is_empty());
}

#[tokio::test]
async fn bytes_that_two_modules_share_go_with_the_last() {
    let (bench, disk) = Bench::sim();
    let engine = open(&bench, &HostHandle::default());
    let wasm = module(&TRANSFORM, json!({}));
    put(&engine, "a", wasm.clone()).await;
    put(&engine, "b", wasm.clone()).await;
    engine.delete_module(&me(), &named("a")).await.expect("deleted");
    assert_eq!(engine.module_wasm(&me(), &named("b"), 1).await.expect("there"), wasm);
    engine.delete_module(&me(), &named("b")).await.expect("deleted");
    assert_eq!(blobs(&disk), Vec::<String>::new());
}

#[tokio::test]
async fn settings_that_name_modules_are_checked() {
    let (engine, _) = engine();
    put(&engine, "judge", module(&TRANSFORM, json!({}))).await;
    put(&engine, "place", module(&["partitioner"], json!({}))).await;
    create(&engine, "t", 1, &[]).await;
    let refused = async |setting: &str, value: Value| match alter(&engine, "t", setting, value.clone()).await {
        Err(TopicError::Module { setting: named, error }) if named == setting => *error,
        other => panic!("{setting}={value}: {other:?}"),
    };
    assert!(matches!(refused("validator", json!("module:none")).await, ModuleError::NotFound(_)));
    assert!(matches!(refused("validator", json!("module:judge@2")).await, ModuleError::NoVersion { .. }));
    let world = refused("validator", json!("module:place")).await;
    assert!(matches!(world, ModuleError::Config { error: ModuleConfigError::World { .. }, .. }), "{world}");
    assert!(matches!(refused("partitioner", json!("module:judge")).await, ModuleError::Config { .. }));
    for text in ["judge", "module:", "module:a b", "module:judge@0", "module:judge@x"] {
        assert!(matches!(alter(&engine, "t", "validator", json!(text)).await, Err(TopicError::Config(_))), "{text}");
    }
    assert!(matches!(alter(&engine, "t", "validator.config", json!([])).await, Err(TopicError::Config(_))));
    alter(&engine, "t", "validator", json!("module:judge")).await.expect("it is one");
    match alter(&engine, "t", "validator.config", json!({"refuse": true})).await {
        Err(TopicError::Module { setting: "validator", error }) => {
            assert!(matches!(*error, ModuleError::Config { error: ModuleConfigError::Refused { .. }, .. }), "{error}");
        }
        other => panic!("it refuses the config: {other:?}"),
    }
    let config = set(&[("partitioner", json!("module:none"))]);
    let new = CreateTopic { name: name("new"), partitions: 1, config };
    assert!(matches!(engine.create_topic(&me(), new).await, Err(TopicError::Module { setting: "partitioner", .. })));
}

#[tokio::test]
async fn a_version_that_the_uses_cannot_follow_is_not_activated() {
    let (engine, _) = engine();
    put(&engine, "m", module(&TRANSFORM, json!({}))).await;
    create(&engine, "follows", 1, &[("validator", json!("module:m"))]).await;
    let other = module(&["partitioner"], json!({}));
    let refused = engine.put_module(&me(), &named("m"), other.clone(), true).await;
    assert!(matches!(refused, Err(ModuleError::Config { .. })), "{refused:?}");
    assert_eq!(engine.module(&me(), &named("m")).expect("there").versions.len(), 1, "nothing of it is kept");
    engine.put_module(&me(), &named("m"), other, false).await.expect("taken");
    let refused = engine.activate_module(&me(), &named("m"), 2).await;
    assert!(matches!(refused, Err(ModuleError::Config { .. })), "{refused:?}");
    engine.put_module(&me(), &named("m"), module(&TRANSFORM, json!({"refuses": true})), false).await.expect("taken");
    let refused = engine.activate_module(&me(), &named("m"), 3).await;
    assert!(matches!(refused, Err(ModuleError::Config { .. })), "{refused:?}");
    alter(&engine, "follows", "validator", json!("module:m@1")).await.expect("altered");
    engine.activate_module(&me(), &named("m"), 2).await.expect("nobody follows any more");
}

#[tokio::test]
async fn modules_outlive_a_restart_and_those_in_use_are_loaded_after_it() {
    let (bench, disk) = Bench::sim();
    let engine = open(&bench, &HostHandle::default());
    put(&engine, "m", module(&TRANSFORM, json!({"rev": 1}))).await;
    put(&engine, "m", module(&TRANSFORM, json!({"rev": 2}))).await;
    put(&engine, "m", module(&TRANSFORM, json!({"rev": 3}))).await;
    create(&engine, "t", 1, &[("validator", json!("module:m@1"))]).await;
    let before = engine.modules(&me()).expect("listed");
    engine.close().await.expect("closed");
    let host = HostHandle::default();
    let engine = open(&bench.with(disk.restart()), &host);
    assert_eq!(engine.modules(&me()).expect("listed"), before);
    until("what is in use is loaded", async || host.0.loaded.load(Ordering::SeqCst) == 2).await;
    let stats = engine.module_stats(&me(), &of("m@2")).await.expect("it is loaded when it is asked for");
    assert_eq!((stats.calls, host.0.loaded.load(Ordering::SeqCst)), (0, 3));
}

#[tokio::test]
async fn a_lost_or_damaged_module_stops_nothing_and_is_mended_by_its_bytes() {
    let (bench, disk) = Bench::sim();
    let engine = open(&bench, &HostHandle::default());
    let wasm = module(&TRANSFORM, json!({}));
    let lost = put(&engine, "lost", wasm.clone()).await.module.versions[0].digest;
    let damaged = put(&engine, "damaged", module(&TRANSFORM, json!({"rev": 2}))).await.module.versions[0].digest;
    engine.close().await.expect("closed");
    let disk = disk.restart();
    disk.remove(format!("data/modules/{}.wasm", lost.hex()));
    disk.corrupt(format!("data/modules/{}.wasm", damaged.hex()), 3, 1);
    let bench = bench.with(disk);
    let engine = open(&bench, &HostHandle::default());
    assert_eq!(engine.modules(&me()).expect("listed").len(), 2);
    for module in ["lost", "damaged"] {
        let stats = engine.module_stats(&me(), &of(module)).await;
        assert!(matches!(stats, Err(ModuleError::Busy(_))), "{stats:?}");
        let bytes = engine.module_wasm(&me(), &named(module), 1).await;
        assert!(matches!(bytes, Err(ModuleError::Storage(_))), "{bytes:?}");
    }
    let mended = put(&engine, "lost", wasm.clone()).await;
    assert_eq!((mended.version, mended.created), (1, false));
    engine.module_stats(&me(), &of("lost")).await.expect("it is there again");
    assert_eq!(engine.module_wasm(&me(), &named("lost"), 1).await.expect("there"), wasm);
}

#[tokio::test]
async fn a_module_that_could_not_be_loaded_is_tried_again_after_a_while() {
    let (bench, disk) = Bench::sim();
    let engine = open(&bench, &HostHandle::default());
    let wasm = module(&TRANSFORM, json!({}));
    let digest = put(&engine, "m", wasm.clone()).await.module.versions[0].digest;
    engine.close().await.expect("closed");
    let disk = disk.restart();
    let path = format!("data/modules/{}.wasm", digest.hex());
    disk.corrupt(&path, 0, 1);
    let host = HostHandle::default();
    let engine = open(&bench.with(disk.clone()), &host);
    assert!(engine.module_stats(&me(), &of("m")).await.is_err());
    disk.corrupt(&path, 0, 1);
    assert!(engine.module_stats(&me(), &of("m")).await.is_err(), "not at once");
    assert_eq!(host.0.loaded.load(Ordering::SeqCst), 1);
    bench.clock.advance(limits::MODULE_LOAD_RETRY_MS as i64);
    engine.module_stats(&me(), &of("m")).await.expect("it was tried again");
}

#[tokio::test]
async fn a_broker_without_a_host_keeps_modules_and_runs_none() {
    let (bench, disk) = Bench::sim();
    let engine = open(&bench, &HostHandle::default());
    let wasm = module(&TRANSFORM, json!({}));
    put(&engine, "m", wasm.clone()).await;
    engine.close().await.expect("closed");
    let engine = bench.with(disk.restart()).open();
    assert_eq!(engine.module_wasm(&me(), &named("m"), 1).await.expect("there"), wasm);
    let put = engine.put_module(&me(), &named("m"), wasm, true).await;
    assert!(matches!(put, Err(ModuleError::NoHost)), "{put:?}");
    assert!(matches!(engine.module_stats(&me(), &of("m")).await, Err(ModuleError::NoHost)));
    assert_eq!(engine.module_usage(), None);
    engine.delete_module(&me(), &named("m")).await.expect("that needs none");
}

#[tokio::test]
async fn versions_beyond_the_cap_and_a_closed_engine_are_refused() {
    let (engine, _) = engine();
    for rev in 0..limits::MODULE_VERSIONS_MAX {
        put(&engine, "m", module(&TRANSFORM, json!({ "rev": rev }))).await;
    }
    let more = engine.put_module(&me(), &named("m"), module(&TRANSFORM, json!({"rev": "more"})), true).await;
    let limit = limits::MODULE_VERSIONS_MAX as u64;
    assert!(matches!(more, Err(ModuleError::TooMany { limit: got, .. }) if got == limit), "{more:?}");
    engine.close().await.expect("closed");
    let closed = engine.put_module(&me(), &named("n"), module(&TRANSFORM, json!({})), true).await;
    assert!(matches!(closed, Err(ModuleError::Closing)), "{closed:?}");
}

struct Nobody;

impl Authorizer for Nobody {
    fn authorize(&self, who: &Principal, operation: Operation, resource: Resource<'_>) -> Result<(), Denied> {
        match resource {
            Resource::Module(name) => Err(Denied { principal: who.clone(), operation, resource: name.to_string() }),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn every_call_asks_the_authorizer() {
    let (bench, _) = Bench::sim();
    let options = EngineOptions {
        modules: Some(Arc::new(HostHandle::default())),
        authorizer: Arc::new(Nobody),
        ..bench.options()
    };
    let engine = Engine::open(options).expect("the engine opens");
    let (who, m) = (me(), named("m"));
    let denied = |error: ModuleError| assert!(matches!(error, ModuleError::Denied(_)), "{error}");
    denied(engine.put_module(&who, &m, module(&TRANSFORM, json!({})), true).await.expect_err("denied"));
    denied(engine.module(&who, &m).expect_err("denied"));
    denied(engine.activate_module(&who, &m, 1).await.expect_err("denied"));
    denied(engine.delete_module(&who, &m).await.expect_err("denied"));
    denied(engine.module_wasm(&who, &m, 1).await.expect_err("denied"));
    denied(engine.module_logs(&who, &of("m"), 0, 1).await.expect_err("denied"));
    denied(engine.module_stats(&who, &of("m")).await.expect_err("denied"));
    assert_eq!(engine.modules(&who).expect("those that it may see"), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_that_takes_its_time_over_a_config_holds_up_nobody_else() {
    let (engine, host) = engine();
    put(&engine, "m", module(&TRANSFORM, json!({}))).await;
    put(&engine, "other", module(&TRANSFORM, json!({"rev": 0}))).await;
    create(&engine, "t", 1, &[("validator", json!("module:m"))]).await;
    host.hold(true);
    let engine = Arc::new(engine);
    let slow = module(&TRANSFORM, json!({"gated_init": true}));
    let puts = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.put_module(&me(), &named("m"), slow, true).await })
    };
    until("the module is asked", async || host.0.waiting.load(Ordering::SeqCst) > 0).await;
    let others = async {
        put(&engine, "other", module(&TRANSFORM, json!({"rev": 1}))).await;
        engine.delete_module(&me(), &named("other")).await.expect("nothing uses it");
    };
    tokio::time::timeout(LONG, others).await.expect("they do not wait for it");
    host.hold(false);
    let put = puts.await.expect("no panic").expect("it follows");
    assert_eq!((put.version, put.module.active_version), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_of_one_version_does_not_count_for_another_that_became_active_meanwhile() {
    let (engine, host) = engine();
    put(&engine, "m", module(&TRANSFORM, json!({"gated_init": true}))).await;
    engine.put_module(&me(), &named("m"), module(&["partitioner"], json!({})), false).await.expect("taken");
    create(&engine, "t", 1, &[]).await;
    let engine = Arc::new(engine);
    let new = CreateTopic { name: name("new"), partitions: 1, config: set(&[("validator", json!("module:m"))]) };
    host.hold(true);
    let alters = {
        let engine = engine.clone();
        tokio::spawn(async move { alter(&engine, "t", "validator", json!("module:m")).await })
    };
    let creates = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.create_topic(&me(), new).await.map(drop) })
    };
    until("both ask the first version", async || host.0.waiting.load(Ordering::SeqCst) >= 2).await;
    engine.activate_module(&me(), &named("m"), 2).await.expect("nobody follows yet");
    host.hold(false);
    for refused in [alters.await.expect("no panic"), creates.await.expect("no panic")] {
        let Err(TopicError::Module { error, .. }) = refused else { panic!("it is no transform now: {refused:?}") };
        assert!(matches!(*error, ModuleError::Config { error: ModuleConfigError::World { .. }, .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_is_asked_again_where_another_use_came_while_it_was() {
    let (engine, host) = engine();
    put(&engine, "m", module(&["transform", "partitioner"], json!({}))).await;
    let slow = module(&TRANSFORM, json!({"gated_init": true}));
    engine.put_module(&me(), &named("m"), slow, false).await.expect("taken");
    create(&engine, "a", 1, &[("validator", json!("module:m"))]).await;
    create(&engine, "b", 1, &[]).await;
    host.hold(true);
    let engine = Arc::new(engine);
    let activates = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.activate_module(&me(), &named("m"), 2).await })
    };
    until("the version is asked", async || host.0.waiting.load(Ordering::SeqCst) > 0).await;
    alter(&engine, "b", "partitioner", json!("module:m")).await.expect("the active version is one");
    host.hold(false);
    let refused = activates.await.expect("no panic");
    assert!(matches!(refused, Err(ModuleError::Config { .. })), "{refused:?}");
    assert_eq!(engine.module(&me(), &named("m")).expect("there").active_version, 1);
}
