//! `GET …/partitions/{partition}/records`: a read of one partition, in one of three forms.

use std::time::Duration;

use axum::response::Response;
use http::HeaderMap;
use levada_api::media::{JSON, NDJSON, RECORD_BATCH};
use levada_api::{ErrorCode, FormatWord, IsolationWord, PartitionRecords, Problem, ReadRecord};
use levada_engine::{FetchRequest, Fetched};
use levada_model::limits::{
    READ_BYTES_DEFAULT, READ_BYTES_MAX, READ_RECORDS_DEFAULT, READ_RECORDS_MAX, READ_WAIT_MS_MAX,
};

use super::rendering::{self, format, isolation};
use super::{filter, refusal, start};
use crate::extract::{Params, PartitionPath, accepts};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Read a partition
///
/// As JSON, as a line a record (`application/x-ndjson`), or as stored batches (`application/vnd.levada.record-batch`,
/// from the batch that holds the offset; of transactions with their markers, also where there is nothing else). The last two
/// have their marks in headers. The first record always comes whole, however small `max_bytes`.
#[utoipa::path(get, path = "/v1/topics/{topic}/partitions/{partition}/records", operation_id = "read_partition",
    tag = "Read",
    params(
        ("topic" = String, Path, description = "The topic"),
        ("partition" = u32, Path, description = "The partition"),
        ("offset" = Option<String>, Query, description = "Where to begin: an offset, `earliest` (the default), `latest`, \
            `time:MS` (the first at that time or later) or `tail:N` (N offsets before the end)",
            pattern = "^([0-9]{1,15}|earliest|latest|time:[0-9]{1,15}|tail:[0-9]{1,15})$"),
        ("max_records" = Option<u64>, Query, description = "Most records; 500 by default, cut to 10000", minimum = 1),
        ("max_bytes" = Option<u64>, Query, description = "Most stored bytes; 1 MiB by default, cut to 64 MiB", minimum = 1),
        ("wait_ms" = Option<u64>, Query, description = "How long to wait while there is nothing; 0 by default, cut to 60000"),
        ("isolation" = inline(Option<IsolationWord>), Query, description = "`read_committed` (the default) or `read_uncommitted`"),
        ("format" = inline(Option<FormatWord>), Query, description = "Force a form of values: `text` or `base64`"),
        ("filter" = Option<String>, Query, description = "`module:NAME`, or `module:NAME@2`: only what the module lets pass, as it leaves it. Positions move on over the rest. Not with record batches", pattern = "^module:[a-zA-Z0-9._-]{1,249}(@[1-9][0-9]*)?$"),
        ("filter_config" = Option<String>, Query, description = "The module's config, as JSON"),
    ),
    responses(
        (status = 200, description = "The records; none where nothing is to be read yet",
            headers(
                ("levada-next-offset" = u64, description = "Where to go on (NDJSON and record batches)"),
                ("levada-high-watermark" = u64, description = "The end (NDJSON and record batches)"),
                ("levada-last-stable-offset" = u64, description = "The end for `read_committed` (NDJSON and record batches)"),
                ("levada-log-start-offset" = u64, description = "The first offset (NDJSON and record batches)"),
                ("levada-aborted-transactions" = Option<String>, description = "Record batches with `read_committed`: a JSON list of \
                    `{\"producer_id\",\"first_offset\",\"last_offset\"}`, the first 64 aborted transactions in what was read. Their \
                    batches are left out"),
                ("levada-gaps" = Option<String>, description = "The JSON list `gaps` (NDJSON and record batches)"),
            ),
            content(
                (PartitionRecords = "application/json"),
                (ReadRecord = "application/x-ndjson"),
                (Vec<u8> = "application/vnd.levada.record-batch"),
            )),
        (status = 404, description = "`topic-not-found`, `partition-not-found`, `module-not-found`"),
        (status = 410, description = "`offset-out-of-range`: below the log start, which is told"),
        (status = 416, description = "`offset-beyond-end`: beyond the high watermark, which is told"),
        (status = 422, description = "`integer-too-large`: beyond 2^53 - 1; `invalid-module-config`: the filter is no transform, or \
            does not take its config"),
    ))]
pub(super) async fn read_partition(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    PartitionPath(topic, partition): PartitionPath,
    mut params: Params,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let media = accepts(&headers, &[JSON, NDJSON, RECORD_BATCH])?;
    let from = params.value("offset", start::partition_start)?.unwrap_or_default();
    // Stored batches come whole, so that counting their records would only send some of them twice.
    let records_default = if media == RECORD_BATCH { READ_RECORDS_MAX } else { READ_RECORDS_DEFAULT };
    let Sizes { max_records, max_bytes, wait } = sizes(&mut params, records_default)?;
    let isolation = isolation(&mut params)?;
    let form = format(&mut params)?;
    let wanted = filter::wanted(&mut params)?;
    params.finish()?;
    let filter = match wanted {
        Some(_) if media == RECORD_BATCH => {
            let detail = "stored batches come as they are; a filter answers with records";
            return Err(Problem::new(ErrorCode::InvalidParameter, detail).into());
        }
        Some(wanted) => Some(wanted.open(&engine, &who).await?),
        None => None,
    };
    let request =
        FetchRequest { from, max_records, max_bytes, wait, isolation, filter, as_stored: media == RECORD_BATCH };
    let fetched = engine.fetch(&who, &topic, partition, request).await.map_err(|error| refusal::fetch(&error))?;
    Ok(match media {
        RECORD_BATCH => rendering::batches(fetched),
        NDJSON => rendering::ndjson(fetched, form)?,
        _ => {
            let rest = marks_as_members(&fetched);
            rendering::json(vec![fetched], form, &rest)?
        }
    })
}

/// How much to read and how long to wait for it.
pub(crate) struct Sizes {
    pub(crate) max_records: usize,
    pub(crate) max_bytes: usize,
    pub(crate) wait: Duration,
}

/// Reads `max_records=`, `max_bytes=` and `wait_ms=`.
pub(crate) fn sizes(params: &mut Params, records_default: usize) -> Result<Sizes, Problem> {
    let max_records = params.clamped("max_records", 1, records_default as u64, READ_RECORDS_MAX as u64)?;
    let max_bytes = params.clamped("max_bytes", 1, READ_BYTES_DEFAULT as u64, READ_BYTES_MAX as u64)?;
    let wait_ms = params.clamped("wait_ms", 0, 0, READ_WAIT_MS_MAX)?;
    let small = |n| usize::try_from(n).expect("cut to a limit that is a usize");
    Ok(Sizes { max_records: small(max_records), max_bytes: small(max_bytes), wait: Duration::from_millis(wait_ms) })
}

fn marks_as_members(fetched: &Fetched) -> String {
    format!(
        "\"next_offset\":{},\"high_watermark\":{},\"last_stable_offset\":{},\"log_start_offset\":{}",
        fetched.next_offset, fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset
    )
}
