//! The 61-byte head of a batch as a view, the checked batch, and the batch that still waits for its offset.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use levada_model::{
    Compression, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TimestampType, limits,
};
use thiserror::Error;

/// Bytes before the records.
pub const HEADER_BYTES: usize = 61;

// Places of the fields that are read or written one by one.
const BASE_OFFSET_AT: usize = 0;
const LEADER_EPOCH_AT: usize = 12;
const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const MAX_TIMESTAMP_AT: usize = 35;
const BASE_SEQUENCE_AT: usize = 53;

const MAGIC: i8 = 2;
const COMPRESSION_BITS: i16 = 0x07;
const APPEND_TIME_BIT: i16 = 0x08;
const TRANSACTIONAL_BIT: i16 = 0x10;
const CONTROL_BIT: i16 = 0x20;
const DELETE_HORIZON_BIT: i16 = 0x40;
const KNOWN_BITS: i16 = COMPRESSION_BITS | APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT;
/// What the format writes for "no producer id", "no epoch" and "no sequence".
const NONE: i8 = -1;

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
    /// Compression (bits 0-2), timestamp type (3), transactional (4), control (5), delete horizon (6).
    pub attributes: i16,
    /// Last offset less base offset.
    pub last_offset_delta: u32,
    /// What the records' timestamp deltas count from; with the attribute bit for it, the delete horizon.
    pub base_timestamp: Timestamp,
    /// Largest timestamp of the records, also of those that compaction took.
    pub max_timestamp: Timestamp,
    /// Who produced it, if idempotent.
    pub producer_id: Option<ProducerId>,
    /// The producer's epoch; meaningless without a producer id.
    pub producer_epoch: ProducerEpoch,
    /// Sequence of the first record; meaningless without a producer id.
    pub base_sequence: Sequence,
    /// Records in the batch; compaction leaves fewer than offsets, or none.
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
        let cut_off = BatchError::CutOff { have: bytes.len(), need: HEADER_BYTES };
        match bytes.get(MAGIC_AT).map(|byte| byte.cast_signed()) {
            None => return Err(cut_off),
            Some(MAGIC) => (),
            Some(other) => return Err(BatchError::Magic(other)),
        }
        if bytes.len() < HEADER_BYTES {
            return Err(cut_off);
        }
        let mut fields = &bytes[..HEADER_BYTES];
        let base_offset = not_negative("base offset", fields.get_i64())?;
        let length = fields.get_i32();
        let size_bytes = size_of_batch(length)?;
        let leader_epoch = LeaderEpoch(fields.get_i32());
        fields.advance(1);
        let crc = fields.get_u32();
        let attributes = fields.get_i16();
        let last_offset_delta = not_negative("last offset delta", fields.get_i32())?;
        let base_timestamp = Timestamp(fields.get_i64());
        let max_timestamp = Timestamp(fields.get_i64());
        let producer_id = at_least_none("producer id", fields.get_i64())?;
        let producer_epoch = fields.get_i16();
        let base_sequence = fields.get_i32();
        let record_count = not_negative("record count", fields.get_i32())?;
        let header = Self {
            base_offset: Offset(base_offset.cast_unsigned()),
            size_bytes,
            leader_epoch,
            crc,
            attributes,
            last_offset_delta: last_offset_delta.cast_unsigned(),
            base_timestamp,
            max_timestamp,
            producer_id: (producer_id != i64::from(NONE)).then_some(ProducerId(producer_id)),
            producer_epoch: ProducerEpoch(producer_epoch),
            base_sequence: Sequence(base_sequence),
            record_count: record_count.cast_unsigned(),
        };
        header.check()?;
        Ok(header)
    }

    /// The compression of the records.
    #[must_use]
    pub fn compression(&self) -> Compression {
        compression_of(self.attributes).expect("checked when the head was parsed")
    }

    /// Whose time the records carry.
    #[must_use]
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & APPEND_TIME_BIT == 0 { TimestampType::CreateTime } else { TimestampType::LogAppendTime }
    }

    /// Whether it belongs to a transaction.
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// Whether it holds a marker instead of records.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// When the tombstones in it may go: compaction sets it when it first meets them (KIP-534).
    #[must_use]
    pub fn delete_horizon(&self) -> Option<Timestamp> {
        (self.attributes & DELETE_HORIZON_BIT != 0).then_some(self.base_timestamp)
    }

    /// The last offset that the batch stands for; its record may be gone.
    #[must_use]
    pub fn last_offset(&self) -> Offset {
        self.base_offset.advance(u64::from(self.last_offset_delta))
    }

    /// The offset after the batch.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.last_offset().advance(1)
    }

    /// Whether the fields agree with each other.
    fn check(&self) -> Result<(), BatchError> {
        let wrong = |field, value| Err(BatchError::Field { field, value });
        if self.attributes & !KNOWN_BITS != 0 {
            return wrong("attributes", self.attributes.into());
        }
        if compression_of(self.attributes).is_none() {
            return wrong("compression", (self.attributes & COMPRESSION_BITS).into());
        }
        // Compaction leaves fewer records than offsets, never more.
        if u64::from(self.record_count) > u64::from(self.last_offset_delta) + 1 {
            return wrong("record count", self.record_count.into());
        }
        if self.producer_id.is_some() {
            // Markers have a producer and an epoch, and no place in its sequence.
            let least_sequence = if self.is_control() { i32::from(NONE) } else { 0 };
            if self.producer_epoch.0 < 0 {
                return wrong("producer epoch", self.producer_epoch.0.into());
            }
            if self.base_sequence.0 < least_sequence {
                return wrong("base sequence", self.base_sequence.0.into());
            }
        } else if self.is_transactional() {
            return wrong("producer id of a transactional batch", NONE.into());
        }
        Ok(())
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
        let header = parse_checked(bytes)?;
        Ok(Self { header, bytes: bytes.split_to(header.size_bytes) })
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
        let header = parse_checked(bytes)?;
        // The usual body is one batch: taking it whole keeps the buffer's one owner.
        let whole = header.size_bytes == bytes.len();
        let bytes = if whole { std::mem::take(bytes) } else { bytes.split_to(header.size_bytes) };
        Ok(Self { header, bytes })
    }

    /// The head as it is now.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Sets the time of every record to `now` (`LogAppendTime`): sets the attribute bit and the max timestamp, and
    /// computes the CRC anew.
    pub fn set_append_time(&mut self, now: Timestamp) {
        self.header.attributes |= APPEND_TIME_BIT;
        self.header.max_timestamp = now;
        put(&mut self.bytes, ATTRIBUTES_AT, self.header.attributes.to_be_bytes());
        put(&mut self.bytes, MAX_TIMESTAMP_AT, now.0.to_be_bytes());
        self.header.crc = crc_of(&self.bytes);
        put(&mut self.bytes, CRC_AT, self.header.crc.to_be_bytes());
    }

    /// Sets the sequence of the first record of a batch that has a producer, and computes the CRC anew.
    pub(crate) fn set_base_sequence(&mut self, base_sequence: Sequence) {
        assert!(self.header.producer_id.is_some() && base_sequence.0 >= 0, "a sequence is a producer's");
        // That of an epoch's first batch is there already.
        if self.header.base_sequence == base_sequence {
            return;
        }
        self.header.base_sequence = base_sequence;
        put(&mut self.bytes, BASE_SEQUENCE_AT, base_sequence.0.to_be_bytes());
        self.header.crc = crc_of(&self.bytes);
        put(&mut self.bytes, CRC_AT, self.header.crc.to_be_bytes());
    }

    /// Stamps base offset and leader epoch, both outside the CRC.
    #[must_use]
    pub fn stamp(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> Batch {
        let Self { mut header, mut bytes } = self;
        header.base_offset = base_offset;
        header.leader_epoch = leader_epoch;
        put(&mut bytes, BASE_OFFSET_AT, base_offset.0.to_be_bytes());
        put(&mut bytes, LEADER_EPOCH_AT, leader_epoch.0.to_be_bytes());
        Batch { header, bytes: bytes.freeze() }
    }

    /// Writes the head in front of the records that `bytes` holds behind room for it. Length and CRC are computed.
    pub(super) fn seal(mut header: BatchHeader, mut bytes: BytesMut) -> Self {
        assert!((HEADER_BYTES..=limits::BATCH_BYTES_MAX).contains(&bytes.len()), "a batch of {} bytes", bytes.len());
        header.size_bytes = bytes.len();
        let length = i32::try_from(bytes.len() - LEADER_EPOCH_AT).expect("BATCH_BYTES_MAX is below 2^31");
        let mut room = &mut bytes[..HEADER_BYTES];
        room.put_u64(header.base_offset.0);
        room.put_i32(length);
        room.put_i32(header.leader_epoch.0);
        room.put_i8(MAGIC);
        room.put_u32(0);
        room.put_i16(header.attributes);
        room.put_u32(header.last_offset_delta);
        room.put_i64(header.base_timestamp.0);
        room.put_i64(header.max_timestamp.0);
        room.put_i64(header.producer_id.map_or(NONE.into(), |id| id.0));
        room.put_i16(header.producer_epoch.0);
        room.put_i32(header.base_sequence.0);
        room.put_u32(header.record_count);
        header.crc = crc_of(&bytes);
        put(&mut bytes, CRC_AT, header.crc.to_be_bytes());
        header.check().expect("the builder keeps the rules");
        Self { header, bytes }
    }

    /// All bytes as they are now.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The attribute bits `of` a batch with this delete horizon bit.
pub(super) fn with_delete_horizon(of: i16) -> i16 {
    of | DELETE_HORIZON_BIT
}

/// The attribute bits `of` a batch without what speaks of its records: their compression and their horizon.
pub(super) fn without_records(of: i16) -> i16 {
    of & !(COMPRESSION_BITS | DELETE_HORIZON_BIT)
}

/// The attribute bits of a batch to be built.
pub(super) fn attributes(compression: Compression, transactional: bool, control: bool) -> i16 {
    let compression = match compression {
        Compression::None => 0,
        Compression::Gzip => 1,
        Compression::Snappy => 2,
        Compression::Lz4 => 3,
        Compression::Zstd => 4,
    };
    let bit = |set: bool, bit: i16| if set { bit } else { 0 };
    compression | bit(transactional, TRANSACTIONAL_BIT) | bit(control, CONTROL_BIT)
}

fn compression_of(attributes: i16) -> Option<Compression> {
    Some(match attributes & COMPRESSION_BITS {
        0 => Compression::None,
        1 => Compression::Gzip,
        2 => Compression::Snappy,
        3 => Compression::Lz4,
        4 => Compression::Zstd,
        _ => return None,
    })
}

/// The head of the whole batch at the front of `bytes`, whose CRC is right.
fn parse_checked(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::parse(bytes)?;
    let Some(batch) = bytes.get(..header.size_bytes) else {
        return Err(BatchError::CutOff { have: bytes.len(), need: header.size_bytes });
    };
    let found = crc_of(batch);
    if found != header.crc {
        return Err(BatchError::Crc { declared: header.crc, found });
    }
    Ok(header)
}

/// CRC-32C (Castagnoli) of everything from the attributes on.
fn crc_of(batch: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&batch[ATTRIBUTES_AT..])
}

fn size_of_batch(length: i32) -> Result<usize, BatchError> {
    let size = usize::try_from(length).ok().map(|length| length + LEADER_EPOCH_AT);
    size.filter(|size| (HEADER_BYTES..=limits::BATCH_BYTES_MAX).contains(size)).ok_or(BatchError::Length(length))
}

fn not_negative<N: Copy + Default + PartialOrd + Into<i64>>(field: &'static str, value: N) -> Result<N, BatchError> {
    if value < N::default() { Err(BatchError::Field { field, value: value.into() }) } else { Ok(value) }
}

fn at_least_none(field: &'static str, value: i64) -> Result<i64, BatchError> {
    if value < NONE.into() { Err(BatchError::Field { field, value }) } else { Ok(value) }
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}
