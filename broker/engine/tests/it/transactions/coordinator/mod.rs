//! Transactions as their coordinators keep them: whose turn it is, how they end, and what survives.

mod execute;
mod failures;
mod life;
pub(super) mod operators;
mod restarts;

use levada_engine::{
    AppendFault, Engine, Once, Outcome, ProduceError, ProduceRequest, Producer, TransactionError, TransactionHandle,
    TransactionOffset, TransactionOffsets,
};
use levada_model::{GroupName, Offset, TransactionalId};

use super::{ABORT, COMMIT};
use crate::support::{Bench, all, me, name, p, request, to};

/// Time-out of the transactions of the tests, in milliseconds.
const TIMEOUT_MS: i64 = 10_000;

fn id(text: &str) -> TransactionalId {
    TransactionalId::new(text).expect("a transactional id")
}

async fn try_start(engine: &Engine, of: &str) -> Result<Producer, TransactionError> {
    engine.init_transactional_producer(&me(), &id(of), TIMEOUT_MS.cast_unsigned()).await
}

async fn start(engine: &Engine, of: &str) -> Producer {
    try_start(engine, of).await.expect("it starts")
}

async fn try_begin(engine: &Engine, producer: Producer) -> Result<TransactionHandle, TransactionError> {
    engine.begin_transaction(&me(), producer.id, producer.epoch).await
}

async fn begin(engine: &Engine, producer: Producer) -> TransactionHandle {
    try_begin(engine, producer).await.expect("it begins")
}

/// Stores values in partition 0.
async fn try_send(
    engine: &Engine,
    transaction: TransactionHandle,
    topic: &str,
    values: &[&str],
) -> Result<(), TransactionError> {
    let once = Once::Transaction { transaction, sequence: None };
    let records = values.iter().map(|value| to(0, value)).collect();
    let produced = engine.produce(&me(), &name(topic), ProduceRequest { once, ..request(records) }).await;
    let produced = match produced {
        Err(ProduceError::Transaction(error)) => return Err(*error),
        other => other.expect("the request is taken"),
    };
    for placed in produced.records {
        if let Err(fault) = placed {
            match std::sync::Arc::into_inner(fault) {
                Some(AppendFault::Transaction(error)) => return Err(*error),
                other => panic!("{other:?}"),
            }
        }
    }
    Ok(())
}

async fn send(engine: &Engine, transaction: TransactionHandle, topic: &str, values: &[&str]) {
    try_send(engine, transaction, topic, values).await.expect("stored");
}

async fn end(engine: &Engine, transaction: TransactionHandle, outcome: Outcome) -> Result<Producer, TransactionError> {
    engine.end_transaction(&me(), transaction, outcome).await
}

async fn commit(engine: &Engine, transaction: TransactionHandle) -> Producer {
    end(engine, transaction, COMMIT).await.expect("committed")
}

async fn abort(engine: &Engine, transaction: TransactionHandle) -> Producer {
    end(engine, transaction, ABORT).await.expect("aborted")
}

/// Offsets of a group that has no members.
fn offsets_of(of: &str, topic: &str, offset: u64) -> TransactionOffsets {
    let offset = TransactionOffset { topic: name(topic), partition: p(0), offset: Offset(offset) };
    TransactionOffsets { group: group(of), member_id: None, offsets: vec![offset] }
}

fn group(text: &str) -> GroupName {
    GroupName::new(text).expect("a group's name")
}

/// The offset that a group has committed in partition 0 of its one topic.
async fn committed(engine: &Engine, of: &str) -> Option<u64> {
    let offsets = engine.group_offsets(&me(), &group(of)).await.ok()?;
    offsets.first().map(|offset| offset.committed.0)
}

/// The committed values of partition 0.
async fn read(engine: &Engine, topic: &str) -> Vec<String> {
    all(engine, topic, 0, 0).await.into_iter().map(|(_, value)| value).collect()
}

/// Moves the clock on and does what is due.
fn pass(bench: &Bench, engine: &Engine, millis: i64) {
    bench.clock.advance(millis);
    engine.run_maintenance();
}

/// Ids of the transactions that are open or being ended.
async fn open_ids(engine: &Engine) -> Vec<String> {
    let views = engine.transactions(&me(), None, 1_000).await.expect("a list").transactions;
    views.into_iter().map(|view| view.transactional_id.to_string()).collect()
}
