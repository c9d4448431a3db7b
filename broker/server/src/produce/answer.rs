//! What a produce is answered: 200, 202 or 207, in the request's order.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use levada_api::media::JSON;
use levada_api::{Effect, Placed, Placement, Problem, ProduceAnswer, RawAnswer};
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

/// What became of each record. Where none was stored, it is the first one's problem, or that of the first that may have been
/// stored all the same.
pub(crate) fn placements(produced: &Produced) -> Result<Vec<Placement>, Problem> {
    let mut faults = produced.records.iter().map_while(|record| record.as_ref().err());
    if faults.clone().count() == produced.records.len()
        && let Some(first) = faults.next()
    {
        let is_unsure = |problem: &Problem| problem.effect != Effect::None;
        let unsure = faults.map(|fault| refusal::append(fault)).find(is_unsure);
        let first = refusal::append(first);
        return Err(if is_unsure(&first) { first } else { unsure.unwrap_or(first) });
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use levada_api::ErrorCode;
    use levada_engine::AppendFault;

    use super::*;

    #[test]
    fn a_refusal_of_all_says_that_something_may_have_been_stored_wherever_that_stands() {
        let fenced = |possible| AppendFault::Fenced { reason: "the disk".to_owned(), possible };
        for (faults, effect) in [
            (vec![AppendFault::Closing, fenced(true)], Effect::Possible),
            (vec![fenced(true), AppendFault::Closing], Effect::Possible),
            (vec![AppendFault::Closing, fenced(false)], Effect::None),
        ] {
            let records = faults.into_iter().map(|fault| Err(Arc::new(fault))).collect();
            let problem = placements(&Produced { records, duplicate: false }).expect_err("none was stored for sure");
            assert_eq!(problem.effect, effect, "{problem:?}");
            assert!(problem.code == ErrorCode::ShuttingDown || effect == Effect::Possible, "the first");
        }
    }
}
