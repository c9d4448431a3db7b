//! Assignors that are modules.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use levada_engine::{
    AssignorName, Engine, EngineOptions, GroupError, GroupFetch, GroupOptions, GroupStart, JoinGroup, MemberState,
    ModuleError, ModuleUse,
};
use levada_model::{GroupName, InstanceId};
use serde_json::json;

use super::{HostHandle, module, named, of, put};
use crate::support::{Bench, create, me, name, until};

fn open() -> (Engine, HostHandle) {
    let (bench, _) = Bench::sim();
    let host = HostHandle::default();
    let groups = GroupOptions {
        initial_rebalance_delay: Duration::ZERO,
        rebalance_interval: Duration::ZERO,
        ..GroupOptions::default()
    };
    let options = EngineOptions { groups, modules: Some(Arc::new(host.clone())), ..bench.options() };
    (Engine::open(options).expect("the engine opens"), host)
}

fn joining(assignor: &str) -> JoinGroup {
    JoinGroup {
        topics: vec![name("t")],
        assignor: AssignorName::Module { module: of(assignor), config: None },
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        max_poll_interval_ms: 300_000,
        start: GroupStart::Earliest,
        instance_id: None,
        client: "test".to_owned(),
    }
}

fn group() -> GroupName {
    GroupName::new("g").expect("a group")
}

