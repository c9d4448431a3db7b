//! Modules on a record's way in: partitioners and validators.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use levada_engine::{
    Acks, AlterTopic, BatchesRequest, Engine, ExecuteRecord, ExecuteRequest, Once, ProduceError, ProduceRecord,
    ProduceRequest, Produced, RecordFault, TransactionError,
};
use levada_extension::ModuleFault;
use levada_log::{BatchBuilder, NewBatch};
use levada_model::{Compression, LeaderEpoch, Offset, Record};
use serde_json::{Value, json};

use super::{HostHandle, engine, module, named, of, open, put};
use crate::support::{Bench, START, all, create, me, name, offsets, p, produce, record, request};

async fn alter(engine: &Engine, setting: &str, value: Value) {
    let config = BTreeMap::from([(setting.to_owned(), Some(value))]);
    engine.alter_topic(&me(), &name("t"), AlterTopic { config, ..AlterTopic::default() }).await.expect("altered");
}

/// The partitions that records went to.
fn partitions(produced: &Produced) -> Vec<u32> {
    produced.records.iter().map(|placed| placed.as_ref().expect("stored").partition.0).collect()
}

async fn placed(engine: &Engine, keys: &[&str]) -> Vec<u32> {
    partitions(&produce(engine, "t", keys.iter().map(|key| record(key, "v")).collect()).await)
}

#[tokio::test]
async fn the_partitioner_places_records_without_a_partition() {
    let (engine, host) = engine();
    put(&engine, "by-length", module(&["partitioner"], json!({}))).await;
    create(&engine, "t", 4, &[("partitioner", json!("module:by-length"))]).await;
    assert_eq!(placed(&engine, &["a", "bb", "cccc", "", "ccc"]).await, [1, 2, 0, 0, 3]);
    let there = ProduceRecord { partition: Some(p(3)), ..record("a", "v") };
    assert_eq!(partitions(&produce(&engine, "t", vec![record("bb", "v"), there.clone()]).await), [2, 3]);
    assert_eq!(*host.0.calls.lock(), [5, 1], "it is asked for those alone");
    produce(&engine, "t", vec![there]).await;
    assert_eq!(host.0.calls.lock().len(), 2, "and not at all where all are named");
    alter(&engine, "partitioner.config", json!({"to": 2})).await;
    assert_eq!(placed(&engine, &["a", "bb"]).await, [2, 2]);
    let executed = ExecuteRequest {
        records: vec![ExecuteRecord { topic: name("t"), record: record("a", "v") }],
        group_offsets: None,
        key: None,
    };
    let executed = engine.execute_transaction(&me(), executed).await.expect("executed");
    assert_eq!(executed.records[0].placed.partition, p(2), "in a transaction too");
    assert_eq!((engine.stats().partitioner_fallbacks, engine.stats().modules), (0, 1));
}

#[tokio::test]
async fn the_version_that_is_active_places_from_the_next_request_on() {
    let (engine, _) = engine();
    put(&engine, "m", module(&["partitioner"], json!({}))).await;
    create(&engine, "t", 4, &[("partitioner", json!("module:m")), ("validator", json!("none"))]).await;
    assert_eq!(placed(&engine, &["a"]).await, [1]);
    put(&engine, "m", module(&["transform", "partitioner"], json!({"rev": 2}))).await;
    assert_eq!(placed(&engine, &["a"]).await, [1]);
    assert_eq!(engine.module_stats(&me(), &of("m@1")).await.expect("there").calls, 1);
    assert_eq!(engine.module_stats(&me(), &of("m")).await.expect("there").calls, 1);
    engine.activate_module(&me(), &named("m"), 1).await.expect("rolled back");
    placed(&engine, &["a"]).await;
    assert_eq!(engine.module_stats(&me(), &of("m@1")).await.expect("there").calls, 2);
    let log = engine.module_logs(&me(), &of("m@1"), 1, 10).await.expect("there");
    assert_eq!((log.lines.len(), log.next), (1, 2));
}

