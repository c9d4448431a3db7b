//! What the coordinator of transactions is asked and what it answers.

use std::collections::BTreeSet;
use std::ops::AddAssign;

use bytes::Bytes;
use levada_extension::TopicPartition;
use levada_model::{GroupName, PartitionIndex, ProducerEpoch, ProducerId, Timestamp, TransactionalId};
use thiserror::Error;

use super::TransactionHandle;
use crate::terms::CoordinatorRecord;

/// The settings of a coordinator of transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionOptions {
    /// The partition of `__transaction_state` that it keeps.
    pub partition: PartitionIndex,
    /// Its term, which markers carry so that those of an earlier one are refused (KIP-98).
    pub coordinator_epoch: i32,
    /// How long an id is kept without a transaction (`transactional.id.expiration.ms`).
    pub id_expiration_ms: u64,
    /// How long ids of the broker's own, and with them the answers of transactions of one request, are kept.
    pub execute_answer_ms: u64,
    /// How long a marker that could not be written waits for its next try.
    pub marker_retry_ms: u64,
}

/// An answer with its effects. State has changed already: the answer may be given, and markers may be sent, only once all
/// `records` of this and all earlier steps are durable, in the order of the steps; if they cannot be made so, the
/// coordinator is loaded anew.
#[derive(Clone, Debug)]
#[must_use]
pub struct TransactionStep<T> {
    /// What to answer.
    pub answer: T,
    /// To append to `__transaction_state`, as one batch.
    pub records: Vec<CoordinatorRecord>,
    /// Markers to write, each to be answered with
    /// [`markers_written`](crate::TransactionCoordinator::markers_written) and
    /// [`markers_failed`](crate::TransactionCoordinator::markers_failed), also in parts.
    pub markers: Vec<WriteMarkers>,
    /// Ids that were given as [`Progress::Wait`]: whoever waits for one asks again.
    pub completed: Vec<TransactionalId>,
    /// What became of transactions.
    pub counts: TransactionCounts,
}

/// How many transactions did what in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionCounts {
    /// They began. One that was begun before a restart and had nothing in it counts again.
    pub begun: u64,
    /// That they are committed stands.
    pub committed: u64,
    /// That they are aborted stands.
    pub aborted: u64,
    /// They are among those, since their time was over.
    pub timed_out: u64,
}

/// An answer, or the word that it is too early for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress<T> {
    /// The answer.
    Done(T),
    /// Markers are being written. The same is to be asked again once a step's `completed` names this id; to wait for
    /// that begins before the step that answers this.
    Wait(TransactionalId),
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// All of it counts.
    Commit,
    /// Nothing of it counts.
    Abort,
}

/// A producer id with the epoch in which its next transaction may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Producer {
    /// The id.
    pub id: ProducerId,
    /// The epoch.
    pub epoch: ProducerEpoch,
}

/// Where a transaction has, or may have, written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Participants {
    /// Partitions with its records.
    pub partitions: BTreeSet<TopicPartition>,
    /// Groups with its offsets: their markers go to the group's partition of `__consumer_offsets`.
    pub groups: BTreeSet<GroupName>,
}

/// Markers to write, with retries as the coordinator says. A partition whose topic is gone counts as written, and so does
/// one that has the marker already: where the producer's epoch is this one or higher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteMarkers {
    /// Which transaction ends; to be given back with the answer.
    pub transaction: TransactionHandle,
    /// The marker's epoch: one above the transaction's (KIP-890, KIP-1228).
    pub producer_epoch: ProducerEpoch,
    /// The term of the coordinator.
    pub coordinator_epoch: i32,
    /// Which marker.
    pub outcome: Outcome,
    /// Where.
    pub participants: Participants,
}

/// The SHA-256 of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BodyDigest(pub [u8; 32]);

/// What becomes of a transaction of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executing {
    /// It has begun.
    Begun(TransactionHandle),
    /// It was done before, and this was the answer.
    Replayed(Bytes),
}

