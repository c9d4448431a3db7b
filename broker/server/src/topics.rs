//! Topics over HTTP: create, list, describe, alter, delete, truncate.

use axum::response::{IntoResponse, Response};
use axum::{Json, middleware};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use levada_api::{
    AlterTopic, CreateTopic, ErrorCode, Partition, PartitionState, PartitionerFallbacks, Problem, Topic, TopicList,
    TruncateTopic, TruncatedPartition, TruncatedTopic,
};
use levada_engine::{Engine, TopicDescription, TopicError};
use levada_model::{NodeId, Offset, PartitionIndex, Principal, TopicName};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;
use crate::compaction;
use crate::extract::{JsonBody, NoParams, Params, TopicPath, answers_json};
use crate::listing::{Page, next_cursor};
use crate::refusal::{Refusal, topic_name};
use crate::state::{Caller, OpenEngine};

/// The routes of this file.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(describe, alter, delete))
        .routes(routes!(truncate))
        .route_layer(middleware::from_fn(answers_json))
}

/// Create a topic
#[utoipa::path(post, path = "/v1/topics", operation_id = "create_topic", tag = "Topics", request_body = CreateTopic,
    responses(
        (status = 201, description = "Created, durably", body = Topic, headers(
            ("location" = String, description = "Path of the topic"),
            ("etag" = String, description = "The topic's version, for If-Match"))),
        (status = 409, description = "`topic-exists`"),
        (status = 422, description = "`invalid-field`, `unknown-config`, `invalid-config`, `reserved-topic-name`, \
            `invalid-partition-count`"),
    ))]
async fn create(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    _: NoParams,
    JsonBody(new): JsonBody<CreateTopic>,
) -> Result<Response, Refusal> {
    let name = TopicName::new(&new.name).map_err(|error| topic_name(&error).at("/name", error.to_string()))?;
    let new = levada_engine::CreateTopic { name, partitions: new.partitions, config: new.config };
    let topic = engine.create_topic(&who, new).await?;
    let location = [(header::LOCATION, format!("/v1/topics/{}", topic.name))];
    Ok((StatusCode::CREATED, location, described(&engine, &who, topic).await).into_response())
}

/// List topics, by name
#[utoipa::path(get, path = "/v1/topics", operation_id = "list_topics", tag = "Topics",
    params(
        ("limit" = Option<u32>, Query, description = "Most topics; 100 by default, cut to 1000", minimum = 1),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before", min_length = 1),
    ),
    responses((status = 200, description = "A page of topics", body = TopicList)))]
async fn list(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    mut params: Params,
) -> Result<Json<TopicList>, Refusal> {
    let Page { limit, after } = Page::<TopicName>::read(&mut params)?;
    params.finish()?;
    let page = engine.list_topics(&who, after.as_ref(), limit)?;
    let next_cursor = page.next_after.map(|name| next_cursor(name.as_str()));
    Ok(Json(TopicList { topics: page.topics.into_iter().map(topic).collect(), next_cursor }))
}

/// Describe a topic
#[utoipa::path(get, path = "/v1/topics/{topic}", operation_id = "describe_topic", tag = "Topics",
    params(("topic" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The topic", body = Topic,
            headers(("etag" = String, description = "The topic's version, for If-Match"))),
        (status = 404, description = "`topic-not-found`"),
    ))]
async fn describe(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    TopicPath(name): TopicPath,
    _: NoParams,
) -> Result<Response, Refusal> {
    let topic = engine.describe_topic(&who, &name)?;
    Ok(described(&engine, &who, topic).await)
}

/// Change a topic's partitions and settings
#[utoipa::path(patch, path = "/v1/topics/{topic}", operation_id = "alter_topic", tag = "Topics", request_body = AlterTopic,
    params(
        ("topic" = String, Path, description = "Its name"),
        ("if-match" = Option<String>, Header, description = "Change it only if it is at this version (its ETag)"),
    ),
    responses(
        (status = 200, description = "The topic as it is now", body = Topic,
            headers(("etag" = String, description = "The topic's version, for If-Match"))),
        (status = 403, description = "`internal-topic`"),
        (status = 404, description = "`topic-not-found`"),
        (status = 409, description = "`keyless-records`: it is to be compacted, and holds records without a key"),
        (status = 412, description = "`precondition-failed`: it was changed by somebody else"),
        (status = 422, description = "`invalid-field`, `unknown-config`, `invalid-config`, `invalid-partition-count`"),
    ))]
async fn alter(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    TopicPath(name): TopicPath,
    _: NoParams,
    headers: HeaderMap,
    JsonBody(change): JsonBody<AlterTopic>,
) -> Result<Response, Refusal> {
    let if_version = match IfMatch::read(&headers) {
        IfMatch::Absent => None,
        wanted => Some(wanted.version_of(&engine.describe_topic(&who, &name)?)?),
    };
    let change = levada_engine::AlterTopic { partitions: change.partitions, config: change.config, if_version };
    let topic = engine.alter_topic(&who, &name, change).await?;
    Ok(described(&engine, &who, topic).await)
}

/// Delete a topic with all its records
#[utoipa::path(delete, path = "/v1/topics/{topic}", operation_id = "delete_topic", tag = "Topics",
    params(("topic" = String, Path, description = "Its name")),
    responses(
        (status = 204, description = "Deleted, durably"),
        (status = 403, description = "`internal-topic`"),
        (status = 404, description = "`topic-not-found`"),
    ))]
