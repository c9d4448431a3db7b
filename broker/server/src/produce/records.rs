//! `POST …/records`: which of the three forms the body has.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue};
use levada_api::media::{JSON, NDJSON, RECORD_BATCH};
use levada_api::{AcksWord, LineAnswer, ProduceAnswer, ProduceBody, ProduceRecord, ResultsWord};

use super::wishes::Query;
use super::{Target, batches, json, ndjson};
use crate::AppState;
use crate::extract::{Params, TopicPath, accepts, content_type, unsupported_media_type};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// W3C LDP §7.1: what a POST here takes.
const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");
const ACCEPTED: HeaderValue =
    HeaderValue::from_static("application/json, application/x-ndjson, application/vnd.levada.record-batch");

/// Store records
///
/// `application/json`: all records of the body, or none where one of them is wrong. `application/x-ndjson`: one record
/// a line, a stream of any length that is answered while it comes; a bad line refuses that line alone, and the last line
/// of the answer tells the sum. Read the answer while you send, or ask with `results` for less of it: a sender that reads
/// nothing is not read from either. `application/vnd.levada.record-batch`: Kafka v2 batches, stored as they are.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/records",
    operation_id = "produce_records",
    tag = "Produce",
    params(
        ("topic" = String, Path, description = "The topic."),
        ("acks" = inline(Option<AcksWord>), Query, description = "When to answer: all (the default), leader or none."),
        ("results" = inline(Option<ResultsWord>), Query, description = "NDJSON only: which lines are answered, all (the default), refused or none."),
        ("partition" = Option<u32>, Query, description = "Record batches only, and needed there: where to."),
        ("Idempotency-Key" = Option<String>, Header, description = "JSON only: store it once, however often the request comes.", min_length = 1, max_length = 255),
        ("Producer-Id" = Option<u64>, Header, description = "JSON only: store it once by the producer's sequence; the three headers come together, and all records name one partition."),
        ("Producer-Epoch" = Option<u64>, Header, description = "The producer's term.", maximum = 32767),
        ("Producer-Sequence" = Option<u64>, Header, description = "The first record's sequence.", maximum = 2147483647),
        ("Transaction" = Option<String>, Header, description = "Store all of it in this transaction: it counts once that is committed. Not with Idempotency-Key; with JSON, Producer-Sequence alone makes a retry safe, counted from 0 in each partition and transaction. Record batches have the transaction's producer id and epoch."),
        ("Expected-Offset" = Option<u64>, Header, description = "JSON and record batches: store only if this is the partition's next offset."),
    ),
    request_body(content(
        (ProduceBody = "application/json"),
        (ProduceRecord = "application/x-ndjson"),
        (Vec<u8> = "application/vnd.levada.record-batch"),
    )),
    responses(
        (status = 200, description = "Stored (or stored before: see duplicate and Idempotent-Replayed). NDJSON: see the last line.", content(
            (ProduceAnswer = "application/json"),
            (LineAnswer = "application/x-ndjson"),
        )),
        (status = 202, description = "Taken, with acks=none.", body = ProduceAnswer),
        (status = 207, description = "Some partitions stored their records, others failed.", body = ProduceAnswer),
        (status = 400, description = "The body, a parameter or a header is malformed."),
        (status = 403, description = "The topic is the broker's own, or a newer epoch of the producer has written."),
        (status = 404, description = "There is no such topic, or no such transaction."),
        (status = 409, description = "The sequence is out of order, a partition is retiring, or the transaction has ended."),
        (status = 412, description = "The expected offset is not the next."),
        (status = 413, description = "A record or the body is larger than its limit."),
        (status = 415, description = "The body is of another type; Accept-Post lists those taken."),
        (status = 422, description = "A record breaks a rule; nothing was stored."),
        (status = 503, description = "No writes are taken now."),
    )
)]
pub(super) async fn produce_records(
    State(state): State<AppState>,
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    TopicPath(topic): TopicPath,
    params: Params,
    request: Request,
) -> Result<Response, Refusal> {
    accepts(request.headers(), &[JSON, NDJSON])?;
    let query = Query::read(params)?;
    let target = Target { engine, who, topic };
    match content_type(request.headers()).as_deref() {
        Some(JSON) => json::produce(target, &state, query, request).await,
        Some(NDJSON) => ndjson::produce(target, &state, query, request).await,
        Some(RECORD_BATCH) => batches::produce(target, &state, query, request).await,
        _ => {
            let problem = unsupported_media_type(request.headers(), &[JSON, NDJSON, RECORD_BATCH]);
            let mut response = Refusal(problem).into_response();
            response.headers_mut().insert(ACCEPT_POST, ACCEPTED);
            Ok(response)
        }
    }
}
