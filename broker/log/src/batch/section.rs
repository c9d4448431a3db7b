//! The records of a batch as they lie, unpacked, for whoever hands them on without taking them apart.

use std::ops::Range;

use bytes::Bytes;
use levada_model::{Offset, limits};

use super::compression::Codec;
use super::records::Walk;
use super::{Batch, BatchBuf, HEADER_BYTES, RecordsError};

/// Records that follow one another in a batch: varint lengths, key, value, headers (KIP-98), with the deltas that they have
/// in the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSection {
    /// The records.
    pub records: Bytes,
    /// How many they are.
    pub record_count: u32,
}

impl Batch {
    /// The records whose offsets are in a range, unpacked (bounded by `limits::BATCH_BYTES_MAX`); the bytes are the batch's
    /// own where it is not packed. Records are looked at only where not all of them are wanted.
    ///
    /// # Errors
    /// When they cannot be unpacked, or one that is looked at is malformed.
    pub fn section(&self, offsets: Range<Offset>) -> Result<RecordSection, RecordsError> {
        let header = *self.header();
        let packed = self.bytes().slice(HEADER_BYTES..);
        let all = match Codec::of(header.compression()) {
            // Nothing was packed where nothing is left.
            Some(codec) if !packed.is_empty() => codec.unpack(&packed, limits::BATCH_BYTES_MAX)?.into(),
            _ => packed,
        };
        if offsets.start <= header.base_offset && header.next_offset() <= offsets.end {
            return Ok(RecordSection { records: all, record_count: header.record_count });
        }
        let mut walk = Walk::new(header);
        let (mut wanted, mut record_count) = (0..0, 0);
        while let Some(parts) = walk.next(&all, |_, _| ()) {
            let parts = parts?;
            let offset = header.base_offset.advance(parts.offset_delta.into());
            if offset >= offsets.end {
                break;
            }
            if offset < offsets.start {
                continue;
            }
            if record_count == 0 {
                wanted.start = parts.whole.start;
            }
            wanted.end = parts.whole.end;
            record_count += 1;
        }
        Ok(RecordSection { records: all.slice(wanted), record_count })
    }
}

impl BatchBuf {
    /// A copy of all records, unpacked (bounded by `limits::BATCH_BYTES_MAX`).
    ///
    /// # Errors
    /// When they cannot be unpacked.
    pub fn section(&self) -> Result<RecordSection, RecordsError> {
        let packed = &self.bytes()[HEADER_BYTES..];
        let records = match Codec::of(self.header().compression()) {
            Some(codec) if !packed.is_empty() => codec.unpack(packed, limits::BATCH_BYTES_MAX)?.into(),
            _ => Bytes::copy_from_slice(packed),
        };
        Ok(RecordSection { records, record_count: self.header().record_count })
    }
}

#[cfg(test)]
mod tests {
    use levada_model::{Compression, LeaderEpoch, Record, Timestamp};

    use super::*;
    use crate::{BatchBuilder, NewBatch};

    fn built(compression: Compression) -> BatchBuf {
        let mut builder = BatchBuilder::new(NewBatch { compression, ..NewBatch::default() }, 0);
        for i in 0..5_i64 {
            let value = Some(Bytes::from(format!("value {i}")));
            builder.push(Timestamp(i), &Record { value, ..Record::default() });
        }
        builder.finish().expect("it is packed")
    }

    #[test]
    fn sections_are_what_was_built_whole_or_in_part() {
        let plain = built(Compression::None).section().expect("whole");
        for compression in [Compression::None, Compression::Zstd] {
            let built = built(compression);
            assert_eq!(built.section().expect("whole"), plain, "{compression:?}");
            let batch = built.stamp(Offset(10), LeaderEpoch(0));
            let section = |from, to| batch.section(Offset(from)..Offset(to)).expect("sound");
            assert_eq!(section(0, 100), plain);
            let parts = [section(10, 12), section(12, 14), section(14, 15)];
            assert_eq!(parts.iter().map(|part| part.record_count).collect::<Vec<_>>(), [2, 2, 1]);
            assert_eq!(parts.iter().flat_map(|part| part.records.to_vec()).collect::<Vec<_>>(), plain.records);
            assert_eq!((section(0, 10).record_count, section(15, 20).record_count), (0, 0));
        }
    }

    #[test]
    fn bytes_that_are_not_packed_are_not_copied() {
        let batch = built(Compression::None).stamp(Offset(0), LeaderEpoch(0));
        let section = batch.section(Offset(1)..Offset(3)).expect("sound");
        assert!(batch.bytes().as_ptr_range().contains(&section.records.as_ptr()));
    }
}
