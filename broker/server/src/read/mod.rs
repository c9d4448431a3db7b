//! Records on their way out over HTTP: of a partition, of a topic (also as an endless event stream), one alone, and the
//! offsets of a time.
//!
//! Not here: how a record is worded (`levada_api`) and read (the engine).

mod feed;
mod offsets;
mod partition;
mod record;
mod refusal;
mod rendering;
mod start;
mod topic;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;

pub(crate) use partition::{Sizes, sizes};
pub(crate) use rendering::{format, group_json};

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(partition::read_partition))
        .routes(routes!(topic::read_topic))
        .routes(routes!(record::read_record))
        .routes(routes!(offsets::offsets_for_time))
}
