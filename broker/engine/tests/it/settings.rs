//! Every setting of a topic and every option of the engine has an effect: here it is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use levada_engine::{
    Acks, AlterTopic, AppendFault, BatchesRequest, Engine, EngineOptions, From, Once, ProduceError, ProduceRecord,
    ProduceRequest, RecordFault,
};
use levada_model::{Compression, ConfigKey, Offset, ProducerEpoch, Sequence, Timestamp, TimestampType};
use serde_json::{Value, json};

use crate::support::{Bench, START, all, create, fetch, me, name, offsets, p, produce, record, request, to, until};

/// Tests by the setting whose effect they show.
const SHOWN: [(&str, &str); 19] = [
    ("cleanup.policy", "compaction::schedule::each_cleanup_policy_does_what_it_names"),
    ("compression.type", "compression_packs_what_the_broker_builds"),
    ("delete.retention.ms", "compaction::exercise::a_tombstone_stays_for_its_time_and_its_customer_never_comes_back"),
    ("durability", "durability_decides_whether_an_append_syncs"),
    ("max.compaction.lag.ms", "compaction::schedule::a_quiet_topic_is_compacted_when_its_records_are_too_old"),
    ("max.message.bytes", "produce_and_fetch::every_wrong_record_is_named_and_nothing_is_stored"),
    ("message.timestamp.after.max.ms", "timestamps_from_the_future_are_refused_beyond_the_setting"),
    ("message.timestamp.type", "append_time_replaces_the_producers"),
    ("min.cleanable.dirty.ratio", "compaction::schedule::compaction_waits_until_enough_is_dirty"),
    ("min.compaction.lag.ms", "compaction::schedule::young_records_are_left_alone_also_by_a_forced_pass"),
    ("min.insync.replicas", "too_few_replicas_refuse_acks_all"),
    ("partitioner", "produce_and_fetch::keys_go_where_kafka_puts_them_and_keyless_requests_take_turns"),
    ("partitioner.config", "modules::producing::the_partitioner_places_records_without_a_partition"),
    ("retention.bytes", "retention_removes_segments_beyond_the_bytes"),
    ("retention.ms", "retention_removes_old_segments"),
    ("segment.bytes", "segments_roll_by_size_and_age"),
    ("segment.ms", "segments_roll_by_size_and_age"),
    ("validator", "modules::producing::the_validator_refuses_records_at_their_places"),
    ("validator.config", "modules::producing::the_validator_refuses_records_at_their_places"),
];

#[test]
fn no_setting_is_without_a_test_of_its_effect() {
    let shown: BTreeSet<_> = SHOWN.iter().map(|(name, _)| *name).collect();
    assert_eq!(shown, ConfigKey::all().iter().map(|key| key.name).collect());
}

fn segments(disk: &levada_log::SimStorage, id: &str) -> usize {
    disk.paths().iter().filter(|path| path.contains(id) && path.ends_with(".log")).count()
}

async fn alter(engine: &Engine, setting: &str, value: Value) {
    let config = BTreeMap::from([(setting.to_owned(), Some(value))]);
    engine.alter_topic(&me(), &name("t"), AlterTopic { config, ..AlterTopic::default() }).await.expect("altered");
}

#[tokio::test]
async fn compression_packs_what_the_broker_builds() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let words = [
        ("producer", Compression::None),
        ("uncompressed", Compression::None),
        ("gzip", Compression::Gzip),
        ("snappy", Compression::Snappy),
        ("lz4", Compression::Lz4),
        ("zstd", Compression::Zstd),
    ];
    for (place, (word, compression)) in (0..).zip(words) {
        alter(&engine, "compression.type", json!(word)).await;
        produce(&engine, "t", vec![record("", &"x".repeat(500))]).await;
        let fetched = fetch(&engine, "t", 0, From::Offset(Offset(place))).await.expect("a read");
        assert_eq!(fetched.batches[0].header().compression(), compression);
    }
    assert_eq!(all(&engine, "t", 0, 0).await.len(), words.len());
}

#[tokio::test]
async fn durability_decides_whether_an_append_syncs() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("durability", json!("page-cache"))]).await;
    let syncs = async || {
        let before = engine.stats().syncs;
        produce(&engine, "t", vec![record("", "x")]).await;
        engine.stats().syncs - before
    };
    assert_eq!(syncs().await, 0);
    let before = engine.stats().syncs;
    alter(&engine, "durability", json!("fsync")).await;
    assert_eq!(engine.stats().syncs - before, 1, "what is there becomes durable as well");
    assert_eq!(syncs().await, 1);
    alter(&engine, "durability", json!("page-cache")).await;
    assert_eq!(syncs().await, 0);
    let before = engine.stats().syncs;
    engine.run_maintenance();
    engine.run_maintenance();
    assert_eq!(engine.stats().syncs - before, 1, "housekeeping flushes what is dirty, once");
}

