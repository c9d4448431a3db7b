//! Records as this client sends and receives them. A JSON payload is kept as the text it is, never through a number or
//! a tree, so that every digit and space survives.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::de::Error as _;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// What a new record holds.
#[derive(Clone, Debug, Default)]
pub enum NewValue {
    /// Nothing: the key's deletion on a compacted topic.
    #[default]
    Tombstone,
    /// A JSON text, stored as it is. The text `null` is sent as text, since as JSON it would be a tombstone.
    Json(Box<RawValue>),
    /// Text, stored as UTF-8.
    Text(String),
    /// Bytes, which travel as base64.
    Bytes(Bytes),
}

/// A record to be stored.
#[derive(Clone, Debug, Default)]
pub struct NewRecord {
    /// The key, or none. One that is not UTF-8 travels as base64.
    pub key: Option<Bytes>,
    /// The value.
    pub value: NewValue,
    /// Headers in order; none is a null header.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// Milliseconds since 1970; none is the broker's time.
    pub timestamp: Option<i64>,
    /// Where to; none leaves it to the partitioner.
    pub partition: Option<u32>,
}

impl NewRecord {
    /// A record with this JSON text as its value.
    ///
    /// # Errors
    /// When the text is not JSON.
    pub fn json(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        let value = NewValue::Json(RawValue::from_string(text.into())?);
        Ok(Self { value, ..Self::default() })
    }

    /// A record with this text as its value.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { value: NewValue::Text(text.into()), ..Self::default() }
    }

    /// The same record with a key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// About how many bytes it has as JSON; exact enough to bound a request.
    pub(crate) fn size_hint(&self) -> usize {
        let value = match &self.value {
            NewValue::Tombstone => 4,
            NewValue::Json(json) => json.get().len(),
            NewValue::Text(text) => text.len(),
            NewValue::Bytes(bytes) => bytes.len() * 4 / 3,
        };
        let headers: usize = self.headers.iter().map(|(n, v)| n.len() + v.as_ref().map_or(0, Bytes::len) + 8).sum();
        64 + self.key.as_ref().map_or(0, Bytes::len) + value + headers
    }

    /// As one line for a stream of records. A JSON text with line breaks goes as text, which stores the same bytes.
    pub(crate) fn to_line(&self) -> Result<String, serde_json::Error> {
        let mut line = match &self.value {
            NewValue::Json(json) if json.get().contains(['\n', '\r']) => {
                let value = NewValue::Text(json.get().to_owned());
                serde_json::to_string(&Self { value, ..self.clone() })?
            }
            _ => serde_json::to_string(self)?,
        };
        line.push('\n');
        Ok(line)
    }
}

impl Serialize for NewRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.key.as_deref().map(std::str::from_utf8) {
            None => {}
            Some(Ok(text)) => map.serialize_entry("key", text)?,
            Some(Err(_)) => {
                map.serialize_entry("key_base64", &BASE64.encode(self.key.as_deref().unwrap_or_default()))?
            }
        }
        match &self.value {
            NewValue::Tombstone => map.serialize_entry("value", &())?,
            NewValue::Json(json) if json.get() == "null" => map.serialize_entry("value_text", "null")?,
            NewValue::Json(json) => map.serialize_entry("value", json)?,
            NewValue::Text(text) => map.serialize_entry("value_text", text)?,
            NewValue::Bytes(bytes) => map.serialize_entry("value_base64", &BASE64.encode(bytes))?,
        }
        if !self.headers.is_empty() {
            map.serialize_entry("headers", &Headers(&self.headers))?;
        }
        if let Some(timestamp) = self.timestamp {
            map.serialize_entry("timestamp", &timestamp)?;
        }
        if let Some(partition) = self.partition {
            map.serialize_entry("partition", &partition)?;
        }
        map.end()
    }
}

struct Headers<'a>(&'a [(String, Option<Bytes>)]);

impl Serialize for Headers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for (name, value) in self.0 {
            match value.as_deref().map(|bytes| std::str::from_utf8(bytes).map_err(|_| BASE64.encode(bytes))) {
                None => list.serialize_element(&(name, ()))?,
                Some(Ok(text)) => list.serialize_element(&(name, text))?,
                Some(Err(base64)) => list.serialize_element(&(name, HeaderBytes { base64 }))?,
            }
        }
        list.end()
    }
}

#[derive(Serialize, Deserialize)]
struct HeaderBytes {
    base64: String,
}

/// A record as it was read. Key and value are the stored bytes, whatever form they travelled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// Whose time that is, in the interface's word (`create` or `append`).
    pub timestamp_type: String,
    /// The key; none is a null key.
    pub key: Option<Bytes>,
    /// The value; none is a tombstone.
    pub value: Option<Bytes>,
    /// Headers in order.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// The record object as the server wrote it.
    pub wire: String,
}