#[tokio::test]
async fn murmur2_stands_in_for_a_partitioner_without_a_usable_answer_and_that_is_seen() {
    let (bench, disk) = Bench::sim();
    let host = HostHandle::default();
    let engine = open(&bench, &host);
    put(&engine, "m", module(&["partitioner"], json!({}))).await;
    create(&engine, "t", 4, &[]).await;
    let murmur2 = placed(&engine, &["trap", "a", "b"]).await;
    alter(&engine, "partitioner", json!("module:m")).await;
    assert_eq!(placed(&engine, &["trap", "a", "b"]).await, murmur2, "it traps");
    let seen = |engine: &Engine| {
        let described = engine.describe_topic(&me(), &name("t")).expect("there");
        assert_eq!(engine.stats().partitioner_fallbacks, described.partitioner_fallbacks);
        (described.partitioner_fallbacks, described.partitioner_fault.unwrap_or_default())
    };
    assert_eq!(seen(&engine), (1, "module m: it trapped".to_owned()));
    alter(&engine, "partitioner.config", json!({"to": 4})).await;
    assert_eq!(placed(&engine, &["trap", "a", "b"]).await, murmur2, "out of range");
    assert_eq!(seen(&engine).0, 2);
    host.0.busy.store(true, Ordering::SeqCst);
    let busy = engine.produce(&me(), &name("t"), request(vec![record("a", "v")])).await;
    assert!(matches!(busy, Err(ProduceError::PartitionerBusy { .. })), "one that is busy is waited for: {busy:?}");
    assert_eq!(seen(&engine).0, 2);
    engine.close().await.expect("closed");
    let engine = bench.with(disk.restart()).open();
    assert_eq!(placed(&engine, &["a"]).await, murmur2[1..2], "no host");
    assert_eq!(seen(&engine), (1, "module m: this broker runs no modules".to_owned()));
}

#[tokio::test]
async fn a_retry_with_a_key_meets_its_first_try_also_behind_a_partitioner() {
    let (engine, _) = engine();
    put(&engine, "m", module(&["partitioner"], json!({}))).await;
    create(&engine, "t", 4, &[("partitioner", json!("module:m"))]).await;
    let request = || {
        let once = Once::Key { key: "key".to_owned(), body_digest: [1; 32] };
        ProduceRequest { once, ..request(vec![record("", "v")]) }
    };
    let first = engine.produce(&me(), &name("t"), request()).await.expect("taken");
    assert_eq!((partitions(&first), first.duplicate), (vec![3], false), "the key stands in");
    let again = engine.produce(&me(), &name("t"), request()).await.expect("taken");
    assert_eq!((partitions(&again), again.duplicate), (vec![3], true));
}

fn keyed(records: Vec<ProduceRecord>) -> ProduceRequest {
    let once = Once::Key { key: "key".to_owned(), body_digest: [1; 32] };
    ProduceRequest { once, ..request(records) }
}

fn placements(produced: &Produced) -> Vec<(u32, u64)> {
    partitions(produced).into_iter().zip(offsets(produced)).collect()
}

#[tokio::test]
async fn a_retry_with_a_key_meets_its_first_try_also_where_the_partitioner_has_another_answer_by_now() {
    let (engine, host) = engine();
    put(&engine, "m", module(&["partitioner"], json!({}))).await;
    let of_many = || vec![record("a", "v"), record("bb", "v"), record("a", "v"), record("ccc", "w")];
    for (topic, records) in [("t", of_many()), ("one", vec![record("a", "v")])] {
        create(&engine, topic, 4, &[("partitioner", json!("module:m")), ("compression.type", json!("zstd"))]).await;
        let send = async || engine.produce(&me(), &name(topic), keyed(records.clone())).await.expect("taken");
        let first = send().await;
        assert!(!first.duplicate);
        // Another partition, none that there is (murmur2 stands in), and murmur2.
        for (setting, value) in [
            ("partitioner.config", json!({"to": 0})),
            ("partitioner.config", json!({"to": 9})),
            ("partitioner", json!("murmur2")),
        ] {
            let config = BTreeMap::from([(setting.to_owned(), Some(value))]);
            let config = AlterTopic { config, ..AlterTopic::default() };
            engine.alter_topic(&me(), &name(topic), config).await.expect("altered");
            let again = send().await;
            assert_eq!((placements(&again), again.duplicate), (placements(&first), true), "{topic} {setting}");
        }
        let more = AlterTopic { partitions: Some(9), ..AlterTopic::default() };
        engine.alter_topic(&me(), &name(topic), more).await.expect("altered");
        let again = send().await;
        assert_eq!((placements(&again), again.duplicate), (placements(&first), true), "more partitions");
    }
    assert_eq!(*host.0.calls.lock(), [4, 1], "it is asked for the first try alone");
}

