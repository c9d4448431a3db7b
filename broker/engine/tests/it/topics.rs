//! Topics: created, listed, altered, truncated, deleted; partitions that retire and come back.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_engine::{
    AlterTopic, AppendFault, CreateTopic, Engine, EngineOptions, FetchError, From, PartitionState, ProduceError,
    RecordFault, TopicError,
};
use levada_log::{SimStorage, Storage};
use levada_model::{Authorizer, ConfigError, Denied, LeaderEpoch, Offset, Operation, Principal, Resource};
use serde_json::json;

use crate::support::{Bench, all, create, fetch, me, name, offsets, p, produce, record, request, set, to, until};

async fn alter(engine: &Engine, partitions: u32) -> levada_engine::TopicDescription {
    let change = AlterTopic { partitions: Some(partitions), ..AlterTopic::default() };
    engine.alter_topic(&me(), &name("t"), change).await.expect("altered")
}

fn states(description: &levada_engine::TopicDescription) -> Vec<(u32, PartitionState)> {
    description.partitions.iter().map(|partition| (partition.partition.0, partition.state)).collect()
}

#[tokio::test]
async fn a_topic_is_described_as_it_was_created_also_after_a_restart() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    let created = create(&engine, "t", 3, &[("retention.ms", json!(5))]).await;
    assert_eq!((created.partition_count, created.version, created.internal), (3, 1, false));
    assert_eq!(created.config, set(&[("retention.ms", json!(5))]));
    assert_eq!(created.effective_config["durability"], json!("fsync"));
    assert!(created.partitions.iter().all(|p| p.leader_epoch == LeaderEpoch(0) && p.isr == [engine.node_id()]));
    assert_eq!(engine.describe_topic(&me(), &name("t")).expect("there"), created);
    let cluster = engine.cluster_id();
    drop(engine);
    let engine = bench.open();
    assert_eq!(engine.describe_topic(&me(), &name("t")).expect("there"), created);
    assert_eq!(engine.cluster_id(), cluster);
}

#[tokio::test]
async fn what_cannot_be_created_is_refused_by_its_reason() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let refused = async |topic, partitions, config: &[_]| {
        let new = CreateTopic { name: name(topic), partitions, config: set(config) };
        engine.create_topic(&me(), new).await.expect_err("refused")
    };
    assert!(matches!(refused("t", 1, &[]).await, TopicError::Exists(_)));
    assert!(matches!(refused("__t", 1, &[]).await, TopicError::Reserved(_)));
    assert!(matches!(refused("u", 0, &[]).await, TopicError::PartitionCount { got: 0, max: 10_000 }));
    assert!(matches!(refused("u", 10_001, &[]).await, TopicError::PartitionCount { .. }));
    let unknown = refused("u", 1, &[("retention", json!(1))]).await;
    assert!(matches!(unknown, TopicError::Config(ConfigError::Unknown { .. })));
    let invalid = refused("u", 1, &[("retention.ms", json!(-5))]).await;
    assert!(matches!(invalid, TopicError::Config(ConfigError::Invalid { .. })));
    assert_eq!(engine.stats().topics, 1);
}

#[tokio::test]
async fn a_listing_comes_in_pages_by_name() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    for topic in ["c", "a", "b"] {
        create(&engine, topic, 1, &[]).await;
    }
    let page = engine.list_topics(&me(), None, 2).expect("a page");
    let names = |page: &levada_engine::TopicPage| page.topics.iter().map(|t| t.name.to_string()).collect::<Vec<_>>();
    assert_eq!((names(&page), &page.next_after), (vec!["a".to_owned(), "b".to_owned()], &Some(name("b"))));
    let page = engine.list_topics(&me(), page.next_after.as_ref(), 2).expect("a page");
    assert_eq!((names(&page), page.next_after), (vec!["c".to_owned()], None));
}

