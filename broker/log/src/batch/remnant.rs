//! What compaction leaves of a batch: fewer of its records, none of them, or nothing but its offsets.
//!
//! Every form stands for as many offsets as before, so that an offset without a batch is still damage. Not here: which
//! records stay.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use levada_model::{LeaderEpoch, Offset, ProducerEpoch, Sequence, Timestamp, limits};

use super::compression::Codec;
use super::records::{Parts, Walk};
use super::{Batch, BatchBuf, BatchHeader, CompressionError, HEADER_BYTES, RecordsError, header, varint};

/// The records of a stored batch, unpacked, without a copy where they are not packed.
pub(crate) struct UnpackedBatch<'a> {
    header: BatchHeader,
    bytes: Cow<'a, [u8]>,
}

/// One record as compaction looks at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredRecord<'a> {
    pub(crate) offset: Offset,
    pub(crate) key: Option<&'a [u8]>,
    /// Whether it has no value.
    pub(crate) is_tombstone: bool,
}

impl<'a> UnpackedBatch<'a> {
    /// Unpacks a batch, bounded by `limits::BATCH_BYTES_MAX`.
    pub(crate) fn of(batch: &'a Batch) -> Result<Self, RecordsError> {
        let packed = &batch.bytes()[HEADER_BYTES..];
        let bytes = match Codec::of(batch.header().compression()) {
            Some(codec) if !packed.is_empty() => Cow::Owned(codec.unpack(packed, limits::BATCH_BYTES_MAX)?),
            _ => Cow::Borrowed(packed),
        };
        Ok(Self { header: *batch.header(), bytes })
    }

    /// Shows all records in order.
    pub(crate) fn each(&self, mut each: impl FnMut(StoredRecord<'_>)) -> Result<(), RecordsError> {
        self.each_part(|parts, bytes| {
            each(StoredRecord {
                offset: self.header.base_offset.advance(parts.offset_delta.into()),
                key: parts.key.map(|range| &bytes[range]),
                is_tombstone: parts.value.is_none(),
            });
        })
    }

    /// The batch with those records alone whose place in `kept` is true, packed as it was. With a delete horizon, times
    /// count from that, and stay the same.
    pub(crate) fn retain(&self, kept: &[bool], delete_horizon: Option<Timestamp>) -> Result<Batch, RecordsError> {
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + self.bytes.len());
        bytes.put_bytes(0, HEADER_BYTES);
        let mut places = kept.iter();
        self.each_part(|parts, all| {
            if places.next() == Some(&true) {
                match delete_horizon {
                    None => bytes.put_slice(&all[parts.whole]),
                    Some(horizon) => put_counted_from(&mut bytes, horizon, &parts, all),
                }
            }
        })?;
        let bytes = match Codec::of(self.header.compression()) {
            None => bytes,
            Some(codec) => codec.pack(&bytes, HEADER_BYTES)?,
        };
        if bytes.len() > limits::BATCH_BYTES_MAX {
            let too_large = CompressionError::TooLarge { codec: "batch", limit_bytes: limits::BATCH_BYTES_MAX };
            return Err(too_large.into());
        }
        let mut head = self.header;
        head.record_count =
            u32::try_from(kept.iter().filter(|kept| **kept).count()).expect("at most as many as before");
        if let Some(horizon) = delete_horizon {
            head.attributes = header::with_delete_horizon(head.attributes);
            head.base_timestamp = horizon;
        }
        Ok(sealed(head, bytes))
    }

    fn each_part(&self, mut each: impl FnMut(Parts, &[u8])) -> Result<(), RecordsError> {
        let mut walk = Walk::new(self.header);
        while let Some(parts) = walk.next(&self.bytes, |_, _| ()) {
            each(parts?, &self.bytes);
        }
        Ok(())
    }
}

/// The batch without its records: what a repeat of it is recognised by.
pub(crate) fn emptied(of: &BatchHeader) -> Batch {
    let mut head = *of;
    head.attributes = header::without_records(head.attributes);
    head.record_count = 0;
    sealed(head, BytesMut::zeroed(HEADER_BYTES))
}

/// A batch that stands for offsets and holds nothing.
pub(crate) fn cover(base_offset: Offset, last_offset_delta: u32, leader_epoch: LeaderEpoch) -> Batch {
    let head = BatchHeader {
        base_offset,
        size_bytes: HEADER_BYTES,
        leader_epoch,
        crc: 0,
        attributes: 0,
        last_offset_delta,
        base_timestamp: Timestamp(-1),
        max_timestamp: Timestamp(-1),
        producer_id: None,
        producer_epoch: ProducerEpoch(-1),
        base_sequence: Sequence(-1),
        record_count: 0,
    };
    sealed(head, BytesMut::zeroed(HEADER_BYTES))
}

fn sealed(head: BatchHeader, bytes: BytesMut) -> Batch {
    BatchBuf::seal(head, bytes).stamp(head.base_offset, head.leader_epoch)
}

/// Writes a record whose time counts from `base`.
fn put_counted_from(bytes: &mut BytesMut, base: Timestamp, parts: &Parts, all: &[u8]) {
    let rest = &all[parts.behind_timestamp..parts.whole.end];
    // Wraps as the reader's sum does.
    let timestamp_delta = parts.timestamp.0.wrapping_sub(base.0);
    let size = 1 + varint::size(timestamp_delta) + rest.len();
    varint::put_i32(bytes, i32::try_from(size).expect("a record is below BATCH_BYTES_MAX"));
    // The attributes of a record: always 0.
    bytes.put_u8(0);
    varint::put_i64(bytes, timestamp_delta);
    bytes.put_slice(rest);
}