/// Joins, waits for the assignment, and answers how many partitions it has.
async fn joined(engine: &Engine, assignor: &str) -> usize {
    let member = engine.join_group(&me(), &group(), joining(assignor)).await.expect("it joins").member_id;
    let membership = async || engine.heartbeat(&me(), &group(), &member).await.expect("it is a member");
    until("the member has its share", async || membership().await.state == MemberState::Stable).await;
    membership().await.assignment.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_shares_partitions_out() {
    let (engine, host) = open();
    put(&engine, "share", module(&["assignor"], json!({}))).await;
    create(&engine, "t", 3, &[]).await;
    assert_eq!(joined(&engine, "share").await, 3);
    assert_eq!(*host.0.calls.lock(), [1]);
    let described = engine.describe_group(&me(), &group()).await.expect("there");
    assert_eq!((described.assignor.as_deref(), described.fallback.is_none()), (Some("module:share"), true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_built_in_assignor_stands_in_for_one_that_fails_and_that_is_seen() {
    let (engine, _) = open();
    put(&engine, "share", module(&["assignor"], json!({"traps": true}))).await;
    create(&engine, "t", 3, &[]).await;
    assert_eq!(joined(&engine, "share@1").await, 3);
    let fallback = engine.describe_group(&me(), &group()).await.expect("there").fallback.expect("it was stood in for");
    assert!(format!("{fallback:?}").contains("it trapped"), "{fallback:?}");
}

/// A member with this instance id that asks for the config.
fn configured(instance: &str, config: &str) -> JoinGroup {
    let assignor = AssignorName::Module { module: of("share"), config: Some(config.into()) };
    JoinGroup { assignor, instance_id: Some(InstanceId::new(instance).expect("an id")), ..joining("share") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_config_that_most_members_ask_for_reaches_the_module() {
    let (engine, _) = open();
    put(&engine, "share", module(&["assignor"], json!({}))).await;
    create(&engine, "t", 3, &[]).await;
    let mut members = Vec::new();
    for (instance, config) in [("a", r#"{"only":"a"}"#), ("b", r#"{"only":"b"}"#), ("c", r#"{"only":"b"}"#)] {
        let joined = engine.join_group(&me(), &group(), configured(instance, config)).await.expect("it joins");
        members.push(joined.member_id);
    }
    // Whoever has to give partitions up does so with its fetch.
    until("b has everything", async || {
        for member in &members {
            let fetch = GroupFetch { cursor: None, max_records: 1, max_bytes: 1, wait: Duration::ZERO };
            engine.fetch_group(&me(), &group(), member, fetch).await.expect("it is a member");
        }
        let held = engine.heartbeat(&me(), &group(), &members[1]).await.expect("it is a member");
        held.state == MemberState::Stable && held.assignment.len() == 3
    })
    .await;
    let described = engine.describe_group(&me(), &group()).await.expect("there");
    assert_eq!(described.assignor.as_deref(), Some("module:share"));
    assert_eq!(described.assignor_config.as_deref(), Some(r#"{"only":"b"}"#));
    assert_eq!(described.fallback, None);
}

#[tokio::test]
async fn a_config_that_the_assignor_does_not_take_is_refused_at_the_join() {
    let (engine, host) = open();
    put(&engine, "share", module(&["assignor"], json!({}))).await;
    put(&engine, "picky", module(&["assignor"], json!({"refuses": true}))).await;
    create(&engine, "t", 3, &[]).await;
    for join in [configured("a", r#"{"refuse":true}"#), joining("picky")] {
        let refused = engine.join_group(&me(), &group(), join).await;
        assert!(matches!(refused, Err(GroupError::AssignorConfig { .. })), "{refused:?}");
    }
    host.0.busy.store(true, Ordering::SeqCst);
    engine.join_group(&me(), &group(), joining("picky")).await.expect("one that cannot be asked keeps nobody out");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_assignor_is_in_use_while_members_ask_for_it() {
    let (engine, _) = open();
    put(&engine, "share", module(&["assignor"], json!({}))).await;
    engine.put_module(&me(), &named("share"), module(&["transform"], json!({})), false).await.expect("taken");
    create(&engine, "t", 3, &[]).await;
    let member = engine.join_group(&me(), &group(), configured("a", "{}")).await.expect("it joins").member_id;
    let uses = vec![ModuleUse::Assignor(group())];
    assert_eq!(engine.module(&me(), &named("share")).expect("there").used_by, uses);
    let refused = engine.delete_module(&me(), &named("share")).await;
    assert!(matches!(&refused, Err(ModuleError::InUse { by, .. }) if *by == uses), "{refused:?}");
    let refused = engine.activate_module(&me(), &named("share"), 2).await;
    assert!(matches!(refused, Err(ModuleError::Config { .. })), "{refused:?}");
    let refuses = module(&["assignor"], json!({"refuses": true}));
    let refused = engine.put_module(&me(), &named("share"), refuses, true).await;
    assert!(matches!(refused, Err(ModuleError::Config { .. })), "{refused:?}");
    engine.leave_group(&me(), &group(), &member).await.expect("it leaves");
    assert_eq!(engine.module(&me(), &named("share")).expect("there").used_by, []);
    engine.activate_module(&me(), &named("share"), 2).await.expect("nobody asks for it");
    engine.delete_module(&me(), &named("share")).await.expect("nobody asks for it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_joins_with_a_module_that_goes_while_it_is_asked() {
    let (engine, host) = open();
    put(&engine, "share", module(&["assignor"], json!({"gated_init": true}))).await;
    create(&engine, "t", 3, &[]).await;
    host.hold(true);
    let engine = Arc::new(engine);
    let joins = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.join_group(&me(), &group(), joining("share")).await.map(drop) })
    };
    until("the module is asked", async || host.0.waiting.load(Ordering::SeqCst) > 0).await;
    engine.delete_module(&me(), &named("share")).await.expect("nobody is a member yet");
    host.hold(false);
    let refused = joins.await.expect("no panic");
    assert!(matches!(refused, Err(GroupError::NoAssignor(_))), "{refused:?}");
}

#[tokio::test]
async fn an_assignor_that_is_not_there_is_refused() {
    let (engine, _) = open();
    put(&engine, "other", module(&["transform"], json!({}))).await;
    create(&engine, "t", 3, &[]).await;
    for assignor in ["none", "other", "other@2"] {
        let refused = engine.join_group(&me(), &group(), joining(assignor)).await;
        assert!(matches!(refused, Err(GroupError::NoAssignor(_))), "{refused:?}");
    }
}
