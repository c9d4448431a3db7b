//! The HTTP face of the broker, as a library: [`start`] a server with [`ServeOptions`], and shut it down.
//!
//! Read on in `router.rs` (which path is whose), `front.rs` (what surrounds every request), `gate.rs` (who may talk to
//! us) and `connection.rs` (sockets and time-outs). Not here: wire types (`levada_api`) and what the calls do
//! (`levada_engine`).

mod cluster;
mod compaction;
mod connection;
mod cursor;
mod extract;
mod front;
mod gate;
mod groups;
mod listing;
mod metrics;
mod modules;
mod openapi;
mod options;
mod processors;
mod produce;
mod read;
mod refusal;
mod router;
mod start;
mod state;
mod streamed;
mod topics;
mod transactions;
mod wit;
mod ws;

pub use levada_extension::ModuleHost;
pub use options::ServeOptions;
pub use start::{Server, ShutdownError, StartError, start, start_with, start_with_modules};

pub(crate) use state::AppState;
