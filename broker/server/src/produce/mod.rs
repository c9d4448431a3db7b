//! Records on their way in over HTTP: JSON, NDJSON, record batches and raw bodies, and producer ids.
//!
//! Handlers here take requests apart, call the engine once (NDJSON: once for each gathered batch) and word its answer.
//! Not here: how records are parsed (`levada_api`) and stored (the engine).

mod answer;
mod batches;
mod json;
mod lines;
mod ndjson;
mod producers;
mod raw;
mod records;
pub(crate) mod refusal;
mod trace;
pub(crate) mod wishes;

pub(crate) use answer::{IDEMPOTENT_REPLAYED, placements};
pub(crate) use trace::Trace;

use axum::middleware;
use levada_engine::Engine;
use levada_model::{Principal, TopicName};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;
use crate::extract::answers_json;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    let producers = OpenApiRouter::new().routes(routes!(producers::create_producer));
    OpenApiRouter::new()
        .routes(routes!(records::produce_records))
        .routes(routes!(raw::produce_raw))
        .merge(producers.route_layer(middleware::from_fn(answers_json)))
}

/// Whose records go where.
struct Target {
    engine: Engine,
    who: Principal,
    topic: TopicName,
}