/// A transaction that is open, or is being ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionView {
    /// Whose.
    pub transactional_id: TransactionalId,
    /// Its name.
    pub transaction: TransactionHandle,
    /// How it stands.
    pub state: TransactionState,
    /// When it began.
    pub started_at: Timestamp,
    /// After how long it is aborted.
    pub timeout_ms: u64,
    /// Where it has written: the first of its partitions, and all groups.
    pub participants: Participants,
    /// How many partitions there are.
    pub partition_count: usize,
    /// How many of all these have no marker yet, as far as is known; none while it is open.
    pub markers_missing: Option<usize>,
}

/// How a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransactionState {
    /// It is open.
    Ongoing,
    /// Its outcome stands, and markers are being written.
    Prepared(Outcome),
}

/// Why a producer could not start; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InitError {
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
    /// There are too many ids.
    #[error("{limit} transactional ids are in use here")]
    TooManyIds {
        /// The cap.
        limit: usize,
    },
    /// To be asked again with a producer id to take.
    #[error("a new producer id is needed")]
    NeedsProducerId,
}

/// Why a transaction could not begin; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BeginError {
    /// This producer id, or this epoch of it, was not given out for transactions.
    #[error("no transactional id has this producer id and epoch")]
    UnknownProducer,
    /// A later epoch was given out.
    #[error("a later epoch of this producer was given out")]
    ProducerFenced,
    /// The transaction before is still being ended.
    #[error("the transaction before is still being ended")]
    ConcurrentTransactions,
    /// To be asked again with a producer id to take: the epochs of this one end with this transaction.
    #[error("a new producer id is needed")]
    NeedsProducerId,
}

/// Why a transaction does not take something; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TransactionError {
    /// There is no such transaction.
    #[error("there is no such transaction")]
    UnknownTransaction,
    /// Its producer was started anew.
    #[error("a later epoch of this producer was given out")]
    ProducerFenced,
    /// It has ended, or is being ended.
    #[error("the transaction was {}", .outcome.past())]
    TransactionEnded {
        /// How.
        outcome: Outcome,
    },
}

/// Why a partition or group was not taken into a transaction; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AddError {
    /// The transaction takes nothing.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
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
}

/// Why a transaction did not end this way; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EndError {
    /// It cannot be ended so.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// Its answer is too long to be kept.
    #[error("an answer that is kept has at most {limit} bytes")]
    AnswerTooLarge {
        /// The cap.
        limit: usize,
    },
}

/// Why a transaction of one request could not begin; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ExecuteError {
    /// Another body came with the key before.
    #[error("another body came with this key before")]
    KeyReused,
    /// There are too many ids.
    #[error("{limit} transactional ids are in use here")]
    TooManyIds {
        /// The cap.
        limit: usize,
    },
    /// To be asked again with a producer id to take.
    #[error("a new producer id is needed")]
    NeedsProducerId,
}

impl<T> TransactionStep<T> {
    /// The same with another answer.
    pub fn map<U>(self, answer: impl FnOnce(T) -> U) -> TransactionStep<U> {
        let Self { answer: given, records, markers, completed, counts } = self;
        TransactionStep { answer: answer(given), records, markers, completed, counts }
    }
}

impl AddAssign for TransactionCounts {
    fn add_assign(&mut self, more: Self) {
        self.begun += more.begun;
        self.committed += more.committed;
        self.aborted += more.aborted;
        self.timed_out += more.timed_out;
    }
}

impl Participants {
    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.partitions.len() + self.groups.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty() && self.groups.is_empty()
    }

    /// About how much they take.
    pub(super) fn size_bytes(&self) -> usize {
        let groups = self.groups.iter().map(|group| group.as_str().len());
        self.partitions.len() * size_of::<TopicPartition>() + groups.sum::<usize>()
    }

    /// Takes all of `others` out.
    pub(super) fn remove_all(&mut self, others: &Self) {
        for partition in &others.partitions {
            self.partitions.remove(partition);
        }
        for group in &others.groups {
            self.groups.remove(group);
        }
    }

    /// Takes in those of `others` that are among `these`.
    pub(super) fn add_among(&mut self, these: &Self, others: &Self) {
        self.partitions.extend(others.partitions.intersection(&these.partitions));
        self.groups.extend(others.groups.intersection(&these.groups).cloned());
    }
}

impl Outcome {
    fn past(self) -> &'static str {
        match self {
            Self::Commit => "committed",
            Self::Abort => "aborted",
        }
    }
}
