//! What a produce in a transaction asks of its coordinator: to know each partition before the first record is there, and
//! why a partition that refused one did.
//!
//! Not here: whether the transaction is the caller's and still open (the coordinator's), and sequences (the log's).

use std::collections::BTreeSet;
use std::sync::Arc;

use levada_coordinator::TransactionHandle;
use levada_extension::TopicPartition;
use levada_log::AppendError;
use levada_model::{PartitionIndex, Principal};

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

/// Whether `who` may write in the transaction: none of one request is anybody's.
pub(super) async fn authorize(
    core: &Core,
    who: &Principal,
    transaction: TransactionHandle,
) -> Result<(), ProduceError> {
    core.authorize_transaction(who, transaction).await.map_err(|error| match error {
        TransactionError::Denied(error) => ProduceError::Denied(error),
        error => ProduceError::Transaction(Box::new(error)),
    })
}

/// Whether the transaction takes records, before anything is done for them. It may end until they are there.
pub(super) async fn check_open(core: &Arc<Core>, transaction: TransactionHandle) -> Result<(), ProduceError> {
    let checked = core.transactions.add_partitions(transaction, &[]).await;
    checked.map_err(|error| ProduceError::Transaction(Box::new(error)))
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

#[cfg(test)]
mod tests {
    use levada_coordinator::Outcome;
    use levada_model::{TopicName, TransactionalId};

    use super::*;
    use crate::CreateTopic;
    use crate::testing::open;

    #[tokio::test]
    async fn a_partition_that_fences_is_asked_about_and_other_faults_are_told_as_they_are() {
        let (engine, who) = (open(), Principal::anonymous());
        let name = TopicName::new("t").expect("a name");
        let new = CreateTopic { name: name.clone(), partitions: 1, config: Default::default() };
        engine.create_topic(&who, new).await.expect("created");
        let topic = engine.core.catalog.get(&name).expect("it is there");
        let id = TransactionalId::new("one").expect("an id");
        let producer = engine.init_transactional_producer(&who, &id, 1_000).await.expect("it starts");
        let transaction = engine.begin_transaction(&who, producer.id, producer.epoch).await.expect("it begins");
        let begun = || begin(&engine.core, &topic, transaction, BTreeSet::from([PartitionIndex(0)]));
        let (open, ended) = (begun().await.expect("it is open"), begun().await.expect("it is open"));
        let fenced = || {
            let (got, current) = (transaction.producer_epoch, levada_model::ProducerEpoch(9));
            Arc::new(AppendError::ProducerFenced { producer_id: producer.id, got, current }.into())
        };
        let told = Refused::new(Some(open)).in_words(fenced()).await;
        assert!(matches!(*told, AppendFault::Refused(AppendError::ProducerFenced { .. })), "{told}");
        engine.end_transaction(&who, transaction, Outcome::Abort).await.expect("it ends");
        let mut refused = Refused::new(Some(ended));
        let other = refused.in_words(Arc::new(AppendFault::Closing)).await;
        assert!(matches!(*other, AppendFault::Closing));
        for _ in 0..2 {
            let AppendFault::Transaction(error) = &*refused.in_words(fenced()).await else { panic!("it has ended") };
            assert!(matches!(**error, TransactionError::Ended { outcome: Outcome::Abort }), "{error}");
        }
        let told = Refused::new(None).in_words(fenced()).await;
        assert!(matches!(*told, AppendFault::Refused(_)), "it is of no transaction");
    }
}
