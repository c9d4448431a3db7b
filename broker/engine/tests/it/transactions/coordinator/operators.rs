//! Transactions as an operator sees and ends them, and who may do what.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_engine::{EngineOptions, ExecuteRecord, ExecuteRequest, GroupError, TransactionState};
use levada_model::{Authorizer, Denied, Operation, Principal, Resource, Timestamp, limits};

use super::*;
use crate::support::{START, create, produce, until};

#[tokio::test]
async fn an_operator_sees_what_is_open_and_may_abort_it() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut open = BTreeMap::new();
    for number in 0..7 {
        let of = format!("p{number}");
        let transaction = begin(&engine, start(&engine, &of).await).await;
        bench.clock.advance(1);
        if number > 0 {
            send(&engine, transaction, "t", &[&of]).await;
        }
        open.insert(of, transaction);
    }
    assert_eq!(engine.stats().transactions_open, 7);
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = engine.transactions(&me(), after.as_ref(), 3).await.expect("a page");
        assert_eq!(page.unread, 0);
        listed.extend(page.transactions);
        after = page.next_after;
        if after.is_none() {
            break;
        }
        assert_eq!(listed.len() % 3, 0, "a page that is not the last is full");
    }
    assert_eq!(
        listed.iter().map(|view| view.transactional_id.to_string()).collect::<Vec<_>>(),
        Vec::from_iter(open.keys().cloned())
    );
    let view = &listed[2];
    assert_eq!((view.transaction, view.state), (open["p2"], TransactionState::Ongoing));
    assert_eq!((view.started_at, view.timeout_ms), (Timestamp(START.0 + 2), TIMEOUT_MS.cast_unsigned()));
    assert_eq!((view.participants.partitions.len(), view.partition_count, view.markers_missing), (1, 1, None));

    for _ in 0..2 {
        end(&engine, open["p2"], ABORT).await.expect("aborted");
    }
    end(&engine, open["p0"], ABORT).await.expect("aborted, though nothing is in it");
    assert_eq!(open_ids(&engine).await, ["p1", "p3", "p4", "p5", "p6"]);
    // Its producer is the same still, and may go on.
    let refused = end(&engine, open["p2"], COMMIT).await;
    assert!(matches!(refused, Err(TransactionError::Ended { outcome: ABORT })), "{refused:?}");
    let next = abort(&engine, open["p2"]).await;
    commit(&engine, begin(&engine, next).await).await;
    for of in ["p1", "p3", "p4", "p5", "p6"] {
        commit(&engine, open[of]).await;
    }
    assert_eq!(read(&engine, "t").await, ["p1", "p3", "p4", "p5", "p6"]);
    let refused = end(&engine, open["p1"], ABORT).await;
    assert!(matches!(refused, Err(TransactionError::Ended { outcome: COMMIT })), "{refused:?}");
}

#[tokio::test]
async fn of_a_transaction_with_many_partitions_the_first_are_listed_and_how_many_there_are() {
    const MANY: u32 = 130;
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", MANY, &[]).await;
    let transaction = begin(&engine, start(&engine, "a").await).await;
    let once = Once::Transaction { transaction, sequence: None };
    let records = (0..MANY).map(|partition| to(partition, "x")).collect();
    let request = ProduceRequest { once, ..request(records) };
    engine.produce(&me(), &name("t"), request).await.expect("stored");
    let view = engine.transactions(&me(), None, 10).await.expect("a list").transactions.remove(0);
    let told = view.participants.partitions.iter().map(|place| place.partition.0);
    assert!(told.eq(0..u32::try_from(limits::TRANSACTION_PARTITIONS_TOLD_MAX).expect("a few")));
    assert_eq!(view.partition_count, MANY as usize);
    commit(&engine, transaction).await;
}

/// Allows one kind of operation on one kind of resource.
pub(crate) struct Only(pub(crate) Operation, pub(crate) &'static str);

impl Authorizer for Only {
    fn authorize(&self, who: &Principal, operation: Operation, resource: Resource<'_>) -> Result<(), Denied> {
        let resource = format!("{resource:?}");
        if operation == self.0 && resource.starts_with(self.1) {
            return Ok(());
        }
        Err(Denied { principal: who.clone(), operation, resource })
    }
}

#[tokio::test]
async fn every_call_asks_the_authorizer() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let producer = start(&engine, "a").await;
    let transaction = begin(&engine, producer).await;
    engine.close().await.expect("closed");
    for (operation, resource, allowed) in [
        (Operation::Delete, "", [false; 6]),
        (Operation::Write, "Cluster", [true, true, true, false, false, false]),
        (Operation::Describe, "Cluster", [false, false, false, true, false, false]),
        (Operation::Write, "Topic", [false, false, false, false, true, false]),
        (Operation::Write, "", [true, true, true, false, true, false]),
    ] {
        let authorizer = Arc::new(Only(operation, resource));
        let engine = Engine::open(EngineOptions { authorizer, ..bench.options() }).expect("it opens");
        let records = vec![ExecuteRecord { topic: name("t"), record: to(0, "x") }];
        let both = ExecuteRequest { records, group_offsets: Some(offsets_of("g", "t", 0)), key: None };
        let alone = ExecuteRequest { group_offsets: None, ..both.clone() };
        let results = [
            try_start(&engine, "a").await.map(drop),
            try_begin(&engine, producer).await.map(drop),
            end(&engine, transaction, ABORT).await.map(drop),
            engine.transactions(&me(), None, 10).await.map(drop),
            engine.execute_transaction(&me(), alone).await.map(drop),
            engine.execute_transaction(&me(), both).await.map(drop),
        ];
        let is_allowed = |result: Result<(), TransactionError>| {
            !matches!(result, Err(TransactionError::Denied(_) | TransactionError::Group(GroupError::Denied(_))))
                && !matches!(&result, Err(TransactionError::Produce { error, .. })
                    if matches!(**error, ProduceError::Denied(_)))
        };
        assert_eq!(results.map(is_allowed), allowed, "{operation:?} {resource}");
        engine.close().await.expect("closed");
    }
}

/// PC-39, second part.
#[tokio::test]
async fn a_group_gets_its_last_stable_offset_soon_after_a_producer_died_with_its_offsets() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    produce(&engine, "t", (0..9).map(|n| to(0, &n.to_string())).collect()).await;
    let first = begin(&engine, start(&engine, "one").await).await;
    engine.add_transaction_offsets(&me(), first, offsets_of("g", "t", 4)).await.expect("added");
    commit(&engine, first).await;
    let dies = begin(&engine, start(&engine, "dies").await).await;
    engine.add_transaction_offsets(&me(), dies, offsets_of("g", "t", 9)).await.expect("added");
    let other = start(&engine, "other").await;
    assert_ne!(other.id, dies.producer_id);
    assert_eq!(committed(&engine, "g").await, Some(4), "it does not wait");
    pass(&bench, &engine, TIMEOUT_MS);
    until("it is over", async || open_ids(&engine).await.is_empty()).await;
    assert_eq!(committed(&engine, "g").await, Some(4));
    // The next one commits for the group, and nothing of the dead one comes back.
    let transaction = begin(&engine, other).await;
    engine.add_transaction_offsets(&me(), transaction, offsets_of("g", "t", 6)).await.expect("added");
    commit(&engine, transaction).await;
    assert_eq!(committed(&engine, "g").await, Some(6));
    let late = engine.add_transaction_offsets(&me(), dies, offsets_of("g", "t", 9)).await;
    assert!(matches!(late, Err(TransactionError::Ended { outcome: ABORT })), "{late:?}");
}
