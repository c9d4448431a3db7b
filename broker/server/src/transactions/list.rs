//! `GET /v1/transactions`: what is open.

use axum::Json;
use levada_api::{GroupPartition, OpenTransaction, TransactionList, TransactionState};
use levada_engine::{Engine, OpenTransactions, Outcome, TransactionView};
use levada_model::{PartitionIndex, Principal, TopicName, TransactionalId};

use super::refusal::refuse;
use crate::extract::Params;
use crate::listing::{Page, next_cursor};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// List transactions that are open or being ended, by transactional id
///
/// Of a transaction with many partitions the first 100 are told, and how many there are. What a coordinator keeps that cannot
/// be asked now is missing, and the answer says so. One with nothing in it is not known any more after a restart of the broker, and begins anew with the first word about
/// it.
#[utoipa::path(get, path = "/v1/transactions", operation_id = "list_transactions", tag = "Transactions",
    params(
        ("limit" = Option<u32>, Query, description = "Most transactions; 100 by default, cut to 1000", minimum = 1),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before", min_length = 1),
    ),
    responses((status = 200, description = "A page of transactions", body = TransactionList)))]
pub(super) async fn list(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    mut params: Params,
) -> Result<Json<TransactionList>, Refusal> {
    let Page { limit, after } = Page::<TransactionalId>::read(&mut params)?;
    params.finish()?;
    let OpenTransactions { transactions, next_after, unread } =
        engine.transactions(&who, after.as_ref(), limit).await.map_err(refuse)?;
    let next_cursor = next_after.map(|id| next_cursor(id.as_str()));
    let transactions = transactions.into_iter().map(|view| told(&engine, &who, view)).collect();
    let unread_coordinators = (unread > 0).then_some(unread as u64);
    Ok(Json(TransactionList { transactions, next_cursor, unread_coordinators }))
}

fn told(engine: &Engine, who: &Principal, view: TransactionView) -> OpenTransaction {
    let is_cut = view.participants.partitions.len() < view.partition_count;
    let partitions = view.participants.partitions.iter();
    let named = partitions.filter_map(|place| Some((engine.topic_name(who, place.topic)?, place.partition)));
    let partition = |(topic, partition): (TopicName, PartitionIndex)| GroupPartition {
        topic: topic.into(),
        partition: partition.0,
    };
    let mut partitions: Vec<_> = named.map(partition).collect();
    partitions.sort_unstable();
    OpenTransaction {
        transactional_id: view.transactional_id.into(),
        transaction: view.transaction.to_string(),
        producer_id: view.transaction.producer_id.0,
        producer_epoch: view.transaction.producer_epoch.0,
        state: match view.state {
            levada_engine::TransactionState::Ongoing => TransactionState::Ongoing,
            levada_engine::TransactionState::Prepared(Outcome::Commit) => TransactionState::Committing,
            levada_engine::TransactionState::Prepared(Outcome::Abort) => TransactionState::Aborting,
        },
        started_at: view.started_at.0,
        timeout_ms: view.timeout_ms,
        partitions,
        partition_count: is_cut.then_some(view.partition_count as u64),
        groups: view.participants.groups.into_iter().map(Into::into).collect(),
        unfinished: view.markers_missing.map(|count| count as u64),
    }
}
