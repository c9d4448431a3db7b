//! What goes into a produce and what comes out of it: requests, answers, and every way to be refused.

use std::sync::Arc;

use bytes::BytesMut;
use levada_coordinator::TransactionHandle;
use levada_extension::{ModuleBusy, ModuleFault};
use levada_model::{
    Denied, ModuleRef, Offset, PartitionIndex, ProducerEpoch, ProducerId, Record, Sequence, Timestamp, TopicName,
};
use thiserror::Error;

use crate::{TopicError, TransactionError};

/// When a produce is answered (Kafka's `acks`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acks {
    /// When all in-sync replicas have it, and there are at least `min.insync.replicas`.
    #[default]
    All,
    /// When the leader has it as durably as the topic asks for.
    Leader,
    /// At once.
    None,
}

/// How a produce is stored once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Once {
    /// It is not: a retry is stored again.
    #[default]
    No,
    /// By an `Idempotency-Key` and the SHA-256 of the request's body.
    Key {
        /// The key, at most `IDEMPOTENCY_KEY_BYTES_MAX` bytes.
        key: String,
        /// The body's digest.
        body_digest: [u8; 32],
    },
    /// By producer id, epoch and the sequence of the first record; all records name one partition.
    Producer {
        /// Who.
        id: ProducerId,
        /// In which term.
        epoch: ProducerEpoch,
        /// The first record's sequence.
        sequence: Sequence,
    },
    /// As part of a transaction.
    Transaction {
        /// Which.
        transaction: TransactionHandle,
        /// The first record's sequence, counted from 0 in each partition and transaction, if the producer wants a retry to
        /// be recognised; all records name one partition then. None: the partition counts on.
        sequence: Option<Sequence>,
    },
}

/// A record to store.
#[derive(Clone, Debug, Default)]
pub struct ProduceRecord {
    /// Key, value, headers.
    pub record: Record,
    /// The producer's time; none: now.
    pub timestamp: Option<Timestamp>,
    /// Where to; none: the partitioner decides.
    pub partition: Option<PartitionIndex>,
}

/// Records to store, all or (where they are wrong) none.
#[derive(Clone, Debug, Default)]
pub struct ProduceRequest {
    /// At least one.
    pub records: Vec<ProduceRecord>,
    /// When to answer.
    pub acks: Acks,
    /// How to store it once.
    pub once: Once,
    /// Store only if this is the partition's next offset; all records go to one partition.
    pub expected_offset: Option<Offset>,
    /// Where records go that have neither key nor partition, if the topic has that partition and no module that places
    /// them: where those before them went.
    pub keyless_to: Option<PartitionIndex>,
}

/// Batches to store as they are, in one partition.
#[derive(Debug)]
pub struct BatchesRequest {
    /// Where to.
    pub partition: PartitionIndex,
    /// One or more v2 batches, back to back.
    pub bytes: BytesMut,
    /// When to answer.
    pub acks: Acks,
    /// Store the first only if this is the partition's next offset.
    pub expected_offset: Option<Offset>,
    /// The transaction of which they are part; all of them are transactional then, and have its producer id and epoch.
    pub transaction: Option<TransactionHandle>,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its partition.
    pub partition: PartitionIndex,
    /// Its offset; none under [`Acks::None`].
    pub offset: Option<Offset>,
    /// Its time as stored.
    pub timestamp: Timestamp,
}

/// What became of a produce.
#[derive(Clone, Debug)]
pub struct Produced {
    /// One answer a record, in order. An error means that its partition's owner refused or failed.
    pub records: Vec<Result<Placed, Arc<AppendFault>>>,
    /// Whether all of it was stored before (the offsets are the first ones).
    pub duplicate: bool,
}

/// What is wrong with one record; found before anything is stored.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordFault {
    /// Larger than `max.message.bytes`.
    #[error("the record has {size_bytes} bytes; max.message.bytes of the topic is {limit_bytes}")]
    TooLarge {
        /// Its key, value and headers.
        size_bytes: usize,
        /// The topic's limit.
        limit_bytes: usize,
    },
    /// More headers than `RECORD_HEADERS_MAX`.
    #[error("the record has {count} headers; at most {max} are taken")]
    TooManyHeaders {
        /// How many.
        count: usize,
        /// The limit.
        max: usize,
    },
    /// There is no such partition.
    #[error("the topic has no partition {0}")]
    NoPartition(PartitionIndex),
    /// The partition takes no new records.
    #[error("partition {0} is retiring and takes no new records")]
    Retiring(PartitionIndex),
    /// It has no key, and the topic is compacted.
    #[error(
        "the record has no key, and the topic is compacted (cleanup.policy): every record needs one, an empty one at least"
    )]
    NoKey,
    /// Further in the future than `message.timestamp.after.max.ms`, or negative.
    #[error("timestamp {timestamp} is not from 0 to {max}, the time now plus message.timestamp.after.max.ms")]
    Timestamp {
        /// What came.
        timestamp: Timestamp,
        /// The latest that is taken now.
        max: Timestamp,
    },
    /// The topic's validator does not let it pass.
    #[error("validator {module} rejects the record: {reason}")]
    Rejected {
        /// The validator.
        module: ModuleRef,
        /// Why, in its words.
        reason: String,
    },
}

