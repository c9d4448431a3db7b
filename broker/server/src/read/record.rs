//! `GET …/records/{offset}`: one record, as JSON or (`?raw`) its value alone.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use levada_api::media::{JSON, OCTET_STREAM};
use levada_api::{ErrorCode, FormatWord, IsolationWord, Problem, ReadRecord, Rendering};
use levada_engine::{FetchError, FetchRequest, From, Isolation};
use levada_log::RecordRef;
use levada_model::{Offset, Record};

use super::refusal;
use super::rendering::{format, isolation, write_record};
use crate::extract::{OffsetPath, Params, PartitionPath, accepts};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Types that a browser shows without running anything. Whatever else a producer named is offered as a download, so
/// that a record can never be a page of this origin.
const SHOWN: [&str; 8] =
    [OCTET_STREAM, JSON, "text/plain", "text/csv", "image/png", "image/jpeg", "image/gif", "image/webp"];
/// What a record may do where a browser shows it all the same: nothing.
const SANDBOX: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");

/// Read one record
///
/// With `raw` its value is the body: of the type in its header `content-type`, else `application/octet-stream`; 204 for
/// a tombstone. Types that browsers run are offered as a download.
#[utoipa::path(get, path = "/v1/topics/{topic}/partitions/{partition}/records/{offset}", operation_id = "read_record",
    tag = "Read",
    params(
        ("topic" = String, Path, description = "The topic"),
        ("partition" = u32, Path, description = "The partition"),
        ("offset" = u64, Path, description = "The offset"),
        ("raw" = Option<bool>, Query, description = "The value alone"),
        ("isolation" = inline(Option<IsolationWord>), Query, description = "`read_committed` (the default) or `read_uncommitted`"),
        ("format" = inline(Option<FormatWord>), Query, description = "Force a form of the value: `text` or `base64`; not with `raw`"),
    ),
    responses(
        (status = 200, description = "The record, or with `raw` its value", content(
            (ReadRecord = "application/json"),
            (Vec<u8> = "*/*"),
        )),
        (status = 204, description = "With `raw`: a tombstone, which has no value"),
        (status = 404, description = "`topic-not-found`, `partition-not-found`, `no-record` (nothing was stored there, or it is not for readers)"),
        (status = 410, description = "`offset-out-of-range`: below the log start, which is told"),
        (status = 422, description = "`integer-too-large`: beyond 2^53 - 1"),
    ))]
pub(super) async fn read_record(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    PartitionPath(topic, partition): PartitionPath,
    OffsetPath(offset): OffsetPath,
    mut params: Params,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let is_raw = params.flag("raw")?;
    let isolation: Isolation = isolation(&mut params)?;
    let form = if is_raw { None } else { Some(format(&mut params)?) };
    params.finish()?;
    if !is_raw {
        accepts(&headers, &[JSON])?;
    }
    let request = FetchRequest {
        from: From::Offset(offset),
        max_records: 1,
        max_bytes: 1,
        wait: Duration::ZERO,
        isolation,
        filter: None,
        as_stored: false,
    };
    let mut fetched = match engine.fetch(&who, &topic, partition, request).await {
        Ok(fetched) => fetched,
        Err(FetchError::BeyondEnd { high_watermark, .. }) => {
            return Err(no_record(offset).with(|m| m.high_watermark = Some(high_watermark.0)).into());
        }
        Err(error) => return Err(refusal::fetch(&error).into()),
    };
    let first = fetched.take_records().next().transpose().map_err(|error| refusal::records(&error))?;
    let Some(found) = first.filter(|record| record.offset == offset) else {
        return Err(no_record(offset).into());
    };
    let Some(form) = form else { return Ok(raw(found)) };
    let mut out = Vec::new();
    write_record(&mut out, None, partition, &found, Rendering { form, one_line: false });
    Ok(([(header::CONTENT_TYPE, JSON)], out).into_response())
}

fn no_record(offset: Offset) -> Problem {
    Problem::new(ErrorCode::NoRecord, format!("there is no record at offset {offset}"))
}

fn raw(found: RecordRef) -> Response {
    let content_type = content_type(&found.record);
    let Some(value) = found.record.value else { return StatusCode::NO_CONTENT.into_response() };
    let media = content_type.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is_shown = SHOWN.contains(&media.to_ascii_lowercase().as_str());
    let mut response = value.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::CONTENT_SECURITY_POLICY, SANDBOX);
    if !is_shown {
        headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    }
    response
}

/// The type that the producer named, where it can stand in a header.
fn content_type(record: &Record) -> HeaderValue {
    let named = record.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-type"));
    let value = named.and_then(|header| header.value.as_ref()).and_then(|value| HeaderValue::from_bytes(value).ok());
    let is_type = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains('/'));
    value.filter(is_type).unwrap_or(HeaderValue::from_static(OCTET_STREAM))
}
