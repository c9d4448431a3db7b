//! The HTTP face of the broker.

mod extract;
mod metrics;
mod produce;
mod read;
mod refusal;
mod state;

pub(crate) use state::AppState;
