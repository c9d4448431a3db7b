//! Committed offsets of consumer groups over HTTP.

use std::collections::HashSet;

use axum::{Json, middleware};
use levada_api::{
    ErrorCode, GroupOffset, GroupOffsets, OffsetPlace, Problem, SetGroupOffset, SetGroupOffsets, SetGroupOffsetsResult,
    echo,
};
use levada_engine::{CommittedOffset, From, OffsetCommit};
use levada_model::{Offset, PartitionIndex, Timestamp, TopicName};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;
use crate::extract::{GroupPath, JsonBody, NoParams, answers_json};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// The routes of this file.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(offsets, set_offsets)).route_layer(middleware::from_fn(answers_json))
}

/// Tell where a group stands
#[utoipa::path(get, path = "/v1/groups/{group}/offsets", operation_id = "describe_group_offsets", tag = "Consumer groups",
    params(("group" = String, Path, description = "The group's name; the same rule as for topics")),
    responses(
        (status = 200, description = "Its committed offsets, by topic and partition", body = GroupOffsets),
        (status = 404, description = "`group-not-found`"),
    ))]
async fn offsets(
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
        (status = 422, description = "`invalid-field`; `invalid-offset`: no such topic or partition, or beyond its end"),
    ))]
async fn set_offsets(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    GroupPath(group): GroupPath,
    _: NoParams,
    JsonBody(wanted): JsonBody<SetGroupOffsets>,
) -> Result<Json<SetGroupOffsetsResult>, Refusal> {
    let commits = commits(&wanted.offsets)?;
    let offsets = engine.commit_group_offsets(&who, &group, commits, wanted.dry_run).await?;
    Ok(Json(SetGroupOffsetsResult { offsets: offsets.into_iter().map(committed).collect(), dry_run: wanted.dry_run }))
}

/// The commits, or all names that are none and else all partitions that come again, each at its place.
fn commits(wanted: &[SetGroupOffset]) -> Result<Vec<OffsetCommit>, Problem> {
    let mut commits = Vec::with_capacity(wanted.len());
    let (mut wrong, mut repeated, mut named) = (Vec::new(), Vec::new(), HashSet::new());
    for (index, item) in wanted.iter().enumerate() {
        match TopicName::new(&item.topic) {
            Ok(topic) => {
                commits.push(OffsetCommit {
                    topic,
                    partition: PartitionIndex(item.partition),
                    offset: from(item.offset),
                });
            }
            Err(error) => wrong.push((format!("/offsets/{index}/topic"), error.to_string())),
        }
        if !named.insert((&item.topic, item.partition)) {
            let detail = format!("partition {} of {} is named twice", item.partition, echo(&item.topic));
            repeated.push((format!("/offsets/{index}/partition"), detail));
        }
    }
    if !wrong.is_empty() {
        let problem = Problem::new(ErrorCode::InvalidOffset, "some of the topics cannot be");
        return Err(problem.at_each(wrong.into_iter()));
    }
    if let Some((_, first)) = repeated.first() {
        return Err(Problem::new(ErrorCode::InvalidField, first.clone()).at_each(repeated.into_iter()));
    }
    Ok(commits)
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
