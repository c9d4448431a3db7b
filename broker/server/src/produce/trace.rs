//! The request's `traceparent` (W3C Trace Context), kept as a header of its records.

use bytes::Bytes;
use http::HeaderMap;
use levada_model::{Header, Record};

const TRACEPARENT: &str = "traceparent";

/// The trace that a request belongs to, if it says so.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(Option<Bytes>);

impl Trace {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self(headers.get(TRACEPARENT).map(|value| Bytes::copy_from_slice(value.as_bytes())))
    }

    /// Gives the record a header `traceparent` unless it has one of its own.
    pub(crate) fn mark(&self, record: &mut Record) {
        let Some(value) = &self.0 else { return };
        if record.headers.iter().all(|header| header.name != TRACEPARENT) {
            record.headers.push(Header { name: TRACEPARENT.to_owned(), value: Some(value.clone()) });
        }
    }
}
