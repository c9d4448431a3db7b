//! PC-36: records without a key and compacted topics never meet.

use std::collections::BTreeMap;

use bytes::BytesMut;
use levada_engine::{
    Acks, AlterTopic, AppendFault, BatchesRequest, Engine, From, ProduceError, RecordFault, TopicDescription,
    TopicError,
};
use levada_log::{BatchBuilder, NewBatch};
use levada_model::{Compression, Offset, Record};
use serde_json::json;
use tokio::task::JoinSet;

use super::{compact, compacted_topic, tombstone};
use crate::support::{Bench, START, all, create, fetch, me, name, offsets, p, produce, record, request, to};

async fn switch(engine: &Engine, topic: &str, policy: &str) -> Result<TopicDescription, TopicError> {
    let config = BTreeMap::from([("cleanup.policy".to_owned(), Some(json!(policy)))]);
    engine.alter_topic(&me(), &name(topic), AlterTopic { config, ..AlterTopic::default() }).await
}

fn batch(compression: Compression, keys: &[Option<&'static str>]) -> BytesMut {
    let mut builder = BatchBuilder::new(NewBatch { compression, ..NewBatch::default() }, 0);
    for key in keys {
        builder.push(START, &Record { key: key.map(Into::into), value: Some("v".into()), headers: Vec::new() });
    }
    let batch = builder.finish().expect("it is built").stamp(Offset(0), levada_model::LeaderEpoch(0));
    BytesMut::from(&batch.bytes()[..])
}

#[tokio::test]
async fn a_record_without_a_key_is_refused_at_its_place_and_nothing_is_stored() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    compacted_topic(&engine, "t", 2, &[]).await;
    let refused = engine.produce(&me(), &name("t"), request(vec![record("", "x")])).await;
    assert!(matches!(refused, Err(ProduceError::Records(faults)) if faults == [(0, RecordFault::NoKey)]));
    let three = vec![record("a", "1"), record("", "2"), record("b", "3")];
    let refused = engine.produce(&me(), &name("t"), request(three)).await;
    assert!(matches!(refused, Err(ProduceError::Records(faults)) if faults == [(1, RecordFault::NoKey)]));
    for compression in [Compression::None, Compression::Lz4] {
        let mut bytes = batch(compression, &[Some("a")]);
        bytes.extend_from_slice(&batch(compression, &[Some("a"), None]));
        let batches =
            BatchesRequest { partition: p(0), bytes, acks: Acks::All, expected_offset: None, transaction: None };
        let refused = engine.produce_batches(&me(), &name("t"), batches).await;
        assert!(matches!(refused, Err(ProduceError::NoKey { batch: 1, record: 1 })), "{refused:?}");
    }
    assert_eq!(engine.stats().appended_records, 0);
    let mut empty_key = to(0, "x");
    empty_key.record.key = Some(bytes::Bytes::new());
    let mut deletion = tombstone("k");
    deletion.partition = Some(p(0));
    offsets(&produce(&engine, "t", vec![empty_key, deletion]).await);
    compact(&engine, "t").await;
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 2, "an empty key is a key");
}

#[tokio::test]
async fn a_topic_that_holds_records_without_a_key_is_not_switched_and_the_first_is_named() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 2, &[]).await;
    let keyed = |key: &str| levada_engine::ProduceRecord { partition: Some(p(1)), ..record(key, "x") };
    produce(&engine, "t", vec![keyed("a"), keyed("b")]).await;
    produce(&engine, "t", vec![keyed("a"), to(1, "no key"), to(1, "no key")]).await;
    let before = engine.describe_topic(&me(), &name("t")).expect("there");
    for policy in ["compact", "compact,delete"] {
        let refused = switch(&engine, "t", policy).await.expect_err("it is not switched");
        let TopicError::Keyless { partition, offset, .. } = &refused else { panic!("{refused}") };
        assert_eq!((*partition, *offset), (p(1), Offset(3)));
        let text = refused.to_string();
        assert!(text.contains("partition 1") && text.contains("offset 3"), "{text}");
    }
    assert_eq!(engine.describe_topic(&me(), &name("t")).expect("there"), before, "nothing was changed");
    offsets(&produce(&engine, "t", vec![to(0, "still taken"), to(1, "still taken")]).await);
    engine.truncate_topic(&me(), &name("t"), vec![(p(0), Offset(1)), (p(1), Offset(6))]).await.expect("truncated");
    produce(&engine, "t", vec![keyed("a"), keyed("a")]).await;
    let switched = switch(&engine, "t", "compact").await.expect("nothing without a key is left");
    assert_eq!(switched.config["cleanup.policy"], json!("compact"));
    let refused = engine.produce(&me(), &name("t"), request(vec![to(0, "x")])).await;
    assert!(matches!(refused, Err(ProduceError::Records(_))));
    compact(&engine, "t").await;
    assert_eq!(all(&engine, "t", 1, 6).await, [(7, "x".to_owned())]);
    switch(&engine, "t", "delete").await.expect("the way back is free");
    offsets(&produce(&engine, "t", vec![to(0, "taken again")]).await);
}