#[tokio::test]
async fn a_change_counts_a_version_and_is_refused_at_another_one() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("retention.ms", json!(5))]).await;
    let change = AlterTopic {
        config: BTreeMap::from([("retention.ms".to_owned(), None), ("segment.ms".to_owned(), Some(json!(7)))]),
        if_version: Some(1),
        ..AlterTopic::default()
    };
    let altered = engine.alter_topic(&me(), &name("t"), change.clone()).await.expect("altered");
    assert_eq!((altered.version, altered.config), (2, set(&[("segment.ms", json!(7))])));
    let refused = engine.alter_topic(&me(), &name("t"), change).await.expect_err("another version");
    assert!(matches!(refused, TopicError::VersionMismatch { version: 2, .. }));
    let nothing = engine.alter_topic(&me(), &name("t"), AlterTopic::default()).await.expect("altered");
    assert_eq!(nothing.version, 2, "nothing has changed");
    let unknown = BTreeMap::from([("retention".to_owned(), None)]);
    let refused = engine.alter_topic(&me(), &name("t"), AlterTopic { config: unknown, ..AlterTopic::default() }).await;
    assert!(matches!(refused, Err(TopicError::Config(ConfigError::Unknown { .. }))));
    drop(engine);
    assert_eq!(bench.open().describe_topic(&me(), &name("t")).expect("there").version, 2);
}

#[tokio::test]
async fn surplus_partitions_retire_are_dropped_when_empty_and_come_back_at_their_old_end() {
    let (bench, _) = Bench::sim();
    let mut engine = bench.open();
    create(&engine, "t", 4, &[("retention.ms", json!(1_000))]).await;
    produce(&engine, "t", vec![to(0, "a"), to(1, "b"), to(1, "c"), to(3, "d")]).await;
    let altered = alter(&engine, 1).await;
    assert_eq!(altered.partition_count, 1);
    use PartitionState::{Active, Retiring};
    assert_eq!(states(&altered), [(0, Active), (1, Retiring), (3, Retiring)], "the empty one is gone at once");
    assert_eq!(all(&engine, "t", 1, 0).await.len(), 2, "still readable");
    let refused = engine.produce(&me(), &name("t"), request(vec![to(1, "no"), to(2, "no")])).await;
    let Err(ProduceError::Records(faults)) = refused else { panic!("retiring") };
    assert_eq!(faults, [(0, RecordFault::Retiring(p(1))), (1, RecordFault::NoPartition(p(2)))]);
    for key in 0..20 {
        let produced = produce(&engine, "t", vec![record(&key.to_string(), "e")]).await;
        assert_eq!(produced.records[0].as_ref().expect("stored").partition, p(0));
    }
    engine.close().await.expect("closed");
    engine = bench.open();
    assert_eq!(states(&engine.describe_topic(&me(), &name("t")).expect("there")), states(&altered));

    // One comes back before it is emptied, with what it holds and a higher term.
    let altered = alter(&engine, 2).await;
    assert_eq!(states(&altered), [(0, Active), (1, Active), (3, Retiring)]);
    assert_eq!(altered.partitions[1].leader_epoch, LeaderEpoch(1));
    assert_eq!(offsets(&produce(&engine, "t", vec![to(1, "f")]).await), [2]);
    let fetched = fetch(&engine, "t", 1, From::Offset(Offset(2))).await.expect("a read");
    assert_eq!(fetched.batches[0].header().leader_epoch, LeaderEpoch(1));

    alter(&engine, 1).await;
    bench.clock.advance(2_000);
    engine.run_maintenance();
    bench.clock.advance(2_000);
    engine.run_maintenance();
    let emptied = engine.describe_topic(&me(), &name("t")).expect("there");
    assert_eq!(states(&emptied), [(0, Active)], "retention has emptied them");
    assert!(matches!(fetch(&engine, "t", 1, From::Earliest).await, Err(FetchError::NoPartition { .. })));
    drop(engine);
    engine = bench.open();
    let altered = alter(&engine, 4).await;
    assert_eq!(states(&altered), [(0, Active), (1, Active), (2, Active), (3, Active)]);
    let starts: Vec<_> = altered.partitions[1..].iter().map(|p| (p.log_start_offset.0, p.high_watermark.0)).collect();
    assert_eq!(starts, [(3, 3), (0, 0), (1, 1)], "offsets are never given twice");
    let epochs: Vec<_> = altered.partitions[1..].iter().map(|p| p.leader_epoch.0).collect();
    assert_eq!(epochs, [2, 1, 1]);
    // Nothing was written there yet, so the start is known from metadata alone.
    drop(engine);
    engine = bench.open();
    assert_eq!(offsets(&produce(&engine, "t", vec![to(1, "g"), to(3, "h")]).await), [3, 1]);
    drop(engine);
    engine = bench.open();
    assert_eq!(all(&engine, "t", 1, 3).await, [(3, "g".to_owned())]);
    assert!(matches!(
        fetch(&engine, "t", 1, From::Offset(Offset(0))).await,
        Err(FetchError::BelowStart { log_start_offset: Offset(3), .. })
    ));
}

