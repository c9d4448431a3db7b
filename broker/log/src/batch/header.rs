//! The 61-byte head of a batch as a view, the checked batch, and the batch that still waits for its offset.

use bytes::{Bytes, BytesMut};
use levada_model::{Compression, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TimestampType};
use thiserror::Error;

/// Bytes before the records.
pub const HEADER_BYTES: usize = 61;

/// A batch's head, decoded. Says nothing about the records or the CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: Offset,
    /// Bytes of the whole batch, head included.
    pub size_bytes: usize,
    /// Term of the leader that appended it.
    pub leader_epoch: LeaderEpoch,
    /// CRC-32C of everything from the attributes on, as stored.
    pub crc: u32,
    /// Compression (bits 0-2), timestamp type (3), transactional (4), control (5).
    pub attributes: i16,
    /// Last offset less base offset.
    pub last_offset_delta: u32,
    /// What the records' timestamp deltas count from.
    pub base_timestamp: Timestamp,
    /// Largest timestamp of the records.
    pub max_timestamp: Timestamp,
    /// Who produced it, if idempotent.
    pub producer_id: Option<ProducerId>,
    /// The producer's epoch; meaningless without a producer id.
    pub producer_epoch: ProducerEpoch,
    /// Sequence of the first record; meaningless without a producer id.
    pub base_sequence: Sequence,
    /// Records in the batch.
    pub record_count: u32,
}

/// What is wrong with bytes that should be a batch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BatchError {
    /// Fewer bytes than the head, or than it declares.
    #[error("cut off: {have} of {need} bytes")]
    CutOff {
        /// Bytes at hand.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// Not a v2 batch.
    #[error("magic is {0}, not 2")]
    Magic(i8),
    /// The declared length is impossible.
    #[error("batch length {0} is impossible")]
    Length(i32),
    /// A field of the head contradicts another or is out of range.
    #[error("{field} is {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// The CRC does not match.
    #[error("CRC-32C is {found:08x}, the head says {declared:08x}")]
    Crc {
        /// What the head says.
        declared: u32,
        /// What the bytes give.
        found: u32,
    },
}

impl BatchHeader {
    /// Decodes and checks the head at the start of `bytes` (structure only; the CRC is [`Batch::parse`]'s).
    ///
    /// # Errors
    /// When there are fewer than [`HEADER_BYTES`], or a field is impossible. Zeros are never a batch (magic).
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let _ = bytes;
        todo!()
    }

    /// The compression of the records.
    #[must_use]
    pub fn compression(&self) -> Compression {
        todo!()
    }

    /// Whose time the records carry.
    #[must_use]
    pub fn timestamp_type(&self) -> TimestampType {
        todo!()
    }

    /// Whether it belongs to a transaction.
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    /// Whether it holds a marker instead of records.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }

    /// Offset of the last record.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        self.base_offset.advance(u64::from(self.last_offset_delta))
    }

    /// The offset after the batch.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.last_offset().advance(1)
    }
}

/// A whole batch whose head and CRC were checked. Cheap to clone: the bytes are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    header: BatchHeader,
    bytes: Bytes,
}

impl Batch {
    /// Takes the batch at the front of `bytes`, leaving the rest there. Nothing is allocated by a declared size.
    ///
    /// # Errors
    /// When the front is not a whole batch with a matching CRC; `bytes` is then as it was.
    pub fn parse(bytes: &mut Bytes) -> Result<Self, BatchError> {
        let _ = bytes;
        todo!()
    }

    /// The head.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// All bytes, as stored.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// A checked batch that has no offset yet. It is stamped in place and becomes a [`Batch`].
#[derive(Debug)]
pub struct BatchBuf {
    header: BatchHeader,
    bytes: BytesMut,
}

impl BatchBuf {
    /// Takes the batch at the front of `bytes`, as [`Batch::parse`] does, without copying it.
    ///
    /// # Errors
    /// As [`Batch::parse`].
    pub fn parse(bytes: &mut BytesMut) -> Result<Self, BatchError> {
        let _ = bytes;
        todo!()
    }

    /// The head as it is now.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Sets the time of every record to `now` (`LogAppendTime`): sets the attribute bit and the max timestamp, and
    /// computes the CRC anew.
    pub fn set_append_time(&mut self, now: Timestamp) {
        let _ = now;
        todo!()
    }

    /// Stamps base offset and leader epoch, both outside the CRC.
    #[must_use]
    pub fn stamp(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> Batch {
        let _ = (base_offset, leader_epoch);
        let Self { header, bytes } = self;
        Batch { header, bytes: bytes.freeze() }
    }
}