/// Why a partition's owner did not store its part.
#[derive(Debug, Error)]
pub enum AppendFault {
    /// Sequence, epoch, key or expected offset: see [`levada_log::AppendError`].
    #[error(transparent)]
    Refused(#[from] levada_log::AppendError),
    /// The transaction ended before its records came, so none of them counts that was not stored.
    #[error(transparent)]
    Transaction(Box<TransactionError>),
    /// Too much waits for this partition; nothing was stored, try again.
    #[error("too many appends wait for partition {0}")]
    Overloaded(PartitionIndex),
    /// No file can be opened for this partition; nothing was stored, try again.
    #[error("the broker has as many files open as it may, so partition {0} takes no records now")]
    OutOfFiles(PartitionIndex),
    /// The log directory is fenced.
    #[error("the log directory takes no writes: {reason}")]
    Fenced {
        /// What happened.
        reason: String,
        /// Whether the records may come back after a restart.
        possible: bool,
    },
    /// The engine is closing; nothing was stored.
    #[error("the engine is closing")]
    Closing,
    /// The topic was deleted meanwhile; nothing was stored.
    #[error("the topic was deleted")]
    TopicDeleted,
    /// The topic began to be compacted, or is asked to be, and the append has records without a key; nothing was stored,
    /// try again.
    #[error("the topic is about to be compacted, so partition {0} takes no records without a key now")]
    Keyless(PartitionIndex),
    /// The partition began to retire meanwhile; nothing was stored.
    #[error("partition {0} is retiring and takes no new records")]
    Retiring(PartitionIndex),
}

/// Why a whole produce was refused; nothing was stored.
#[derive(Debug, Error)]
pub enum ProduceError {
    /// Not allowed.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// There is no such topic, and topics are not created by producing.
    #[error("there is no topic {0}")]
    NotFound(TopicName),
    /// The broker's own topics take no records from outside.
    #[error("{0} is the broker's own topic and takes no records from outside")]
    Internal(TopicName),
    /// Records were wrong, each at its place.
    #[error("{} of the records are wrong", .0.len())]
    Records(Vec<(usize, RecordFault)>),
    /// No record at all.
    #[error("there are no records")]
    Empty,
    /// More than [`REQUEST_RECORDS_MAX`](levada_model::limits::REQUEST_RECORDS_MAX) records.
    #[error("the request has more than {} records; send several", levada_model::limits::REQUEST_RECORDS_MAX)]
    TooManyRecords,
    /// A producer sequence or an expected offset with records of several partitions, or of none named.
    #[error("{0} needs all records in one named partition")]
    OnePartition(&'static str),
    /// Fewer in-sync replicas than `min.insync.replicas`, and `acks=all`.
    #[error("{in_sync} replicas are in sync, min.insync.replicas is {needed}")]
    NotEnoughReplicas {
        /// Replicas in sync.
        in_sync: u32,
        /// Replicas needed.
        needed: u32,
    },
    /// The bytes are not batches; which one and why.
    #[error("batch {index}: {detail}")]
    Batch {
        /// Place of the batch.
        index: usize,
        /// What is wrong.
        detail: String,
    },
    /// A record of a batch has no key, and the topic is compacted.
    #[error(
        "batch {batch}: record {record} has no key, and the topic is compacted (cleanup.policy): every record needs one"
    )]
    NoKey {
        /// Place of the batch.
        batch: usize,
        /// Place of the record in it.
        record: u32,
    },
    /// The topic's validator does not let a record of a batch pass.
    #[error("batch {batch}: validator {module} rejects record {record}: {reason}")]
    Rejected {
        /// Place of the batch.
        batch: usize,
        /// Place of the record in it.
        record: u32,
        /// The validator.
        module: ModuleRef,
        /// Why, in its words.
        reason: String,
    },
    /// The module that is the topic's partitioner has no room now; try again.
    #[error("partitioner {module} has no room now: {busy}")]
    PartitionerBusy {
        /// The partitioner.
        module: ModuleRef,
        /// Why.
        busy: ModuleBusy,
    },
    /// The topic's partitioner has no usable answer, and nothing stands in for it: the idempotency key was stored before, in
    /// places that cannot be told any more. Try again.
    #[error("partitioner {module} gave no answer for a request whose key was stored before: {fault}")]
    Partitioner {
        /// The partitioner.
        module: ModuleRef,
        /// What happened.
        fault: ModuleFault,
    },
    /// The topic's validator has no usable answer, so nobody knows whether the records may be stored; try again.
    #[error("validator {module} gave no answer: {fault}")]
    Validator {
        /// The validator.
        module: ModuleRef,
        /// What happened; [`ModuleFault::Busy`] where it has no room now.
        fault: ModuleFault,
    },
    /// The topic could not be created on the fly.
    #[error("the topic could not be created: {0}")]
    AutoCreate(TopicError),
    /// The producer id was never given out, or for transactions.
    #[error("producer id {0} was not given out by this cluster for records outside of transactions")]
    UnknownProducer(ProducerId),
    /// The engine is closing.
    #[error("the engine is closing")]
    Closing,
    /// The transaction does not take them.
    #[error(transparent)]
    Transaction(Box<TransactionError>),
    /// Without an answer nobody would know whether to commit.
    #[error("records of a transaction need an answer, so acks=none is not taken with one")]
    TransactionAcks,
    /// The disk fails, so no producer id is given out.
    #[error("no producer id is given out now: {0}")]
    Fenced(String),
}
