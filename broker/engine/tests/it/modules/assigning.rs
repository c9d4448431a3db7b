//! Assignors that are modules.

use std::sync::Arc;
use std::time::Duration;

use levada_engine::{
    AssignorName, Engine, EngineOptions, GroupError, GroupOptions, GroupStart, JoinGroup, MemberState,
};
use levada_model::GroupName;
use serde_json::json;

use super::{HostHandle, module, of, put};
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
        assignor: AssignorName::Module(of(assignor)),
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
