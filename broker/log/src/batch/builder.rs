//! Builds a batch from records (for JSON and raw producers, and the broker's own topics).

use levada_model::{Compression, ProducerEpoch, ProducerId, Record, Sequence, Timestamp};

use super::{BatchBuf, CompressionError};

/// What a new batch carries besides its records.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewBatch {
    /// How the records are compressed.
    pub compression: Compression,
    /// Producer id, epoch and sequence of the first record, if idempotent.
    pub producer: Option<(ProducerId, ProducerEpoch, Sequence)>,
    /// Part of a transaction.
    pub transactional: bool,
    /// Holds a marker.
    pub control: bool,
}

/// Gathers records; [`finish`](Self::finish) gives the batch with base offset 0.
#[derive(Debug)]
pub struct BatchBuilder {}

impl BatchBuilder {
    /// An empty builder; `capacity_bytes` is a hint by a size that is already in memory.
    #[must_use]
    pub fn new(new: NewBatch, capacity_bytes: usize) -> Self {
        let _ = (new, capacity_bytes);
        todo!()
    }

    /// Adds one record.
    pub fn push(&mut self, timestamp: Timestamp, record: &Record) {
        let _ = (timestamp, record);
        todo!()
    }

    /// Records so far.
    #[must_use]
    pub fn record_count(&self) -> u32 {
        todo!()
    }

    /// Compresses, writes head and CRC.
    ///
    /// # Errors
    /// When the codec fails.
    ///
    /// # Panics
    /// When there is no record.
    pub fn finish(self) -> Result<BatchBuf, CompressionError> {
        todo!()
    }
}
