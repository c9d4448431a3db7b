//! The keys layout: what partitioners are given.

use levada_model::{Header, Timestamp, TopicName};

use super::{LAYOUT_VERSION, len_u32, put_bytes, put_nullable};
use crate::{Fields, Moment};

/// The records of one request that a partitioner places.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    /// Their topic.
    pub topic: &'a TopicName,
    /// Time and seed of the call.
    pub moment: Moment,
    /// In order.
    pub records: &'a [KeyRecord<'a>],
}

/// A record that a partitioner places.
#[derive(Clone, Copy, Debug)]
pub struct KeyRecord<'a> {
    /// Its time.
    pub timestamp: Timestamp,
    /// Its key, or none.
    pub key: Option<&'a [u8]>,
    /// Its value; none is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers in order.
    pub headers: &'a [Header],
}

impl Keys<'_> {
    /// The records as a module that reads `fields` is given them.
    ///
    /// # Panics
    /// When there are more than `u32::MAX` records, or a part of one is larger than 2 GiB.
    #[must_use]
    pub fn encode(&self, fields: Fields) -> Vec<u8> {
        let parts = fields.intersection(Fields::KEY | Fields::VALUE | Fields::HEADERS | Fields::TIMESTAMP);
        let topic = self.topic.as_str();
        let mut bytes = vec![LAYOUT_VERSION, parts.bits()];
        bytes.extend_from_slice(&u16::try_from(topic.len()).expect("names have a short limit").to_le_bytes());
        bytes.extend_from_slice(&len_u32(self.records.len()).to_le_bytes());
        bytes.extend_from_slice(&self.moment.time.0.to_le_bytes());
        bytes.extend_from_slice(&self.moment.seed.to_le_bytes());
        bytes.extend_from_slice(topic.as_bytes());
        for record in self.records {
            if parts.contains(Fields::TIMESTAMP) {
                bytes.extend_from_slice(&record.timestamp.0.to_le_bytes());
            }
            if parts.contains(Fields::KEY) {
                put_nullable(&mut bytes, record.key);
            }
            if parts.contains(Fields::VALUE) {
                put_nullable(&mut bytes, record.value);
            }
            if parts.contains(Fields::HEADERS) {
                bytes.extend_from_slice(&len_u32(record.headers.len()).to_le_bytes());
                for header in record.headers {
                    put_bytes(&mut bytes, header.name.as_bytes());
                    put_nullable(&mut bytes, header.value.as_deref());
                }
            }
        }
        bytes
    }
}
