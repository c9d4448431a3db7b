//! What the coordinator of groups is asked about offsets inside transactions, and what it answers.

use levada_model::ProducerId;
use thiserror::Error;

use crate::terms::{CoordinatorRecord, MemberError, StandaloneError};
use crate::{Outcome, Producer};

/// What a step adds to the log that is of a transaction. Such a step has no other records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionalAppend {
    /// Records that count once their transaction is committed, as one transactional batch.
    Offsets {
        /// Whose, with the transaction's epoch.
        producer: Producer,
        /// At least one.
        records: Vec<CoordinatorRecord>,
    },
    /// The end of a producer's transaction, as a control batch.
    Marker(OffsetsMarker),
}

/// The end of a transaction in the coordinator's partition, for all groups there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OffsetsMarker {
    /// Whose, with the marker's epoch: higher than the transaction's (KIP-890).
    pub producer: Producer,
    /// The term of the coordinator of transactions.
    pub coordinator_epoch: i32,
    /// How it ends.
    pub outcome: Outcome,
}

/// Why offsets were not taken into a transaction; none of them was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PendingError {
    /// The member may not speak.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// They come from outside of the group's members, and it has some.
    #[error(transparent)]
    Standalone(#[from] StandaloneError),
    /// The member does not hold the partitions at these places.
    #[error("the member does not hold {} of the partitions", .0.len())]
    NotHeld(Vec<usize>),
    /// The transaction has ended here, or a later one has begun.
    #[error("the transaction has ended, or a later epoch of its producer was given out")]
    ProducerFenced,
    /// The producer's transaction before has not ended here.
    #[error("the transaction before of producer {0} has not ended")]
    TransactionOpen(ProducerId),
    /// Too many transactions with offsets are open.
    #[error("{limit} transactions with offsets of groups are open here")]
    TooManyTransactions {
        /// The cap.
        limit: usize,
    },
    /// Too many offsets wait for the ends of their transactions.
    #[error("at most {limit} offsets wait here for the ends of their transactions")]
    TooManyOffsets {
        /// The cap.
        limit: usize,
    },
}

/// Why a marker was not taken; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MarkerError {
    /// A later coordinator has ended a transaction of this producer.
    #[error("a coordinator of term {current} has ended a transaction of the producer")]
    CoordinatorFenced {
        /// Its term.
        current: i32,
    },
    /// The transaction has ended the other way.
    #[error("the transaction has ended the other way")]
    OtherOutcome,
}
