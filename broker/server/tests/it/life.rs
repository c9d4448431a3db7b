//! A server's life: the lock, the start, the options of the engine, the shutdown.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use http::Method;
use levada_engine::Engine;
use levada_server::StartError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::contract::Contract;
use crate::harness::{Harness, options};
use crate::raw::Raw;

#[tokio::test]
async fn two_brokers_never_share_a_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = levada_server::start(options(dir.path().to_owned())).await.expect("it starts");
    match levada_server::start(options(dir.path().to_owned())).await {
        Err(error @ StartError::InUse { .. }) => {
            assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("both started"),
    }
    first.shutdown().await.expect("clean");
    levada_server::start(options(dir.path().to_owned()))
        .await
        .expect("it is free again")
        .shutdown()
        .await
        .expect("clean");
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let harness = Harness::start(|_| {}).await;
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = options(dir.path().to_owned());
    options.listen = harness.server.address();
    match levada_server::start(options).await {
        Err(error @ StartError::Listen { .. }) => assert!(error.to_string().contains(&harness.authority()), "{error}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("both listen"),
    }
}

#[tokio::test]
async fn the_options_reach_the_engine() {
    let (tell, told) = mpsc::channel();
    let open = move |options: levada_engine::EngineOptions| {
        let told = (
            options.auto_create_topics,
            options.producer_expiration,
            options.maintenance_interval,
            options.linger,
            options.groups.initial_rebalance_delay,
            options.groups.offsets_retention,
            options.data_dir.clone(),
        );
        tell.send(told).expect("the test listens");
        Engine::open(options)
    };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("made/by/the/start");
    let data_dir = path.clone();
    let change = move |options: &mut levada_server::ServeOptions| {
        options.data_dir = data_dir;
        options.auto_create_topics = Some(false);
        options.producer_expiration = Duration::from_secs(7);
        options.maintenance_interval = Duration::from_secs(8);
        options.linger = Duration::from_millis(9);
        options.group_initial_rebalance_delay = Duration::from_millis(10);
        options.offsets_retention = Duration::from_secs(11);
    };
    let mut harness = Harness::start_with(Arc::new(Contract::load()), change, open).await;
    harness.server.opened().await.expect("it opens");
    let (secs, millis) = (Duration::from_secs, Duration::from_millis);
    assert_eq!(told.recv().expect("told"), (false, secs(7), secs(8), millis(9), millis(10), secs(11), path));
}

#[tokio::test]
async fn topics_are_created_by_producing_on_loopback_only_unless_told() {
    let mut options = options("unused".into());
    assert!(options.creates_topics());
    options.listen = "192.0.2.1:8080".parse().expect("an address");
    assert!(!options.creates_topics());
    options.auto_create_topics = Some(true);
    assert!(options.creates_topics());
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("kept").await;
    let commit = json!({ "offsets": [{ "topic": "kept", "partition": 0, "offset": 0 }] });
    harness.json(Method::PUT, "/v1/groups/g/offsets", &commit).await.expect(200);
    let before = harness.get("/v1/topics/kept").await.expect(200);
    let offsets = harness.get("/v1/groups/g/offsets").await.expect(200).json();
    let harness = harness.restart(|_| {}).await;
    let after = harness.get("/v1/topics/kept").await.expect(200);
    assert_eq!((after.json(), after.header("etag")), (before.json(), before.header("etag")));
    assert_eq!(harness.get("/v1/groups/g/offsets").await.expect(200).json(), offsets);
}

#[tokio::test]
async fn a_shutdown_answers_the_request_that_it_finds_and_closes_idle_connections() {
    let harness = Harness::start(|_| {}).await;
    let address = harness.server.address();
    let mut idle = Raw::connect(address).await;
    idle.send("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    idle.answer().await.expect("an answer").expect(200);
    let body = r#"{"name":"half-sent"}"#;
    let mut busy = Raw::connect(address).await;
    let head =
        "POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n";
    busy.send(format!("{head}content-length: {}\r\n\r\n", body.len())).await;
    busy.answer().await.expect("the body is awaited").expect(100);
    let dir = harness.dir();
    let shutdown = tokio::spawn(harness.server.shutdown());
    assert!(idle.is_closed().await);
    busy.send(body).await;
    busy.answer().await.expect("an answer").expect(201);
    assert!(busy.is_closed().await);
    shutdown.await.expect("no panic").expect("clean");
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "it listens on");
    drop(dir);
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_ever_for_a_client() {
    let harness = Harness::start(|options| options.shutdown_timeout = Duration::from_millis(100)).await;
    let mut stalled = Raw::connect(harness.server.address()).await;
    let head =
        "POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n";
    stalled.send(format!("{head}content-length: 10\r\n\r\n")).await;
    stalled.answer().await.expect("the body is awaited").expect(100);
    let dir = harness.dir();
    harness.server.shutdown().await.expect("clean");
    assert!(stalled.is_closed().await);
    drop(dir);
}

#[tokio::test]
async fn a_shutdown_wakes_readers_that_wait() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("quiet").await;
    let feed = harness.request(Method::GET, "/v1/topics/quiet/records").header("accept", "text/event-stream");
    let mut feed = harness.stream(feed).await;
    assert_eq!(feed.status(), 200);
    let mut poll = Raw::connect(harness.server.address()).await;
    let path = "/v1/topics/quiet/partitions/0/records?wait_ms=60000";
    poll.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
    let running = |page: String| page.lines().any(|line| line == "levada_http_requests_in_flight 2");
    while !running(String::from_utf8_lossy(&harness.get("/metrics").await.body).into_owned()) {}
    let dir = harness.dir();
    let shutdown = tokio::spawn(harness.server.shutdown());
    let answer = poll.answer().await.expect("an answer");
    assert!(answer.status == 200 || answer.code() == "shutting-down", "{answer:?}");
    assert!(poll.is_closed().await);
    while let Ok(Some(_)) = feed.chunk().await {}
    shutdown.await.expect("no panic").expect("clean");
    drop(dir);
}

#[tokio::test]
async fn as_many_files_may_be_open_as_the_system_allows() {
    let limit = getrlimit(Resource::Nofile);
    let lower = limit.maximum.map(|most| most.min(1024) - 1);
    setrlimit(Resource::Nofile, Rlimit { current: lower, ..limit }).expect("a lower limit is always allowed");
    let _harness = Harness::start(|_| {}).await;
    let raised = getrlimit(Resource::Nofile);
    assert_eq!(raised.current, limit.maximum);
}
