//! What the load asks of a broker, and the ways in which it may be refused.

use std::future::Future;

use levada_coordinator::Outcome;
use levada_model::{GroupName, Offset};

use crate::event::{Marks, Partition, Value, View};

/// Why something was not answered as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No answer came: it may have been done, or not.
    Unknown,
    /// It was not done and may be asked again.
    Later,
    /// A successor of the producer has started; it was not done.
    Fenced,
    /// The transaction has ended, and not as asked, if it was an end that was; it was not done.
    Ended,
    /// Something that this load does not expect.
    Wrong(String),
}

/// What a read gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The records.
    pub records: Vec<(Offset, Value)>,
    /// Where to go on.
    pub next: Offset,
    /// The marks of the same moment.
    pub marks: Marks,
}

/// Who is under load. A call that finds the broker down waits until it is back, or answers [`Refusal::Unknown`]; a call
/// that a crash fell into answers that always, whatever it was told.
pub trait Broker: Send + Sync {
    /// A producer id with its epoch.
    type Producer: Clone + Send + Sync;
    /// The name of a transaction.
    type Transaction: Clone + Send + Sync;

    /// A producer starts under a transactional id.
    fn start(&self, id: &str, timeout_ms: u64) -> impl Future<Output = Result<Self::Producer, Refusal>> + Send;

    /// A transaction begins.
    fn begin(&self, producer: &Self::Producer) -> impl Future<Output = Result<Self::Transaction, Refusal>> + Send;

    /// Records of a transaction go to a partition; with a sequence, of the first of them in this partition and
    /// transaction, the same again is stored once.
    fn send(
        &self,
        transaction: &Self::Transaction,
        partition: &Partition,
        sequence: Option<u32>,
        values: &[Value],
    ) -> impl Future<Output = Result<Vec<Offset>, Refusal>> + Send;

    /// An offset of a group is to be committed with a transaction.
    fn add_offset(
        &self,
        transaction: &Self::Transaction,
        group: &GroupName,
        partition: &Partition,
        offset: Offset,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// A transaction ends; what its producer goes on with.
    fn end(
        &self,
        transaction: &Self::Transaction,
        outcome: Outcome,
    ) -> impl Future<Output = Result<Self::Producer, Refusal>> + Send;

    /// A record outside of any transaction, by a producer with this id and epoch, as the first of its kind there.
    fn send_outside(
        &self,
        producer: &Self::Producer,
        partition: &Partition,
        value: Value,
    ) -> impl Future<Output = Result<Offset, Refusal>> + Send;

    /// A record of nobody's.
    fn store(&self, partition: &Partition, value: Value) -> impl Future<Output = Result<Offset, Refusal>> + Send;

    /// A group's offset outside of any transaction.
    fn commit_offset(
        &self,
        group: &GroupName,
        partition: &Partition,
        offset: Offset,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// A whole transaction in one request, with a key by which the same again is done once.
    fn execute(
        &self,
        key: &str,
        records: &[(Partition, Value)],
        offset: Option<&(GroupName, Partition, Offset)>,
    ) -> impl Future<Output = Result<Vec<Offset>, Refusal>> + Send;

    /// What there is from an offset on; waits a little while there is nothing.
    fn read(
        &self,
        view: View,
        partition: &Partition,
        from: Offset,
    ) -> impl Future<Output = Result<Found, Refusal>> + Send;

    /// A group's committed offset.
    fn group_offset(
        &self,
        group: &GroupName,
        partition: &Partition,
    ) -> impl Future<Output = Result<Option<Offset>, Refusal>> + Send;
}