#[tokio::test]
async fn timestamps_from_the_future_are_refused_beyond_the_setting() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("message.timestamp.after.max.ms", json!(100))]).await;
    let at = |ms| request(vec![ProduceRecord { timestamp: Some(Timestamp(START.0 + ms)), ..record("", "x") }]);
    assert!(engine.produce(&me(), &name("t"), at(100)).await.is_ok());
    let Err(ProduceError::Records(faults)) = engine.produce(&me(), &name("t"), at(101)).await else {
        panic!("too far")
    };
    assert!(matches!(faults[0].1, RecordFault::Timestamp { max, .. } if max == Timestamp(START.0 + 100)));
    bench.clock.advance(1);
    assert!(engine.produce(&me(), &name("t"), at(101)).await.is_ok());
}

#[tokio::test]
async fn append_time_replaces_the_producers() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("message.timestamp.type", json!("LogAppendTime"))]).await;
    let future = ProduceRecord { timestamp: Some(Timestamp(i64::MAX)), ..record("", "x") };
    let once = Once::Key { key: "k".to_owned(), body_digest: [1; 32] };
    let keyed = ProduceRequest { once, ..request(vec![future]) };
    let time = async || {
        let produced = engine.produce(&me(), &name("t"), keyed.clone()).await.expect("taken");
        produced.records[0].as_ref().expect("stored").timestamp
    };
    assert_eq!(time().await, START);
    bench.clock.advance(50);
    assert_eq!(time().await, START, "the first one's time, of a duplicate");
    let fetched = fetch(&engine, "t", 0, From::Earliest).await.expect("a read");
    assert_eq!(fetched.batches[0].header().timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!(fetched.records().next().expect("one").expect("sound").timestamp, START);
}

#[tokio::test]
async fn too_few_replicas_refuse_acks_all() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("min.insync.replicas", json!(2))]).await;
    let with = |acks| ProduceRequest { acks, ..request(vec![record("", "x")]) };
    let refused = engine.produce(&me(), &name("t"), with(Acks::All)).await;
    assert!(matches!(refused, Err(ProduceError::NotEnoughReplicas { in_sync: 1, needed: 2 })));
    assert!(engine.produce(&me(), &name("t"), with(Acks::Leader)).await.is_ok());
}

#[tokio::test]
async fn retention_removes_old_segments() {
    let (bench, disk) = Bench::sim();
    let engine = bench.open();
    let config = [("cleanup.policy", json!("delete")), ("retention.ms", json!(1_000)), ("segment.ms", json!(100))];
    let id = create(&engine, "t", 1, &config).await.id.to_string();
    for _ in 0..3 {
        produce(&engine, "t", vec![record("", "x")]).await;
        bench.clock.advance(600);
        engine.run_maintenance();
    }
    assert_eq!(engine.stats().segments_removed, 2, "those of 1,800 and 1,200 ms ago");
    let topic = engine.describe_topic(&me(), &name("t")).expect("there");
    assert_eq!((topic.partitions[0].log_start_offset, topic.partitions[0].high_watermark), (Offset(2), Offset(3)));
    let kept = segments(&disk, &id);
    alter(&engine, "retention.ms", json!(-1)).await;
    bench.clock.advance(1_000_000);
    engine.run_maintenance();
    assert_eq!(segments(&disk, &id), kept);
}

#[tokio::test]
async fn retention_removes_segments_beyond_the_bytes() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("retention.bytes", json!(4_000)), ("segment.bytes", json!(1_024))]).await;
    for _ in 0..20 {
        produce(&engine, "t", vec![record("", &"x".repeat(500))]).await;
    }
    assert!(engine.stats().log_bytes > 8_000);
    engine.run_maintenance();
    let size_bytes = engine.describe_topic(&me(), &name("t")).expect("there").partitions[0].size_bytes;
    assert!((2_000..=4_000).contains(&size_bytes), "{size_bytes}");
}

#[tokio::test]
async fn segments_roll_by_size_and_age() {
    let (bench, disk) = Bench::sim();
    let engine = bench.open();
    let id =
        create(&engine, "t", 1, &[("segment.bytes", json!(1_024)), ("segment.ms", json!(100))]).await.id.to_string();
    produce(&engine, "t", vec![record("", &"x".repeat(600))]).await;
    assert_eq!(segments(&disk, &id), 1);
    produce(&engine, "t", vec![record("", &"x".repeat(600))]).await;
    assert_eq!(segments(&disk, &id), 2, "by size");
    bench.clock.advance(101);
    engine.run_maintenance();
    produce(&engine, "t", vec![record("", "x")]).await;
    assert_eq!(segments(&disk, &id), 3, "by age");
}

