//! Compaction over HTTP: the forced pass, and what a topic tells of how far it is compacted.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use axum::{Json, middleware};
use http::StatusCode;
use levada_api::{CompactedPartition, CompactedTopic, Compaction, CompactionError, Topic, Uncompacted, WaitingFor};
use levada_engine::{Engine, PartitionCompaction};
use levada_log::UncompactedReason;
use levada_model::limits::COMPACT_WAIT_MS_MAX;
use levada_model::{Principal, TopicName};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;
use crate::extract::{Params, TopicPath, answers_json};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// The routes of this file.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(compact)).route_layer(middleware::from_fn(answers_json))
}

/// Compact a topic now
///
/// Rolls the active segments first, and cleans again what is clean; `min.compaction.lag.ms` holds all the same. What was
/// begun goes on, also when nobody waits for it any more.
#[utoipa::path(post, path = "/v1/topics/{topic}/compact", operation_id = "compact_topic", tag = "Topics",
    params(
        ("topic" = String, Path, description = "Its name"),
        ("wait_ms" = Option<u64>, Query, description = "How long to wait for it; 30000 by default, cut to 30000; 0 only asks for it"),
    ),
    responses(
        (status = 200, description = "All partitions are compacted", body = CompactedTopic),
        (status = 202, description = "It goes on; the partitions that are done are told", body = CompactedTopic),
        (status = 403, description = "`internal-topic`"),
        (status = 404, description = "`topic-not-found`"),
        (status = 409, description = "`not-compacted`: the topic's `cleanup.policy` does not compact it"),
        (status = 503, description = "`compaction-failed`: a partition could not be compacted, and is as it was; others may be compacted"),
    ))]
async fn compact(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    TopicPath(name): TopicPath,
    mut params: Params,
) -> Result<Response, Refusal> {
    let wait_ms = params.clamped("wait_ms", 0, COMPACT_WAIT_MS_MAX, COMPACT_WAIT_MS_MAX)?;
    params.finish()?;
    let compacted = engine.compact_topic(&who, &name, Duration::from_millis(wait_ms)).await?;
    let partitions = compacted.partitions.into_iter().map(|done| CompactedPartition {
        partition: done.partition.0,
        before_bytes: done.before_bytes,
        after_bytes: done.after_bytes,
        before_records: done.before_records,
        after_records: done.after_records,
    });
    let answer = CompactedTopic { partitions: partitions.collect() };
    let status = if compacted.is_done { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(answer)).into_response())
}

/// Tells in a topic's description how far its partitions are compacted.
pub(crate) async fn tell(engine: &Engine, who: &Principal, name: &TopicName, topic: &mut Topic) {
    // A topic that was deleted meanwhile, or that one may change and not describe, has nothing to tell.
    for (index, state) in engine.topic_compaction(who, name).await.unwrap_or_default() {
        if let Some(partition) = topic.partitions.iter_mut().find(|partition| partition.partition == index.0) {
            partition.compaction = Some(compaction(state));
        }
    }
}

fn compaction(state: PartitionCompaction) -> Compaction {
    let uncompacted = state.uncompacted.into_iter().map(|stretch| Uncompacted {
        from: stretch.from.0,
        to: stretch.to.0,
        waiting_for: match stretch.reason {
            UncompactedReason::Due => WaitingFor::Pass,
            UncompactedReason::Ratio => WaitingFor::DirtyRatio,
            UncompactedReason::Lag => WaitingFor::MinLag,
            UncompactedReason::Bound => WaitingFor::Undecided,
            UncompactedReason::Active => WaitingFor::ActiveSegment,
        },
    });
    Compaction {
        dirty_bytes: state.dirty_bytes,
        dirty_ratio: state.dirty_ratio,
        cleaned_to: state.cleaned_to.0,
        uncompacted: uncompacted.collect(),
        error: state.failure.map(|failure| CompactionError {
            reason: failure.reason.to_string(),
            since: failure.since.0,
            retry_at: failure.retry_at.0,
        }),
    }
}
