//! `GET …/members/{member}/records`: a member reads what it holds.

use axum::response::Response;
use levada_api::{ErrorCode, FormatWord, GroupHeartbeat, GroupRecords, OffsetReset, Problem, ResetCause, echo};
use levada_engine::{GroupCursor, GroupFetch};
use levada_model::limits::READ_RECORDS_DEFAULT;
use serde::Serialize;

use super::refusal;
use super::words::heartbeat;
use crate::cursor::{decode_group, encode_group};
use crate::extract::{MemberPath, Params};
use crate::read::{Sizes, format, group_json, sizes};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Read as a member
///
/// Waits at most `wait_ms` for records, and for the assignment. The same cursor again gives the same records, until they
/// are committed; partitions that were lost meanwhile are left out. Without a cursor, and in partitions that are new to
/// the member, it begins at what is committed, or else where its join said. What stands in `revoked` is given up by the
/// next fetch.
#[utoipa::path(get, path = "/v1/groups/{group}/members/{member}/records", operation_id = "read_group", tag = "Consumer groups",
    params(
        ("group" = String, Path, description = "The group's name"),
        ("member" = String, Path, description = "The member's id"),
        ("cursor" = Option<String>, Query, description = "The cursor of the member's last answer; empty for none", pattern = "^[A-Za-z0-9_-]*$"),
        ("max_records" = Option<u64>, Query, description = "Most records; 500 by default, cut to 10000", minimum = 1),
        ("max_bytes" = Option<u64>, Query, description = "Most stored bytes; 1 MiB by default, cut to 64 MiB", minimum = 1),
        ("wait_ms" = Option<u64>, Query, description = "How long to wait while there is nothing; 0 by default, cut to 60000"),
        ("format" = inline(Option<FormatWord>), Query, description = "Force a form of values: `text` or `base64`"),
    ),
    responses(
        (status = 200, description = "The records; none where nothing is to be read yet", body = GroupRecords),
        (status = 404, description = "`unknown-member`: join again"),
        (status = 409, description = "`fenced-instance`: another member came with the same `instance_id`"),
        (status = 410, description = "`cursor-gone`: the cursor belongs to another group"),
    ))]
pub(super) async fn read(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    MemberPath(group, member): MemberPath,
    mut params: Params,
) -> Result<Response, Refusal> {
    let cursor = params.text("cursor").map_or(Ok(None), |text| read_cursor(&text))?;
    let Sizes { max_records, max_bytes, wait } = sizes(&mut params, READ_RECORDS_DEFAULT)?;
    let form = format(&mut params)?;
    params.finish()?;
    let fetch = GroupFetch { cursor, max_records, max_bytes, wait };
    let fetched = engine.fetch_group(&who, &group, &member, fetch).await;
    let fetched = fetched.map_err(|error| refusal::member(&group, error, |_| String::new()))?;
    let rest = Rest {
        resets: fetched.resets.into_iter().map(reset).collect(),
        cursor: encode_group(&fetched.cursor),
        standing: heartbeat(&fetched.membership),
    };
    let rest = serde_json::to_string(&rest).expect("it is plain data");
    let members = rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).expect("it is an object");
    Ok(group_json(fetched.parts, form, members)?)
}

/// A member's cursor; none where it is empty.
pub(crate) fn read_cursor(text: &str) -> Result<Option<GroupCursor>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    let refused =
        || format!("cursor takes a cursor that this broker gave to a member, unchanged; {:?} is not", echo(text));
    decode_group(text).map(Some).ok_or_else(|| Problem::new(ErrorCode::InvalidCursor, refused()))
}

/// What stands behind the records in [`GroupRecords`].
#[derive(Serialize)]
struct Rest {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resets: Vec<OffsetReset>,
    cursor: String,
    #[serde(flatten)]
    standing: GroupHeartbeat,
}

fn reset(reset: levada_engine::OffsetReset) -> OffsetReset {
    OffsetReset {
        topic: reset.topic.into(),
        partition: reset.partition.0,
        offset: reset.to.0,
        cause: match reset.cause {
            levada_engine::ResetCause::Expired => ResetCause::Expired,
            levada_engine::ResetCause::BelowStart => ResetCause::BelowStart,
            levada_engine::ResetCause::BeyondEnd => ResetCause::BeyondEnd,
        },
    }
}
