//! What the native transforms and aggregators look at in a JSON value: the place that a pointer names, and numbers without
//! loss.

mod number;
mod pointer;

pub(crate) use number::JsonNumber;
pub use pointer::{JsonPointer, JsonPointerError};
