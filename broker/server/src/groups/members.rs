//! Members: join, heartbeat, leave.

use std::collections::HashSet;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use levada_api::{
    AssignorConfig, AssignorWord, ErrorCode, GroupHeartbeat, GroupStart, JoinGroup, JoinedGroup, Problem, echo,
};
use levada_engine::AssignorName;
use levada_model::limits::GROUP_TOPICS_MAX;
use levada_model::{InstanceId, ModuleRef, Timestamp, TopicName};

use super::refusal;
use super::words::{heartbeat as told, member_state, partitions};
use crate::extract::{GroupPath, JsonBody, MemberPath, NoParams};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Join a group
///
/// Never waits: the member's partitions come with its first fetch. A member lives as long as it fetches, commits or sends
/// heartbeats within its session time-out, and fetches within its `max_poll_interval_ms`.
#[utoipa::path(post, path = "/v1/groups/{group}/members", operation_id = "join_group", tag = "Consumer groups", request_body = JoinGroup,
    params(("group" = String, Path, description = "The group's name; the same rule as for topics")),
    responses(
        (status = 201, description = "The group has a new member", body = JoinedGroup,
            headers(("location" = String, description = "Path of the member"))),
        (status = 404, description = "`topic-not-found`: the topics that are not there are named"),
        (status = 422, description = "`invalid-field`; `invalid-module-config`: the assignor does not take its config"),
    ))]
pub(super) async fn join(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    GroupPath(group): GroupPath,
    _: NoParams,
    headers: HeaderMap,
    JsonBody(join): JsonBody<JoinGroup>,
) -> Result<Response, Refusal> {
    let membership = engine.join_group(&who, &group, wanted(join, &client(&headers))?).await?;
    let location = [(header::LOCATION, format!("/v1/groups/{group}/members/{}", membership.member_id))];
    let joined = JoinedGroup {
        member_id: membership.member_id.into(),
        generation: membership.generation,
        assignment: partitions(&membership.assignment),
        state: member_state(membership.state),
        cursor: String::new(),
    };
    Ok((StatusCode::CREATED, location, Json(joined)).into_response())
}

/// Say that a member lives
///
/// A fetch or commit says so too. Heartbeats alone for longer than its `max_poll_interval_ms` remove the member.
#[utoipa::path(post, path = "/v1/groups/{group}/members/{member}/heartbeat", operation_id = "heartbeat_group", tag = "Consumer groups",
    params(
        ("group" = String, Path, description = "The group's name"),
        ("member" = String, Path, description = "The member's id"),
    ),
    responses(
        (status = 200, description = "How the member stands", body = GroupHeartbeat),
        (status = 404, description = "`unknown-member`: join again"),
        (status = 409, description = "`fenced-instance`: another member came with the same `instance_id`"),
    ))]
pub(super) async fn heartbeat(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    MemberPath(group, member): MemberPath,
    _: NoParams,
) -> Result<Json<GroupHeartbeat>, Refusal> {
    let membership = engine.heartbeat(&who, &group, &member).await;
    let membership = membership.map_err(|error| refusal::member(&group, error, |_| String::new()))?;
    Ok(Json(told(&membership)))
}

/// Leave a group
#[utoipa::path(delete, path = "/v1/groups/{group}/members/{member}", operation_id = "leave_group", tag = "Consumer groups",
    params(
        ("group" = String, Path, description = "The group's name"),
        ("member" = String, Path, description = "The member's id"),
    ),
    responses(
        (status = 204, description = "It has left; what it held goes to others at once"),
        (status = 404, description = "`unknown-member`: it was removed before"),
        (status = 409, description = "`fenced-instance`: another member came with the same `instance_id`"),
    ))]
pub(super) async fn leave(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    MemberPath(group, member): MemberPath,
    _: NoParams,
) -> Result<StatusCode, Refusal> {
    let left = engine.leave_group(&who, &group, &member).await;
    left.map_err(|error| refusal::member(&group, error, |_| String::new()))?;
    Ok(StatusCode::NO_CONTENT)
}

/// The join in the engine's words, or the first field that is wrong.
pub(crate) fn wanted(join: JoinGroup, client: &str) -> Result<levada_engine::JoinGroup, Problem> {
    let instance_id = join.instance_id.as_deref().map(InstanceId::new).transpose();
    Ok(levada_engine::JoinGroup {
        topics: topics(&join.topics)?,
        assignor: assignor(&join.assignor, join.assignor_config.as_ref())?,
        session_timeout_ms: join.session_timeout_ms,
        rebalance_timeout_ms: join.rebalance_timeout_ms,
        max_poll_interval_ms: join.max_poll_interval_ms,
        start: match join.start {
            GroupStart::Earliest => levada_engine::GroupStart::Earliest,
            GroupStart::Latest => levada_engine::GroupStart::Latest,
            GroupStart::Time(time) => levada_engine::GroupStart::Time(Timestamp(time)),
        },
        instance_id: instance_id.map_err(|error| wrong("/instance_id", error.to_string()))?,
        client: client.to_owned(),
    })
}

/// Each topic once, and at least one.
fn topics(names: &[String]) -> Result<Vec<TopicName>, Problem> {
    if names.is_empty() || names.len() > GROUP_TOPICS_MAX {
        let detail = format!("topics names 1 to {GROUP_TOPICS_MAX} topics; {} are not", names.len());
        return Err(wrong("/topics", detail));
    }
    let (mut topics, mut faults, mut named) = (Vec::with_capacity(names.len()), Vec::new(), HashSet::new());
    for (index, name) in names.iter().enumerate() {
        match TopicName::new(name) {
            Ok(topic) if named.insert(name) => topics.push(topic),
            Ok(_) => faults.push((format!("/topics/{index}"), format!("{} is named twice", echo(name)))),
            Err(error) => faults.push((format!("/topics/{index}"), error.to_string())),
        }
    }
    match faults.first() {
        None => Ok(topics),
        Some((_, first)) => {
            Err(Problem::new(ErrorCode::InvalidField, first.clone()).at_each(faults.clone().into_iter()))
        }
    }
}

fn assignor(word: &AssignorWord, config: Option<&AssignorConfig>) -> Result<AssignorName, Problem> {
    match word {
        AssignorWord::Module(name) => {
            let module = ModuleRef::new(name).map_err(|error| wrong("/assignor", error.to_string()))?;
            Ok(AssignorName::Module { module, config: config.map(|config| config.as_str().into()) })
        }
        _ if config.is_some() => {
            Err(wrong("/assignor_config", "only an assignor that is a module has a config".to_owned()))
        }
        AssignorWord::Range => Ok(AssignorName::Range),
        AssignorWord::RoundRobin => Ok(AssignorName::RoundRobin),
        AssignorWord::Sticky => Ok(AssignorName::Sticky),
        AssignorWord::CooperativeSticky => Ok(AssignorName::CooperativeSticky),
    }
}

fn wrong(pointer: &str, detail: String) -> Problem {
    Problem::new(ErrorCode::InvalidField, detail.clone()).at(pointer, detail)
}

/// `User-Agent`, without what is no text.
pub(crate) fn client(headers: &HeaderMap) -> String {
    let agent = headers.get(header::USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
    agent.unwrap_or_default().chars().filter(|c| !c.is_control()).collect()
}
