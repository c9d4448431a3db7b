//! Storing once: producer sequences, idempotency keys, expected offsets; over restarts, retention and truncation.

use levada_engine::{AppendFault, Engine, Once, ProduceError, ProduceRequest, Produced};
use levada_log::AppendError;
use levada_model::{Offset, Principal, ProducerEpoch, ProducerId, Sequence};
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{Bench, all, create, me, name, offsets, p, produce, record, request, to};

fn keyed(key: &str, digest: u8, values: &[&str]) -> ProduceRequest {
    let records = values.iter().map(|value| record("", value)).collect();
    ProduceRequest { once: Once::Key { key: key.to_owned(), body_digest: [digest; 32] }, ..request(records) }
}

fn sequenced(id: ProducerId, epoch: i16, sequence: i32, value: &str) -> ProduceRequest {
    let once = Once::Producer { id, epoch: ProducerEpoch(epoch), sequence: Sequence(sequence) };
    ProduceRequest { once, ..request(vec![to(0, value)]) }
}

async fn send(engine: &Engine, request: ProduceRequest) -> Produced {
    engine.produce(&me(), &name("t"), request).await.expect("the request is taken")
}

fn fault(produced: Produced) -> AppendFault {
    let fault = produced.records.into_iter().next().expect("one record").expect_err("refused");
    std::sync::Arc::into_inner(fault).expect("one holder")
}

#[tokio::test]
async fn a_key_stores_once_also_after_a_restart_and_after_its_records_are_gone() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 3, &[("retention.ms", json!(1_000)), ("segment.ms", json!(1))]).await;
    let first = send(&engine, keyed("k", 1, &["a", "b"])).await;
    assert!(!first.duplicate);
    let again = send(&engine, keyed("k", 1, &["a", "b"])).await;
    assert!(again.duplicate);
    assert_eq!(offsets(&again), offsets(&first));
    assert_eq!(
        again.records[0].as_ref().expect("there").partition,
        first.records[0].as_ref().expect("there").partition
    );
    let other_body = fault(send(&engine, keyed("k", 2, &["a", "c"])).await);
    assert!(matches!(other_body, AppendFault::Refused(AppendError::KeyReused)));
    assert!(!send(&engine, keyed("l", 1, &["a"])).await.duplicate, "another key");
    engine.close().await.expect("closed");

    let engine = bench.open();
    assert!(send(&engine, keyed("k", 1, &["a", "b"])).await.duplicate);
    for _ in 0..2 {
        bench.clock.advance(10_000);
        engine.run_maintenance();
    }
    let described = engine.describe_topic(&me(), &name("t")).expect("it is there");
    assert!(described.partitions.iter().all(|p| p.log_start_offset == p.high_watermark), "retention took everything");
    let late = send(&engine, keyed("k", 1, &["a", "b"])).await;
    assert!(late.duplicate);
    let placed = |produced: &Produced| -> Vec<_> {
        produced.records.iter().map(|record| *record.as_ref().expect("placed")).collect()
    };
    assert_eq!(placed(&late), placed(&first), "offsets and times of the first try, though the clock has moved on");
    drop(engine);
    assert!(send(&bench.open(), keyed("k", 1, &["a", "b"])).await.duplicate, "also after a crash");
}

#[tokio::test]
async fn a_key_with_another_body_is_refused_wherever_that_body_would_go() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 3, &[]).await;
    let pinned = |partition, digest| {
        let mut request = keyed("k", digest, &["a"]);
        request.records[0].partition = Some(p(partition));
        request
    };
    assert!(!send(&engine, pinned(0, 1)).await.duplicate);
    for partition in [0, 1, 2] {
        let reused = fault(send(&engine, pinned(partition, 2)).await);
        assert!(matches!(reused, AppendFault::Refused(AppendError::KeyReused)), "partition {partition}");
    }
    assert!(send(&engine, pinned(0, 1)).await.duplicate);
    assert!(all(&engine, "t", 1, 0).await.is_empty() && all(&engine, "t", 2, 0).await.is_empty());
}

#[tokio::test]
async fn a_key_belongs_to_its_principal_and_topic() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    create(&engine, "u", 1, &[]).await;
    send(&engine, keyed("k", 1, &["a"])).await;
    let other = engine.produce(&Principal::broker(), &name("t"), keyed("k", 1, &["a"])).await.expect("taken");
    assert!(!other.duplicate);
    let elsewhere = engine.produce(&me(), &name("u"), keyed("k", 1, &["a"])).await.expect("taken");
    assert!(!elsewhere.duplicate);
}