#[tokio::test]
async fn what_was_accepted_before_a_partition_retires_is_stored() {
    let (bench, _) = Bench::sim();
    let linger = std::time::Duration::from_millis(20);
    let engine = Engine::open(EngineOptions { linger, ..bench.options() }).expect("the engine opens");
    create(&engine, "t", 2, &[]).await;
    let accepted = tokio::spawn({
        let engine = engine.clone();
        async move { produce(&engine, "t", vec![to(1, "accepted")]).await }
    });
    until("it waits for its owner", async || engine.stats().waiting_appends == 1).await;
    let altered = alter(&engine, 1).await;
    assert_eq!(states(&altered), [(0, PartitionState::Active), (1, PartitionState::Retiring)], "it is not empty");
    assert_eq!(offsets(&accepted.await.expect("answered")), [0]);
    assert_eq!(all(&engine, "t", 1, 0).await, [(0, "accepted".to_owned())]);
}

#[tokio::test]
async fn the_clean_marker_is_there_only_while_nothing_runs() {
    const MARKER: &str = "data/clean-shutdown";
    let (bench, disk) = Bench::sim();
    let has_marker = |disk: &SimStorage| disk.paths().iter().any(|path| path.trim_start_matches('/') == MARKER);
    let cut = || disk.crash(&levada_log::CrashPlan::all_lost());
    let engine = bench.open();
    assert!(!has_marker(&disk));
    engine.close().await.expect("closed");
    assert!(has_marker(&cut()), "durably there");
    let engine = bench.open();
    assert!(!has_marker(&disk) && !has_marker(&cut()), "durably gone before any log is opened");
    drop(engine);
    assert!(!has_marker(&disk), "a crash leaves none");
}

#[tokio::test]
async fn truncation_is_checked_whole_and_moves_log_starts_for_good() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 2, &[]).await;
    for value in ["a", "b", "c"] {
        produce(&engine, "t", vec![to(0, value), to(1, value)]).await;
    }
    let truncate = async |offsets: &[(u32, u64)]| {
        let offsets = offsets.iter().map(|(partition, before)| (p(*partition), Offset(*before))).collect();
        engine.truncate_topic(&me(), &name("t"), offsets).await
    };
    assert!(matches!(truncate(&[(0, 1), (1, 4)]).await, Err(TopicError::BeyondEnd { .. })));
    assert!(matches!(truncate(&[(0, 1), (2, 0)]).await, Err(TopicError::NoPartition { .. })));
    assert!(matches!(truncate(&[(0, 1), (0, 2)]).await, Err(TopicError::Repeated(_))));
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 3, "nothing was touched");
    let done = truncate(&[(0, 2), (1, 3)]).await.expect("truncated");
    assert_eq!(done.iter().map(|t| t.log_start_offset.0).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(truncate(&[(0, 1)]).await.expect("done")[0].log_start_offset, Offset(2), "never back");
    assert!(matches!(fetch(&engine, "t", 0, From::Offset(Offset(1))).await, Err(FetchError::BelowStart { .. })));
    drop(engine);
    let engine = bench.open();
    assert_eq!(all(&engine, "t", 0, 2).await, [(2, "c".to_owned())]);
    assert_eq!(offsets(&produce(&engine, "t", vec![to(1, "d")]).await), [3]);
}

#[tokio::test]
async fn a_deleted_topic_is_gone_with_its_files_and_its_name_is_free() {
    let (bench, disk) = Bench::sim();
    let engine = bench.open();
    let old = create(&engine, "t", 2, &[]).await;
    produce(&engine, "t", vec![to(0, "a")]).await;
    let id = old.id.to_string();
    assert!(disk.paths().iter().any(|path| path.contains(&id)));
    engine.delete_topic(&me(), &name("t")).await.expect("deleted");
    assert!(!disk.paths().iter().any(|path| path.contains(&id)));
    assert!(matches!(engine.delete_topic(&me(), &name("t")).await, Err(TopicError::NotFound(_))));
    let new = create(&engine, "t", 1, &[]).await;
    assert_ne!(new.id, old.id);
    assert!(all(&engine, "t", 0, 0).await.is_empty());
}