#[tokio::test]
async fn a_change_that_is_refused_for_another_reason_leaves_the_partitions_as_they_were() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let config = BTreeMap::from([("cleanup.policy".to_owned(), Some(json!("compact")))]);
    let change = AlterTopic { config, partitions: Some(0), if_version: None };
    let refused = engine.alter_topic(&me(), &name("t"), change.clone()).await;
    assert!(matches!(refused, Err(TopicError::PartitionCount { .. })));
    let stale = AlterTopic { partitions: None, if_version: Some(7), ..change };
    let refused = engine.alter_topic(&me(), &name("t"), stale).await;
    assert!(matches!(refused, Err(TopicError::VersionMismatch { .. })));
    offsets(&produce(&engine, "t", vec![to(0, "still taken")]).await);
}

/// Whoever is first wins: either the switch, or the record without a key; never both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_that_race_with_the_switch_never_leave_a_record_without_a_key_behind_it() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    let (mut switched, mut refused) = (0, 0);
    for round in 0..200 {
        let topic = format!("t{round}");
        let policy = [("durability", json!(if round % 2 == 0 { "fsync" } else { "page-cache" }))];
        create(&engine, &topic, 1, &policy).await;
        let mut producers = JoinSet::new();
        for producer in 0..3 {
            let (engine, topic) = (engine.clone(), name(&topic));
            producers.spawn(async move {
                for i in 0..=(round % 5) {
                    let key = if producer == 0 && i == round % 5 { "" } else { "k" };
                    match engine.produce(&me(), &topic, request(vec![record(key, "v")])).await {
                        Err(ProduceError::Records(faults)) => {
                            assert!(key.is_empty() && faults == [(0, RecordFault::NoKey)])
                        }
                        Err(other) => panic!("{other}"),
                        Ok(produced) => match &produced.records[0] {
                            Ok(_) => (),
                            Err(fault) => {
                                assert!(key.is_empty() && matches!(**fault, AppendFault::Keyless(_)), "{fault}");
                            }
                        },
                    }
                }
            });
        }
        let result = switch(&engine, &topic, "compact").await;
        producers.join_all().await;
        let stored = keyless(&engine, &topic).await;
        match result {
            Ok(_) => {
                switched += 1;
                assert_eq!(stored, None, "round {round}");
            }
            Err(TopicError::Keyless { offset, .. }) => {
                refused += 1;
                assert_eq!(stored, Some(offset), "round {round}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(switched > 0 && refused > 0, "{switched} switched, {refused} refused");
}

async fn keyless(engine: &Engine, topic: &str) -> Option<Offset> {
    let fetched = fetch(engine, topic, 0, From::Earliest).await.expect("a read");
    let mut records = fetched.records().map(|record| record.expect("sound"));
    records.find(|record| record.record.key.is_none()).map(|record| record.offset)
}

#[tokio::test]
async fn the_switch_waits_for_an_append_that_is_under_way() {
    use crate::gate::Gate;
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    create(&engine, "t", 1, &[]).await;
    produce(&engine, "t", vec![record("k", "v")]).await;
    gate.shut();
    let (other, topic) = (engine.clone(), name("t"));
    let append = tokio::spawn(async move { other.produce(&me(), &topic, request(vec![record("", "v")])).await });
    gate.until_waiting(1).await;
    let other = engine.clone();
    let altering = tokio::spawn(async move { switch(&other, "t", "compact").await });
    tokio::task::yield_now().await;
    gate.open();
    let produced = append.await.expect("no panic").expect("taken");
    assert!(produced.records[0].is_ok());
    let refused = altering.await.expect("no panic").expect_err("it came first");
    assert!(matches!(refused, TopicError::Keyless { offset: Offset(1), .. }), "{refused}");
}

#[tokio::test]
async fn a_topic_is_looked_through_once_however_many_ask_for_the_switch() {
    use crate::gate::Gate;
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    for topic in ["one", "many"] {
        create(&engine, topic, 1, &[]).await;
        for _ in 0..50 {
            produce(&engine, topic, vec![record("k", "v")]).await;
        }
    }
    gate.take_log_reads();
    switch(&engine, "one", "compact").await.expect("all have keys");
    let reads = gate.take_log_reads();
    gate.shut_for_reads();
    let mut switches = JoinSet::new();
    for _ in 0..5 {
        let engine = engine.clone();
        switches.spawn(async move { switch(&engine, "many", "compact").await.map(|_| ()) });
    }
    gate.until_waiting(1).await;
    // A change that asks for nothing of the kind has no turn to wait for.
    let config = BTreeMap::from([("retention.ms".to_owned(), Some(json!(1_000_000)))]);
    let change = AlterTopic { config, ..AlterTopic::default() };
    engine.alter_topic(&me(), &name("many"), change).await.expect("altered meanwhile");
    gate.open();
    assert!(switches.join_all().await.iter().all(Result::is_ok));
    assert_eq!(gate.take_log_reads(), reads, "the others found it done");
}
