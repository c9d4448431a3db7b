//! The wire types of the HTTP interface and its error codes, as plain serde types that server and client share.
//!
//! Not here: HTTP itself (no axum), and what the engine does.

mod error;
pub mod strict;

pub use error::{Effect, ErrorCode, FieldError, Members, Problem};
