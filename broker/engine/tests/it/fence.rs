//! A disk that fails: the directory is fenced, reads go on up to what was synced, and a restart recovers.

use levada_engine::{AppendFault, Engine, From, GroupError, Health, OffsetCommit, TopicError};
use levada_log::SimStorage;
use levada_model::{GroupName, Offset};
use serde_json::json;

use crate::support::{Bench, all, create, fetch, me, name, offsets, p, produce, record, request, until};

/// The fault that a produce to a topic meets, and whether its records may be stored all the same.
async fn fenced(engine: &Engine, topic: &str) -> bool {
    let produced = engine.produce(&me(), &name(topic), request(vec![record("", "lost")])).await.expect("taken");
    let fault = produced.records[0].as_ref().expect_err("the disk fails").clone();
    let AppendFault::Fenced { reason, possible } = &*fault else { panic!("{fault}") };
    assert_eq!(engine.health(), Health::Fenced { reason: reason.clone() });
    *possible
}

async fn two_topics(bench: &Bench, disk: &SimStorage) -> Engine {
    let engine = bench.with(disk.clone()).open();
    create(&engine, "t", 1, &[]).await;
    create(&engine, "u", 1, &[("durability", json!("page-cache"))]).await;
    for topic in ["t", "u"] {
        // The second comes after the zeros that are written ahead behind the first, so these meet no failing disk.
        for value in ["kept", "kept too"] {
            produce(&engine, topic, vec![record("", value)]).await;
        }
    }
    engine
}

async fn only_reads_go_on(engine: &Engine) {
    for topic in ["t", "u"] {
        assert!(!fenced(engine, topic).await, "refused before anything was written");
        assert_eq!(all(engine, topic, 0, 0).await, [(0, "kept".to_owned()), (1, "kept too".to_owned())]);
        let fetched = fetch(engine, topic, 0, From::Earliest).await.expect("a read");
        assert_eq!(fetched.high_watermark.0, 2);
    }
    let refused = engine.delete_topic(&me(), &name("t")).await.expect_err("no changes");
    assert!(matches!(refused, TopicError::Fenced { possible: false, .. }));
    let commit = OffsetCommit { topic: name("t"), partition: p(0), offset: From::Earliest };
    let group = GroupName::new("g").expect("a group");
    let refused = engine.commit_group_offsets(&me(), &group, vec![commit], false).await.expect_err("no commits");
    assert!(matches!(refused, GroupError::Fenced { possible: false, .. }));
    engine.run_maintenance();
    assert!(engine.close().await.is_err(), "it is not clean");
}

#[tokio::test]
async fn a_failed_sync_fences_the_directory_until_a_restart() {
    let (bench, disk) = Bench::sim();
    let engine = two_topics(&bench, &disk).await;
    disk.fail_sync(true);
    assert!(fenced(&engine, "t").await, "it was handed to the disk");
    // The sync is never tried again, though it would work now.
    disk.fail_sync(false);
    only_reads_go_on(&engine).await;

    let disk = disk.restart();
    let engine = bench.with(disk).open();
    assert_eq!(engine.health(), Health::Serving);
    let next = offsets(&produce(&engine, "t", vec![record("", "new")]).await)[0];
    assert!([2, 3].contains(&next), "what was possible may have come back");
    assert_eq!(all(&engine, "t", 0, 0).await[0], (0, "kept".to_owned()));
}

#[tokio::test]
async fn a_full_disk_fences_the_directory_until_a_restart() {
    let (bench, disk) = Bench::sim();
    let engine = two_topics(&bench, &disk).await;
    disk.set_free_bytes(10);
    assert!(fenced(&engine, "u").await, "part of it may be there");
    only_reads_go_on(&engine).await;

    let disk = disk.restart();
    let engine = bench.with(disk).open();
    assert_eq!(offsets(&produce(&engine, "u", vec![record("", "new")]).await), [2], "the torn end was cut");
}

#[tokio::test]
async fn a_disk_that_fails_in_housekeeping_fences_the_directory() {
    let (bench, disk) = Bench::sim();
    let engine = two_topics(&bench, &disk).await;
    disk.fail_sync(true);
    engine.run_maintenance();
    assert!(matches!(engine.health(), Health::Fenced { .. }), "the page-cache topic was to be flushed");
    assert!(!fenced(&engine, "u").await);
}

#[tokio::test]
async fn metadata_that_cannot_be_written_change_nothing_and_fence() {
    let (bench, disk) = Bench::sim();
    let engine = two_topics(&bench, &disk).await;
    disk.fail_sync(true);
    let new = levada_engine::CreateTopic { name: name("new"), partitions: 1, config: Default::default() };
    let refused = engine.create_topic(&me(), new).await.expect_err("no changes");
    assert!(matches!(refused, TopicError::Fenced { possible: true, .. }), "it may show after a restart");
    assert!(engine.describe_topic(&me(), &name("new")).is_err());
    assert!(!fenced(&engine, "t").await);
}

#[tokio::test]
async fn a_bug_in_an_owner_fences_the_directory_and_leaves_nobody_waiting() {
    let (bench, disk) = Bench::sim();
    let gate = crate::gate::Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    create(&engine, "t", 1, &[]).await;
    create(&engine, "u", 1, &[]).await;
    produce(&engine, "t", vec![record("", "kept")]).await;
    gate.break_writes();
    let produced = engine.produce(&me(), &name("t"), request(vec![record("", "lost")])).await.expect("taken");
    let fault = produced.records[0].as_ref().expect_err("nobody knows what it did before it panicked");
    assert!(matches!(**fault, AppendFault::Fenced { possible: true, .. }), "{fault}");
    until("it is fenced", async || engine.health() != Health::Serving).await;
    for topic in ["t", "u"] {
        assert!(!fenced(&engine, topic).await);
    }
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 1);
    assert!(engine.close().await.is_err(), "and closing does not wait for it either");
}

#[tokio::test]
async fn without_file_descriptors_a_produce_is_refused_and_nothing_is_fenced() {
    let (bench, disk) = Bench::sim();
    let engine = bench.open();
    create(&engine, "old", 1, &[]).await;
    create(&engine, "new", 1, &[("durability", json!("page-cache"))]).await;
    produce(&engine, "old", vec![record("", "kept")]).await;
    for _ in 0..2 {
        engine.run_maintenance();
    }
    disk.set_open_files_max(0);
    for topic in ["old", "new"] {
        let produced = engine.produce(&me(), &name(topic), request(vec![record("", "later")])).await.expect("taken");
        let fault = produced.records[0].as_ref().expect_err("no file can be opened");
        assert!(matches!(**fault, AppendFault::OutOfFiles(_)), "{fault}");
    }
    let truncated = engine.truncate_topic(&me(), &name("old"), vec![(p(0), Offset(1))]).await;
    assert!(matches!(truncated, Err(TopicError::OutOfFiles)));
    bench.clock.advance(60_000);
    engine.run_maintenance();
    assert_eq!(engine.health(), Health::Serving);
    disk.heal();
    assert_eq!(offsets(&produce(&engine, "old", vec![record("", "later")]).await), [1]);
    assert_eq!(offsets(&produce(&engine, "new", vec![record("", "later")]).await), [0]);
    engine.close().await.expect("clean");
}
