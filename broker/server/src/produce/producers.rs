//! `POST /v1/producers`: ids for producers that number their records, and for those of transactions.

use axum::Json;
use levada_api::{ErrorCode, Problem, Producer, ProducerRequest};
use levada_model::TransactionalId;
use levada_model::limits::TRANSACTION_TIMEOUT_MS_DEFAULT;

use super::refusal;
use crate::extract::{JsonBody, NoParams};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};
use crate::transactions;

/// Get a producer id
///
/// A producer that numbers its records (headers Producer-Id, Producer-Epoch and Producer-Sequence) may send a request
/// again and again: it is stored once. With a transactional id the producer may begin transactions. All that was given
/// out under the id before is fenced, and what it left open is aborted before this answers.
#[utoipa::path(
    post,
    path = "/v1/producers",
    operation_id = "create_producer",
    tag = "Produce",
    request_body = ProducerRequest,
    responses(
        (status = 200, description = "An id that was never given out before; with a transactional id, the producer of its next transaction.", body = Producer),
        (status = 400, description = "The body is not JSON."),
        (status = 415, description = "The body is of another type."),
        (status = 422, description = "A field is not taken: the transactional id breaks its rule or is one of the broker's own, or the time-out is out of bounds or without an id. Or `transactional-ids-full`: there are as many as there may be; one that is not used is forgotten after 7 days."),
    )
)]
pub(super) async fn create_producer(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    _: NoParams,
    JsonBody(request): JsonBody<ProducerRequest>,
) -> Result<Json<Producer>, Refusal> {
    let Some(id) = request.transactional_id else {
        if request.timeout_ms.is_some() {
            let detail = "only transactions time out: it needs a transactional_id";
            return Err(wrong("/timeout_ms", detail).into());
        }
        let given = engine.init_producer(&who).await;
        let (id, epoch) = given.map_err(|error| refusal::produce(error, refusal::in_no_place))?;
        return Ok(Json(Producer { producer_id: id.0, producer_epoch: epoch.0 }));
    };
    let id = TransactionalId::try_from(id).map_err(|error| wrong("/transactional_id", &error.to_string()))?;
    let timeout_ms = request.timeout_ms.unwrap_or(TRANSACTION_TIMEOUT_MS_DEFAULT);
    let producer = engine.init_transactional_producer(&who, &id, timeout_ms).await.map_err(transactions::refuse)?;
    Ok(Json(transactions::producer(producer)))
}

fn wrong(pointer: &str, detail: &str) -> Problem {
    Problem::new(ErrorCode::InvalidField, format!("{pointer}: {detail}")).at(pointer, detail)
}
