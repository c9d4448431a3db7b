//! Records on their way out over HTTP.

use utoipa_axum::router::OpenApiRouter;

use crate::AppState;

/// The routes of read.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
}
