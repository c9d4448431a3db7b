//! Transactions of one request.

use levada_engine::{
    Acks, AlterTopic, BatchesRequest, EngineOptions, ExecuteRecord, ExecuteRequest, Executed, ProduceRecord,
    RecordFault,
};
use levada_model::{Record, limits};
use serde_json::json;
use tokio::task::JoinSet;

use super::super::produce::built;
use super::*;
use crate::gate::Gate;
use crate::support::{create, record, until};

fn to_topic(topic: &str, record: ProduceRecord) -> ExecuteRecord {
    ExecuteRecord { topic: name(topic), record }
}

fn executing(records: Vec<ExecuteRecord>) -> ExecuteRequest {
    ExecuteRequest { records, ..ExecuteRequest::default() }
}

fn keyed(key: &str, digest: u8, records: Vec<ExecuteRecord>) -> ExecuteRequest {
    ExecuteRequest { key: Some((key.to_owned(), [digest; 32])), ..executing(records) }
}

async fn try_execute(engine: &Engine, request: ExecuteRequest) -> Result<Executed, TransactionError> {
    engine.execute_transaction(&me(), request).await
}

async fn execute(engine: &Engine, request: ExecuteRequest) -> Executed {
    try_execute(engine, request).await.expect("done")
}

/// Topic, partition and offset of each record.
fn places(executed: &Executed) -> Vec<(String, u32, u64)> {
    let place = |record: &levada_engine::ExecutedRecord| {
        (record.topic.to_string(), record.placed.partition.0, record.placed.offset.expect("it was waited for").0)
    };
    executed.records.iter().map(place).collect()
}

#[tokio::test]
async fn all_of_it_counts_at_once() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 2, &[]).await;
    create(&engine, "u", 1, &[]).await;
    let records = vec![
        to_topic("t", to(1, "a")),
        to_topic("u", to(0, "b")),
        to_topic("t", to(0, "c")),
        to_topic("t", to(1, "d")),
    ];
    let request = ExecuteRequest { group_offsets: Some(offsets_of("g", "u", 0)), ..executing(records) };
    let executed = execute(&engine, request.clone()).await;
    let at = |topic: &str, partition, offset| (topic.to_owned(), partition, offset);
    assert_eq!(places(&executed), [at("t", 1, 0), at("u", 0, 0), at("t", 0, 0), at("t", 1, 1)]);
    assert!(!executed.duplicate);
    assert_eq!((read(&engine, "t").await, read(&engine, "u").await), (vec!["c".to_owned()], vec!["b".to_owned()]));
    assert_eq!(all(&engine, "t", 1, 0).await.len(), 2);
    assert_eq!(committed(&engine, "g").await, Some(0));
    // Offsets alone, and records alone.
    let request = ExecuteRequest { group_offsets: Some(offsets_of("g", "u", 1)), ..ExecuteRequest::default() };
    assert!(execute(&engine, request).await.records.is_empty());
    assert_eq!(committed(&engine, "g").await, Some(1));
    execute(&engine, executing(vec![to_topic("u", to(0, "e"))])).await;
    assert_eq!(read(&engine, "u").await, ["b", "e"]);
    assert_eq!(engine.stats().transactions_open, 0);
    assert_eq!(engine.stats().transactions_committed, 3);
}