#[tokio::test]
async fn topics_are_created_by_producing_only_where_that_is_wished() {
    let (bench, _) = Bench::sim();
    let engine = Engine::open(EngineOptions { auto_create_topics: true, ..bench.options() }).expect("opens");
    assert_eq!(offsets(&produce(&engine, "new", vec![record("", "x")]).await), [0]);
    assert_eq!(engine.describe_topic(&me(), &name("new")).expect("there").partition_count, 1);
    let internal = engine.produce(&me(), &name("__new"), request(vec![record("", "x")])).await;
    assert!(matches!(internal, Err(ProduceError::Internal(_))));
    engine.close().await.expect("closed");
    let refused = bench.open().produce(&me(), &name("newer"), request(vec![record("", "x")])).await;
    assert!(matches!(refused, Err(ProduceError::NotFound(_))));
}

#[tokio::test]
async fn a_produce_that_is_refused_creates_no_topic() {
    let (bench, _) = Bench::sim();
    let engine = Engine::open(EngineOptions { auto_create_topics: true, ..bench.options() }).expect("opens");
    let topic = name("new");
    let expecting = ProduceRequest { expected_offset: Some(Offset(5)), ..request(vec![record("", "x")]) };
    let produced = engine.produce(&me(), &topic, expecting).await.expect("judged");
    assert!(matches!(*produced.records[0].clone().expect_err("another offset"), AppendFault::Refused(_)));
    for records in [vec![to(3, "x")], vec![record("", &"x".repeat(2 << 20))], Vec::new()] {
        engine.produce(&me(), &topic, request(records)).await.expect_err("refused");
    }
    for partition in [0, 3] {
        let bytes = bytes::BytesMut::from(&b"no batch"[..]);
        let batches = BatchesRequest {
            partition: p(partition),
            bytes,
            acks: Acks::All,
            expected_offset: None,
            transaction: None,
        };
        engine.produce_batches(&me(), &topic, batches).await.expect_err("refused");
    }
    assert!(engine.describe_topic(&me(), &topic).is_err(), "none of them has created it");
    let first = ProduceRequest { expected_offset: Some(Offset(0)), ..request(vec![to(0, "x")]) };
    assert_eq!(offsets(&engine.produce(&me(), &topic, first).await.expect("taken")), [0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_first_producers_one_creates_the_topic() {
    let (bench, _) = Bench::sim();
    let engine = Engine::open(EngineOptions { auto_create_topics: true, ..bench.options() }).expect("opens");
    let mut first = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let engine = engine.clone();
        first.spawn(async move { offsets(&produce(&engine, "new", vec![record("", "x")]).await)[0] });
    }
    let mut given = first.join_all().await;
    given.sort_unstable();
    assert_eq!(given, (0..8).collect::<Vec<_>>());
}

#[tokio::test]
async fn producers_are_forgotten_after_the_expiration() {
    let (bench, _) = Bench::sim();
    let options = EngineOptions { producer_expiration: Duration::from_secs(60), ..bench.options() };
    let engine = Engine::open(options).expect("opens");
    create(&engine, "t", 1, &[]).await;
    let keyed = || ProduceRequest {
        once: Once::Key { key: "k".to_owned(), body_digest: [1; 32] },
        ..request(vec![record("", "x")])
    };
    let (id, _) = engine.init_producer(&me()).await.expect("an id");
    let sequenced = |sequence| ProduceRequest {
        once: Once::Producer { id, epoch: ProducerEpoch(0), sequence: Sequence(sequence) },
        ..request(vec![to(0, "x")])
    };
    let duplicate = async |request| engine.produce(&me(), &name("t"), request).await.expect("taken").duplicate;
    assert!(!duplicate(keyed()).await && !duplicate(sequenced(0)).await);
    bench.clock.advance(59_000);
    engine.run_maintenance();
    assert!(duplicate(keyed()).await && duplicate(sequenced(0)).await);
    bench.clock.advance(2_000);
    engine.run_maintenance();
    assert!(!duplicate(keyed()).await && !duplicate(sequenced(0)).await, "PC-38: a forgotten producer starts anew");
}

#[tokio::test(start_paused = true)]
async fn housekeeping_comes_at_its_interval() {
    let (bench, _) = Bench::sim();
    let options = EngineOptions { maintenance_interval: Duration::from_secs(10), ..bench.options() };
    let engine = Engine::open(options).expect("opens");
    create(&engine, "t", 1, &[("retention.ms", json!(1)), ("segment.ms", json!(1))]).await;
    produce(&engine, "t", vec![record("", "x")]).await;
    tokio::task::yield_now().await;
    bench.clock.advance(10);
    for _ in 0..2 {
        assert_eq!(engine.stats().segments_removed, 0);
        tokio::time::advance(Duration::from_secs(4)).await;
        tokio::task::yield_now().await;
    }
    tokio::time::advance(Duration::from_secs(4)).await;
    until("retention has removed the segment", async || engine.stats().segments_removed == 1).await;
    assert!(engine.describe_topic(&me(), &name("t")).expect("there").partitions[0].log_start_offset == Offset(1));
    assert!(fetch(&engine, "t", 0, From::Earliest).await.expect("a read").batches.is_empty());
}
