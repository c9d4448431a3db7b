//! The walk over the records of a call, and the writing of records that have no stored form.

use levada_model::{Header, Offset, PartitionIndex, Record, Timestamp, TimestampType, TopicName};
use thiserror::Error;

use super::{CallSection, varint};

/// A record of a call, borrowed from its section.
#[derive(Clone, Copy, Debug)]
pub struct CallRecord<'a> {
    /// Its topic.
    pub topic: &'a TopicName,
    /// Its partition.
    pub partition: PartitionIndex,
    /// Its offset.
    pub offset: Offset,
    /// Its time.
    pub timestamp: Timestamp,
    /// Its key, or none.
    pub key: Option<&'a [u8]>,
    /// Its value; none is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its header count and headers, as they lie there.
    pub(crate) header_bytes: &'a [u8],
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i64,
    section: &'a CallSection,
    place: usize,
}

/// A header of a record: its name, and bytes or null.
pub type CallHeader<'a> = (&'a str, Option<&'a [u8]>);

/// A section that is not what the log would have stored.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("record {place} of the call: {detail}")]
pub struct MalformedRecord {
    /// The record's place in the call.
    pub place: usize,
    /// What is wrong.
    pub detail: &'static str,
}

/// The records of a call in order. The first malformed one is the last item.
#[derive(Clone, Debug)]
pub struct CallRecords<'a> {
    sections: std::slice::Iter<'a, CallSection>,
    section: Option<&'a CallSection>,
    /// Records of the section that are still to come.
    left: u32,
    at: usize,
    place: usize,
}

impl<'a> CallRecord<'a> {
    /// Its headers in order.
    ///
    /// # Errors
    /// When they are malformed: the walk steps over them without a look.
    pub fn headers(&self) -> Result<Vec<CallHeader<'a>>, MalformedRecord> {
        self.read_headers().ok_or(MalformedRecord { place: self.place, detail: "its headers are malformed" })
    }

    /// The record itself, sharing the section's bytes.
    ///
    /// # Errors
    /// When its headers are malformed.
    pub fn to_record(&self) -> Result<Record, MalformedRecord> {
        let share = |part: &[u8]| self.section.records.slice_ref(part);
        let header = |(name, value): CallHeader<'_>| Header { name: name.to_owned(), value: value.map(share) };
        let headers = self.headers()?.into_iter().map(header).collect();
        Ok(Record { key: self.key.map(share), value: self.value.map(share), headers })
    }

    fn read_headers(&self) -> Option<Vec<CallHeader<'a>>> {
        let bytes = self.header_bytes;
        let mut at = 0;
        let count = varint::take(bytes, &mut at)?;
        let mut headers = Vec::new();
        for _ in 0..count {
            let name = std::str::from_utf8(part(bytes, &mut at)??).ok()?;
            headers.push((name, part(bytes, &mut at)?));
        }
        (count >= 0 && at == bytes.len()).then_some(headers)
    }
}

impl<'a> CallRecords<'a> {
    pub(super) fn new(sections: &'a [CallSection]) -> Self {
        Self { sections: sections.iter(), section: None, left: 0, at: 0, place: 0 }
    }

    /// Where the next record begins: bytes into its section, and records that come before it there.
    pub(super) fn position(&self) -> (usize, u32) {
        (self.at, self.section.map_or(0, |section| section.record_count - self.left))
    }

    fn record(&mut self, section: &'a CallSection) -> Option<CallRecord<'a>> {
        let bytes = &section.records[..];
        let length = usize::try_from(varint::take(bytes, &mut self.at)?).ok()?;
        let end = self.at.checked_add(length).filter(|end| *end <= bytes.len())?;
        let body = &bytes[..end];
        let mut at = self.at + 1;
        let timestamp_delta = varint::take(body, &mut at)?;
        let offset_delta = varint::take(body, &mut at)?;
        let key = part(body, &mut at)?;
        let value = part(body, &mut at)?;
        self.at = end;
        Some(CallRecord {
            topic: &section.topic,
            partition: section.partition,
            offset: Offset(section.base_offset.0.checked_add_signed(offset_delta)?),
            timestamp: match section.timestamp_type {
                TimestampType::CreateTime => Timestamp(section.base_timestamp.0.wrapping_add(timestamp_delta)),
                TimestampType::LogAppendTime => section.base_timestamp,
            },
            key,
            value,
            header_bytes: &body[at..],
            timestamp_delta,
            offset_delta,
            section,
            place: self.place,
        })
    }

    fn end(&mut self, detail: &'static str) -> Option<Result<CallRecord<'a>, MalformedRecord>> {
        self.sections = [].iter();
        self.section = None;
        Some(Err(MalformedRecord { place: self.place, detail }))
    }
}

impl<'a> Iterator for CallRecords<'a> {
    type Item = Result<CallRecord<'a>, MalformedRecord>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let section = loop {
            match self.section {
                Some(section) if self.left > 0 => break section,
                Some(section) if self.at < section.records.len() => return self.end("bytes lie before it"),
                _ => {
                    let section = self.sections.next()?;
                    (self.section, self.left, self.at) = (Some(section), section.record_count, 0);
                }
            }
        };
        let Some(record) = self.record(section) else { return self.end("it is malformed") };
        self.left -= 1;
        self.place += 1;
        Some(Ok(record))
    }
}

/// Writes a record that has no stored form.
pub(super) fn put(bytes: &mut Vec<u8>, timestamp_delta: i64, place: usize, record: &Record) {
    let mut headers = Vec::new();
    varint::put(&mut headers, as_i64(record.headers.len()));
    for header in &record.headers {
        put_part(&mut headers, Some(header.name.as_bytes()));
        put_part(&mut headers, header.value.as_deref());
    }
    put_raw(bytes, timestamp_delta, as_i64(place), record.key.as_deref(), record.value.as_deref(), &headers);
}

/// Writes a record whose header count and headers are written already.
pub(crate) fn put_raw(
    bytes: &mut Vec<u8>,
    timestamp_delta: i64,
    offset_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[u8],
) {
    let size = 1
        + varint::size(timestamp_delta)
        + varint::size(offset_delta)
        + part_size(key)
        + part_size(value)
        + headers.len();
    varint::put(bytes, as_i64(size));
    bytes.push(0);
    varint::put(bytes, timestamp_delta);
    varint::put(bytes, offset_delta);
    put_part(bytes, key);
    put_part(bytes, value);
    bytes.extend_from_slice(headers);
}

/// The bytes at `at` behind their length, or null; none if they are cut off.
#[inline]
fn part<'a>(bytes: &'a [u8], at: &mut usize) -> Option<Option<&'a [u8]>> {
    let length = varint::take(bytes, at)?;
    if length == -1 {
        return Some(None);
    }
    let end = at.checked_add(usize::try_from(length).ok()?)?;
    let part = bytes.get(*at..end)?;
    *at = end;
    Some(Some(part))
}

fn put_part(bytes: &mut Vec<u8>, part: Option<&[u8]>) {
    varint::put(bytes, part.map_or(-1, |part| as_i64(part.len())));
    bytes.extend_from_slice(part.unwrap_or_default());
}

fn part_size(part: Option<&[u8]>) -> usize {
    part.map_or(1, |part| varint::size(as_i64(part.len())) + part.len())
}

fn as_i64(number: usize) -> i64 {
    i64::try_from(number).expect("sizes in memory are below 2^63")
}