#[tokio::test]
async fn what_can_be_refused_is_refused_before_anything_is_stored() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    create(&engine, "compacted", 1, &[("cleanup.policy", json!("compact"))]).await;
    let good = || to_topic("t", to(0, "good"));
    let with = |record: ExecuteRecord| executing(vec![good(), record, good()]);
    assert!(matches!(try_execute(&engine, ExecuteRequest::default()).await, Err(TransactionError::Empty)));
    let refused = try_execute(&engine, with(to_topic("none", to(0, "x")))).await;
    assert!(
        matches!(&refused, Err(TransactionError::Produce { topic, place: 1, error }) if topic.as_str() == "none"
            && matches!(**error, ProduceError::NotFound(_))),
        "{refused:?}"
    );
    let fault = async |request| match try_execute(&engine, request).await {
        Err(TransactionError::Produce { error, .. }) => match *error {
            ProduceError::Records(faults) => faults,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    // At their places in the request.
    assert_eq!(fault(with(to_topic("compacted", record("", "x")))).await, [(1, RecordFault::NoKey)]);
    assert_eq!(fault(with(to_topic("t", to(7, "x")))).await, [(1, RecordFault::NoPartition(p(7)))]);
    let large = to_topic("t", to(0, &"x".repeat(2 << 20)));
    assert!(matches!(fault(with(large)).await[..], [(1, RecordFault::TooLarge { .. })]));
    let refused = try_execute(&engine, with(to_topic("__transaction_state", to(0, "x")))).await;
    assert!(
        matches!(&refused, Err(TransactionError::Produce { error, .. }) if matches!(**error, ProduceError::Internal(_))),
        "{refused:?}"
    );
    let offsets = Some(offsets_of("g", "none", 0));
    let refused = try_execute(&engine, ExecuteRequest { group_offsets: offsets, ..executing(vec![good()]) }).await;
    assert!(matches!(refused, Err(TransactionError::Group(_))), "{refused:?}");
    let long = (0..limits::EXECUTE_ANSWER_BYTES_MAX / 12).map(|_| good()).collect();
    let refused = try_execute(&engine, keyed("k", 1, long)).await;
    assert!(matches!(refused, Err(TransactionError::AnswerTooLarge { limit: limits::EXECUTE_ANSWER_BYTES_MAX })));
    let many =
        vec![to_topic("t", ProduceRecord { record: Record::default(), ..to(0, "") }); limits::REQUEST_RECORDS_MAX + 1];
    let refused = try_execute(&engine, executing(many)).await;
    assert!(
        matches!(&refused, Err(TransactionError::Produce { error, .. }) if matches!(**error, ProduceError::TooManyRecords))
    );
    assert!(read(&engine, "t").await.is_empty());
    assert_eq!(engine.stats().transactions_begun, 0);
}

#[tokio::test]
async fn a_key_executes_once_and_answers_the_same_also_after_a_restart() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 3, &[]).await;
    let records = || (0..6).map(|n| to_topic("t", record("", &n.to_string()))).collect::<Vec<_>>();
    let first = execute(&engine, keyed("k", 1, records())).await;
    assert!(!first.duplicate);
    let again = execute(&engine, keyed("k", 1, records())).await;
    assert_eq!((&again.records, again.duplicate), (&first.records, true));
    let reused = try_execute(&engine, keyed("k", 2, records())).await;
    assert!(matches!(reused, Err(TransactionError::KeyReused)), "{reused:?}");
    assert!(!execute(&engine, keyed("l", 2, records())).await.duplicate, "another key");
    drop(engine);
    let engine = bench.open();
    let again = execute(&engine, keyed("k", 1, records())).await;
    assert_eq!((again.records, again.duplicate), (first.records, true));
    let mut found = 0;
    for partition in 0..3 {
        found += all(&engine, "t", partition, 0).await.len();
    }
    assert_eq!(found, 12);
    // The ids are nobody's to begin with.
    bench.clock.advance(limits::EXECUTE_ANSWER_MS.cast_signed());
    engine.run_maintenance();
    until("they are forgotten", async || {
        engine.run_maintenance();
        !execute(&engine, keyed("k", 2, records())).await.duplicate
    })
    .await;
}

#[tokio::test]
async fn a_repeat_and_a_refused_one_leave_no_topic() {
    let (bench, _) = Bench::sim();
    let engine = Engine::open(EngineOptions { auto_create_topics: true, ..bench.options() }).expect("it opens");
    let to_new = |topic: &str| vec![to_topic(topic, record("", "x"))];
    let first = execute(&engine, keyed("k", 1, to_new("new"))).await;
    engine.delete_topic(&me(), &name("new")).await.expect("deleted");
    let again = execute(&engine, keyed("k", 1, to_new("new"))).await;
    assert_eq!((again.records, again.duplicate), (first.records, true));
    let reused = try_execute(&engine, keyed("k", 2, to_new("other"))).await;
    assert!(matches!(reused, Err(TransactionError::KeyReused)), "{reused:?}");
    for topic in ["new", "other"] {
        assert!(engine.describe_topic(&me(), &name(topic)).is_err(), "{topic}");
    }
}

#[tokio::test]
async fn of_many_with_one_key_one_is_done() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut tries = JoinSet::new();
    for _ in 0..20 {
        let engine = engine.clone();
        tries.spawn(async move { execute(&engine, keyed("k", 1, vec![to_topic("t", to(0, "once"))])).await });
    }
    let done = tries.join_all().await;
    assert_eq!(done.iter().filter(|executed| !executed.duplicate).count(), 1);
    assert!(done.iter().all(|executed| executed.records == done[0].records));
    assert_eq!(read(&engine, "t").await, ["once"]);
}

