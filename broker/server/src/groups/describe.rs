//! Groups as a whole: list, describe, delete.

use axum::Json;
use http::StatusCode;
use levada_api::{AssignorConfig, AssignorFallback, GroupDescription, GroupLag, GroupList, GroupMember, GroupSummary};
use levada_model::GroupName;

use super::words::{group_state, member_state, partitions};
use crate::extract::{GroupPath, NoParams, Params};
use crate::listing::Page;
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// List groups, by name
#[utoipa::path(get, path = "/v1/groups", operation_id = "list_groups", tag = "Consumer groups",
    params(
        ("limit" = Option<u32>, Query, description = "Most groups; 100 by default, cut to 1000", minimum = 1),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before", min_length = 1),
    ),
    responses((status = 200, description = "A page of groups", body = GroupList)))]
pub(super) async fn list(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    mut params: Params,
) -> Result<Json<GroupList>, Refusal> {
    let page = Page::<GroupName>::read(&mut params)?;
    params.finish()?;
    let (groups, next_cursor) = page.cut(engine.list_groups(&who).await?, |summary| &summary.group, summary);
    Ok(Json(GroupList { groups, next_cursor }))
}

/// Describe a group: its members, and where it stands
#[utoipa::path(get, path = "/v1/groups/{group}", operation_id = "describe_group", tag = "Consumer groups",
    params(("group" = String, Path, description = "The group's name; the same rule as for topics")),
    responses(
        (status = 200, description = "The group", body = GroupDescription),
        (status = 404, description = "`group-not-found`"),
    ))]
pub(super) async fn describe(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    GroupPath(group): GroupPath,
    _: NoParams,
) -> Result<Json<GroupDescription>, Refusal> {
    let group = engine.describe_group(&who, &group).await?;
    Ok(Json(GroupDescription {
        group: group.group.into(),
        state: group_state(group.state),
        generation: group.generation,
        assignor: group.assignor.map(|name| name.to_string()),
        // What a member was let in with is one.
        assignor_config: group.assignor_config.and_then(|config| AssignorConfig::new(&config).ok()),
        fallback: group.fallback.map(|fallback| AssignorFallback {
            generation: fallback.generation.0,
            assignor: fallback.assignor.to_string(),
            reason: fallback.reason,
        }),
        members: group.members.into_iter().map(member).collect(),
        offsets: group.offsets.into_iter().map(lag).collect(),
    }))
}

/// Delete a group without members, with its committed offsets
#[utoipa::path(delete, path = "/v1/groups/{group}", operation_id = "delete_group", tag = "Consumer groups",
    params(("group" = String, Path, description = "The group's name; the same rule as for topics")),
    responses(
        (status = 204, description = "Deleted, durably"),
        (status = 404, description = "`group-not-found`"),
        (status = 409, description = "`group-not-empty`: members are active"),
    ))]
pub(super) async fn delete(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    GroupPath(group): GroupPath,
    _: NoParams,
) -> Result<StatusCode, Refusal> {
    engine.delete_group(&who, &group).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn summary(summary: levada_engine::GroupSummary) -> GroupSummary {
    GroupSummary { group: summary.group.into(), state: group_state(summary.state), members: summary.members }
}

fn member(member: levada_engine::GroupMember) -> GroupMember {
    GroupMember {
        member_id: member.member_id.into(),
        instance_id: member.instance_id.map(Into::into),
        client: member.client,
        topics: member.topics.into_iter().map(Into::into).collect(),
        assignment: partitions(&member.assignment),
        revoked: partitions(&member.revoked),
        state: member_state(member.state),
    }
}

fn lag(stands: levada_engine::GroupOffset) -> GroupLag {
    let offset = stands.offset;
    GroupLag {
        topic: offset.topic.into(),
        partition: offset.partition.0,
        committed: offset.committed.0,
        high_watermark: offset.high_watermark.0,
        lag: offset.lag,
        lag_ms: stands.lag_ms,
        committed_at: offset.committed_at.0,
    }
}
