//! `POST …/{transaction}/commit` and `/abort`: a transaction ends.

use axum::Json;
use levada_api::Producer;
use levada_engine::Outcome;

use super::refusal::refuse;
use crate::extract::{NoParams, TransactionPath};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Commit a transaction
///
/// Answers once its records and offsets count everywhere, with the producer of the next transaction. A partition shows its
/// records at once, or when the last transaction ends that began to write there before (`last_stable_offset`). The same
/// again answers the same.
#[utoipa::path(post, path = "/v1/transactions/{transaction}/commit", operation_id = "commit_transaction", tag = "Transactions",
    params(("transaction" = String, Path, description = "The transaction's id")),
    responses(
        (status = 200, description = "It is committed, durably", body = Producer),
        (status = 403, description = "`producer-fenced`: its producer was started anew, which aborted it"),
        (status = 404, description = "`transaction-not-found`"),
        (status = 409, description = "`transaction-ended`: it was aborted, by its producer, an operator or its time-out"),
    ))]
pub(super) async fn commit(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    _: NoParams,
    TransactionPath(transaction): TransactionPath,
) -> Result<Json<Producer>, Refusal> {
    let next = engine.end_transaction(&who, transaction, Outcome::Commit).await.map_err(refuse)?;
    Ok(Json(producer(next)))
}

/// Abort a transaction
///
/// Answers once nothing of it holds up or reaches a reader any more, with the producer of the next transaction. The same
/// again answers the same. An operator aborts any in the same way, by the id that the list tells: its producer finds it
/// `transaction-ended`, aborts it too, and goes on with the epoch that this answers.
#[utoipa::path(post, path = "/v1/transactions/{transaction}/abort", operation_id = "abort_transaction", tag = "Transactions",
    params(("transaction" = String, Path, description = "The transaction's id")),
    responses(
        (status = 200, description = "It is aborted, durably", body = Producer),
        (status = 403, description = "`producer-fenced`: its producer was started anew, which aborted it"),
        (status = 404, description = "`transaction-not-found`"),
        (status = 409, description = "`transaction-ended`: it was committed"),
    ))]
pub(super) async fn abort(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    _: NoParams,
    TransactionPath(transaction): TransactionPath,
) -> Result<Json<Producer>, Refusal> {
    let next = engine.end_transaction(&who, transaction, Outcome::Abort).await.map_err(refuse)?;
    Ok(Json(producer(next)))
}

/// A producer with the epoch of its next transaction.
pub(crate) fn producer(next: levada_engine::Producer) -> Producer {
    Producer { producer_id: next.id.0, producer_epoch: next.epoch.0 }
}
