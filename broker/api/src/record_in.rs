//! Records as JSON producers send them: one pass over the body, no tree of any value.
//!
//! A value is stored as exactly the text that was sent, so it is only delimited (and its depth counted), and it shares
//! the body's bytes; so do keys and texts without escapes. What is wrong is named by a JSON pointer. Not here: checks
//! that need a topic (sizes, partitions, times), which are the engine's.

mod execute;
mod words;

pub use execute::parse_execute;

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use levada_model::limits::{JSON_DEPTH_MAX, RECORD_HEADERS_MAX, REQUEST_RECORDS_MAX};
use levada_model::{Header, PartitionIndex, Record, Timestamp};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::depth::is_deeper_than;
use crate::error::echo;
use crate::strict::{pointer_token, without_place};
use words::{Decoded, Integer, Text};

/// A record that a producer sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordIn {
    /// Key, value, headers; the bytes are the body's wherever they could be.
    pub record: Record,
    /// The producer's time; none: now.
    pub timestamp: Option<Timestamp>,
    /// Where to; none: the partitioner decides.
    pub partition: Option<PartitionIndex>,
}

/// Why a body holds no records that can be taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordsFault {
    /// Not JSON, or not UTF-8 (400).
    #[error("{detail} at line {line} column {column}")]
    Malformed {
        /// What is wrong.
        detail: String,
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
    },
    /// More than `REQUEST_RECORDS_MAX` (413).
    #[error("a request has at most {REQUEST_RECORDS_MAX} records; send several, or NDJSON")]
    TooMany,
    /// JSON, but not what a produce takes (422).
    #[error("{pointer}: {detail}")]
    Unacceptable {
        /// Where, as a JSON pointer (RFC 6901) into the body.
        pointer: String,
        /// What is wrong.
        detail: String,
    },
}

/// Takes a produce body, `{"records":[…]}`, apart.
///
/// # Errors
/// At the first thing that is wrong; syntax comes before meaning.
pub fn parse_records(body: &Bytes) -> Result<Vec<RecordIn>, RecordsFault> {
    parse(body, |path, de| BodySeed { path, body }.deserialize(de))
}

/// Takes the list of a produce apart, `[…]` without the object around it. Pointers begin at the object.
///
/// # Errors
/// As [`parse_records`].
pub fn parse_record_list(list: &Bytes) -> Result<Vec<RecordIn>, RecordsFault> {
    parse(list, |path, de| {
        path.member("records");
        let records = RecordsSeed { path: &mut *path, body: list }.deserialize(de)?;
        if records.is_empty() {
            return Err(serde_json::Error::custom("at least one record is needed"));
        }
        path.leave();
        Ok(records)
    })
}

/// Takes one record object apart, a line of NDJSON. Pointers begin at the object.
///
/// # Errors
/// As [`parse_records`].
pub fn parse_record(line: &Bytes) -> Result<RecordIn, RecordsFault> {
    parse(line, |path, de| RecordSeed { path, body: line }.deserialize(de))
}

type Parser<'b> = serde_json::Deserializer<serde_json::de::StrRead<'b>>;

fn parse<'b, T>(
    body: &'b Bytes,
    read: impl FnOnce(&mut Path, &mut Parser<'b>) -> Result<T, serde_json::Error>,
) -> Result<T, RecordsFault> {
    let text = std::str::from_utf8(body).map_err(|e| not_utf8(body, e.valid_up_to()))?;
    if text.trim_ascii().is_empty() {
        return Err(RecordsFault::Malformed { detail: "there is no JSON".to_owned(), line: 1, column: 1 });
    }
    let mut path = Path::default();
    let mut de = serde_json::Deserializer::from_str(text);
    let parsed = read(&mut path, &mut de);
    parsed.and_then(|value| de.end().map(|()| value)).map_err(|error| explain(text, &path, &error))
}

fn not_utf8(body: &[u8], at: usize) -> RecordsFault {
    let before = &body[..at];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    RecordsFault::Malformed {
        detail: "the body is not UTF-8".to_owned(),
        line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
        column: 1 + at - line_start,
    }
}

/// Malformed JSON comes first, also where it stands behind something unacceptable.
fn explain(text: &str, path: &Path, error: &serde_json::Error) -> RecordsFault {
    if let Err(syntax) = serde_json::from_str::<IgnoredAny>(text) {
        return RecordsFault::Malformed {
            detail: without_place(&syntax.to_string()),
            line: syntax.line(),
            column: syntax.column(),
        };
    }
    if matches!(path.0[..], [Step::Member(_), Step::Index(REQUEST_RECORDS_MAX), ..]) {
        return RecordsFault::TooMany;
    }
    RecordsFault::Unacceptable { pointer: path.pointer(), detail: without_place(&error.to_string()) }
}

/// Where the parser stands; left as it is when something is wrong.
#[derive(Debug, Default)]
struct Path(Vec<Step>);

#[derive(Debug)]
enum Step {
    Index(usize),
    Member(Cow<'static, str>),
}

impl Path {
    fn member(&mut self, name: &'static str) {
        self.0.push(Step::Member(Cow::Borrowed(name)));
    }

