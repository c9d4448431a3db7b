//! Why the task of a partition does not go on.

use super::terms::FailedRecord;
use crate::{AppendFault, FetchError, GroupError, ProduceError, TopicError, TransactionError};

/// A processor stands still over this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// The record, if it is one.
    pub(super) at: Option<Box<FailedRecord>>,
}

/// Why a task stops.
#[derive(Debug)]
pub(super) enum Halt {
    /// It begins again where it has committed.
    Passing(String),
    /// It goes on in a while where it is; of the batch that it was at nothing is stored behind its position.
    Busy(String),
    /// It cannot go on.
    Failed(Failure),
    /// It has nothing left to do here, and whoever keeps the tasks looks anew: the partition was dropped, or nothing says
    /// where to begin in it.
    Over,
    /// The engine closes.
    Gone,
}

impl Halt {
    /// Nothing that passes by itself.
    pub(super) fn failed(reason: impl ToString) -> Self {
        Self::Failed(Failure { reason: reason.to_string(), at: None })
    }

    /// It came of this record.
    pub(super) fn over(self, record: FailedRecord) -> Self {
        match self {
            Self::Failed(Failure { reason, at: None }) => Self::Failed(Failure { reason, at: Some(Box::new(record)) }),
            other => other,
        }
    }
}

impl From<TransactionError> for Halt {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Closing | TransactionError::Group(GroupError::Closing) => Self::Gone,
            error => Self::Passing(error.to_string()),
        }
    }
}

impl From<GroupError> for Halt {
    fn from(error: GroupError) -> Self {
        match error {
            GroupError::Closing => Self::Gone,
            error => Self::Passing(error.to_string()),
        }
    }
}

impl From<ProduceError> for Halt {
    fn from(error: ProduceError) -> Self {
        match error {
            ProduceError::Closing => Self::Gone,
            ProduceError::Denied(_) | ProduceError::NotFound(_) | ProduceError::Internal(_) => Self::failed(error),
            ProduceError::Transaction(error) => (*error).into(),
            error @ (ProduceError::PartitionerBusy { .. } | ProduceError::Validator { .. }) => {
                Self::Busy(error.to_string())
            }
            error => Self::Passing(error.to_string()),
        }
    }
}

impl From<TopicError> for Halt {
    fn from(error: TopicError) -> Self {
        match error {
            TopicError::Closing => Self::Gone,
            TopicError::OutOfFiles | TopicError::Storage(_) | TopicError::Fenced { .. } => {
                Self::Passing(error.to_string())
            }
            error => Self::failed(error),
        }
    }
}

impl From<FetchError> for Halt {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Closing => Self::Gone,
            FetchError::Denied(_) | FetchError::NotFound(_) => Self::failed(error),
            error => Self::Passing(error.to_string()),
        }
    }
}

impl From<&AppendFault> for Halt {
    fn from(fault: &AppendFault) -> Self {
        match fault {
            AppendFault::Closing => Self::Gone,
            fault => Self::Passing(fault.to_string()),
        }
    }
}