#[tokio::test]
async fn what_a_first_try_did_not_store_is_stored_by_the_retry_beside_what_it_did() {
    let (engine, _) = engine();
    put(&engine, "m", module(&["partitioner", "transform"], json!({}))).await;
    create(&engine, "t", 3, &[("partitioner", json!("module:m"))]).await;
    let send = async |records| engine.produce(&me(), &name("t"), keyed(records)).await;
    // As a crash between the partitions leaves it.
    let part = send(vec![record("a", "reject")]).await.expect("taken");
    assert_eq!(placements(&part), [(1, 0)]);
    alter(&engine, "partitioner.config", json!({"to": 1})).await;
    alter(&engine, "validator", json!("module:m")).await;
    let whole = || vec![record("a", "reject"), record("bb", "v")];
    let done = send(whole()).await.expect("what is stored is not judged anew");
    assert_eq!((placements(&done), done.duplicate), (vec![(1, 0), (2, 0)], false));
    let again = send(whole()).await.expect("taken");
    assert_eq!((placements(&again), again.duplicate), (vec![(1, 0), (2, 0)], true));
    let stored = async |partition| all(&engine, "t", partition, 0).await.len();
    assert_eq!((stored(0).await, stored(1).await, stored(2).await), (0, 1, 1));
}

#[tokio::test]
async fn nothing_stands_in_for_the_partitioner_where_it_alone_knows_where_a_first_try_went() {
    let (engine, _) = engine();
    put(&engine, "m", module(&["partitioner"], json!({}))).await;
    create(&engine, "t", 3, &[("partitioner", json!("module:m"))]).await;
    let whole = || keyed(vec![record("a", "v"), record("bb", "v")]);
    let first = engine.produce(&me(), &name("t"), whole()).await.expect("taken");
    engine.truncate_topic(&me(), &name("t"), vec![(p(1), Offset(1)), (p(2), Offset(1))]).await.expect("truncated");
    alter(&engine, "partitioner.config", json!({"to": 9})).await;
    let refused = engine.produce(&me(), &name("t"), whole()).await;
    assert!(matches!(refused, Err(ProduceError::Partitioner { .. })), "{refused:?}");
    alter(&engine, "partitioner.config", json!({})).await;
    let again = engine.produce(&me(), &name("t"), whole()).await.expect("taken");
    assert_eq!((placements(&again), again.duplicate), (placements(&first), true));
}

#[tokio::test]
async fn a_produce_waits_for_its_module_for_a_stated_time_and_then_nothing_is_stored() {
    let (engine, host) = engine();
    put(&engine, "slow", module(&["partitioner", "transform"], json!({"gated": true}))).await;
    for setting in ["validator", "partitioner"] {
        create(&engine, setting, 2, &[(setting, json!("module:slow"))]).await;
        host.hold(true);
        tokio::time::pause();
        let refused = engine.produce(&me(), &name(setting), request(vec![record("k", "v")])).await.expect_err(setting);
        tokio::time::resume();
        assert!(refused.to_string().contains("it was not done after 30000 ms"), "{refused}");
        assert!(
            matches!(
                refused,
                ProduceError::PartitionerBusy { .. } | ProduceError::Validator { fault: ModuleFault::Busy(_), .. }
            ),
            "{refused:?}"
        );
        host.hold(false);
        let stored = engine.produce(&me(), &name(setting), request(vec![record("k", "v")])).await.expect("taken");
        assert_eq!(offsets(&stored), [0], "nothing was stored before");
    }
}

