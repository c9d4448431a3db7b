//! `POST …/raw`: the body is the value, whatever it is.

use axum::extract::{FromRequest, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, header};
use levada_api::media::JSON;
use levada_api::{AcksWord, RawAnswer};
use levada_engine::{Once, ProduceRecord, ProduceRequest, Work, compute};
use levada_model::{Header, Record, Timestamp};
use sha2::{Digest, Sha256};

use super::answer::{self, Asked};
use super::{refusal, trace::Trace, wishes};
use crate::AppState;
use crate::extract::{BodyBytes, Params, TopicPath, accepts};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Request headers that begin so are kept as headers of the record.
const RECORD_HEADER: &str = "record-header-";

/// Store one body as it is
///
/// The body is the value; an empty body is an empty value. Its Content-Type is kept as the record's header
/// `content-type`, and each `Record-Header-NAME: text` as its header NAME, in lower case, as HTTP has it.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/raw",
    operation_id = "produce_raw",
    tag = "Produce",
    params(
        ("topic" = String, Path, description = "The topic."),
        ("key" = Option<String>, Query, description = "The record's key; absent is the null key, empty an empty one."),
        ("partition" = Option<u32>, Query, description = "Where to; absent: the partitioner decides."),
        ("timestamp" = Option<u64>, Query, description = "Milliseconds since 1970; absent: now."),
        ("acks" = inline(Option<AcksWord>), Query, description = "When to answer: all (the default), leader or none."),
        ("Idempotency-Key" = Option<String>, Header, description = "Store it once, however often the request comes.", min_length = 1, max_length = 255),
        ("Producer-Id" = Option<u64>, Header, description = "Store it once by the producer's sequence; the three headers come together."),
        ("Producer-Epoch" = Option<u64>, Header, description = "The producer's term."),
        ("Producer-Sequence" = Option<u64>, Header, description = "The record's sequence."),
        ("Transaction" = Option<String>, Header, description = "Store it in this transaction; not with Idempotency-Key, and Producer-Sequence alone makes a retry safe."),
        ("Expected-Offset" = Option<u64>, Header, description = "Store only if this is the partition's next offset."),
    ),
    request_body(content = Vec<u8>, content_type = "*/*", description = "The value."),
    responses(
        (status = 200, description = "Stored (or stored before: see duplicate and Idempotent-Replayed).", body = RawAnswer),
        (status = 202, description = "Taken, with acks=none.", body = RawAnswer),
        (status = 400, description = "A parameter or header is malformed."),
        (status = 403, description = "The topic is the broker's own, or a newer epoch of the producer has written."),
        (status = 404, description = "There is no such topic, or no such transaction."),
        (status = 409, description = "The sequence is out of order, the partition is retiring, or the transaction has ended."),
        (status = 412, description = "The expected offset is not the next."),
        (status = 413, description = "The body is larger than the topic or the server takes."),
        (status = 415, description = "The Content-Encoding is not taken."),
        (status = 422, description = "The record breaks a rule, or the idempotency key came before with another request."),
        (status = 503, description = "No writes are taken now."),
    )
)]
pub(super) async fn produce_raw(
    State(state): State<AppState>,
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    TopicPath(topic): TopicPath,
    mut params: Params,
    request: Request,
) -> Result<Response, Refusal> {
    accepts(request.headers(), &[JSON])?;
    let acks = wishes::acks(&mut params)?;
    let key = params.text("key").map(Bytes::from);
    let partition = wishes::partition(&mut params)?;
    let timestamp = params.integer("timestamp")?.map(|ms| Timestamp(ms.cast_signed()));
    params.finish()?;
    let headers = request.headers();
    let once = wishes::once(headers, acks)?;
    let expected_offset = wishes::expected_offset(headers)?;
    let trace = Trace::of(headers);
    let kept = kept_headers(headers);

    let BodyBytes(body) = BodyBytes::from_request(request, &state).await?;
    let sent = ProduceRecord { record: Record { key, value: Some(body), headers: kept }, timestamp, partition };
    let size_bytes = sent.record.size_bytes();
    let digest = move || {
        let once = once.of_body(|| digest(&sent));
        (sent, once)
    };
    let (mut sent, once) = compute(Work::Parse, size_bytes, digest).await;
    // A retry may belong to another trace, so the trace is no part of what the digest is of.
    trace.mark(&mut sent.record);
    let asked = Asked { acks, by_key: matches!(once, Once::Key { .. }) };
    let request = ProduceRequest { records: vec![sent], acks, once, expected_offset, keyless_to: None };
    let produced = engine.produce(&who, &topic, request).await;
    let produced = produced.map_err(|error| refusal::produce(error, refusal::in_no_place))?;
    Ok(answer::raw(&produced, asked)?)
}

fn kept_headers(headers: &HeaderMap) -> Vec<Header> {
    let content_type = headers.get(header::CONTENT_TYPE).filter(|value| !value.is_empty());
    let named = headers.iter().filter_map(|(name, value)| Some((name.as_str().strip_prefix(RECORD_HEADER)?, value)));
    let kept = content_type.map(|value| ("content-type", value)).into_iter().chain(named);
    kept.map(|(name, value)| Header { name: name.to_owned(), value: Some(Bytes::copy_from_slice(value.as_bytes())) })
        .collect()
}

/// The SHA-256 of all that makes the record, each part behind its length.
fn digest(sent: &ProduceRecord) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut part = |bytes: Option<&[u8]>| match bytes {
        None => digest.update([0]),
        Some(bytes) => {
            digest.update([1]);
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        }
    };
    part(sent.record.key.as_deref());
    part(sent.record.value.as_deref());
    part(sent.partition.map(|p| p.0.to_be_bytes()).as_ref().map(|bytes| bytes.as_slice()));
    part(sent.timestamp.map(|t| t.0.to_be_bytes()).as_ref().map(|bytes| bytes.as_slice()));
    for header in &sent.record.headers {
        part(Some(header.name.as_bytes()));
        part(header.value.as_deref());
    }
    digest.finalize().into()
}
