//! `POST …/members/{member}/commit`: a member says what it is done with.

use axum::Json;
use levada_api::{CommitGroup, CommittedGroup, Problem};
use levada_engine::{CommitWhat, GroupCursor};
use levada_model::GroupName;

use super::places::{offsets as places_of, read_partitions};
use super::records::read_cursor;
use super::refusal;
use super::words::committed as told;
use crate::extract::{JsonBody, MemberPath, NoParams};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Commit as a member
///
/// By the cursor of a fetch (everything that was delivered up to it), or by offsets. Committed is the offset to read
/// next. Judged partition by partition: accepted where the member has held it without a break since the delivery.
#[utoipa::path(post, path = "/v1/groups/{group}/members/{member}/commit", operation_id = "commit_group", tag = "Consumer groups", request_body = CommitGroup,
    params(
        ("group" = String, Path, description = "The group's name"),
        ("member" = String, Path, description = "The member's id"),
    ),
    responses(
        (status = 200, description = "What was committed, durably, and what was refused", body = CommittedGroup),
        (status = 404, description = "`unknown-member`: join again"),
        (status = 409, description = "`illegal-generation`: nothing was accepted; `fenced-instance`"),
        (status = 410, description = "`cursor-gone`: the cursor belongs to another group"),
        (status = 422, description = "`invalid-field`; `invalid-offset`: no such topic or partition, or beyond its end"),
    ))]
pub(super) async fn commit(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    MemberPath(group, member): MemberPath,
    _: NoParams,
    JsonBody(commit): JsonBody<CommitGroup>,
) -> Result<Json<CommittedGroup>, Refusal> {
    let is_cursor = matches!(commit, CommitGroup::Cursor { .. });
    let pointer = |index| if is_cursor { "/cursor".to_owned() } else { format!("/offsets/{index}") };
    let committed = engine.commit_member(&who, &group, &member, what(&group, commit)?).await;
    let committed = committed.map_err(|error| refusal::member(&group, error, pointer))?;
    Ok(Json(told(committed)))
}

fn what(group: &GroupName, commit: CommitGroup) -> Result<CommitWhat, Problem> {
    match commit {
        CommitGroup::Cursor { cursor } => {
            let cursor = read_cursor(&cursor).map_err(|problem| {
                let detail = problem.detail.clone();
                problem.at("/cursor", detail)
            })?;
            // Up to the empty cursor nothing was delivered.
            let nothing = || GroupCursor { group: group.clone(), positions: Vec::new() };
            Ok(CommitWhat::Cursor(cursor.unwrap_or_else(nothing)))
        }
        CommitGroup::Offsets { offsets } => Ok(CommitWhat::Offsets(read_partitions("offsets", places_of(&offsets))?)),
    }
}
