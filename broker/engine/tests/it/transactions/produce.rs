//! Records on their way into a transaction, and its ends.

use bytes::BytesMut;
use levada_engine::{Acks, AlterTopic, AppendFault, BatchesRequest, PartitionState, ProduceError, TransactionError};
use levada_log::{AppendError, BatchBuilder, Marker, NewBatch, TransactionEnd};
use levada_model::{LeaderEpoch, Offset, ProducerEpoch, Record, Timestamp};
use serde_json::json;

use super::*;
use crate::support::{Bench, START, create, offsets, produce, record, to};

/// The bytes of a batch of a transaction, with these values.
pub(super) fn built(transaction: TransactionHandle, sequence: i32, values: &[&str]) -> BytesMut {
    let producer = Some((transaction.producer_id, transaction.producer_epoch, Sequence(sequence)));
    bytes(NewBatch { producer, transactional: true, ..NewBatch::default() }, values)
}

fn bytes(new: NewBatch, values: &[&str]) -> BytesMut {
    let mut builder = BatchBuilder::new(new, 0);
    for value in values {
        let value = Some(bytes::Bytes::copy_from_slice(value.as_bytes()));
        builder.push(START, &Record { value, ..Record::default() });
    }
    let batch = builder.finish().expect("it is built").stamp(Offset(0), LeaderEpoch(0));
    BytesMut::from(&batch.bytes()[..])
}

async fn send_built(
    engine: &Engine,
    transaction: Option<TransactionHandle>,
    bytes: BytesMut,
) -> Result<Produced, ProduceError> {
    let request = BatchesRequest { partition: p(0), bytes, acks: Acks::All, expected_offset: None, transaction };
    engine.produce_batches(&me(), &name("t"), request).await
}

#[tokio::test]
async fn what_is_committed_is_seen_whole_and_what_is_aborted_never() {
    for durability in ["fsync", "page-cache"] {
        let (bench, _) = Bench::sim();
        let engine = bench.open();
        create(&engine, "t", 1, &[("durability", json!(durability))]).await;
        let mut one = Transactor::start(&engine, "one").await;
        let mut two = Transactor::start(&engine, "two").await;
        produce(&engine, "t", vec![to(0, "plain")]).await;
        assert_eq!(offsets(&one.send("t", vec![to(0, "a"), to(0, "b")]).await), [1, 2]);
        two.send("t", vec![to(0, "x")]).await;
        one.send("t", vec![to(0, "c")]).await;
        produce(&engine, "t", vec![to(0, "late")]).await;
        let everything = ["plain", "a", "b", "x", "c", "late"];
        assert_eq!(seen(&engine, "t", ReadCommitted).await, (owned(&["plain"]), 1));
        assert_eq!(seen(&engine, "t", ReadUncommitted).await, (owned(&everything), 6));
        two.end(ABORT).await;
        assert_eq!(seen(&engine, "t", ReadCommitted).await, (owned(&["plain"]), 1), "the other is open");
        one.end(COMMIT).await;
        let committed = ["plain", "a", "b", "c", "late"];
        assert_eq!(seen(&engine, "t", ReadCommitted).await, (owned(&committed), 8));
        assert_eq!(seen(&engine, "t", ReadUncommitted).await, (owned(&everything), 8));
        drop((one, two));
        engine.close().await.expect("closed");
        let engine = bench.open();
        assert_eq!(seen(&engine, "t", ReadCommitted).await, (owned(&committed), 8));
        assert_eq!(seen(&engine, "t", ReadUncommitted).await, (owned(&everything), 8));
    }
}

