//! Why a coordinator was not asked, or what it answered does not hold.

use std::sync::Arc;

use levada_log::{AppendError, StorageError};
use thiserror::Error;

use crate::AppendFault;

/// Why there is no answer of a coordinator; each kind says it in the words of its own errors.
#[derive(Debug, Error)]
pub(crate) enum CoordinatorFault {
    /// It lost its place and starts anew; what was asked for may have been done. Try again.
    #[error("the coordinator is loading")]
    Loading,
    /// The engine is closing.
    #[error("the engine is closing")]
    Closing,
    /// Too much waits for its partition, or no file can be opened for it; nothing was changed.
    #[error("the coordinator takes no changes now")]
    Overloaded,
    /// What it stored cannot be read.
    #[error("the state of the coordinator cannot be read: {0}")]
    Storage(StorageError),
    /// The disk fails.
    #[error("nothing can be changed now: {reason}")]
    Fenced {
        /// What happened.
        reason: String,
        /// Whether the change may hold all the same.
        possible: bool,
    },
}

impl From<&AppendFault> for CoordinatorFault {
    /// The refusal of a request whose entry, or one before it, was not stored.
    fn from(fault: &AppendFault) -> Self {
        match fault {
            AppendFault::Closing => Self::Closing,
            AppendFault::Overloaded(_) | AppendFault::OutOfFiles(_) => Self::Overloaded,
            AppendFault::Fenced { reason, possible } => Self::Fenced { reason: reason.clone(), possible: *possible },
            // One before it was not stored.
            AppendFault::Refused(AppendError::OffsetMismatch { .. }) => Self::Loading,
            // It is larger than a log takes.
            AppendFault::Refused(AppendError::TooLarge { .. }) => {
                tracing::error!(%fault, "a change of a coordinator cannot be stored");
                Self::Overloaded
            }
            // The log knew something of a transaction that the machine did not; the next one will.
            AppendFault::Refused(
                AppendError::ProducerFenced { .. }
                | AppendError::TransactionEnded { .. }
                | AppendError::TransactionOpen { .. }
                | AppendError::CoordinatorFenced { .. }
                | AppendError::OutOfOrderSequence { .. },
            ) => {
                tracing::error!(%fault, "the log refused a change that a coordinator has judged otherwise");
                Self::Loading
            }
            AppendFault::Refused(AppendError::TooManyTransactions { .. }) => {
                tracing::error!(%fault, "a coordinator's partition takes no further transaction");
                Self::Overloaded
            }
            AppendFault::Refused(AppendError::KeyReused | AppendError::Poisoned(_))
            | AppendFault::Transaction(_)
            | AppendFault::TopicDeleted
            | AppendFault::Retiring(_)
            | AppendFault::Keyless(_) => {
                unreachable!("it has keys, and its topic's partitions are never changed: {fault}")
            }
        }
    }
}

impl From<Arc<AppendFault>> for CoordinatorFault {
    fn from(fault: Arc<AppendFault>) -> Self {
        Self::from(&*fault)
    }
}
