//! Why a partition's log said no: one enum per operation.

use std::sync::Arc;

use levada_model::{Offset, ProducerEpoch, ProducerId, Sequence};
use thiserror::Error;

use crate::{CoordinatorEpoch, StorageError};

/// Why a batch was refused; nothing of it was stored.
#[derive(Debug, Error)]
pub enum AppendError {
    /// A gap, or a repeat older than five batches.
    #[error("sequence {got} of producer {producer_id} is out of order; {expected} is next")]
    OutOfOrderSequence {
        /// Who.
        producer_id: ProducerId,
        /// What came.
        got: Sequence,
        /// What would have been right.
        expected: Sequence,
    },
    /// A newer epoch of the producer has written.
    #[error("producer {producer_id} with epoch {got} is fenced by epoch {current}")]
    ProducerFenced {
        /// Who.
        producer_id: ProducerId,
        /// What came.
        got: ProducerEpoch,
        /// The epoch in force.
        current: ProducerEpoch,
    },
    /// The idempotency key came before with another body.
    #[error("the idempotency key was used before with another body")]
    KeyReused,
    /// The expected offset is not the next.
    #[error("the next offset is {next_offset}")]
    OffsetMismatch {
        /// The offset that would have been right.
        next_offset: Offset,
    },
    /// The producer has a transaction open here, and the batch is not of it: it is not transactional, or of a newer epoch
    /// (Kafka's INVALID_TXN_STATE).
    #[error("producer {producer_id} has a transaction open since offset {first_offset}")]
    TransactionOpen {
        /// Who.
        producer_id: ProducerId,
        /// Where its transaction begins.
        first_offset: Offset,
    },
    /// The marker's epoch has ended its transaction the other way.
    #[error("the transaction of producer {producer_id} was ended otherwise at offset {marker_offset}")]
    TransactionEnded {
        /// Who.
        producer_id: ProducerId,
        /// Where the marker lies that counts.
        marker_offset: Offset,
    },
    /// A newer coordinator has written a marker of the producer.
    #[error("coordinator epoch {got} is fenced by {current} for producer {producer_id}")]
    CoordinatorFenced {
        /// Whose marker.
        producer_id: ProducerId,
        /// What came.
        got: CoordinatorEpoch,
        /// The epoch in force.
        current: CoordinatorEpoch,
    },
    /// So many producers have a transaction open here that there is no room for another.
    #[error("{limit} transactions are open in this partition (PRODUCERS_MAX)")]
    TooManyTransactions {
        /// The limit.
        limit: usize,
    },
    /// A batch larger than a segment can address.
    #[error("a batch of {size_bytes} bytes is larger than the limit of {limit_bytes}")]
    TooLarge {
        /// Its size.
        size_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The log failed before and takes no more.
    #[error("the log takes no writes since: {0}")]
    Poisoned(Arc<StorageError>),
}

/// Why a log could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file system said no.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// What lies there contradicts itself in a way that only a person can judge; nothing was changed.
    #[error("{path}: {detail}")]
    Inconsistent {
        /// Where.
        path: String,
        /// What is wrong and what to do.
        detail: String,
    },
}

/// Why a read gave nothing.
#[derive(Debug, Error)]
pub enum ReadError {
    /// Below the log start.
    #[error("offset {requested} is below the log start {log_start}")]
    BelowStart {
        /// What was asked for.
        requested: Offset,
        /// The first offset there is.
        log_start: Offset,
    },
    /// Beyond the bound.
    #[error("offset {requested} is beyond the end {end}")]
    BeyondEnd {
        /// What was asked for.
        requested: Offset,
        /// The bound.
        end: Offset,
    },
    /// The file system said no.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