#[tokio::test]
async fn a_retry_with_its_sequence_is_recognised_and_sequences_begin_anew_with_each_transaction() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    assert_eq!(offsets(&one.send_at("t", 0, vec![to(0, "a"), to(0, "b")]).await), [0, 1]);
    let again = one.send_at("t", 0, vec![to(0, "a"), to(0, "b")]).await;
    assert_eq!((offsets(&again), again.duplicate), (vec![0, 1], true));
    // One that the partition numbers takes the next.
    one.send("t", vec![to(0, "c")]).await;
    assert!(one.send_at("t", 2, vec![to(0, "c")]).await.duplicate);
    assert!(!one.send_at("t", 3, vec![to(0, "d")]).await.duplicate);
    let gap = one.send_at("t", 9, vec![to(0, "no")]).await.records.remove(0).expect_err("a gap");
    assert!(matches!(&*gap, AppendFault::Refused(AppendError::OutOfOrderSequence { expected: Sequence(4), .. })));
    one.end(COMMIT).await;
    assert!(!one.send_at("t", 0, vec![to(0, "e")]).await.duplicate);
    one.end(COMMIT).await;
    assert_eq!(seen(&engine, "t", ReadCommitted).await, (owned(&["a", "b", "c", "d", "e"]), 7));
}

#[tokio::test]
async fn a_request_may_go_to_any_partitions_and_counts_in_each() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 3, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    for round in 0..3 {
        let records = (0..20).map(|key| record(&format!("{round}-{key}"), "v")).collect();
        let produced = one.send("t", records).await;
        assert!(produced.records.iter().all(Result::is_ok) && !produced.duplicate);
    }
    one.end(COMMIT).await;
    let described = engine.describe_topic(&me(), &name("t")).expect("there");
    let ends: Vec<u64> = described.partitions.iter().map(|p| p.last_stable_offset.0).collect();
    assert_eq!(ends.iter().sum::<u64>(), 60 + 3, "{ends:?}: a marker in each");
    assert_eq!(engine.stats().appended_records - appended_elsewhere(&engine), 60, "markers are no records");
}

/// Records in the broker's own topics.
fn appended_elsewhere(engine: &Engine) -> u64 {
    let topics = engine.list_topics(&me(), None, 100).expect("a page").topics;
    let own = topics.iter().filter(|topic| topic.internal).flat_map(|topic| &topic.partitions);
    own.map(|partition| partition.high_watermark.0).sum()
}

#[tokio::test]
async fn a_request_that_names_a_sequence_names_one_partition_and_none_goes_without_an_answer() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 2, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    let transaction = one.begin().await;
    let with = |sequence, acks, records| ProduceRequest {
        once: Once::Transaction { transaction, sequence },
        acks,
        ..request(records)
    };
    let both = with(Some(Sequence(0)), Acks::All, vec![to(0, "a"), to(1, "b")]);
    let refused = engine.produce(&me(), &name("t"), both).await.expect_err("two partitions");
    assert!(matches!(refused, ProduceError::OnePartition(_)));
    let unanswered = with(None, Acks::None, vec![to(0, "a")]);
    let refused = engine.produce(&me(), &name("t"), unanswered).await.expect_err("no answer");
    assert!(matches!(refused, ProduceError::TransactionAcks));
    let request = BatchesRequest {
        partition: p(0),
        bytes: built(transaction, 0, &["a"]),
        acks: Acks::None,
        expected_offset: None,
        transaction: Some(transaction),
    };
    let refused = engine.produce_batches(&me(), &name("t"), request).await.expect_err("no answer");
    assert!(matches!(refused, ProduceError::TransactionAcks));
    assert_eq!(marks(&engine, "t"), (0, 0, 0));
}