#[derive(Deserialize)]
struct WireRecord {
    partition: u32,
    offset: u64,
    timestamp: i64,
    timestamp_type: String,
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<Box<RawValue>>,
    value_text: Option<String>,
    value_base64: Option<String>,
    #[serde(default)]
    headers: Vec<(String, Option<WireHeader>)>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WireHeader {
    Text(String),
    Bytes(HeaderBytes),
}

impl Record {
    /// Reads a record object as the server writes it.
    ///
    /// # Errors
    /// When it is not one.
    pub fn from_wire(wire: &str) -> Result<Self, serde_json::Error> {
        let record: WireRecord = serde_json::from_str(wire)?;
        let unbase64 = |text: String| BASE64.decode(text).map(Bytes::from).map_err(serde_json::Error::custom);
        let key = match (record.key, record.key_base64) {
            (Some(text), _) => Some(Bytes::from(text)),
            (None, base64) => base64.map(unbase64).transpose()?,
        };
        let value = match (record.value, record.value_text, record.value_base64) {
            (Some(json), _, _) => Some(Bytes::copy_from_slice(json.get().as_bytes())),
            (None, Some(text), _) => Some(Bytes::from(text)),
            (None, None, base64) => base64.map(unbase64).transpose()?,
        };
        let header = |(name, value)| {
            let value = match value {
                None => None,
                Some(WireHeader::Text(text)) => Some(Bytes::from(text)),
                Some(WireHeader::Bytes(HeaderBytes { base64 })) => Some(unbase64(base64)?),
            };
            Ok((name, value))
        };
        let headers = record.headers.into_iter().map(header).collect::<Result<_, serde_json::Error>>()?;
        let WireRecord { partition, offset, timestamp, timestamp_type, .. } = record;
        Ok(Self { partition, offset, timestamp, timestamp_type, key, value, headers, wire: wire.to_owned() })
    }

    /// The record object in one line: a JSON value with line breaks is then told as `value_text`, which is the same
    /// bytes.
    #[must_use]
    pub fn to_line(&self) -> Cow<'_, str> {
        #[derive(Deserialize)]
        struct Value<'a> {
            #[serde(borrow)]
            value: Option<&'a RawValue>,
        }
        let wire = self.wire.as_str();
        if !wire.contains(['\n', '\r']) {
            return Cow::Borrowed(wire);
        }
        let Ok(Value { value: Some(value) }) = serde_json::from_str(wire) else { return Cow::Borrowed(wire) };
        let start = value.get().as_ptr().addr() - wire.as_ptr().addr();
        let Some(name) = wire[..start].rfind("\"value\"") else { return Cow::Borrowed(wire) };
        let (before, after) = (&wire[..name], &wire[start + value.get().len()..]);
        let text = serde_json::Value::from(value.get());
        Cow::Owned(format!("{before}\"value_text\":{text}{after}"))
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_wire(Box::<RawValue>::deserialize(deserializer)?.get()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::{NewRecord, NewValue, Record};
    use bytes::Bytes;

    fn sent(record: &NewRecord) -> String {
        serde_json::to_string(record).expect("it is JSON")
    }

    #[test]
    fn a_json_value_is_sent_digit_for_digit() {
        let text = "{\"n\":1.0e5,  \"big\":123456789012345678901234567890,\"n\":2}";
        let record = NewRecord::json(text).expect("it is JSON");
        assert_eq!(sent(&record), format!("{{\"value\":{text}}}"));
    }

    #[test]
    fn null_as_text_is_not_a_tombstone() {
        assert_eq!(sent(&NewRecord::json("null").expect("it is JSON")), r#"{"value_text":"null"}"#);
        assert_eq!(sent(&NewRecord::default()), r#"{"value":null}"#);
    }

    #[test]
    fn bytes_that_are_not_utf8_travel_as_base64() {
        let record = NewRecord {
            key: Some(Bytes::from_static(b"\xff")),
            value: NewValue::Bytes(Bytes::from_static(b"\x00\x01")),
            headers: vec![
                ("a".into(), Some(Bytes::from_static(b"x"))),
                ("a".into(), None),
                ("b".into(), Some(Bytes::from_static(b"\xfe"))),
            ],
            timestamp: Some(5),
            partition: Some(0),
        };
        let wire = r#"{"key_base64":"/w==","value_base64":"AAE=","headers":[["a","x"],["a",null],["b",{"base64":"/g=="}]],"timestamp":5,"partition":0}"#;
        assert_eq!(sent(&record), wire);
    }

    #[test]
    fn a_json_text_with_line_breaks_fits_in_one_line() {
        let record = NewRecord::json("{\n\"a\": 1\n}").expect("it is JSON");
        assert_eq!(record.to_line().expect("it is JSON"), "{\"value_text\":\"{\\n\\\"a\\\": 1\\n}\"}\n");
    }

    #[test]
    fn a_record_that_was_read_has_the_stored_bytes() {
        let wire = r#"{"partition":1,"offset":7,"timestamp":5,"timestamp_type":"create","key":null,"value":{"n": 1.00},"headers":[["h",null],["g",{"base64":"/g=="}]]}"#;
        let record: Record = serde_json::from_str(wire).expect("it is a record");
        assert_eq!((record.partition, record.offset, record.timestamp), (1, 7, 5));
        assert_eq!(record.key, None);
        assert_eq!(record.value.as_deref(), Some(b"{\"n\": 1.00}".as_slice()));
        assert_eq!(record.headers[1], ("g".into(), Some(Bytes::from_static(b"\xfe"))));
        assert_eq!(record.wire, wire);
        let tombstone = r#"{"partition":1,"offset":8,"timestamp":5,"timestamp_type":"create","key":"","value":null}"#;
        let tombstone: Record = serde_json::from_str(tombstone).expect("it is a record");
        assert_eq!((tombstone.key.as_deref(), tombstone.value), (Some(b"".as_slice()), None));
    }
    #[test]
    fn a_record_that_was_read_fits_in_one_line() {
        let wire = "{\"partition\":1,\"offset\":7,\"timestamp\":5,\"timestamp_type\":\"create\",\"key\":\"\\\"value\\\"\",\
                    \"value\":{\n\"value\": 1},\"headers\":[]}";
        let record = Record::from_wire(wire).expect("it is a record");
        let line = record.to_line();
        assert!(!line.contains('\n'), "{line}");
        let again = Record::from_wire(&line).expect("it is a record");
        assert_eq!((again.value, again.key), (record.value.clone(), record.key.clone()));
    }
}
