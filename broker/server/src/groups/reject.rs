//! `POST …/members/{member}/reject`: records that a member cannot process.

use axum::Json;
use levada_api::{DeadLetters, ErrorCode, Problem, RejectRecords};
use levada_model::limits::{REJECT_REASON_CHARS_MAX, REJECT_RECORDS_MAX};

use super::places::read_records;
use super::refusal;
use super::words::places;
use crate::extract::{JsonBody, MemberPath, NoParams};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Reject records
///
/// Each goes with its key, value and headers to `<topic>.dead-letter`, and with the headers `error`, `original_topic`,
/// `original_partition`, `original_offset`, `original_timestamp` (milliseconds since 1970), `group` and `attempts`; once,
/// however often it is asked for. Nothing is committed: the member goes on as after any other record.
#[utoipa::path(post, path = "/v1/groups/{group}/members/{member}/reject", operation_id = "reject_records", tag = "Consumer groups", request_body = RejectRecords,
    params(
        ("group" = String, Path, description = "The group's name"),
        ("member" = String, Path, description = "The member's id"),
    ),
    responses(
        (status = 200, description = "Where they are now, durably", body = DeadLetters),
        (status = 404, description = "`unknown-member`: join again"),
        (status = 409, description = "`illegal-generation`: the member does not hold the partitions; `fenced-instance`"),
        (status = 422, description = "`invalid-field`; `invalid-offset`: there is no such record; `no-dead-letters`: \
            the topic can have none"),
    ))]
pub(super) async fn reject(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    MemberPath(group, member): MemberPath,
    _: NoParams,
    JsonBody(reject): JsonBody<RejectRecords>,
) -> Result<Json<DeadLetters>, Refusal> {
    let reject = wanted(reject)?;
    let stored = engine.reject(&who, &group, &member, reject).await;
    let stored = stored.map_err(|error| refusal::member(&group, error, |index| format!("/records/{index}")))?;
    Ok(Json(DeadLetters { dead_letters: places(stored) }))
}

fn wanted(reject: RejectRecords) -> Result<levada_engine::RejectRecords, Problem> {
    let wrong =
        |pointer: &str, detail: String| Problem::new(ErrorCode::InvalidField, detail.clone()).at(pointer, detail);
    let count = reject.records.len();
    if count == 0 || count > REJECT_RECORDS_MAX {
        return Err(wrong("/records", format!("records names 1 to {REJECT_RECORDS_MAX} records; {count} are not")));
    }
    if reject.reason.chars().nth(REJECT_REASON_CHARS_MAX).is_some() {
        return Err(wrong("/reason", format!("reason has at most {REJECT_REASON_CHARS_MAX} characters")));
    }
    let records = read_records("records", &reject.records)?;
    Ok(levada_engine::RejectRecords { records, reason: reject.reason, attempts: reject.attempts })
}
