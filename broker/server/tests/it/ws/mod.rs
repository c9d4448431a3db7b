//! The WebSocket.

pub(crate) mod client;
mod frames;
mod groups;
mod life;
mod opening;
mod produce;
mod stream;