#[tokio::test]
async fn one_that_fails_half_way_is_aborted_whole_and_says_what_failed() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    create(&engine, "t", 1, &[]).await;
    create(&engine, "u", 2, &[]).await;
    let state = {
        execute(&engine, executing(vec![to_topic("t", to(0, "first"))])).await;
        engine.describe_topic(&me(), &name("__transaction_state")).expect("there").id.to_string()
    };
    gate.shut_within(&state);
    let running = tokio::spawn({
        let engine = engine.clone();
        let records = vec![to_topic("t", to(0, "x")), to_topic("u", to(1, "y"))];
        async move { try_execute(&engine, keyed("k", 1, records)).await }
    });
    gate.until_waiting(1).await;
    // It was judged, and then its partition retires.
    let fewer = AlterTopic { partitions: Some(1), ..AlterTopic::default() };
    engine.alter_topic(&me(), &name("u"), fewer).await.expect("altered");
    gate.open();
    let failed = running.await.expect("no panic");
    match &failed {
        Err(TransactionError::Produce { topic, .. } | TransactionError::Append { topic, .. }) => {
            assert_eq!(topic.as_str(), "u");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(read(&engine, "t").await, ["first"]);
    assert!(open_ids(&engine).await.is_empty());
    // Nothing was done, so the key is free.
    let records = vec![to_topic("t", to(0, "x")), to_topic("u", to(0, "y"))];
    assert!(!execute(&engine, keyed("k", 2, records)).await.duplicate);
    assert_eq!(
        (read(&engine, "t").await, read(&engine, "u").await),
        (vec!["first".into(), "x".into()], vec!["y".to_owned()])
    );
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing_open() {
    for times in 0..3 {
        let (bench, disk) = Bench::sim();
        let gate = Gate::before(disk);
        let engine = bench.with(gate.clone()).open();
        create(&engine, "t", 1, &[]).await;
        execute(&engine, executing(vec![to_topic("t", to(0, "first"))])).await;
        gate.shut();
        let running = tokio::spawn({
            let engine = engine.clone();
            async move { try_execute(&engine, executing(vec![to_topic("t", to(0, "x"))])).await }
        });
        if times > 0 {
            gate.until_waiting(1).await;
        }
        running.abort();
        drop(running.await);
        gate.open();
        until("it is over", async || open_ids(&engine).await.is_empty()).await;
        execute(&engine, executing(vec![to_topic("t", to(0, "last"))])).await;
        let values = read(&engine, "t").await;
        assert!(values == ["first", "x", "last"] || values == ["first", "last"], "{values:?}");
        assert!(times == 0 || values.len() == 3, "what was taken in is done: {values:?}");
    }
}

/// Sends a batch of a transaction as it is.
async fn batch_in(engine: &Engine, transaction: TransactionHandle) -> Result<(), TransactionError> {
    let request = BatchesRequest {
        partition: p(0),
        bytes: built(transaction, 0, &["foreign"]),
        acks: Acks::All,
        expected_offset: None,
        transaction: Some(transaction),
    };
    match engine.produce_batches(&me(), &name("t"), request).await {
        Err(ProduceError::Transaction(error)) => Err(*error),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_ids_of_the_broker_are_nobodys_to_begin_with() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = bench.with(gate.clone()).open();
    let topic = create(&engine, "t", 1, &[]).await;
    gate.shut_within(&topic.id.to_string());
    let running = tokio::spawn({
        let engine = engine.clone();
        async move { try_execute(&engine, executing(vec![to_topic("t", to(0, "x"))])).await }
    });
    gate.until_waiting(1).await;
    let view = engine.transactions(&me(), None, 1).await.expect("a list").transactions.remove(0);
    assert!(view.transactional_id.is_internal());
    let producer = Producer { id: view.transaction.producer_id, epoch: view.transaction.producer_epoch };
    let refused = try_begin(&engine, producer).await;
    assert!(matches!(refused, Err(TransactionError::UnknownProducer(..))), "{refused:?}");
    // Whoever has seen its id can neither end it as its request does, nor add to it.
    for refused in [
        end(&engine, view.transaction, COMMIT).await.map(drop),
        engine.add_transaction_offsets(&me(), view.transaction, offsets_of("g", "t", 0)).await,
        try_send(&engine, view.transaction, "t", &["foreign"]).await,
        batch_in(&engine, view.transaction).await,
    ] {
        assert!(matches!(refused, Err(TransactionError::NotFound)), "{refused:?}");
    }
    // An operator may end it, and its client hears so.
    let aborting = tokio::spawn({
        let engine = engine.clone();
        async move { end(&engine, view.transaction, ABORT).await }
    });
    until("it stands", async || engine.stats().transactions_aborted == 1).await;
    gate.open();
    aborting.await.expect("no panic").expect("aborted");
    let ended = running.await.expect("no panic");
    assert!(matches!(ended, Err(TransactionError::Ended { outcome: ABORT })), "{ended:?}");
    assert!(read(&engine, "t").await.is_empty());
}

#[tokio::test]
async fn many_at_once_have_their_own_ids_and_leave_few() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 4, &[]).await;
    for _ in 0..3 {
        let mut running = JoinSet::new();
        for number in 0..32 {
            let engine = engine.clone();
            running.spawn(async move {
                for round in 0..4_u32 {
                    let record = to((number + round) % 4, &format!("{number}-{round}"));
                    execute(&engine, executing(vec![to_topic("t", record)])).await;
                }
            });
        }
        running.join_all().await;
    }
    let mut found = 0;
    for partition in 0..4 {
        found += all(&engine, "t", partition, 0).await.len();
    }
    assert_eq!(found, 3 * 32 * 4);
    assert_eq!(engine.stats().transactions_open, 0);
}
