//! Builds a batch from records (for JSON and raw producers, and the broker's own topics).

use bytes::{BufMut, BytesMut};
use levada_model::{Compression, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Record, Sequence, Timestamp};

use super::compression::Codec;
use super::{BatchBuf, BatchHeader, CompressionError, HEADER_BYTES, header, varint};

/// What a new batch carries besides its records.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewBatch {
    /// How the records are compressed.
    pub compression: Compression,
    /// Producer id, epoch and sequence of the first record, if idempotent.
    pub producer: Option<(ProducerId, ProducerEpoch, Sequence)>,
    /// Part of a transaction; needs a producer.
    pub transactional: bool,
    /// Holds a marker.
    pub control: bool,
}

/// Gathers records; [`finish`](Self::finish) gives the batch with base offset 0.
///
/// ```
/// use levada_log::{Batch, BatchBuilder, NewBatch};
/// use levada_model::{Compression, LeaderEpoch, Offset, Record, Timestamp};
///
/// let mut builder = BatchBuilder::new(NewBatch { compression: Compression::Zstd, ..NewBatch::default() }, 64);
/// builder.push(Timestamp(1_700_000_000_000), &Record { value: Some("first".into()), ..Record::default() });
/// builder.push(Timestamp(1_700_000_000_007), &Record { value: Some("second".into()), ..Record::default() });
/// let batch = builder.finish()?.stamp(Offset(40), LeaderEpoch(1));
///
/// // What is stored is what goes over the wire.
/// let read = Batch::parse(&mut batch.bytes().clone())?;
/// let second = read.records()?.nth(1).expect("there are two")?;
/// assert_eq!((second.offset, second.record.value.as_deref()), (Offset(41), Some(&b"second"[..])));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BatchBuilder {
    new: NewBatch,
    /// Room for the head, then the records, not yet compressed.
    bytes: BytesMut,
    record_count: u32,
    base_timestamp: Timestamp,
    max_timestamp: Timestamp,
}

impl BatchBuilder {
    /// An empty builder; `capacity_bytes` is a hint by a size that is already in memory.
    #[must_use]
    pub fn new(new: NewBatch, capacity_bytes: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + capacity_bytes);
        bytes.put_bytes(0, HEADER_BYTES);
        Self { new, bytes, record_count: 0, base_timestamp: Timestamp(0), max_timestamp: Timestamp(i64::MIN) }
    }

    /// Adds one record.
    pub fn push(&mut self, timestamp: Timestamp, record: &Record) {
        if self.record_count == 0 {
            self.base_timestamp = timestamp;
        }
        // Wraps as the reader's sum does, so that no pair of timestamps is out of reach.
        let timestamp_delta = timestamp.0.wrapping_sub(self.base_timestamp.0);
        let offset_delta = i64::from(self.record_count);
        let headers = as_i32(record.headers.len());
        let headers_size: usize =
            record.headers.iter().map(|h| part_size(Some(h.name.as_bytes())) + part_size(h.value.as_deref())).sum();
        let size = 1
            + varint::size(timestamp_delta)
            + varint::size(offset_delta)
            + part_size(record.key.as_deref())
            + part_size(record.value.as_deref())
            + varint::size(headers.into())
            + headers_size;

        let bytes = &mut self.bytes;
        bytes.reserve(size + varint::size(i64::from(i32::MAX)));
        varint::put_i32(bytes, as_i32(size));
        bytes.put_i8(0);
        varint::put_i64(bytes, timestamp_delta);
        varint::put_i64(bytes, offset_delta);
        put_part(bytes, record.key.as_deref());
        put_part(bytes, record.value.as_deref());
        varint::put_i32(bytes, headers);
        for header in &record.headers {
            put_part(bytes, Some(header.name.as_bytes()));
            put_part(bytes, header.value.as_deref());
        }
        self.record_count += 1;
        self.max_timestamp = self.max_timestamp.max(timestamp);
    }

    /// Compresses, writes head and CRC.
    ///
    /// # Errors
    /// When the codec fails.
    ///
    /// # Panics
    /// When there is no record, when a transaction has no producer, or when the batch is larger than
    /// `limits::BATCH_BYTES_MAX`.
    pub fn finish(self) -> Result<BatchBuf, CompressionError> {
        assert!(self.record_count > 0, "a batch has at least one record");
        let Self { new, bytes, record_count, base_timestamp, max_timestamp } = self;
        let bytes = match Codec::of(new.compression) {
            None => bytes,
            Some(codec) => codec.pack(&bytes, HEADER_BYTES)?,
        };
        let no_producer = (ProducerEpoch(-1), Sequence(-1));
        let (producer_epoch, base_sequence) = new.producer.map_or(no_producer, |(_, epoch, first)| (epoch, first));
        let header = BatchHeader {
            base_offset: Offset(0),
            size_bytes: bytes.len(),
            leader_epoch: LeaderEpoch(-1),
            crc: 0,
            attributes: header::attributes(new.compression, new.transactional, new.control),
            last_offset_delta: record_count - 1,
            base_timestamp,
            max_timestamp,
            producer_id: new.producer.map(|(id, ..)| id),
            producer_epoch,
            base_sequence,
            record_count,
        };
        Ok(BatchBuf::seal(header, bytes))
    }
}

fn put_part(bytes: &mut BytesMut, part: Option<&[u8]>) {
    match part {
        None => varint::put_i32(bytes, -1),
        Some(part) => {
            varint::put_i32(bytes, as_i32(part.len()));
            bytes.put_slice(part);
        }
    }
}

fn part_size(part: Option<&[u8]>) -> usize {
    part.map_or(varint::size(-1), |part| varint::size(as_i32(part.len()).into()) + part.len())
}

fn as_i32(number: usize) -> i32 {
    i32::try_from(number).expect("what a batch holds is below BATCH_BYTES_MAX, which is checked at the edge")
}
