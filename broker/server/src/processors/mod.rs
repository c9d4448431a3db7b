//! Processors over HTTP: put, list, describe, pause, resume, reset, delete, and trials.
//!
//! Not here: what they do (the engine).

mod calls;
mod document;
mod dry_run;
mod refusal;
mod words;

use axum::middleware;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;
use crate::extract::answers_json;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(calls::list))
        .routes(routes!(calls::put, calls::describe, calls::delete))
        .routes(routes!(calls::pause))
        .routes(routes!(calls::resume))
        .routes(routes!(calls::reset))
        .routes(routes!(dry_run::dry_run))
        .route_layer(middleware::from_fn(answers_json))
}
