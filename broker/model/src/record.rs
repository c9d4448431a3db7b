//! A record as a producer hands it over and a reader gets it back. Bytes are shared, never copied or reshaped.

use bytes::Bytes;

/// One header: a name, and bytes or null. Order and repeats are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The header's name (UTF-8, as Kafka's).
    pub name: String,
    /// Its bytes; null and empty are different.
    pub value: Option<Bytes>,
}

/// A record without its place. Null and empty keys and values are different things.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The key, or none.
    pub key: Option<Bytes>,
    /// The value; none is a tombstone.
    pub value: Option<Bytes>,
    /// Headers in order.
    pub headers: Vec<Header>,
}

impl Record {
    /// Bytes of key, value and headers together: what `max.message.bytes` bounds.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|h| h.name.len() + h.value.as_ref().map_or(0, Bytes::len)).sum();
        self.key.as_ref().map_or(0, Bytes::len) + self.value.as_ref().map_or(0, Bytes::len) + headers
    }
}
