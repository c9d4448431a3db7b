//! What a produce in a transaction asks of its coordinator: to know each partition before the first record is there, and
//! why a partition that refused one did.
//!
//! Not here: whether the transaction is the caller's and still open (the coordinator's), and sequences (the log's).

use std::collections::BTreeSet;
use std::sync::Arc;

use levada_coordinator::TransactionHandle;
use levada_extension::TopicPartition;
use levada_log::AppendError;
use levada_model::PartitionIndex;

use super::{Acks, AppendFault, ProduceError};
use crate::TransactionError;
use crate::catalog::Topic;
use crate::engine::Core;

/// A transaction that knows of the partitions that its records go to.
pub(super) struct Begun {
    core: Arc<Core>,
    transaction: TransactionHandle,
    partitions: Vec<TopicPartition>,
}

/// Faults of a request's appends, in the words of its transaction, if it has one.
pub(super) struct Refused {
    transaction: Option<Begun>,
    /// Why the transaction takes nothing any more, once that was asked.
    why: Option<Arc<AppendFault>>,
}

/// Tells the transaction's coordinator of the partitions. From then on they get its end, whatever comes of the records.
pub(super) async fn begin(
    core: &Arc<Core>,
    topic: &Topic,
    transaction: TransactionHandle,
    partitions: BTreeSet<PartitionIndex>,
) -> Result<Begun, ProduceError> {
    let place = |partition| TopicPartition { topic: topic.id(), partition };
    let partitions = partitions.into_iter().map(place).collect();
    let begun = Begun { core: core.clone(), transaction, partitions };
    begun.add().await.map_err(|error| ProduceError::Transaction(Box::new(error)))?;
    Ok(begun)
}

pub(super) fn check_acks(acks: Acks) -> Result<(), ProduceError> {
    if acks == Acks::None { Err(ProduceError::TransactionAcks) } else { Ok(()) }
}

impl Begun {
    async fn add(&self) -> Result<(), TransactionError> {
        self.core.transactions.add_partitions(self.transaction, &self.partitions).await
    }
}

impl Refused {
    pub(super) fn new(transaction: Option<Begun>) -> Self {
        Self { transaction, why: None }
    }

    /// The fault as it is. But that a partition is fenced tells only that the transaction is over: how, its coordinator
    /// knows.
    pub(super) async fn in_words(&mut self, fault: Arc<AppendFault>) -> Arc<AppendFault> {
        if !matches!(*fault, AppendFault::Refused(AppendError::ProducerFenced { .. })) {
            return fault;
        }
        if let Some(begun) = self.transaction.take()
            && let Err(error) = begun.add().await
        {
            self.why = Some(Arc::new(AppendFault::Transaction(Box::new(error))));
        }
        self.why.clone().unwrap_or(fault)
    }
}
