//! The records inside a batch: varint lengths, key, value, headers (KIP-98), each a view into shared bytes.

use std::ops::Range;

use bytes::Bytes;
use levada_model::{Header, Offset, Record, Timestamp, TimestampType, limits};
use thiserror::Error;

use super::compression::Codec;
use super::varint::Cursor;
use super::{Batch, BatchBuf, BatchHeader, CompressionError, HEADER_BYTES};

/// What is wrong with the records of a batch whose CRC is right.
#[derive(Debug, Error)]
pub enum RecordsError {
    /// They could not be unpacked.
    #[error(transparent)]
    Compression(#[from] CompressionError),
    /// A record is malformed, or their number or offsets are not what the head says.
    #[error("record {index}: {detail}")]
    Malformed {
        /// Place of the record in its batch.
        index: u32,
        /// What is wrong.
        detail: String,
    },
}

/// One record with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRef {
    /// Its offset.
    pub offset: Offset,
    /// Its time: its own, or the batch's where the broker's time counts.
    pub timestamp: Timestamp,
    /// Whose time that is.
    pub timestamp_type: TimestampType,
    /// Key, value and headers, sharing the batch's bytes (or the unpacked ones).
    pub record: Record,
}

/// One record of a batch that is being checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordView {
    /// Its place in the batch, from 0.
    pub index: u32,
    /// Its time, as its producer wrote it.
    pub timestamp: Timestamp,
    /// Whether it has a key; an empty one is one.
    pub has_key: bool,
    /// Number of headers; they were checked.
    pub header_count: usize,
    /// Bytes of key, value and headers together, as [`Record::size_bytes`] counts them.
    pub size_bytes: usize,
}

/// The records of one batch in order; it owns what it walks.
#[derive(Debug)]
pub struct Records {
    walk: Walk,
    bytes: Bytes,
}

impl Batch {
    /// Unpacks (bounded by `limits::BATCH_BYTES_MAX`) and walks the records in order.
    ///
    /// # Errors
    /// When they cannot be unpacked; a malformed record ends the iteration with its error.
    pub fn records(&self) -> Result<Records, RecordsError> {
        let packed = self.bytes().slice(HEADER_BYTES..);
        let bytes = match Codec::of(self.header().compression()) {
            // Nothing was packed where nothing is left.
            Some(codec) if !packed.is_empty() => codec.unpack(&packed, limits::BATCH_BYTES_MAX)?.into(),
            _ => packed,
        };
        Ok(Records { walk: Walk::new(*self.header()), bytes })
    }
}

impl BatchBuf {
    /// Walks all records as they came (offsets count from 0) and checks that their number, offsets (dense from 0) and
    /// lengths are what the head says, that nothing is left over, and that no more than `unpacked_bytes_max` come out;
    /// shows each record to `each` for further checks. This is for batches that came from a client: what only compaction
    /// makes (a batch without records, or with a delete horizon) is refused.
    ///
    /// # Errors
    /// At the first record that is wrong, or the first error of `each`.
    pub fn check_records<E: From<RecordsError>>(
        &self,
        unpacked_bytes_max: usize,
        mut each: impl FnMut(RecordView) -> Result<(), E>,
    ) -> Result<(), E> {
        let packed = &self.bytes()[HEADER_BYTES..];
        let unpacked;
        let bytes = match Codec::of(self.header().compression()) {
            None => packed,
            Some(codec) => {
                unpacked = codec.unpack(packed, unpacked_bytes_max).map_err(RecordsError::from)?;
                &unpacked
            }
        };
        let mut walk = Walk::new(*self.header());
        if walk.header.record_count != walk.header.last_offset_delta + 1 {
            let offsets = walk.header.last_offset_delta + 1;
            let detail = format!("the head says {} records for {offsets} offsets", walk.header.record_count);
            return Err(walk.malformed(detail).into());
        }
        if walk.header.delete_horizon().is_some() {
            return Err(walk.malformed("the head has a delete horizon, which compaction alone sets".to_owned()).into());
        }
        while let Some(parts) = walk.next(bytes, |_, _| ()) {
            let parts = parts?;
            let index = walk.index - 1;
            if parts.offset_delta != index {
                let detail = format!("its offset delta is {}", parts.offset_delta);
                return Err(RecordsError::Malformed { index, detail }.into());
            }
            each(RecordView {
                index,
                timestamp: parts.timestamp,
                has_key: parts.key.is_some(),
                header_count: parts.header_count,
                size_bytes: parts.size_bytes,
            })?;
        }
        Ok(())
    }
}

