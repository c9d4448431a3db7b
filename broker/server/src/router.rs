//! Which path is answered by whom.

use axum::response::Html;
use axum::routing::get;
use axum::{Router, middleware};
use utoipa_axum::router::OpenApiRouter;

use crate::front::{note_route, nothing_here};
use crate::{
    AppState, cluster, compaction, groups, modules, openapi, processors, produce, read, topics, transactions, wit, ws,
};

/// All routes.
pub(crate) fn router(state: AppState) -> Router {
    let (api, document) = OpenApiRouter::with_openapi(openapi::skeleton())
        .merge(cluster::routes())
        .merge(topics::routes())
        .merge(compaction::routes())
        .merge(produce::routes())
        .merge(read::routes())
        .merge(groups::routes())
        .merge(transactions::routes())
        .merge(modules::routes())
        .merge(wit::routes())
        .merge(processors::routes())
        .merge(ws::routes())
        .split_for_parts();
    api.merge(openapi::routes(&openapi::complete(&document)))
        .route("/", get(home))
        .fallback(nothing_here)
        .layer(middleware::from_fn(note_route))
        .with_state(state)
}

async fn home() -> Html<&'static str> {
    Html(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Levada</title>\
        <h1>Levada</h1><p>The interface is described at <a href=\"/docs/\">/docs</a>.</p></html>",
    )
}