    fn unknown<E: serde::de::Error>(&mut self, name: &str, known: &str) -> E {
        self.0.push(Step::Member(Cow::Owned(echo(name).into_owned())));
        E::custom(format_args!("there is no such field here; there are {known}"))
    }

    fn leave(&mut self) {
        self.0.pop();
    }

    fn pointer(&self) -> String {
        let mut pointer = String::new();
        for step in &self.0 {
            pointer.push('/');
            match step {
                Step::Index(index) => pointer.push_str(&index.to_string()),
                Step::Member(name) => pointer.push_str(&pointer_token(name)),
            }
        }
        pointer
    }
}

/// Something that is read out of the body: where the parser stands, and the bytes to share.
macro_rules! seed {
    ($name:ident: $deserialize:ident => $value:ty) => {
        struct $name<'p, 'b> {
            path: &'p mut Path,
            body: &'b Bytes,
        }

        impl<'de> DeserializeSeed<'de> for $name<'_, '_> {
            type Value = $value;
            fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<Self::Value, D::Error> {
                de.$deserialize(self)
            }
        }
    };
}
use seed;

seed!(BodySeed: deserialize_map => Vec<RecordIn>);

impl<'de> Visitor<'de> for BodySeed<'_, '_> {
    type Value = Vec<RecordIn>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the field records")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut records = None;
        while let Some(Text(name)) = map.next_key()? {
            if name != "records" {
                return Err(self.path.unknown(&name, "records"));
            }
            self.path.member("records");
            if records.is_some() {
                return Err(A::Error::custom("the field is there twice"));
            }
            let read: Vec<RecordIn> = map.next_value_seed(RecordsSeed { path: &mut *self.path, body: self.body })?;
            if read.is_empty() {
                return Err(A::Error::custom("at least one record is needed"));
            }
            self.path.leave();
            records = Some(read);
        }
        records.ok_or_else(|| A::Error::custom("the field records is missing"))
    }
}

seed!(RecordsSeed: deserialize_seq => Vec<RecordIn>);

impl<'de> Visitor<'de> for RecordsSeed<'_, '_> {
    type Value = Vec<RecordIn>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        let body = self.body;
        read_list(self.path, seq, |path, seq| seq.next_element_seed(RecordSeed { path, body }))
    }
}

/// Reads a list of records, each by `next`.
fn read_list<'de, T, A: SeqAccess<'de>>(
    path: &mut Path,
    mut seq: A,
    next: impl Fn(&mut Path, &mut A) -> Result<Option<T>, A::Error>,
) -> Result<Vec<T>, A::Error> {
    let mut records = Vec::new();
    loop {
        path.0.push(Step::Index(records.len()));
        let record = next(path, &mut seq)?;
        if record.is_some() && records.len() == REQUEST_RECORDS_MAX {
            return Err(A::Error::custom("there are too many records"));
        }
        path.leave();
        match record {
            Some(record) => records.push(record),
            None => return Ok(records),
        }
    }
}

const RECORD_FIELDS: &str = "key, key_base64, value, value_text, value_base64, headers, timestamp, partition";

seed!(RecordSeed: deserialize_map => RecordIn);

impl<'de> Visitor<'de> for RecordSeed<'_, '_> {
    type Value = RecordIn;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        read_record(map, self.path, self.body, None)
    }
}

/// Reads the fields of a record, and that of its topic where there is a place for it.
fn read_record<'de, A: MapAccess<'de>>(
    mut map: A,
    path: &mut Path,
    body: &Bytes,
    mut topic: Option<&mut Option<String>>,
) -> Result<RecordIn, A::Error> {
    let mut record = RecordIn::default();
    let mut seen = Seen::default();
    while let Some(Text(name)) = map.next_key()? {
        let field = Field::named(&name).filter(|field| *field != Field::Topic || topic.is_some());
        let Some(field) = field else {
            let before = if topic.is_some() { "topic, " } else { "" };
            return Err(path.unknown(&name, &format!("{before}{RECORD_FIELDS}")));
        };
        path.member(field.name());
        seen.note(field).map_err(A::Error::custom)?;
        match field {
            Field::Key => record.record.key = map.next_value::<Option<Text>>()?.map(|text| text.share(body)),
            Field::KeyBase64 => record.record.key = Some(map.next_value::<Decoded>()?.0),
            Field::Value => record.record.value = json_value(map.next_value()?, body).map_err(A::Error::custom)?,
            Field::ValueText => record.record.value = Some(map.next_value::<Text>()?.share(body)),
            Field::ValueBase64 => record.record.value = Some(map.next_value::<Decoded>()?.0),
            Field::Headers => record.record.headers = map.next_value_seed(HeadersSeed { path, body })?,
            Field::Timestamp => record.timestamp = map.next_value::<Option<Integer>>()?.map(Integer::timestamp),
            Field::Partition => {
                let partition = map.next_value::<Option<Integer>>()?.map(Integer::partition);
                record.partition = partition.transpose().map_err(A::Error::custom)?;
            }
            Field::Topic => {
                let name = map.next_value::<Text>()?.0.into_owned();
                **topic.as_mut().expect("only then it is a field") = Some(name);
            }
        }
        path.leave();
    }
    if seen.has_value() { Ok(record) } else { Err(A::Error::custom(NO_VALUE)) }
}

