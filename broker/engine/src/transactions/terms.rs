//! What the calls on transactions take and give, and why they are refused.

use levada_coordinator::{self as machine, AddError, Outcome, TransactionView};
use levada_log::StorageError;
use levada_model::{
    Denied, GroupName, MemberId, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicName, TransactionalId,
};
use thiserror::Error;

use crate::coordinators::CoordinatorFault;
use crate::{GroupError, Placed, ProduceError, ProduceRecord};

/// Offsets of a group that are committed with a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionOffsets {
    /// The group.
    pub group: GroupName,
    /// The member that read the records; none: a consumer that only stores its offsets here, which is refused while the
    /// group has members.
    pub member_id: Option<MemberId>,
    /// Each partition at most once.
    pub offsets: Vec<TransactionOffset>,
}

/// The offset of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionOffset {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: PartitionIndex,
    /// Next to read.
    pub offset: Offset,
}

/// A transaction of one request: all or nothing.
#[derive(Clone, Debug, Default)]
pub struct ExecuteRequest {
    /// Records for any topics.
    pub records: Vec<ExecuteRecord>,
    /// Offsets that are committed with them.
    pub group_offsets: Option<TransactionOffsets>,
    /// An `Idempotency-Key` with the SHA-256 of the request's body.
    pub key: Option<(String, [u8; 32])>,
}

/// A record of a transaction of one request.
#[derive(Clone, Debug)]
pub struct ExecuteRecord {
    /// Where to.
    pub topic: TopicName,
    /// What.
    pub record: ProduceRecord,
}

/// What became of a transaction of one request: it is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Where each record is, in the order of the request.
    pub records: Vec<ExecutedRecord>,
    /// Whether it was done before, by a request with the same key.
    pub duplicate: bool,
}

/// Where a record of a transaction of one request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutedRecord {
    /// Its topic.
    pub topic: TopicName,
    /// Its place there.
    pub placed: Placed,
}

/// A page of the transactions that are open or being ended.
#[derive(Clone, Debug, Default)]
pub struct OpenTransactions {
    /// By transactional id, each with the first [`TRANSACTION_PARTITIONS_TOLD_MAX`] of its partitions.
    ///
    /// [`TRANSACTION_PARTITIONS_TOLD_MAX`]: levada_model::limits::TRANSACTION_PARTITIONS_TOLD_MAX
    pub transactions: Vec<TransactionView>,
    /// Behind which id the next page begins; none on the last.
    pub next_after: Option<TransactionalId>,
    /// How many coordinators could not be asked: what they keep is missing.
    pub unread: usize,
}

