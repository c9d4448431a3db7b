//! Transactions over HTTP: begin, take offsets in, end, list what is open, and whole ones in one request.
//!
//! Nothing about a transaction lives in a connection: every request names it, and any may come from anywhere. Not here:
//! records of a transaction (`produce`), and the rules (the coordinator's).

mod begin;
mod end;
mod execute;
mod list;
mod offsets;
mod refusal;

pub(crate) use end::producer;
pub(crate) use refusal::{refuse, told};

use axum::middleware;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;
use crate::extract::answers_json;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list::list, begin::begin))
        .routes(routes!(execute::execute))
        .routes(routes!(offsets::add_offsets))
        .routes(routes!(end::commit))
        .routes(routes!(end::abort))
        .route_layer(middleware::from_fn(answers_json))
}
