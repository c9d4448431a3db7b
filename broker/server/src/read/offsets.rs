//! `GET …/offsets?time=MS`: where a time is in each partition.

use axum::Json;
use http::HeaderMap;
use levada_api::media::JSON;
use levada_api::{ErrorCode, Offsets, PartitionOffset, Problem};
use levada_model::Timestamp;

use super::refusal;
use crate::extract::{Params, TopicPath, accepts};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Look a time up
///
/// In each partition, the first offset whose record has this time or a later one; the end where there is none.
#[utoipa::path(get, path = "/v1/topics/{topic}/offsets", operation_id = "offsets_for_time", tag = "Read",
    params(
        ("topic" = String, Path, description = "The topic"),
        ("time" = u64, Query, description = "Milliseconds since 1970"),
    ),
    responses(
        (status = 200, description = "An offset a partition", body = Offsets),
        (status = 404, description = "`topic-not-found`"),
        (status = 422, description = "`integer-too-large`: beyond 2^53 - 1"),
    ))]
pub(super) async fn offsets_for_time(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    TopicPath(topic): TopicPath,
    mut params: Params,
    headers: HeaderMap,
) -> Result<Json<Offsets>, Refusal> {
    accepts(&headers, &[JSON])?;
    let time = params.integer("time")?;
    params.finish()?;
    let time = time.ok_or_else(|| Problem::new(ErrorCode::InvalidParameter, "the query parameter time is needed"))?;
    let found = engine.offsets_for_time(&who, &topic, Timestamp(time.cast_signed())).await;
    let found = found.map_err(|error| refusal::fetch(&error))?;
    let offsets = found.into_iter().map(|found| PartitionOffset {
        partition: found.partition.0,
        offset: found.offset.0,
        timestamp: found.timestamp.map(|timestamp| timestamp.0),
    });
    Ok(Json(Offsets { offsets: offsets.collect() }))
}
