//! What a transaction is told before it writes somewhere, so that its end gets there.

use std::sync::Arc;

use levada_coordinator::{Producer, TransactionHandle};
use levada_extension::TopicPartition;
use levada_model::GroupName;

use super::kind::{Transactions, TransactionsCoordinator};
use super::terms::TransactionError;
use crate::engine::Core;
use crate::groups::PendingOffsets;

impl Transactions {
    /// Takes partitions into a transaction, durably: to be done before each append, and cheap where they are known. From
    /// then on each gets the marker of its end, whatever comes of the append.
    ///
    /// # Errors
    /// Of [`TransactionError`] those of a transaction, of the coordinator, and
    /// [`TransactionError::TooManyPartitions`].
    pub(crate) async fn add_partitions(
        self: &Arc<Self>,
        transaction: TransactionHandle,
        partitions: &[TopicPartition],
    ) -> Result<(), TransactionError> {
        let coordinator = self.coordinator_of(transaction)?;
        coordinator.step(|machine, now, _| machine.add_partitions(now, transaction, partitions)).await??;
        Ok(())
    }

    /// Takes a group into a transaction, likewise.
    async fn add_group(
        self: &Arc<Self>,
        transaction: TransactionHandle,
        group: &GroupName,
    ) -> Result<(), TransactionError> {
        let coordinator = self.coordinator_of(transaction)?;
        coordinator.step(|machine, now, _| machine.add_offsets(now, transaction, group)).await??;
        Ok(())
    }

    /// The coordinator that a transaction names.
    pub(super) fn coordinator_of(
        self: &Arc<Self>,
        transaction: TransactionHandle,
    ) -> Result<TransactionsCoordinator, TransactionError> {
        self.by_index(transaction.coordinator).ok_or(TransactionError::NotFound)
    }
}

impl Core {
    /// Takes offsets that were judged into a transaction.
    pub(super) async fn add_offsets(
        self: &Arc<Self>,
        transaction: TransactionHandle,
        offsets: PendingOffsets,
    ) -> Result<(), TransactionError> {
        let group = offsets.group().clone();
        self.transactions.add_group(transaction, &group).await?;
        let producer = Producer { id: transaction.producer_id, epoch: transaction.producer_epoch };
        match self.add_pending(producer, offsets).await {
            // The group only knows that it is over: how, the coordinator says.
            Err(TransactionError::ProducerFenced) => {
                self.transactions.add_group(transaction, &group).await?;
                Err(TransactionError::ProducerFenced)
            }
            other => other,
        }
    }
}
