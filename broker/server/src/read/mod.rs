//! Records on their way out over HTTP: of a partition, of a topic (also as an endless event stream), one alone, and the
//! offsets of a time.
//!
//! Not here: how a record is worded (`levada_api`) and read (the engine).

mod feed;
pub(crate) mod filter;
mod offsets;
mod part;
mod partition;
mod record;
pub(crate) mod refusal;
mod rendering;
pub(crate) mod start;
mod topic;

pub(crate) use feed::moved;
pub(crate) use part::{Front, Part};
pub(crate) use partition::{Sizes, sizes};
pub(crate) use rendering::{PIECE_BYTES, format, gaps, group_json, new_piece, write_record};

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(partition::read_partition))
        .routes(routes!(topic::read_topic))
        .routes(routes!(record::read_record))
        .routes(routes!(offsets::offsets_for_time))
}
