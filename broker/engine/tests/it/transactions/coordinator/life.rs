//! From the start of a producer to the end of its transactions.

use levada_model::{ProducerEpoch, ProducerId};

use super::*;
use crate::support::{create, until};

#[tokio::test]
async fn each_transaction_has_an_epoch_and_its_end_answers_the_next_one() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    create(&engine, "u", 1, &[]).await;
    let first = start(&engine, "billing").await;
    let transaction = begin(&engine, first).await;
    assert_eq!(begin(&engine, first).await, transaction, "the same again is the same");
    send(&engine, transaction, "t", &["a"]).await;
    send(&engine, transaction, "u", &["b"]).await;
    engine.add_transaction_offsets(&me(), transaction, offsets_of("g", "t", 1)).await.expect("added");
    assert!(read(&engine, "t").await.is_empty() && read(&engine, "u").await.is_empty());
    assert_eq!(committed(&engine, "g").await, None);
    let second = commit(&engine, transaction).await;
    assert_eq!((read(&engine, "t").await, read(&engine, "u").await), (vec!["a".to_owned()], vec!["b".to_owned()]));
    assert_eq!(committed(&engine, "g").await, Some(1));
    assert_eq!(second, Producer { id: first.id, epoch: ProducerEpoch(first.epoch.0 + 1) });

    let next = begin(&engine, second).await;
    send(&engine, next, "t", &["c"]).await;
    engine.add_transaction_offsets(&me(), next, offsets_of("g", "t", 3)).await.expect("added");
    assert_eq!(committed(&engine, "g").await, Some(1), "the last stable one");
    let third = abort(&engine, next).await;
    assert_eq!(third.epoch.0, second.epoch.0 + 1);
    assert_eq!((read(&engine, "t").await, committed(&engine, "g").await), (vec!["a".to_owned()], Some(1)));
    let stats = engine.stats();
    let counts = (stats.transactions_begun, stats.transactions_committed, stats.transactions_aborted);
    assert_eq!((counts, stats.transactions_timed_out, stats.transactions_open), ((2, 1, 1), 0, 0));
}

#[tokio::test]
async fn the_same_end_again_answers_the_same_and_the_other_is_refused() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let producer = start(&engine, "a").await;
    for (outcome, other) in [(COMMIT, ABORT), (ABORT, COMMIT)] {
        for is_empty in [true, false] {
            let producer = start(&engine, "a").await;
            let transaction = begin(&engine, producer).await;
            if !is_empty {
                send(&engine, transaction, "t", &["x"]).await;
            }
            let next = end(&engine, transaction, outcome).await.expect("it ends");
            assert_eq!(end(&engine, transaction, outcome).await.expect("the same"), next);
            let refused = end(&engine, transaction, other).await;
            assert!(matches!(refused, Err(TransactionError::Ended { outcome: ended }) if ended == outcome));
            let late = try_send(&engine, transaction, "t", &["late"]).await;
            assert!(matches!(late, Err(TransactionError::Ended { outcome: ended }) if ended == outcome), "{late:?}");
            let late = engine.add_transaction_offsets(&me(), transaction, offsets_of("g", "t", 0)).await;
            assert!(matches!(late, Err(TransactionError::Ended { .. })), "{late:?}");
            // Also while the next one is open, which it does not touch.
            let open = begin(&engine, next).await;
            send(&engine, open, "t", &["next"]).await;
            assert_eq!(end(&engine, transaction, outcome).await.expect("the same"), next);
            abort(&engine, open).await;
        }
    }
    let fenced = try_begin(&engine, producer).await;
    assert!(matches!(fenced, Err(TransactionError::ProducerFenced)), "{fenced:?}");
}

#[tokio::test]
async fn a_start_fences_those_before_and_aborts_what_they_left_open() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let old = start(&engine, "a").await;
    let left = begin(&engine, old).await;
    send(&engine, left, "t", &["left"]).await;
    let new = start(&engine, "a").await;
    assert!(new > old);
    for outcome in [COMMIT, ABORT] {
        let refused = end(&engine, left, outcome).await;
        assert!(matches!(refused, Err(TransactionError::ProducerFenced)), "{refused:?}");
    }
    let refused = try_send(&engine, left, "t", &["late"]).await;
    assert!(matches!(refused, Err(TransactionError::ProducerFenced)), "{refused:?}");
    assert!(matches!(try_begin(&engine, old).await, Err(TransactionError::ProducerFenced)));
    let transaction = begin(&engine, new).await;
    send(&engine, transaction, "t", &["new"]).await;
    commit(&engine, transaction).await;
    assert_eq!(read(&engine, "t").await, ["new"]);
}