#[tokio::test]
async fn appends_that_meet_a_deletion_are_answered() {
    let (bench, disk) = Bench::sim();
    let gate = crate::gate::Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    create(&engine, "t", 1, &[]).await;
    gate.shut();
    let held = tokio::spawn({
        let engine = engine.clone();
        async move { engine.produce(&me(), &name("t"), request(vec![record("", "held")])).await.expect("taken") }
    });
    gate.until_waiting(1).await;
    let deletion = tokio::spawn({
        let engine = engine.clone();
        async move { engine.delete_topic(&me(), &name("t")).await }
    });
    until("the topic is gone", async || engine.describe_topic(&me(), &name("t")).is_err()).await;
    gate.open();
    deletion.await.expect("deleted").expect("deleted");
    match &held.await.expect("answered").records[0] {
        Ok(_) => {}
        Err(fault) => assert!(matches!(**fault, AppendFault::TopicDeleted)),
    }
}

#[tokio::test]
async fn the_brokers_own_topics_cannot_be_touched() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    let own = name("__consumer_offsets");
    assert!(matches!(engine.delete_topic(&me(), &own).await, Err(TopicError::Internal(_))));
    assert!(matches!(engine.alter_topic(&me(), &own, AlterTopic::default()).await, Err(TopicError::Internal(_))));
    assert!(matches!(engine.truncate_topic(&me(), &own, Vec::new()).await, Err(TopicError::Internal(_))));
}

/// Allows nothing but one kind of operation.
struct Only(Operation);

impl Authorizer for Only {
    fn authorize(&self, who: &Principal, operation: Operation, resource: Resource<'_>) -> Result<(), Denied> {
        if operation == self.0 {
            return Ok(());
        }
        Err(Denied { principal: who.clone(), operation, resource: format!("{resource:?}") })
    }
}

#[tokio::test]
async fn every_call_asks_the_authorizer() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    engine.close().await.expect("closed");
    let only = Engine::open(EngineOptions { authorizer: Arc::new(Only(Operation::Create)), ..bench.options() });
    let engine = only.expect("the engine opens");
    create(&engine, "u", 1, &[]).await;
    let t = name("t");
    assert!(engine.list_topics(&me(), None, 10).expect("a page").topics.is_empty(), "what may not be seen is left out");
    assert!(matches!(engine.describe_topic(&me(), &t), Err(TopicError::Denied(_))));
    assert!(matches!(engine.alter_topic(&me(), &t, AlterTopic::default()).await, Err(TopicError::Denied(_))));
    assert!(matches!(engine.delete_topic(&me(), &t).await, Err(TopicError::Denied(_))));
    assert!(matches!(engine.truncate_topic(&me(), &t, Vec::new()).await, Err(TopicError::Denied(_))));
    assert!(matches!(fetch(&engine, "t", 0, From::Earliest).await, Err(FetchError::Denied(_))));
    let produced = engine.produce(&me(), &t, request(vec![record("", "1")])).await;
    assert!(matches!(produced, Err(ProduceError::Denied(_))));
    assert!(matches!(engine.init_producer(&me()).await, Err(ProduceError::Denied(_))));
}

