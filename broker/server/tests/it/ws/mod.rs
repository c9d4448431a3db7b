//! The WebSocket.

pub(crate) mod client;
mod frames;
mod opening;
mod produce;
mod stream;
