//! `application/json`: all records of a body, or (where they are wrong) none.

use axum::extract::{FromRequest, Request};
use axum::response::Response;
use levada_api::parse_records;
use levada_engine::{Once, ProduceRecord, ProduceRequest, Work, compute};
use sha2::{Digest, Sha256};

use super::answer::{self, Asked};
use super::trace::Trace;
use super::wishes::{self, Query};
use super::{Target, refusal};
use crate::AppState;
use crate::extract::BodyBytes;
use crate::refusal::Refusal;

pub(super) async fn produce(
    target: Target,
    state: &AppState,
    query: Query,
    request: Request,
) -> Result<Response, Refusal> {
    Query::refuse("results", query.results.is_some(), "a produce of JSON")?;
    Query::refuse("partition", query.partition.is_some(), "a produce of JSON, whose records name theirs,")?;
    let acks = query.acks;
    let headers = request.headers();
    let once = wishes::once(headers, acks)?;
    let expected_offset = wishes::expected_offset(headers)?;
    let trace = Trace::of(headers);

    let BodyBytes(body) = BodyBytes::from_request(request, state).await?;
    let size_bytes = body.len();
    let parse = move || {
        let parsed = parse_records(&body)?;
        Ok((parsed, once.of_body(|| Sha256::digest(&body).into())))
    };
    let (parsed, once) = compute(Work::Parse, size_bytes, parse).await.map_err(refusal::body)?;
    let asked = Asked { acks, by_key: matches!(once, Once::Key { .. }) };
    let records = parsed.into_iter().map(|mut sent| {
        trace.mark(&mut sent.record);
        ProduceRecord { record: sent.record, timestamp: sent.timestamp, partition: sent.partition }
    });
    let request = ProduceRequest { records: records.collect(), acks, once, expected_offset, keyless_to: None };
    let produced = target.engine.produce(&target.who, &target.topic, request).await;
    let produced = produced.map_err(|error| refusal::produce(error, refusal::in_records))?;
    Ok(answer::records(&produced, asked)?)
}
