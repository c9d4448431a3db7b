//! `POST /v1/producers`: ids for producers that number their records.

use axum::Json;
use levada_api::{ErrorCode, Problem, Producer, ProducerRequest};

use super::refusal;
use crate::extract::{JsonBody, NoParams};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Get a producer id
///
/// A producer that numbers its records (headers Producer-Id, Producer-Epoch and Producer-Sequence) may send a request
/// again and again: it is stored once.
#[utoipa::path(
    post,
    path = "/v1/producers",
    operation_id = "create_producer",
    tag = "Produce",
    request_body = ProducerRequest,
    responses(
        (status = 200, description = "An id that was never given out before.", body = Producer),
        (status = 400, description = "The body is not JSON."),
        (status = 415, description = "The body is of another type."),
        (status = 422, description = "A field is not taken; transactions are not there yet."),
    )
)]
pub(super) async fn create_producer(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    _: NoParams,
    JsonBody(request): JsonBody<ProducerRequest>,
) -> Result<Json<Producer>, Refusal> {
    for (pointer, is_there) in
        [("/transactional_id", request.transactional_id.is_some()), ("/timeout_ms", request.timeout_ms.is_some())]
    {
        if is_there {
            let detail = "this broker has no transactions yet: only null is taken";
            return Err(Problem::new(ErrorCode::InvalidField, format!("{pointer}: {detail}"))
                .at(pointer, detail)
                .into());
        }
    }
    let (id, epoch) = engine.init_producer(&who).await.map_err(|e| refusal::produce(e, refusal::in_no_place))?;
    Ok(Json(Producer { producer_id: id.0, producer_epoch: epoch.0 }))
}
