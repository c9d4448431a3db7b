//! Records on their way in over HTTP.

use utoipa_axum::router::OpenApiRouter;

use crate::AppState;

/// The routes of produce.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
}
