//! Cursors as text: where a reader stands, opaque to everybody else, and told apart by their version.
//!
//! Not here: what a cursor means (the engine's), and the cursors of listings, which are names.

mod envelope;
mod group;
mod topic;
mod topics;

pub(crate) use group::{decode_group, encode_group};
pub(crate) use topic::{decode_topic, encode_topic};
pub(crate) use topics::{decode_topics, encode_topics};