async fn delete(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    TopicPath(name): TopicPath,
    _: NoParams,
) -> Result<StatusCode, Refusal> {
    engine.delete_topic(&who, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Move log starts up: records before the named offsets go for good
#[utoipa::path(post, path = "/v1/topics/{topic}/truncate", operation_id = "truncate_topic", tag = "Topics", request_body = TruncateTopic,
    params(("topic" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "Where the partitions begin now", body = TruncatedTopic),
        (status = 403, description = "`internal-topic`"),
        (status = 404, description = "`topic-not-found`"),
        (status = 422, description = "`invalid-field`; `invalid-offset`: no such partition, or beyond its end"),
    ))]
async fn truncate(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    TopicPath(name): TopicPath,
    _: NoParams,
    JsonBody(wanted): JsonBody<TruncateTopic>,
) -> Result<Json<TruncatedTopic>, Refusal> {
    let offsets: Vec<_> = wanted.offsets.iter().map(|at| (PartitionIndex(at.partition), Offset(at.before))).collect();
    let left = engine.truncate_topic(&who, &name, offsets).await.map_err(|error| with_place(error, &wanted))?;
    let partitions = left
        .into_iter()
        .map(|left| TruncatedPartition { partition: left.partition.0, log_start_offset: left.log_start_offset.0 });
    Ok(Json(TruncatedTopic { partitions: partitions.collect() }))
}

/// Says at which place of the request a truncation was wrong.
fn with_place(error: TopicError, wanted: &TruncateTopic) -> Refusal {
    let (partition, field) = match &error {
        TopicError::NoPartition { partition, .. } | TopicError::Repeated(partition) => (*partition, "partition"),
        TopicError::BeyondEnd { partition, .. } => (*partition, "before"),
        _ => return error.into(),
    };
    let detail = error.to_string();
    let Refusal(problem) = error.into();
    let index = wanted.offsets.iter().rposition(|at| at.partition == partition.0);
    Refusal(match index {
        Some(index) => problem.at(format!("/offsets/{index}/{field}"), detail),
        None => problem,
    })
}

/// The topic with its ETag: its identity and version, so that a topic created anew has another.
async fn described(engine: &Engine, who: &Principal, description: TopicDescription) -> Response {
    let etag = HeaderValue::try_from(etag(&description)).expect("identity and number are plain text");
    let name = description.name.clone();
    let mut topic = topic(description);
    compaction::tell(engine, who, &name, &mut topic).await;
    ([(header::ETAG, etag)], Json(topic)).into_response()
}

fn etag(description: &TopicDescription) -> String {
    format!("\"{}.{}\"", description.id, description.version)
}

/// What `If-Match` names (RFC 9110 §13.1.1).
#[derive(Debug, PartialEq, Eq)]
enum IfMatch {
    Absent,
    /// Any version, as long as the topic is there.
    Any,
    /// One of these entity tags, with their quotes; weak ones never match.
    Tags(Vec<String>),
}

impl IfMatch {
    fn read(headers: &HeaderMap) -> Self {
        let mut tags = Vec::new();
        for value in headers.get_all(header::IF_MATCH) {
            tags.extend(value.to_str().unwrap_or_default().split(',').map(|tag| tag.trim().to_owned()));
        }
        match tags.as_slice() {
            [] => Self::Absent,
            [any] if any == "*" => Self::Any,
            _ => Self::Tags(tags),
        }
    }

    /// The version that the change is bound to.
    fn version_of(&self, now: &TopicDescription) -> Result<u64, Problem> {
        let etag = etag(now);
        let matches = match self {
            Self::Absent | Self::Any => true,
            Self::Tags(tags) => tags.contains(&etag),
        };
        let refused = || Problem::new(ErrorCode::PreconditionFailed, format!("the topic's ETag is {etag}"));
        matches.then_some(now.version).ok_or_else(refused)
    }
}

fn topic(description: TopicDescription) -> Topic {
    Topic {
        name: description.name.to_string(),
        id: description.id.to_string(),
        internal: description.internal,
        partition_count: description.partition_count,
        partitions: description.partitions.into_iter().map(partition).collect(),
        config: description.config,
        effective_config: description.effective_config,
        partitioner_fallbacks: description
            .partitioner_fault
            .map(|reason| PartitionerFallbacks { count: description.partitioner_fallbacks, reason }),
    }
}

fn partition(description: levada_engine::PartitionDescription) -> Partition {
    let numbers = |nodes: Vec<NodeId>| nodes.into_iter().map(|node| node.0).collect();
    Partition {
        partition: description.partition.0,
        leader: description.leader.0,
        leader_epoch: description.leader_epoch.0,
        replicas: numbers(description.replicas),
        isr: numbers(description.isr),
        log_start_offset: description.log_start_offset.0,
        high_watermark: description.high_watermark.0,
        last_stable_offset: description.last_stable_offset.0,
        size_bytes: description.size_bytes,
        state: match description.state {
            levada_engine::PartitionState::Active => PartitionState::Active,
            levada_engine::PartitionState::Retiring => PartitionState::Retiring,
        },
        compaction: None,
    }
}
