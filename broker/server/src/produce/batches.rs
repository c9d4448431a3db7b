//! `application/vnd.levada.record-batch`: v2 batches that are stored as they came.

use axum::extract::{FromRequest, Request};
use axum::response::Response;
use bytes::BytesMut;
use levada_api::{ErrorCode, Problem};
use levada_engine::BatchesRequest;

use super::answer::{self, Asked};
use super::wishes::{self, Query};
use super::{Target, refusal};
use crate::AppState;
use crate::extract::BodyBytes;
use crate::refusal::Refusal;

const IN_THE_BATCHES: &str = "with record batches: producer id, epoch and sequence stand in the batches themselves";

pub(super) async fn produce(
    target: Target,
    state: &AppState,
    query: Query,
    request: Request,
) -> Result<Response, Refusal> {
    Query::refuse("results", query.results.is_some(), "a produce of record batches")?;
    let partition = query.partition.ok_or_else(|| {
        Problem::new(ErrorCode::InvalidParameter, "record batches need the query parameter partition")
    })?;
    let headers = request.headers();
    let names = [wishes::IDEMPOTENCY_KEY, wishes::PRODUCER_ID, wishes::PRODUCER_EPOCH, wishes::PRODUCER_SEQUENCE];
    wishes::refuse(headers, &names, IN_THE_BATCHES)?;
    let transaction = wishes::transaction(headers, query.acks)?;
    let expected_offset = wishes::expected_offset(headers)?;

    let BodyBytes(bytes) = BodyBytes::from_request(request, state).await?;
    if bytes.is_empty() {
        return Err(Problem::new(ErrorCode::InvalidBatch, "the body is empty; one batch at least is needed").into());
    }
    // What came in pieces is ours alone and not copied here.
    let bytes = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    let request = BatchesRequest { partition, bytes, acks: query.acks, expected_offset, transaction };
    let produced = target.engine.produce_batches(&target.who, &target.topic, request).await;
    let produced = produced.map_err(|error| refusal::produce(error, refusal::in_no_place))?;
    Ok(answer::records(&produced, Asked { acks: query.acks, by_key: false })?)
}
