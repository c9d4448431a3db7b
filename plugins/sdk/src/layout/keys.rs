//! The keys layout, and the records that a partitioner places.

use serde::Deserialize;

use super::LAYOUT_VERSION;
use super::reader::{LayoutError, Reader, len_u32, put_headers, put_nullable};
use crate::{Call, Fields, Pointer};

/// The records of one call.
#[derive(Clone, Debug)]
pub(crate) struct Keys<'a> {
    fields: Fields,
    topic: &'a str,
    call: Call,
    record_count: u32,
    records: Reader<'a>,
}

/// A record that a partitioner places. Parts that [`Module::FIELDS`](crate::Module::FIELDS) does not name are not there.
#[derive(Clone, Debug)]
pub struct KeyRecord<'a> {
    /// The topic.
    pub topic: &'a str,
    /// Its time, in milliseconds since 1970 (UTC).
    pub timestamp_ms: i64,
    /// Its key, or none.
    pub key: Option<&'a [u8]>,
    /// Its value; none is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers in order: each a name, and bytes or null.
    pub headers: Vec<(&'a str, Option<&'a [u8]>)>,
    /// The clock and the randomness of this call.
    pub call: Call,
}

impl<'a> KeyRecord<'a> {
    /// Its value, read from JSON.
    ///
    /// # Errors
    /// When the value is none, is not JSON, or is not of this type.
    pub fn json<T: Deserialize<'a>>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(self.value.unwrap_or_default())
    }

    /// What stands at `pointer` in its value, or none; the rest of the value is only checked to be JSON.
    ///
    /// # Errors
    /// When the value is none, is not JSON, or what stands there is not of this type.
    pub fn json_at<T: Deserialize<'a>>(&self, pointer: &Pointer) -> Result<Option<T>, serde_json::Error> {
        pointer.find(self.value.unwrap_or_default())
    }

    /// The value of its first header with this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers.iter().find(|(own, _)| *own == name).and_then(|(_, value)| *value)
    }
}

impl<'a> Keys<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let mut reader = Reader::open(bytes)?;
        let [parts] = reader.array()?;
        let fields = Fields::from_bits(parts).filter(|fields| !fields.contains(Fields::PLACE));
        let fields = fields.ok_or(LayoutError { at: 1, detail: "an unknown part" })?;
        let topic_length = u16::from_le_bytes(reader.array()?);
        let record_count = reader.u32()?;
        let call = Call { time_ms: reader.i64()?, seed: reader.u64()? };
        let topic = reader.text(topic_length.into())?;
        Ok(Self { fields, topic, call, record_count, records: reader })
    }

    /// Shows every record in order.
    pub(crate) fn each(&self, mut show: impl FnMut(&KeyRecord<'a>)) -> Result<(), LayoutError> {
        let mut reader = self.records.clone();
        let has = |part| self.fields.contains(part);
        for _ in 0..self.record_count {
            show(&KeyRecord {
                topic: self.topic,
                timestamp_ms: if has(Fields::TIMESTAMP) { reader.i64()? } else { 0 },
                key: if has(Fields::KEY) { reader.nullable()? } else { None },
                value: if has(Fields::VALUE) { reader.nullable()? } else { None },
                headers: if has(Fields::HEADERS) { reader.headers()? } else { Vec::new() },
                call: self.call,
            });
        }
        reader.close()
    }
}

/// Writes records with the parts of `fields`, for the tests.
pub(crate) fn encode_keys(topic: &str, call: Call, fields: Fields, records: &[KeyRecord<'_>]) -> Vec<u8> {
    let fields = fields & !Fields::PLACE;
    let mut bytes = vec![LAYOUT_VERSION, fields.bits()];
    bytes.extend_from_slice(&u16::try_from(topic.len()).expect("the names of topics are short").to_le_bytes());
    bytes.extend_from_slice(&len_u32(records.len()).to_le_bytes());
    bytes.extend_from_slice(&call.time_ms.to_le_bytes());
    bytes.extend_from_slice(&call.seed.to_le_bytes());
    bytes.extend_from_slice(topic.as_bytes());
    for record in records {
        if fields.contains(Fields::TIMESTAMP) {
            bytes.extend_from_slice(&record.timestamp_ms.to_le_bytes());
        }
        if fields.contains(Fields::KEY) {
            put_nullable(&mut bytes, record.key);
        }
        if fields.contains(Fields::VALUE) {
            put_nullable(&mut bytes, record.value);
        }
        if fields.contains(Fields::HEADERS) {
            put_headers(&mut bytes, &record.headers);
        }
    }
    bytes
}
