//! What a produce is answered: 200, 202 or 207, in the request's order.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use levada_api::media::JSON;
use levada_api::{Placed, Placement, Problem, ProduceAnswer, RawAnswer};
use levada_engine::{Acks, Produced};
use serde::Serialize;

use super::refusal;

pub(crate) const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What a request asked for that its answer must tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) acks: Acks,
    /// Whether it had an `Idempotency-Key`.
    pub(super) by_key: bool,
}

/// The answer to several records. Where none was stored, it is the first one's problem.
pub(super) fn records(produced: &Produced, asked: Asked) -> Result<Response, Problem> {
    let records = placements(produced)?;
    let is_partial = produced.records.iter().any(Result::is_err);
    let status = if is_partial { StatusCode::MULTI_STATUS } else { stored(asked.acks) };
    let answer = ProduceAnswer { records, duplicate: produced.duplicate && !asked.by_key };
    Ok(json(status, &answer, produced.duplicate && asked.by_key))
}

/// What became of each record. Where none was stored, it is the first one's problem.
pub(crate) fn placements(produced: &Produced) -> Result<Vec<Placement>, Problem> {
    if let Some(Err(first)) = produced.records.first()
        && produced.records.iter().all(Result::is_err)
    {
        return Err(refusal::append(first));
    }
    let placements = produced.records.iter().map(|record| match record {
        Ok(placed) => Placement::Placed(self::placed(placed)),
        Err(fault) => Placement::Failed { problem: Box::new(refusal::append(fault)) },
    });
    Ok(placements.collect())
}

/// The answer to one raw body.
pub(super) fn raw(produced: &Produced, asked: Asked) -> Result<Response, Problem> {
    let Placed { partition, offset, timestamp } = match produced.records.first().expect("one record, one answer") {
        Ok(placed) => self::placed(placed),
        Err(fault) => return Err(refusal::append(fault)),
    };
    let answer = RawAnswer { partition, offset, timestamp, duplicate: produced.duplicate && !asked.by_key };
    Ok(json(stored(asked.acks), &answer, produced.duplicate && asked.by_key))
}

fn placed(placed: &levada_engine::Placed) -> Placed {
    Placed {
        partition: placed.partition.0,
        offset: placed.offset.map(|offset| offset.0),
        timestamp: placed.timestamp.0,
    }
}

fn stored(acks: Acks) -> StatusCode {
    if acks == Acks::None { StatusCode::ACCEPTED } else { StatusCode::OK }
}

fn json(status: StatusCode, answer: &impl Serialize, replayed: bool) -> Response {
    let body = serde_json::to_vec(answer).expect("an answer is plain data");
    let mut response = (status, [(header::CONTENT_TYPE, JSON)], body).into_response();
    if replayed {
        response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    response
}
