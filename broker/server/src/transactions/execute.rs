//! `POST /v1/transactions/execute`: a whole transaction in one request.

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use levada_api::media::JSON;
use levada_api::{ExecuteBody, ExecuteIn, ExecutedRecord, ExecutedTransaction, Problem, RecordIn, parse_execute};
use levada_engine::{ExecuteRecord, ExecuteRequest, Executed, ProduceRecord, Work, compute};
use levada_model::TopicName;
use sha2::{Digest, Sha256};

use super::offsets::wanted;
use super::refusal::{OfOffsets, refuse_with};
use crate::AppState;
use crate::extract::{BodyBytes, NoParams, content_type, unsupported_media_type};
use crate::produce::{IDEMPOTENT_REPLAYED, refusal, wishes};
use crate::refusal::{Refusal, topic_name};
use crate::state::{Caller, OpenEngine};

/// Where the offsets stand in the request.
const GROUP_OFFSETS: &str = "/group_offsets";
const WHOLE: &str = "here: the whole transaction is this request";

/// Do a whole transaction in one request
///
/// Stores records in any topics and commits offsets of a group, all or nothing, and answers once it counts everywhere: a
/// partition shows its records at once, or when the last transaction ends that began to write there before. With an
/// `Idempotency-Key` the same request again is answered as it was the first time: for a day, or until the answers that came
/// after it in the same one of 50 coordinators take more than 8 MiB. After that it is done anew.
#[utoipa::path(post, path = "/v1/transactions/execute", operation_id = "execute_transaction", tag = "Transactions",
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "Do it once, however often the request comes.", min_length = 1, max_length = 255),
    ),
    request_body = ExecuteBody,
    responses(
        (status = 200, description = "It is committed, durably (or was before: see Idempotent-Replayed)", body = ExecutedTransaction,
            headers(("idempotent-replayed" = Option<String>, description = "`true`: this is the answer of an earlier request with the key"))),
        (status = 403, description = "`internal-topic`: a topic is the broker's own"),
        (status = 404, description = "`topic-not-found`; `unknown-member`: join again"),
        (status = 409, description = "`partition-retiring`; `illegal-generation`: the member does not hold the partitions; \
            `group-not-empty`: the group has members, and none is named"),
        (status = 422, description = "A record, an offset or another field is not taken; `idempotency-key-reused`; \
            `transactional-ids-full`: there is no room for a key"),
    ))]
pub(super) async fn execute(
    State(state): State<AppState>,
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    _: NoParams,
    request: Request,
) -> Result<Response, Refusal> {
    let headers = request.headers();
    if content_type(headers).as_deref() != Some(JSON) {
        return Err(unsupported_media_type(headers, &[JSON]).into());
    }
    wishes::refuse(headers, &wishes::OF_ONE_APPEND, WHOLE)?;
    let key = wishes::key(headers)?.map(str::to_owned);
    let trace = crate::produce::Trace::of(headers);

    let BodyBytes(body) = BodyBytes::from_request(request, &state).await?;
    let size_bytes = body.len();
    let parse = move || {
        let parsed = parse_execute(&body)?;
        Ok((parsed, key.map(|key| (key, Sha256::digest(&body).into()))))
    };
    let (mut parsed, key) = compute(Work::Parse, size_bytes, parse).await.map_err(refusal::body)?;
    parsed.records.iter_mut().for_each(|(_, sent)| trace.mark(&mut sent.record));
    let group_offsets = parsed.group_offsets.as_ref().map(|offsets| wanted(offsets, GROUP_OFFSETS)).transpose()?;
    let group = group_offsets.as_ref().map(|offsets| offsets.group.clone());
    let records = records(parsed)?;
    let request = ExecuteRequest { records, group_offsets, key };
    let offsets = group.as_ref().map(|group| OfOffsets { group, at: GROUP_OFFSETS });
    let executed = engine.execute_transaction(&who, request).await;
    let executed = executed.map_err(|error| refuse_with(error, offsets.as_ref()))?;
    Ok(answer(executed))
}

/// The records in the engine's words, or all names of topics that are none.
fn records(parsed: ExecuteIn) -> Result<Vec<ExecuteRecord>, Problem> {
    let (mut records, mut wrong) = (Vec::with_capacity(parsed.records.len()), Vec::new());
    for (index, (topic, sent)) in parsed.records.into_iter().enumerate() {
        let RecordIn { record, timestamp, partition } = sent;
        match TopicName::new(&topic) {
            Ok(topic) => {
                records.push(ExecuteRecord { topic, record: ProduceRecord { record, timestamp, partition } });
            }
            Err(error) => wrong.push((format!("/records/{index}/topic"), error)),
        }
    }
    match wrong.first() {
        None => Ok(records),
        Some((_, first)) => {
            let problem = topic_name(first);
            Err(problem.at_each(wrong.into_iter().map(|(place, error)| (place, error.to_string()))))
        }
    }
}

fn answer(executed: Executed) -> Response {
    let record = |record: levada_engine::ExecutedRecord| ExecutedRecord {
        topic: record.topic.into(),
        partition: record.placed.partition.0,
        offset: record.placed.offset.expect("what is committed is stored").0,
        timestamp: record.placed.timestamp.0,
    };
    let records = executed.records.into_iter().map(record).collect();
    let mut response = Json(ExecutedTransaction { records }).into_response();
    if executed.duplicate {
        response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    response
}
