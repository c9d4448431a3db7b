//! Modules over HTTP: put, list, describe, activate, delete, their bytes, logs and numbers, and trials.
//!
//! Not here: how modules run (the host behind the engine), and the contract that they are written against (`wit`).

mod describe;
mod dry_run;
mod group_trial;
mod logs;
mod put;
mod refusal;
mod words;

pub(crate) use dry_run::raw;
pub(crate) use refusal::refuse;

use axum::middleware;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;
use crate::extract::answers_json;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    let others = OpenApiRouter::new().routes(routes!(describe::wasm)).routes(routes!(logs::logs));
    OpenApiRouter::new()
        .routes(routes!(describe::list))
        .routes(routes!(put::put, describe::describe, describe::delete))
        .routes(routes!(describe::activate))
        .routes(routes!(logs::stats))
        .routes(routes!(dry_run::dry_run))
        .route_layer(middleware::from_fn(answers_json))
        .merge(others)
}
