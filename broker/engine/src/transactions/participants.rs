//! What a transaction is told before it writes somewhere, so that its end gets there.

use std::sync::Arc;

use levada_coordinator::TransactionHandle;
use levada_extension::TopicPartition;
use levada_model::GroupName;

use super::kind::{Transactions, TransactionsCoordinator};
use super::terms::TransactionError;

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

    /// Takes a group into a transaction, durably: to be done before its offsets are written.
    ///
    /// # Errors
    /// Of [`TransactionError`] those of a transaction, of the coordinator, and [`TransactionError::TooManyGroups`].
    pub(crate) async fn add_offsets(
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
