//! The WebSocket.

pub(crate) mod client;
mod frames;
mod life;
mod opening;
mod produce;
mod stream;
