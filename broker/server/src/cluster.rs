//! The cluster and its health over HTTP.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Json, middleware};
use http::header;
use levada_api::{Cluster, HealthReport, HealthStatus, Node};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;
use crate::extract::{NoParams, answers_json};
use crate::refusal::Refusal;
use crate::state::OpenEngine;

/// The media type of OpenMetrics text, which Prometheus reads.
const METRICS_TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The routes of this file.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(cluster))
        .routes(routes!(alive))
        .routes(routes!(ready))
        .route_layer(middleware::from_fn(answers_json))
        .routes(routes!(metrics))
}

/// Describe the cluster
#[utoipa::path(get, path = "/v1/cluster", operation_id = "describe_cluster", tag = "Cluster",
    responses((status = 200, description = "The cluster as this node sees it", body = Cluster)))]
async fn cluster(
    OpenEngine(engine): OpenEngine,
    State(state): State<AppState>,
    _: NoParams,
) -> Result<Json<Cluster>, Refusal> {
    let id = engine.node_id().0;
    Ok(Json(Cluster {
        cluster_id: engine.cluster_id().to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        nodes: vec![Node { id, address: state.address().to_owned() }],
        controller: id,
    }))
}

/// Whether the process lives
#[utoipa::path(get, path = "/healthz", operation_id = "check_alive", tag = "Cluster",
    responses((status = 200, description = "It does", body = HealthReport)))]
async fn alive(_: NoParams) -> Result<Json<HealthReport>, Refusal> {
    Ok(Json(HealthReport { status: HealthStatus::Alive }))
}

/// Whether the broker has recovered and takes reads and writes
#[utoipa::path(get, path = "/readyz", operation_id = "check_ready", tag = "Cluster",
    responses(
        (status = 200, description = "It does", body = HealthReport),
        (status = 503, description = "`starting`, `log-fenced` with the reason, or `shutting-down`"),
    ))]
async fn ready(State(state): State<AppState>, _: NoParams) -> Result<Json<HealthReport>, Refusal> {
    state.ready()?;
    Ok(Json(HealthReport { status: HealthStatus::Ready }))
}

/// Numbers for Prometheus
#[utoipa::path(get, path = "/metrics", operation_id = "read_metrics", tag = "Cluster",
    responses((status = 200, description = "OpenMetrics text", body = String,
        content_type = "application/openmetrics-text")))]
async fn metrics(State(state): State<AppState>, _: NoParams) -> Result<Response, Refusal> {
    let page = state.metrics().page(state.engine().ok());
    Ok(([(header::CONTENT_TYPE, METRICS_TEXT)], page).into_response())
}
