//! Committed offsets of consumer groups over HTTP.

use axum::Json;
use levada_api::{GroupOffset, GroupOffsets, OffsetPlace, SetGroupOffsets, SetGroupOffsetsResult};
use levada_engine::{CommittedOffset, From, OffsetCommit};
use levada_model::{Offset, Timestamp};

use super::places::read_partitions;
use crate::extract::{GroupPath, JsonBody, NoParams};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Tell where a group stands
#[utoipa::path(get, path = "/v1/groups/{group}/offsets", operation_id = "describe_group_offsets", tag = "Consumer groups",
    params(("group" = String, Path, description = "The group's name; the same rule as for topics")),
    responses(
        (status = 200, description = "Its committed offsets, by topic and partition", body = GroupOffsets),
        (status = 404, description = "`group-not-found`"),
    ))]
pub(super) async fn offsets(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    GroupPath(group): GroupPath,
    _: NoParams,
) -> Result<Json<GroupOffsets>, Refusal> {
    let offsets = engine.group_offsets(&who, &group).await?;
    Ok(Json(GroupOffsets { group: group.to_string(), offsets: offsets.into_iter().map(committed).collect() }))
}

/// Set where a group stands, all or nothing
#[utoipa::path(put, path = "/v1/groups/{group}/offsets", operation_id = "set_group_offsets", tag = "Consumer groups", request_body = SetGroupOffsets,
    params(("group" = String, Path, description = "The group's name; the same rule as for topics")),
    responses(
        (status = 200, description = "What was committed, durably, or (`dry_run`) would be",
            body = SetGroupOffsetsResult),
        (status = 409, description = "`group-not-empty`: members are active"),
        (status = 422, description = "`invalid-field`; `invalid-offset`: no such topic or partition, or beyond its end"),
    ))]
pub(super) async fn set_offsets(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    GroupPath(group): GroupPath,
    _: NoParams,
    JsonBody(wanted): JsonBody<SetGroupOffsets>,
) -> Result<Json<SetGroupOffsetsResult>, Refusal> {
    let wanted_places = wanted.offsets.iter().map(|item| (item.topic.as_str(), item.partition, from(item.offset)));
    let commits = read_partitions("offsets", wanted_places)?;
    let commit = |(topic, partition, offset)| OffsetCommit { topic, partition, offset };
    let commits = commits.into_iter().map(commit).collect();
    let offsets = engine.commit_group_offsets(&who, &group, commits, wanted.dry_run).await?;
    Ok(Json(SetGroupOffsetsResult { offsets: offsets.into_iter().map(committed).collect(), dry_run: wanted.dry_run }))
}

fn from(place: OffsetPlace) -> From {
    match place {
        OffsetPlace::At(offset) => From::Offset(Offset(offset)),
        OffsetPlace::Earliest => From::Earliest,
        OffsetPlace::Latest => From::Latest,
        OffsetPlace::Time(time) => From::Time(Timestamp(time)),
    }
}

fn committed(offset: CommittedOffset) -> GroupOffset {
    GroupOffset {
        topic: offset.topic.to_string(),
        partition: offset.partition.0,
        committed: offset.committed.0,
        high_watermark: offset.high_watermark.0,
        lag: offset.lag,
        committed_at: offset.committed_at.0,
    }
}
