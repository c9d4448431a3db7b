//! The media types of bodies and answers.

/// One JSON text.
pub const JSON: &str = "application/json";
/// A JSON text a line.
pub const NDJSON: &str = "application/x-ndjson";
/// Kafka record batches (v2), back to back.
pub const RECORD_BATCH: &str = "application/vnd.levada.record-batch";
/// An event stream (WHATWG HTML section 9.2).
pub const EVENT_STREAM: &str = "text/event-stream";
/// Bytes of no known type.
pub const OCTET_STREAM: &str = "application/octet-stream";
/// A problem (RFC 9457).
pub const PROBLEM: &str = "application/problem+json";
/// A WebAssembly module or component.
pub const WASM: &str = "application/wasm";
/// Text for people, in UTF-8.
pub const TEXT: &str = "text/plain";