impl Iterator for Records {
    type Item = Result<RecordRef, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { walk, bytes } = self;
        let mut headers = Vec::new();
        let parts = walk.next(bytes, |name, value| {
            headers.push(Header { name: name.to_owned(), value: value.map(|range| bytes.slice(range)) });
        })?;
        Some(parts.map(|parts| RecordRef {
            offset: walk.header.base_offset.advance(parts.offset_delta.into()),
            timestamp: match walk.header.timestamp_type() {
                TimestampType::CreateTime => parts.timestamp,
                TimestampType::LogAppendTime => walk.header.max_timestamp,
            },
            timestamp_type: walk.header.timestamp_type(),
            record: Record {
                key: parts.key.map(|range| bytes.slice(range)),
                value: parts.value.map(|range| bytes.slice(range)),
                headers,
            },
        }))
    }
}

/// Where the parts of one record lie.
pub(super) struct Parts {
    /// The whole record, its length included.
    pub(super) whole: Range<usize>,
    /// Where what follows the timestamp delta begins.
    pub(super) behind_timestamp: usize,
    pub(super) offset_delta: u32,
    pub(super) timestamp: Timestamp,
    pub(super) key: Option<Range<usize>>,
    pub(super) value: Option<Range<usize>>,
    header_count: usize,
    size_bytes: usize,
}

/// The walk over unpacked records. It holds places only, so that the same walk serves owned and borrowed bytes.
#[derive(Debug)]
pub(super) struct Walk {
    header: BatchHeader,
    /// Place of the next record in its batch; beyond the count once the walk has ended.
    index: u32,
    position: usize,
    /// The smallest offset delta that the next record may have: offsets rise.
    least_delta: u32,
    ended: bool,
}

impl Walk {
    pub(super) fn new(header: BatchHeader) -> Self {
        Self { header, index: 0, position: 0, least_delta: 0, ended: false }
    }

    /// The next record, none behind the last, or what is wrong (and then none).
    pub(super) fn next(
        &mut self,
        bytes: &[u8],
        each_header: impl FnMut(&str, Option<Range<usize>>),
    ) -> Option<Result<Parts, RecordsError>> {
        if self.ended {
            return None;
        }
        if self.index == self.header.record_count {
            self.ended = true;
            let left = bytes.len() - self.position;
            return (left > 0).then(|| Err(self.malformed(format!("{left} bytes lie behind the last record"))));
        }
        let parts = self.record(bytes, each_header).map_err(|detail| self.malformed(detail));
        self.ended = parts.is_err();
        self.index += 1;
        Some(parts)
    }

    fn record(
        &mut self,
        bytes: &[u8],
        mut each_header: impl FnMut(&str, Option<Range<usize>>),
    ) -> Result<Parts, String> {
        let start = self.position;
        let mut outer = Cursor::new(bytes, start);
        let body = outer.length("length", bytes.len())?.ok_or("its length is null")?;
        let mut cursor = Cursor::new(&bytes[..body.end], body.start);
        cursor.byte("attributes")?;
        let timestamp_delta = cursor.varint_i64("timestamp delta")?;
        let behind_timestamp = cursor.position();
        let offset_delta = cursor.varint_i32("offset delta")?;
        let key = cursor.length("key length", body.end)?;
        let value = cursor.length("value length", body.end)?;
        let header_count = cursor.varint_i32("header count")?;
        let header_count = usize::try_from(header_count)
            .ok()
            .filter(|count| *count <= limits::RECORD_HEADERS_MAX)
            .ok_or_else(|| format!("{header_count} headers, and {} are allowed", limits::RECORD_HEADERS_MAX))?;
        let mut size_bytes = len(key.as_ref()) + len(value.as_ref());
        for _ in 0..header_count {
            let name = cursor.length("header name length", body.end)?.ok_or("a header name is null")?;
            let value = cursor.length("header value length", body.end)?;
            size_bytes += name.len() + len(value.as_ref());
            let name = std::str::from_utf8(&bytes[name]).map_err(|_| "a header name is not UTF-8")?;
            each_header(name, value);
        }
        if cursor.position() != body.end {
            return Err(format!("{} bytes lie behind its headers", body.end - cursor.position()));
        }
        let offset_delta = u32::try_from(offset_delta)
            .ok()
            .filter(|delta| (self.least_delta..=self.header.last_offset_delta).contains(delta))
            .ok_or_else(|| format!("its offset delta is {offset_delta}"))?;
        self.least_delta = offset_delta + 1;
        self.position = body.end;
        let timestamp = Timestamp(self.header.base_timestamp.0.wrapping_add(timestamp_delta));
        let whole = start..body.end;
        Ok(Parts { whole, behind_timestamp, offset_delta, timestamp, key, value, header_count, size_bytes })
    }

    fn malformed(&self, detail: String) -> RecordsError {
        RecordsError::Malformed { index: self.index, detail }
    }
}

fn len(range: Option<&Range<usize>>) -> usize {
    range.map_or(0, Range::len)
}