#[tokio::test]
async fn keyless_records_follow_those_before_them_unless_a_module_places_them() {
    let (engine, _) = engine();
    put(&engine, "m", module(&["partitioner"], json!({}))).await;
    create(&engine, "t", 4, &[]).await;
    let follow = async |partition| {
        let records = vec![record("", "v"), record("", "v")];
        let request = ProduceRequest { keyless_to: Some(p(partition)), ..request(records) };
        partitions(&engine.produce(&me(), &name("t"), request).await.expect("taken"))
    };
    for partition in [3, 0, 2] {
        assert_eq!(follow(partition).await, [partition, partition]);
    }
    assert!(follow(4).await[0] < 4, "one that is not there is not followed");
    alter(&engine, "partitioner", json!("module:m")).await;
    alter(&engine, "partitioner.config", json!({"to": 1})).await;
    assert_eq!(follow(3).await, [1, 1]);
}

#[tokio::test]
async fn many_records_are_placed_and_judged_in_calls_that_are_not_too_large() {
    let (engine, host) = engine();
    put(&engine, "m", module(&["partitioner", "transform"], json!({"records_max": 3_000}))).await;
    let modules = [("partitioner", json!("module:m")), ("validator", json!("module:m"))];
    create(&engine, "t", 2, &modules).await;
    let keys = ["a", "bb"];
    let produced = produce(&engine, "t", (0..25_000).map(|i| record(keys[i % 2], "v")).collect()).await;
    assert!(partitions(&produced).iter().zip([1, 0].iter().cycle()).all(|(got, wanted)| got == wanted));
    let calls = host.0.calls.lock().clone();
    assert_eq!(calls[..3], [10_000, 10_000, 5_000]);
    assert!(calls[3..].iter().all(|count| *count <= 10_000));
}

async fn judged(engine: &Engine, values: &[&str]) -> Result<Vec<u64>, ProduceError> {
    let records = values.iter().map(|value| record("k", value)).collect();
    engine.produce(&me(), &name("t"), request(records)).await.map(|produced| offsets(&produced))
}

#[tokio::test]
async fn the_validator_refuses_records_at_their_places() {
    let (engine, _) = engine();
    put(&engine, "judge", module(&["transform"], json!({}))).await;
    create(&engine, "t", 3, &[("validator", json!("module:judge"))]).await;
    let of_many =
        |place: usize, value: &str| ProduceRecord { partition: Some(p(place as u32 % 3)), ..record("", value) };
    let values = ["a", "reject-1", "b", "drop", "reject-2", "c"];
    let records = values.iter().enumerate().map(|(place, value)| of_many(place, value)).collect();
    let refused = engine.produce(&me(), &name("t"), request(records)).await;
    let Err(ProduceError::Records(faults)) = refused else { panic!("{refused:?}") };
    let told: Vec<_> = faults.iter().map(|(place, fault)| (*place, fault.to_string())).collect();
    let drops = "it drops the record, and what a validator drops is not stored";
    let wanted = [(1, "reject-1 is not for us"), (3, drops), (4, "reject-2 is not for us")];
    let wanted = wanted.map(|(place, reason)| (place, format!("validator judge rejects the record: {reason}")));
    assert_eq!(told, wanted);
    assert!(matches!(&faults[0].1, RecordFault::Rejected { module, .. } if *module == of("judge")));
    for partition in 0..3 {
        assert_eq!(all(&engine, "t", partition, 0).await, [], "nothing is stored");
    }
    assert_eq!(engine.stats().records_rejected, 3);
    assert_eq!(judged(&engine, &["a", "b"]).await.expect("they pass"), [0, 1]);
    alter(&engine, "validator.config", json!({"drop": "bad"})).await;
    assert_eq!(judged(&engine, &["drop"]).await.expect("the config says otherwise"), [2]);
    assert!(judged(&engine, &["bad"]).await.is_err());
    let executed = ExecuteRequest {
        records: vec![ExecuteRecord { topic: name("t"), record: record("k", "bad") }],
        group_offsets: None,
        key: None,
    };
    let executed = engine.execute_transaction(&me(), executed).await;
    assert!(matches!(executed, Err(TransactionError::Produce { .. })), "{executed:?}");
    alter(&engine, "validator", json!("none")).await;
    judged(&engine, &["bad", "reject"]).await.expect("nobody judges any more");
}

