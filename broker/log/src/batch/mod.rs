//! The record batch, Kafka's format v2 (KIP-98), which is the form of a record on disk, in memory and on the wire.
//!
//! Layout (big-endian): base offset i64 | batch length i32 (of what follows) | partition leader epoch i32 | magic i8 = 2
//! | CRC-32C u32 (of what follows) | attributes i16 | last offset delta i32 | base timestamp i64 | max timestamp i64
//! | producer id i64 | producer epoch i16 | base sequence i32 | record count i32 | records.
//! Base offset and leader epoch are outside the CRC, so the broker stamps both in place.

mod builder;
mod compression;
mod header;
mod marker;
mod records;
mod remnant;
mod section;
mod varint;

pub use builder::{BatchBuilder, NewBatch};
pub use compression::CompressionError;
pub use header::{Batch, BatchBuf, BatchError, BatchHeader, HEADER_BYTES};
pub use marker::{CoordinatorEpoch, Marker, TransactionEnd};
pub use records::{RecordRef, RecordView, Records, RecordsError};
pub(crate) use remnant::{StoredRecord, UnpackedBatch, cover, emptied};
pub use section::RecordSection;