#[tokio::test]
async fn a_retry_completes_what_only_some_partitions_have() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 2, &[]).await;
    let both = |values: [&str; 2]| ProduceRequest {
        once: Once::Key { key: "k".to_owned(), body_digest: [7; 32] },
        ..request(vec![to(0, values[0]), to(1, values[1])])
    };
    // As after a crash between the two: only partition 0 has its part.
    let half = ProduceRequest { records: vec![to(0, "a")], ..both(["a", "b"]) };
    send(&engine, half).await;
    let retried = send(&engine, both(["a", "b"])).await;
    assert!(!retried.duplicate, "a part of it is new");
    assert_eq!((all(&engine, "t", 0, 0).await.len(), all(&engine, "t", 1, 0).await.len()), (1, 1));
    assert!(send(&engine, both(["a", "b"])).await.duplicate);
}

#[tokio::test]
async fn sequences_are_contiguous_and_repeats_are_recognised_over_restart_truncation_and_retention() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let (id, epoch) = engine.init_producer(&me()).await.expect("an id");
    assert_eq!(epoch, ProducerEpoch(0));
    for sequence in 0..7 {
        let produced = send(&engine, sequenced(id, 0, sequence, "v")).await;
        assert_eq!((offsets(&produced), produced.duplicate), (vec![sequence as u64], false));
    }
    let engine = {
        engine.truncate_topic(&me(), &name("t"), vec![(p(0), Offset(7))]).await.expect("truncated");
        engine.close().await.expect("closed");
        bench.open()
    };
    let repeat = send(&engine, sequenced(id, 0, 4, "v")).await;
    assert_eq!((offsets(&repeat), repeat.duplicate), (vec![4], true));
    let gap = fault(send(&engine, sequenced(id, 0, 9, "v")).await);
    assert!(
        matches!(gap, AppendFault::Refused(AppendError::OutOfOrderSequence { expected: Sequence(7), .. })),
        "{gap}"
    );
    let old = fault(send(&engine, sequenced(id, 0, 0, "v")).await);
    assert!(matches!(old, AppendFault::Refused(AppendError::OutOfOrderSequence { .. })), "older than five");
    send(&engine, sequenced(id, 1, 0, "v")).await;
    let fenced = fault(send(&engine, sequenced(id, 0, 7, "v")).await);
    assert!(matches!(fenced, AppendFault::Refused(AppendError::ProducerFenced { .. })));
}

#[tokio::test]
async fn producer_ids_are_given_once_and_others_are_unknown() {
    let (bench, _) = Bench::sim();
    let mut given = Vec::new();
    for _ in 0..2 {
        let engine = bench.open();
        if given.is_empty() {
            create(&engine, "t", 1, &[]).await;
        }
        for _ in 0..1_500 {
            given.push(engine.init_producer(&me()).await.expect("an id").0);
        }
        engine.close().await.expect("closed");
    }
    let count = given.len();
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), count);
    let engine = bench.open();
    assert!(!send(&engine, sequenced(given[0], 0, 0, "v")).await.duplicate, "an id of an earlier run is known");
    for unknown in [ProducerId(1 << 50), levada_log::derived_producer_id(5), ProducerId(-1)] {
        let refused = engine.produce(&me(), &name("t"), sequenced(unknown, 0, 0, "v")).await.expect_err("unknown");
        assert!(matches!(refused, ProduceError::UnknownProducer(id) if id == unknown));
    }
    let unnamed = ProduceRequest { records: vec![record("", "v")], ..sequenced(given[0], 0, 1, "v") };
    let refused = engine.produce(&me(), &name("t"), unnamed).await.expect_err("which partition?");
    assert!(matches!(refused, ProduceError::OnePartition(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_that_expect_the_same_offset_exactly_one_is_stored() {
    for durability in ["fsync", "page-cache"] {
        let (bench, _) = Bench::sim();
        let engine = bench.open();
        create(&engine, "t", 1, &[("durability", json!(durability))]).await;
        for round in 0..20 {
            let mut racers = JoinSet::new();
            for racer in 0..8 {
                let engine = engine.clone();
                let expecting = ProduceRequest {
                    expected_offset: Some(Offset(round)),
                    ..request(vec![record("", &racer.to_string())])
                };
                racers.spawn(async move { send(&engine, expecting).await.records.remove(0) });
            }
            let results = racers.join_all().await;
            assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
            let next = Offset(round + 1);
            for refused in results.into_iter().filter_map(Result::err) {
                let AppendFault::Refused(AppendError::OffsetMismatch { next_offset }) = &*refused else {
                    panic!("{refused}");
                };
                assert_eq!(*next_offset, next);
            }
        }
        assert_eq!(offsets(&produce(&engine, "t", vec![record("", "last")]).await), [20]);
    }
}