#[tokio::test]
async fn nothing_passes_a_validator_that_has_no_usable_answer() {
    let (bench, disk) = Bench::sim();
    let host = HostHandle::default();
    let engine = open(&bench, &host);
    put(&engine, "judge", module(&["transform"], json!({}))).await;
    create(&engine, "t", 1, &[("validator", json!("module:judge"))]).await;
    for (value, told) in [
        ("trap", "it trapped"),
        ("deadline", "it took too long"),
        ("wrong-answer", "0 partitions for 1 keys"),
        ("twice", "it wants to store another record, and a validator changes none"),
    ] {
        let refused = judged(&engine, &["a", value]).await.expect_err(value);
        assert_eq!(refused.to_string(), format!("validator judge gave no answer: {told}"));
        assert!(matches!(&refused, ProduceError::Validator { module, .. } if *module == of("judge")));
    }
    host.0.busy.store(true, Ordering::SeqCst);
    let refused = judged(&engine, &["a"]).await;
    assert!(matches!(refused, Err(ProduceError::Validator { fault: ModuleFault::Busy(_), .. })), "{refused:?}");
    host.0.busy.store(false, Ordering::SeqCst);
    assert_eq!(judged(&engine, &["a"]).await.expect("it passes"), [0], "nothing was stored before");
    engine.close().await.expect("closed");
    let engine = bench.with(disk.restart()).open();
    let refused = judged(&engine, &["a"]).await;
    assert!(matches!(refused, Err(ProduceError::Validator { .. })), "no host: {refused:?}");
}

fn batch(compression: Compression, values: &[&str]) -> BytesMut {
    let mut builder = BatchBuilder::new(NewBatch { compression, ..NewBatch::default() }, 0);
    for value in values {
        builder.push(START, &Record { value: Some(Bytes::from((*value).to_owned())), ..Record::default() });
    }
    let batch = builder.finish().expect("it is built").stamp(Offset(0), LeaderEpoch(0));
    BytesMut::from(&batch.bytes()[..])
}

#[tokio::test]
async fn batches_with_a_record_that_the_validator_rejects_are_refused_whole() {
    let (engine, _) = engine();
    put(&engine, "judge", module(&["transform"], json!({}))).await;
    create(&engine, "t", 1, &[("validator", json!("module:judge"))]).await;
    let send = async |parts: Vec<BytesMut>| {
        let bytes = parts.iter().flat_map(|part| part.to_vec()).collect::<Vec<_>>();
        let bytes = BytesMut::from(&bytes[..]);
        let request =
            BatchesRequest { partition: p(0), bytes, acks: Acks::All, expected_offset: None, transaction: None };
        engine.produce_batches(&me(), &name("t"), request).await
    };
    for compression in [Compression::None, Compression::Zstd] {
        let refused = send(vec![batch(compression, &["a", "b"]), batch(compression, &["c", "reject"])]).await;
        let Err(ProduceError::Rejected { batch: 1, record: 1, reason, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(reason, "reject is not for us");
        let refused = send(vec![batch(compression, &["trap"])]).await;
        assert!(matches!(refused, Err(ProduceError::Validator { .. })), "{refused:?}");
    }
    assert_eq!(all(&engine, "t", 0, 0).await, []);
    let stored = send(vec![batch(Compression::Zstd, &["a"]), batch(Compression::None, &["b"])]).await.expect("good");
    assert_eq!(offsets(&stored), [0, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_validator_holds_up_its_own_topic_alone() {
    let (engine, host) = engine();
    put(&engine, "slow", module(&["transform"], json!({"gated": true}))).await;
    create(&engine, "t", 1, &[("validator", json!("module:slow"))]).await;
    create(&engine, "other", 1, &[]).await;
    host.hold(true);
    let held = tokio::spawn({
        let engine = engine.clone();
        async move { judged(&engine, &["a"]).await }
    });
    for _ in 0..20 {
        produce(&engine, "other", vec![record("", "v")]).await;
    }
    assert!(!held.is_finished());
    host.hold(false);
    assert_eq!(held.await.expect("no panic").expect("it passes"), [0]);
}