#[tokio::test]
async fn built_batches_are_taken_with_their_own_transaction_alone() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    let mut two = Transactor::start(&engine, "two").await;
    let (transaction, other) = (one.begin().await, two.begin().await);
    let mut both = built(transaction, 0, &["a", "b"]);
    both.extend_from_slice(&built(transaction, 2, &["c"]));
    let sent = both.clone();
    let produced = send_built(&engine, Some(transaction), both).await.expect("taken");
    assert_eq!((offsets(&produced), produced.duplicate), (vec![0, 1, 2], false));
    assert!(send_built(&engine, Some(transaction), sent).await.expect("taken").duplicate);
    let later = TransactionHandle { producer_epoch: ProducerEpoch(transaction.producer_epoch.0 + 1), ..transaction };
    let producer = Some((transaction.producer_id, transaction.producer_epoch, Sequence(3)));
    let plain = bytes(NewBatch { producer, ..NewBatch::default() }, &["no"]);
    let marker = Marker { end: TransactionEnd::Commit, coordinator_epoch: levada_log::CoordinatorEpoch(0) };
    let marker = marker.batch(transaction.producer_id, transaction.producer_epoch, Timestamp(0));
    let marker = BytesMut::from(&marker.stamp(Offset(0), LeaderEpoch(0)).bytes()[..]);
    for (named, batch, word) in [
        (None, built(transaction, 3, &["no"]), "needs a transaction"),
        (Some(transaction), plain, "transactional batches alone"),
        (Some(transaction), bytes(NewBatch::default(), &["no"]), "transactional batches alone"),
        (Some(transaction), built(other, 0, &["no"]), "producer id"),
        (Some(transaction), built(later, 0, &["no"]), "and epoch"),
        (Some(transaction), marker, "control batches"),
    ] {
        let mut request = built(transaction, 3, &["good"]);
        if named.is_none() {
            request.clear();
        }
        request.extend_from_slice(&batch);
        match send_built(&engine, named, request).await {
            Err(ProduceError::Batch { detail, .. }) => assert!(detail.contains(word), "{detail}"),
            other => panic!("it was to be refused: {other:?}"),
        }
    }
    one.end(COMMIT).await;
    assert_eq!(seen(&engine, "t", ReadCommitted).await, (owned(&["a", "b", "c"]), 4));
}

#[tokio::test]
async fn what_comes_after_the_end_is_refused_and_the_next_transaction_is_not_touched() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    one.send("t", vec![to(0, "a")]).await;
    let ended = one.begin().await;
    one.end(COMMIT).await;
    one.send("t", vec![to(0, "b")]).await;
    let late = ProduceRequest {
        once: Once::Transaction { transaction: ended, sequence: None },
        ..request(vec![to(0, "late")])
    };
    match engine.produce(&me(), &name("t"), late).await {
        Err(ProduceError::Transaction(error)) => {
            assert!(matches!(*error, TransactionError::Ended { outcome: COMMIT }), "{error}");
        }
        other => panic!("it was to be refused: {other:?}"),
    }
    one.end(COMMIT).await;
    assert_eq!(seen(&engine, "t", ReadCommitted).await, (owned(&["a", "b"]), 4));
}

#[tokio::test]
async fn an_expected_offset_holds_in_a_transaction_too() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut one = Transactor::start(&engine, "one").await;
    let once = Once::Transaction { transaction: one.begin().await, sequence: None };
    for (expected, is_taken) in [(1, false), (0, true), (0, false), (1, true)] {
        let expecting = ProduceRequest {
            once: once.clone(),
            expected_offset: Some(Offset(expected)),
            ..request(vec![to(0, &expected.to_string())])
        };
        let produced = engine.produce(&me(), &name("t"), expecting).await.expect("the request is taken");
        assert_eq!(produced.records[0].is_ok(), is_taken, "{expected}");
    }
    one.end(COMMIT).await;
    assert_eq!(seen(&engine, "t", ReadCommitted).await, (owned(&["0", "1"]), 3));
}

#[tokio::test]
async fn the_brokers_time_is_that_of_records_and_markers_alike() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    let config = [("message.timestamp.type", json!("LogAppendTime")), ("cleanup.policy", json!("compact"))];
    create(&engine, "t", 1, &config).await;
    let mut one = Transactor::start(&engine, "one").await;
    for sequence in 0..3 {
        bench.clock.advance(1_000);
        one.send("t", vec![record("k", &sequence.to_string())]).await;
    }
    bench.clock.advance(1_000);
    one.end(COMMIT).await;
    let fetched = read(&engine, "t", From::Earliest, ReadCommitted).await;
    let times: Vec<_> = fetched.batches.iter().map(|batch| batch.header().max_timestamp.0 - START.0).collect();
    assert_eq!((texts(&fetched), times), (owned(&["0", "1", "2"]), vec![1_000, 2_000, 3_000, 4_000]));
    let keyless = ProduceRequest {
        once: Once::Transaction { transaction: one.begin().await, sequence: None },
        ..request(vec![record("", "v")])
    };
    assert!(matches!(engine.produce(&me(), &name("t"), keyless).await, Err(ProduceError::Records(_))));
    one.end(ABORT).await;
}

