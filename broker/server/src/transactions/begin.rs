//! `POST /v1/transactions`: a transaction begins.

use axum::Json;
use http::StatusCode;
use levada_api::{BeginTransaction, BegunTransaction};
use levada_model::{ProducerEpoch, ProducerId};

use super::refusal::refuse;
use crate::extract::{JsonBody, NoParams};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Begin a transaction
///
/// With the producer id and epoch that `POST /v1/producers` gave to a transactional id, or the end of its transaction
/// before. Each epoch has one transaction, so the same again answers the same.
#[utoipa::path(post, path = "/v1/transactions", operation_id = "begin_transaction", tag = "Transactions",
    request_body = BeginTransaction,
    responses(
        (status = 201, description = "It has begun; its time-out runs", body = BegunTransaction),
        (status = 403, description = "`producer-fenced`: a later epoch was given out, by a new start or the end of this one"),
        (status = 409, description = "`concurrent-transactions`: this one, or the one before, is still being ended; try again"),
        (status = 422, description = "`invalid-field`; `unknown-producer`: this producer was not given to a transactional id"),
    ))]
pub(super) async fn begin(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    _: NoParams,
    JsonBody(begin): JsonBody<BeginTransaction>,
) -> Result<(StatusCode, Json<BegunTransaction>), Refusal> {
    let (id, epoch) = (ProducerId(begin.producer_id), ProducerEpoch(begin.producer_epoch));
    let transaction = engine.begin_transaction(&who, id, epoch).await.map_err(refuse)?;
    Ok((StatusCode::CREATED, Json(BegunTransaction { transaction: transaction.to_string() })))
}