const NO_VALUE: &str = "one of value, value_text and value_base64 must be there (\"value\":null is a tombstone)";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Key,
    KeyBase64,
    Value,
    ValueText,
    ValueBase64,
    Headers,
    Timestamp,
    Partition,
    Topic,
}

impl Field {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "key" => Self::Key,
            "key_base64" => Self::KeyBase64,
            "value" => Self::Value,
            "value_text" => Self::ValueText,
            "value_base64" => Self::ValueBase64,
            "headers" => Self::Headers,
            "timestamp" => Self::Timestamp,
            "partition" => Self::Partition,
            "topic" => Self::Topic,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::KeyBase64 => "key_base64",
            Self::Value => "value",
            Self::ValueText => "value_text",
            Self::ValueBase64 => "value_base64",
            Self::Headers => "headers",
            Self::Timestamp => "timestamp",
            Self::Partition => "partition",
            Self::Topic => "topic",
        }
    }

    fn bit(self) -> u16 {
        1 << (self as u16)
    }
}

/// The fields that a record has had so far.
#[derive(Default)]
struct Seen(u16);

impl Seen {
    fn note(&mut self, field: Field) -> Result<(), &'static str> {
        let (same, told) = match field {
            Field::Key | Field::KeyBase64 => {
                (Field::Key.bit() | Field::KeyBase64.bit(), "only one of key and key_base64")
            }
            Field::Value | Field::ValueText | Field::ValueBase64 => {
                (Self::VALUES, "only one of value, value_text and value_base64")
            }
            other => (other.bit(), "the field is there twice"),
        };
        if self.0 & field.bit() != 0 {
            return Err("the field is there twice");
        }
        if self.0 & same != 0 {
            return Err(told);
        }
        self.0 |= field.bit();
        Ok(())
    }

    const VALUES: u16 = (1 << Field::Value as u16) | (1 << Field::ValueText as u16) | (1 << Field::ValueBase64 as u16);

    fn has_value(&self) -> bool {
        self.0 & Self::VALUES != 0
    }
}

fn json_value(value: &RawValue, body: &Bytes) -> Result<Option<Bytes>, String> {
    let text = value.get();
    if text == "null" {
        return Ok(None);
    }
    if is_deeper_than(text.as_bytes(), JSON_DEPTH_MAX) {
        return Err(format!("the value nests deeper than {JSON_DEPTH_MAX}; send it as value_text"));
    }
    Ok(Some(body.slice_ref(text.as_bytes())))
}

seed!(HeadersSeed: deserialize_seq => Vec<Header>);

impl<'de> Visitor<'de> for HeadersSeed<'_, '_> {
    type Value = Vec<Header>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of headers, each [name, text or null or {\"base64\":…}]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut headers = Vec::new();
        loop {
            self.path.0.push(Step::Index(headers.len()));
            let next = seq.next_element_seed(HeaderSeed { path: &mut *self.path, body: self.body })?;
            let Some(header) = next else {
                self.path.leave();
                return Ok(headers);
            };
            if headers.len() == RECORD_HEADERS_MAX {
                return Err(A::Error::custom(format_args!("a record has at most {RECORD_HEADERS_MAX} headers")));
            }
            self.path.leave();
            headers.push(header);
        }
    }
}

seed!(HeaderSeed: deserialize_seq => Header);

impl<'de> Visitor<'de> for HeaderSeed<'_, '_> {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of two: the name, and text, null or {\"base64\":…}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let missing = "a header is a list of two: the name, and text, null or {\"base64\":…}";
        self.path.0.push(Step::Index(0));
        let Text(name) = seq.next_element()?.ok_or_else(|| A::Error::custom(missing))?;
        self.path.leave();
        self.path.0.push(Step::Index(1));
        let value = seq
            .next_element_seed(HeaderValueSeed { path: &mut *self.path, body: self.body })?
            .ok_or_else(|| A::Error::custom(missing))?;
        self.path.leave();
        if seq.next_element::<IgnoredAny>()?.is_some() {
            return Err(A::Error::custom(missing));
        }
        Ok(Header { name: name.into_owned(), value })
    }
}

seed!(HeaderValueSeed: deserialize_any => Option<Bytes>);

impl<'de> Visitor<'de> for HeaderValueSeed<'_, '_> {
    type Value = Option<Bytes>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, null or {\"base64\":…}")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(self.body.slice_ref(text.as_bytes())))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(Bytes::copy_from_slice(text.as_bytes())))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut value = None;
        while let Some(Text(name)) = map.next_key()? {
            if name != "base64" {
                return Err(self.path.unknown(&name, "base64"));
            }
            self.path.member("base64");
            if value.is_some() {
                return Err(A::Error::custom("the field is there twice"));
            }
            value = Some(map.next_value::<Decoded>()?.0);
            self.path.leave();
        }
        value.map(Some).ok_or_else(|| A::Error::custom("the field base64 is missing"))
    }
}

#[cfg(test)]
mod tests;