#[tokio::test]
async fn a_partition_that_retires_takes_the_ends_of_its_transactions() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 2, &[("retention.ms", json!(1_000))]).await;
    let mut one = Transactor::start(&engine, "one").await;
    one.send("t", vec![to(1, "a")]).await;
    let change = AlterTopic { partitions: Some(1), ..AlterTopic::default() };
    engine.alter_topic(&me(), &name("t"), change).await.expect("altered");
    for _ in 0..2 {
        bench.clock.advance(2_000);
        engine.run_maintenance();
    }
    one.end(COMMIT).await;
    let described = engine.describe_topic(&me(), &name("t")).expect("there");
    let retiring = &described.partitions[1];
    assert_eq!((retiring.state, retiring.last_stable_offset), (PartitionState::Retiring, Offset(2)));
    assert_eq!(
        crate::support::all(&engine, "t", 1, 0).await,
        [(0, "a".to_owned())],
        "it was not decided, so it stayed"
    );
    for _ in 0..2 {
        bench.clock.advance(2_000);
        engine.run_maintenance();
    }
    assert_eq!(engine.describe_topic(&me(), &name("t")).expect("there").partitions.len(), 1, "it is empty and gone");
    // One that has nowhere to go any more ends all the same.
    engine
        .alter_topic(&me(), &name("t"), AlterTopic { partitions: Some(2), ..AlterTopic::default() })
        .await
        .expect("back");
    one.send("t", vec![to(1, "b"), to(0, "c")]).await;
    engine.truncate_topic(&me(), &name("t"), vec![(p(1), Offset(3))]).await.expect("truncated");
    engine
        .alter_topic(&me(), &name("t"), AlterTopic { partitions: Some(1), ..AlterTopic::default() })
        .await
        .expect("less");
    assert_eq!(engine.describe_topic(&me(), &name("t")).expect("there").partitions.len(), 1);
    one.end(COMMIT).await;
    assert_eq!(seen(&engine, "t", ReadCommitted).await.0, ["c"]);
}

#[tokio::test]
async fn pc_38_an_idempotent_producer_goes_on_after_it_was_idle_and_after_its_records_were_deleted() {
    for is_deleted in [false, true] {
        let (bench, _) = Bench::sim();
        let producer_expiration = std::time::Duration::from_secs(60);
        let options = levada_engine::EngineOptions { producer_expiration, ..bench.options() };
        let engine = Engine::open(options).expect("the engine opens");
        create(&engine, "t", 1, &[("retention.ms", json!(10_000)), ("segment.ms", json!(1))]).await;
        let (id, epoch) = engine.init_producer(&me()).await.expect("an id");
        let send = async |sequences: std::ops::Range<i32>| {
            let records = sequences.clone().map(|sequence| to(0, &sequence.to_string())).collect();
            let once = Once::Producer { id, epoch, sequence: Sequence(sequences.start) };
            let produced = engine.produce(&me(), &name("t"), ProduceRequest { once, ..request(records) }).await;
            let produced = produced.expect("the request is taken");
            (offsets(&produced), produced.duplicate)
        };
        assert_eq!(send(0..7).await, ((0..7).collect(), false));
        // Idle for longer than producers are remembered; and then not so long, with all its records gone.
        if is_deleted {
            bench.clock.advance(30_000);
            (0..2).for_each(|_| engine.run_maintenance());
            assert_eq!(marks(&engine, "t"), (7, 7, 7), "all its records are gone");
        } else {
            bench.clock.advance(61_000);
            engine.run_maintenance();
        }
        assert_eq!(send(7..15).await, ((7..15).collect(), false));
        assert_eq!(send(7..15).await, ((7..15).collect(), true), "the same again");
        assert_eq!(marks(&engine, "t").1, 15, "nothing is stored twice");
    }
}