#[tokio::test]
async fn a_transaction_that_takes_too_long_is_aborted_and_its_producer_may_go_on() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let producer = start(&engine, "a").await;
    let transaction = begin(&engine, producer).await;
    send(&engine, transaction, "t", &["slow"]).await;
    pass(&bench, &engine, TIMEOUT_MS - 1);
    assert_eq!(open_ids(&engine).await, ["a"]);
    pass(&bench, &engine, 1);
    until("it is aborted", async || open_ids(&engine).await.is_empty()).await;
    let refused = end(&engine, transaction, COMMIT).await;
    assert!(matches!(refused, Err(TransactionError::Ended { outcome: ABORT })), "{refused:?}");
    let refused = try_send(&engine, transaction, "t", &["late"]).await;
    assert!(matches!(refused, Err(TransactionError::Ended { outcome: ABORT })), "{refused:?}");
    let next = abort(&engine, transaction).await;
    let transaction = begin(&engine, next).await;
    send(&engine, transaction, "t", &["quick"]).await;
    commit(&engine, transaction).await;
    assert_eq!(read(&engine, "t").await, ["quick"]);
    let stats = engine.stats();
    assert_eq!((stats.transactions_timed_out, stats.transactions_aborted), (1, 1));
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_leaves_no_topic() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    let reserved = engine.init_transactional_producer(&me(), &id("__mine"), 1_000).await;
    assert!(matches!(reserved, Err(TransactionError::ReservedId)), "{reserved:?}");
    for timeout_ms in [99, 15 * 60 * 1_000 + 1] {
        let refused = engine.init_transactional_producer(&me(), &id("a"), timeout_ms).await;
        assert!(matches!(refused, Err(TransactionError::InvalidTimeout { min: 100, max: 900_000 })), "{refused:?}");
    }
    let unknown = Producer { id: ProducerId(7), epoch: ProducerEpoch(0) };
    assert!(matches!(try_begin(&engine, unknown).await, Err(TransactionError::UnknownProducer(..))));
    let nothing = TransactionHandle { coordinator: p(3), producer_id: unknown.id, producer_epoch: unknown.epoch };
    assert!(matches!(end(&engine, nothing, COMMIT).await, Err(TransactionError::NotFound)));
    assert!(open_ids(&engine).await.is_empty());
    assert!(engine.describe_topic(&me(), &name("__transaction_state")).is_err());

    let producer = start(&engine, "a").await;
    let topic = engine.describe_topic(&me(), &name("__transaction_state")).expect("created");
    assert_eq!(topic.partitions.len(), 50);
    assert!(matches!(try_begin(&engine, unknown).await, Err(TransactionError::UnknownProducer(..))));
    let later = Producer { epoch: ProducerEpoch(producer.epoch.0 + 1), ..producer };
    assert!(matches!(try_begin(&engine, later).await, Err(TransactionError::UnknownProducer(..))));
    let transaction = begin(&engine, producer).await;
    for wrong in [
        TransactionHandle { coordinator: p(transaction.coordinator.0 + 1), ..transaction },
        TransactionHandle { coordinator: p(50), ..transaction },
        TransactionHandle { producer_epoch: ProducerEpoch(9), ..transaction },
    ] {
        for outcome in [COMMIT, ABORT] {
            let refused = end(&engine, wrong, outcome).await;
            assert!(matches!(refused, Err(TransactionError::NotFound)), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn a_deleted_topic_keeps_no_transaction_from_its_end() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    create(&engine, "gone", 2, &[]).await;
    let producer = start(&engine, "a").await;
    let transaction = begin(&engine, producer).await;
    send(&engine, transaction, "t", &["kept"]).await;
    send(&engine, transaction, "gone", &["lost"]).await;
    engine.delete_topic(&me(), &name("gone")).await.expect("deleted");
    commit(&engine, transaction).await;
    assert_eq!(read(&engine, "t").await, ["kept"]);
}

#[tokio::test]
async fn many_producers_have_their_transactions_at_once() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut producers = tokio::task::JoinSet::new();
    for number in 0..40 {
        let engine = engine.clone();
        producers.spawn(async move {
            let mut producer = start(&engine, &format!("p{number}")).await;
            for round in 0..5 {
                let transaction = begin(&engine, producer).await;
                send(&engine, transaction, "t", &[&format!("{number}-{round}-a"), &format!("{number}-{round}-b")])
                    .await;
                producer = end(&engine, transaction, if round % 2 == 0 { COMMIT } else { ABORT }).await.expect("ended");
            }
        });
    }
    producers.join_all().await;
    let found = read(&engine, "t").await;
    assert_eq!(found.len(), 40 * 3 * 2);
    assert!(found.iter().all(|value| ["-0-", "-2-", "-4-"].iter().any(|round| value.contains(round))));
    assert_eq!(engine.stats().transactions_open, 0);
}
