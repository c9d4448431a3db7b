//! Why a partition's log said no: one enum per operation.

use std::io;
use std::path::Path;
use std::sync::Arc;

use levada_model::{Offset, ProducerEpoch, ProducerId, Sequence};
use rustix::io::Errno;
use thiserror::Error;

use crate::StorageError;

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

impl StorageError {
    /// Whether no file descriptor was free (EMFILE, ENFILE): nothing is wrong with the disk, and it may pass.
    #[must_use]
    pub fn is_out_of_files(&self) -> bool {
        let code = self.source.raw_os_error();
        [Errno::MFILE, Errno::NFILE].iter().any(|errno| code == Some(errno.raw_os_error()))
    }

    /// Names the operation and the path of a failed call; made for `map_err`.
    pub(crate) fn at(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self { operation, path, source }
    }
}