/// Why a call on transactions was refused; nothing was changed, if nothing else is said.
#[derive(Debug, Error)]
pub enum TransactionError {
    /// Not allowed.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The time-out is out of bounds.
    #[error("a transaction's time-out is {min} to {max} ms")]
    InvalidTimeout {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// The id is one of the broker's own.
    #[error("transactional ids that begin with __ are the broker's own")]
    ReservedId,
    /// There are too many transactional ids.
    #[error("{limit} transactional ids are in use already")]
    TooManyIds {
        /// The cap.
        limit: usize,
    },
    /// This producer was not given out for transactions.
    #[error("producer id {0} with epoch {1} was not given out for transactions")]
    UnknownProducer(ProducerId, ProducerEpoch),
    /// Its producer was started anew.
    #[error("a later epoch of this producer was given out")]
    ProducerFenced,
    /// The transaction before is still being ended; try again.
    #[error("the producer's transaction before is still being ended")]
    ConcurrentTransactions,
    /// There is no such transaction.
    #[error("there is no such transaction")]
    NotFound,
    /// It has ended the other way, or takes nothing any more.
    #[error("the transaction was {}", match .outcome { Outcome::Commit => "committed", Outcome::Abort => "aborted" })]
    Ended {
        /// How.
        outcome: Outcome,
    },
    /// It has too many partitions.
    #[error("a transaction has at most {limit} partitions")]
    TooManyPartitions {
        /// The cap.
        limit: usize,
    },
    /// It has too many groups.
    #[error("a transaction has the offsets of at most {limit} groups")]
    TooManyGroups {
        /// The cap.
        limit: usize,
    },
    /// Another body came with this `Idempotency-Key` before.
    #[error("the idempotency key was used before with another body")]
    KeyReused,
    /// A transaction of one request has neither records nor offsets.
    #[error("there are neither records nor offsets")]
    Empty,
    /// The answer is longer than what is kept for an `Idempotency-Key`.
    #[error("an answer that is kept for an Idempotency-Key has at most {limit} bytes; send fewer records with one")]
    AnswerTooLarge {
        /// The cap.
        limit: usize,
    },
    /// Records of a transaction of one request were not taken; it was aborted. Places in `error` are those in the request.
    #[error("{topic}: {error}")]
    Produce {
        /// Where to.
        topic: TopicName,
        /// The place in the request of the first record that goes there.
        place: usize,
        /// Why not.
        error: Box<ProduceError>,
    },
    /// A partition did not store its part of a transaction of one request; it was aborted.
    #[error("{topic}: {fault}")]
    Append {
        /// The topic.
        topic: TopicName,
        /// Why not.
        fault: std::sync::Arc<crate::AppendFault>,
    },
    /// The offsets were not taken.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// What was asked for stands, or is being done, and its answer does not come.
    #[error("what was asked for was taken in, but its answer does not come: {0}")]
    Unanswered(Box<Self>),
    /// The coordinator lost its place and starts anew; what was asked for may have been done. Try again.
    #[error("the coordinator of transactions is loading")]
    Loading,
    /// The engine is closing.
    #[error("the engine is closing")]
    Closing,
    /// Too much waits for the coordinator's partition, or no file can be opened for it; try again.
    #[error("the coordinator of transactions takes no changes now")]
    Overloaded,
    /// What the coordinator stored cannot be read.
    #[error("the state of transactions cannot be read: {0}")]
    Storage(StorageError),
    /// The disk fails.
    #[error("transactions cannot be changed now: {reason}")]
    Fenced {
        /// What happened.
        reason: String,
        /// Whether the change may hold all the same.
        possible: bool,
    },
}

impl TransactionError {
    /// The same where what was asked for may stand, and this is why its answer does not come. What is an answer stays.
    pub(super) fn unanswered(self) -> Self {
        match self {
            // That it is not known any more is said of what has ended so long ago that others have since.
            Self::Closing
            | Self::Overloaded
            | Self::Storage(_)
            | Self::Fenced { .. }
            | Self::NotFound
            | Self::ProducerFenced => Self::Unanswered(Box::new(self)),
            other => other,
        }
    }
}

impl From<CoordinatorFault> for TransactionError {
    fn from(fault: CoordinatorFault) -> Self {
        match fault {
            CoordinatorFault::Loading => Self::Loading,
            CoordinatorFault::Closing => Self::Closing,
            CoordinatorFault::Overloaded => Self::Overloaded,
            CoordinatorFault::Storage(error) => Self::Storage(error),
            CoordinatorFault::Fenced { reason, possible } => Self::Fenced { reason, possible },
        }
    }
}

impl From<machine::TransactionError> for TransactionError {
    fn from(error: machine::TransactionError) -> Self {
        match error {
            machine::TransactionError::UnknownTransaction => Self::NotFound,
            machine::TransactionError::ProducerFenced => Self::ProducerFenced,
            machine::TransactionError::TransactionEnded { outcome } => Self::Ended { outcome },
        }
    }
}

impl From<AddError> for TransactionError {
    fn from(error: AddError) -> Self {
        match error {
            AddError::Transaction(error) => error.into(),
            AddError::TooManyPartitions { limit } => Self::TooManyPartitions { limit },
            AddError::TooManyGroups { limit } => Self::TooManyGroups { limit },
        }
    }
}