/// What a change of topics leaves when the disk fails at any of its steps and the power goes with it.
async fn cut_at_every_step(change: impl AsyncFn(&Engine) -> bool, check: impl AsyncFn(&Engine, bool)) {
    for plan in [levada_log::CrashPlan::all_lost(), levada_log::CrashPlan::all_kept()] {
        for steps in 0.. {
            let (bench, disk) = Bench::sim();
            let engine = bench.open();
            create(&engine, "t", 3, &[]).await;
            create(&engine, "other", 1, &[]).await;
            produce(&engine, "t", vec![to(0, "a"), to(1, "b")]).await;
            produce(&engine, "other", vec![to(0, "kept")]).await;
            disk.fail_after(steps);
            let done = change(&engine).await;
            let disk: SimStorage = disk.crash(&plan);
            let engine = bench.with(disk.clone()).open();
            assert_eq!(all(&engine, "other", 0, 0).await.len(), 1, "after {steps} steps");
            let known: Vec<_> = engine.list_topics(&me(), None, 10).expect("a page").topics;
            let dirs = disk.list("data/log".as_ref()).expect("the logs");
            assert!(dirs.iter().all(|dir| known.iter().any(|t| t.id.to_string() == *dir)), "after {steps}: {dirs:?}");
            for topic in &known {
                let dirs = disk.list(format!("data/log/{}", topic.id).as_ref()).expect("the partitions");
                let is_known = |dir: &String| topic.partitions.iter().any(|p| p.partition.to_string() == *dir);
                assert!(dirs.iter().all(is_known), "after {steps}: {dirs:?} of {}", topic.name);
            }
            check(&engine, done).await;
            if done {
                assert!(steps > 5, "the disk was to fail in the middle");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_creation_cut_at_any_step_is_whole_or_not_there() {
    let create = async |engine: &Engine| {
        let new = CreateTopic { name: name("new"), partitions: 2, config: BTreeMap::new() };
        engine.create_topic(&me(), new).await.is_ok()
    };
    cut_at_every_step(create, async |engine, done| match engine.describe_topic(&me(), &name("new")) {
        Ok(topic) => {
            assert_eq!(topic.partitions.len(), 2);
            assert_eq!(offsets(&produce(engine, "new", vec![to(0, "a"), to(1, "b")]).await), [0, 0]);
        }
        Err(_) => assert!(!done),
    })
    .await;
}

#[tokio::test]
async fn a_deletion_cut_at_any_step_is_done_or_not_begun() {
    let delete = async |engine: &Engine| engine.delete_topic(&me(), &name("t")).await.is_ok();
    cut_at_every_step(delete, async |engine, done| {
        if engine.describe_topic(&me(), &name("t")).is_ok() {
            assert!(!done);
            assert_eq!(all(engine, "t", 0, 0).await.len(), 1, "with all it held");
        }
    })
    .await;
}

#[tokio::test]
async fn a_change_of_partitions_cut_at_any_step_loses_and_repeats_no_offset() {
    let change = async |engine: &Engine| {
        let fewer = AlterTopic { partitions: Some(1), ..AlterTopic::default() };
        let more = AlterTopic { partitions: Some(5), ..AlterTopic::default() };
        engine.alter_topic(&me(), &name("t"), fewer).await.is_ok()
            && engine.alter_topic(&me(), &name("t"), more).await.is_ok()
    };
    cut_at_every_step(change, async |engine, _| {
        alter(engine, 5).await;
        let sent = (0..5).map(|partition| to(partition, "c")).collect();
        assert_eq!(offsets(&produce(engine, "t", sent).await), [1, 1, 0, 0, 0]);
    })
    .await;
}

#[tokio::test]
async fn directories_that_nobody_knows_are_left_alone() {
    let (bench, disk) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    engine.close().await.expect("closed");
    for path in ["data/log/stranger", "data/log/stranger/0"] {
        disk.create_dir(path.as_ref()).expect("made");
    }
    let file = disk.open("data/log/stranger/0/file".as_ref()).expect("made");
    file.write_at(&[std::io::IoSlice::new(b"x")], 0).expect("written");
    drop(bench.open());
    assert_eq!(disk.contents("data/log/stranger/0/file"), b"x");
}

#[tokio::test]
async fn metadata_that_are_damaged_or_gone_stop_the_start_and_nothing_is_touched() {
    let (bench, disk) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    produce(&engine, "t", vec![record("", "a")]).await;
    engine.close().await.expect("closed");
    let sound = disk.contents("data/metadata.redb");
    let refuses = |what: &str| {
        let error = Engine::open(bench.options()).err().unwrap_or_else(|| panic!("{what} is no start"));
        assert!(error.to_string().contains("metadata.redb"), "{error}");
        assert!(error.to_string().contains("backup"), "it says what to do: {error}");
    };
    disk.overwrite("data/metadata.redb", &[]);
    refuses("an empty file");
    disk.overwrite("data/metadata.redb", &vec![0; sound.len()]);
    refuses("a file of zeros");
    disk.overwrite("data/metadata.redb", &sound[..sound.len() / 2]);
    refuses("half a file");
    for place in (0..sound.len()).step_by(sound.len() / 97) {
        let mut flipped = sound.clone();
        flipped[place] ^= 0x10;
        disk.overwrite("data/metadata.redb", &flipped);
        // A bit that redb does not use changes nothing; any other one is found.
        match Engine::open(bench.options()) {
            Ok(engine) => assert_eq!(engine.stats().topics, 1, "byte {place}"),
            Err(error) => assert!(error.to_string().contains("backup"), "byte {place}: {error}"),
        }
    }
    disk.remove("data/metadata.redb");
    refuses("no file beside logs");
    let file = disk.open("data/metadata.redb".as_ref()).expect("made");
    drop(file);
    disk.overwrite("data/metadata.redb", &sound);
    let engine = bench.open();
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 1, "with the backup in place nothing was lost");
}
