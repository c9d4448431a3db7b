//! `GET /v1/transactions`: what is open.

use axum::Json;
use levada_api::{GroupPartition, OpenTransaction, TransactionList, TransactionState};
use levada_engine::{Engine, Outcome, TransactionView};
use levada_model::{PartitionIndex, Principal, TopicName, TransactionalId};

use super::refusal::refuse;
use crate::extract::Params;
use crate::listing::{Page, next_cursor};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// List transactions that are open or being ended, by transactional id
///
/// One with nothing in it is not known any more after a restart of the broker, and begins anew with the first word about
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
    let mut views = engine.transactions(&who, after.as_ref(), limit + 1).await.map_err(refuse)?;
    let is_last = views.len() <= limit;
    views.truncate(limit);
    let last = views.last().filter(|_| !is_last);
    let next_cursor = last.map(|last| next_cursor(last.transactional_id.as_str()));
    let transactions = views.into_iter().map(|view| told(&engine, &who, view)).collect();
    Ok(Json(TransactionList { transactions, next_cursor }))
}

fn told(engine: &Engine, who: &Principal, view: TransactionView) -> OpenTransaction {
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
        groups: view.participants.groups.into_iter().map(Into::into).collect(),
        unfinished: view.markers_missing.map(|count| count as u64),
    }
}
