//! Consumer groups over HTTP: members join, read, commit, reject and leave; groups are listed, described, reset and
//! deleted. Nothing about a member lives in a connection: every request names it.
//!
//! Not here: how members and partitions come together (the engine and its coordinator).

mod commit;
mod describe;
mod members;
mod offsets;
mod places;
mod records;
mod refusal;
mod reject;
mod words;

pub(crate) use members::{client, wanted};
pub(crate) use places::{offsets as places_of, read_partitions};
pub(crate) use records::read_cursor;
pub(crate) use refusal::member as refuse_member;
pub(crate) use words::{committed, heartbeat};

use axum::middleware;
use levada_api::Problem;
use levada_engine::GroupError;
use levada_model::GroupName;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;
use crate::extract::answers_json;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(describe::list))
        .routes(routes!(describe::describe, describe::delete))
        .routes(routes!(offsets::offsets, offsets::set_offsets))
        .routes(routes!(members::join))
        .routes(routes!(members::leave))
        .routes(routes!(members::heartbeat))
        .routes(routes!(records::read))
        .routes(routes!(commit::commit))
        .routes(routes!(reject::reject))
        .route_layer(middleware::from_fn(answers_json))
}

/// The refusal of a member's call, for others than these routes.
pub(crate) fn problem(group: &GroupName, error: GroupError) -> Problem {
    refusal::member(group, error, |_| "/cursor".to_owned()).0
}
