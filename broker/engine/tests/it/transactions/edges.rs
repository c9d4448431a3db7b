//! What transactions keep apart: who may use one, whose producer ids they have, and what a request that is refused leaves.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use levada_coordinator::TransactionHandle;
use levada_engine::{
    Acks, BatchesRequest, EngineOptions, GroupError, ProduceError, TransactionError, TransactionOffset,
    TransactionOffsets,
};
use levada_log::{BatchBuilder, NewBatch};
use levada_model::{GroupName, LeaderEpoch, Offset, Operation, ProducerEpoch, ProducerId, Record};

use super::coordinator::operators::Only;
use super::*;
use crate::support::{Bench, START, create, record, to};

/// A request of one built batch: of the transaction, or of this producer outside of any.
fn built(
    transaction: Option<TransactionHandle>,
    (id, epoch, sequence): (ProducerId, ProducerEpoch, i32),
) -> BatchesRequest {
    let producer = Some((id, epoch, Sequence(sequence)));
    let transactional = transaction.is_some();
    let mut builder = BatchBuilder::new(NewBatch { producer, transactional, ..NewBatch::default() }, 0);
    builder.push(START, &Record { value: Some(Bytes::from_static(b"built")), ..Record::default() });
    let batch = builder.finish().expect("it is built").stamp(Offset(0), LeaderEpoch(0));
    let bytes = BytesMut::from(&batch.bytes()[..]);
    BatchesRequest { partition: p(0), bytes, acks: Acks::All, expected_offset: None, transaction }
}

fn of(transaction: TransactionHandle) -> (ProducerId, ProducerEpoch, i32) {
    (transaction.producer_id, transaction.producer_epoch, 0)
}

/// A record of the transaction, in a request as it comes.
fn of_transaction(transaction: TransactionHandle) -> ProduceRequest {
    ProduceRequest { once: Once::Transaction { transaction, sequence: None }, ..request(vec![record("", "v")]) }
}

#[tokio::test]
async fn to_write_in_a_transaction_one_must_be_allowed_the_transaction_and_the_topic_or_group() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let transaction = Transactor::start(&engine, "one").await.begin().await;
    engine.close().await.expect("closed");
    let offset = TransactionOffset { topic: name("t"), partition: p(0), offset: Offset(0) };
    let group = GroupName::new("g").expect("a name");
    let offsets = TransactionOffsets { group, member_id: None, offsets: vec![offset] };
    for (operation, resource, allowed) in [
        (Operation::Write, "Cluster", [false; 3]),
        (Operation::Write, "Topic", [false; 3]),
        (Operation::Read, "", [false; 3]),
        (Operation::Write, "", [true, true, false]),
    ] {
        let authorizer = Arc::new(Only(operation, resource));
        let engine = Engine::open(EngineOptions { authorizer, ..bench.options() }).expect("it opens");
        let is_denied = |result: Result<Produced, ProduceError>| matches!(result, Err(ProduceError::Denied(_)));
        let added = engine.add_transaction_offsets(&me(), transaction, offsets.clone()).await;
        let denied = [
            is_denied(engine.produce(&me(), &name("t"), of_transaction(transaction)).await),
            is_denied(engine.produce_batches(&me(), &name("t"), built(Some(transaction), of(transaction))).await),
            matches!(added, Err(TransactionError::Denied(_) | TransactionError::Group(GroupError::Denied(_)))),
        ];
        assert_eq!(denied.map(|denied| !denied), allowed, "{operation:?} {resource}");
        engine.close().await.expect("closed");
    }
}

#[tokio::test]
async fn a_producer_of_transactions_writes_nothing_outside_of_them_and_others_begin_none() {
    let (bench, _) = Bench::sim();
    let mut engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let (plain, plain_epoch) = engine.init_producer(&me()).await.expect("an id");
    let mut one = Transactor::start(&engine, "one").await;
    let (id, epoch) = (one.producer.id, one.producer.epoch);
    assert!(id.0 < 1 << 53, "JSON holds it");
    for is_open in [false, true] {
        if is_open {
            one.send("t", vec![to(0, "a")]).await;
        }
        // The next in sequence, and the last epoch that there is, which would fence it for ever.
        for (epoch, sequence) in [(epoch, i32::from(is_open)), (ProducerEpoch(i16::MAX), 0)] {
            let once = Once::Producer { id, epoch, sequence: Sequence(sequence) };
            let refused = engine.produce(&me(), &name("t"), ProduceRequest { once, ..request(vec![to(0, "x")]) }).await;
            assert!(matches!(refused, Err(ProduceError::UnknownProducer(of)) if of == id), "{refused:?}");
            let refused = engine.produce_batches(&me(), &name("t"), built(None, (id, epoch, sequence))).await;
            assert!(matches!(refused, Err(ProduceError::Batch { .. })), "{refused:?}");
        }
    }
    one.end(COMMIT).await;
    drop(one);
    // It is no memory of this run.
    engine.close().await.expect("closed");
    engine = bench.open();
    let refused = engine.produce_batches(&me(), &name("t"), built(None, (id, ProducerEpoch(i16::MAX), 0))).await;
    assert!(matches!(refused, Err(ProduceError::Batch { .. })), "{refused:?}");
    engine
        .produce_batches(&me(), &name("t"), built(None, (plain, plain_epoch, 0)))
        .await
        .expect("it is of no transaction");
    let begun = engine.begin_transaction(&me(), plain, plain_epoch).await;
    assert!(matches!(begun, Err(TransactionError::UnknownProducer(..))), "{begun:?}");
    let mut one = Transactor::start(&engine, "one").await;
    one.send("t", vec![to(0, "b")]).await;
    one.end(COMMIT).await;
    assert_eq!(seen(&engine, "t", ReadCommitted).await, (owned(&["a", "built", "b"]), 5));
}

#[tokio::test]
async fn records_of_a_transaction_that_takes_none_create_no_topic() {
    let (bench, _) = Bench::sim();
    let engine = Engine::open(EngineOptions { auto_create_topics: true, ..bench.options() }).expect("it opens");
    let mut one = Transactor::start(&engine, "one").await;
    let ended = one.begin().await;
    one.end(ABORT).await;
    let never = TransactionHandle { producer_id: ProducerId(ended.producer_id.0 + 1), ..ended };
    for transaction in [ended, never] {
        let produced = engine.produce(&me(), &name("t"), of_transaction(transaction)).await;
        let stored = engine.produce_batches(&me(), &name("t"), built(Some(transaction), of(transaction))).await;
        for result in [produced, stored] {
            let Err(ProduceError::Transaction(error)) = result else { panic!("{result:?}") };
            let is_told = match *error {
                TransactionError::Ended { outcome } => outcome == ABORT && transaction == ended,
                TransactionError::NotFound => transaction == never,
                _ => false,
            };
            assert!(is_told, "{error}");
        }
        assert!(engine.describe_topic(&me(), &name("t")).is_err(), "it was created");
    }
    let open = one.begin().await;
    engine.produce_batches(&me(), &name("t"), built(Some(open), of(open))).await.expect("this one is open");
    one.send("u", vec![record("", "v")]).await;
    one.end(COMMIT).await;
    assert_eq!(seen(&engine, "t", ReadCommitted).await, (owned(&["built"]), 2));
}
