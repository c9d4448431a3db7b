//! The frames of the WebSocket: JSON objects whose member `type` says what they are.
//!
//! Not here: the socket, and what the frames do (the server).

mod client;
mod id;
mod server;

pub use client::{
    BadFrame, ClientFrame, Credit, Produce, StreamFilter, StreamForm, StreamOf, StreamStart, Subscribe, read_frame,
};
pub use id::FrameId;
pub use server::{ServerFrame, SkipCause, StreamGap, StreamMember, WsLimits};
