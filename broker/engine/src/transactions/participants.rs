//! What a transaction is told before it writes somewhere, so that its end gets there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_coordinator::{AddError, Now, Producer, TransactionCoordinator, TransactionHandle, TransactionStep};
use levada_extension::TopicPartition;
use levada_model::{GroupName, limits};
use parking_lot::{Mutex, MutexGuard};

use super::asking::{Asking, Promise, add_reply, unless_awaited};
use super::kind::{Transactions, TransactionsCoordinator};
use super::terms::TransactionError;
use crate::engine::Core;
use crate::groups::PendingOffsets;

/// Transactions of one coordinator of which it is kept in mind what they have durably.
const KNOWN_MAX: usize = 10_000;

/// Partitions that open transactions have durably, so that nobody waits for the disk to hear of them again. By the number
/// of their coordinator. What is not in here is only unknown.
pub(super) struct Known(Vec<Mutex<BTreeMap<TransactionHandle, BTreeSet<TopicPartition>>>>);

impl Default for Known {
    fn default() -> Self {
        Self((0..limits::TRANSACTION_STATE_PARTITIONS).map(|_| Mutex::default()).collect())
    }
}

impl Known {
    fn of(
        &self,
        transaction: TransactionHandle,
    ) -> MutexGuard<'_, BTreeMap<TransactionHandle, BTreeSet<TopicPartition>>> {
        self.0[transaction.coordinator.0 as usize].lock()
    }

    fn has(&self, transaction: TransactionHandle, partitions: &[TopicPartition]) -> bool {
        let all = self.of(transaction);
        all.get(&transaction).is_some_and(|known| partitions.iter().all(|partition| known.contains(partition)))
    }

    fn add(&self, transaction: TransactionHandle, partitions: &[TopicPartition]) {
        let mut all = self.of(transaction);
        // Whoever is late with its word, behind the end of its transaction, leaves something behind.
        if all.len() >= KNOWN_MAX {
            all.clear();
        }
        all.entry(transaction).or_default().extend(partitions);
    }

    /// Its outcome stands.
    pub(super) fn forget(&self, transaction: TransactionHandle) {
        self.of(transaction).remove(&transaction);
    }
}

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
        let known = &self.kind().known;
        let promise = if known.has(transaction, partitions) { Promise::Nothing } else { Promise::Change };
        self.add(&coordinator, transaction, promise, |machine, now| {
            machine.add_partitions(now, transaction, partitions)
        })
        .await?;
        if promise == Promise::Change {
            known.add(transaction, partitions);
        }
        Ok(())
    }

    /// Takes a group into a transaction, likewise.
    async fn add_group(
        self: &Arc<Self>,
        transaction: TransactionHandle,
        group: &GroupName,
    ) -> Result<(), TransactionError> {
        let coordinator = self.coordinator_of(transaction)?;
        self.add(&coordinator, transaction, Promise::Change, |machine, now| {
            machine.add_offsets(now, transaction, group)
        })
        .await
    }

    async fn add(
        &self,
        coordinator: &TransactionsCoordinator,
        transaction: TransactionHandle,
        promise: Promise,
        add: impl Fn(&mut TransactionCoordinator, Now) -> TransactionStep<Result<(), AddError>>,
    ) -> Result<(), TransactionError> {
        let mut asking = Asking::new(coordinator, promise);
        let added = asking.step(|machine, now| {
            unless_awaited(machine, producer(transaction), |machine| add(machine, now).map(add_reply))
        });
        let () = added.await?.expect("only what begins takes a producer id");
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
    pub(crate) async fn add_offsets(
        self: &Arc<Self>,
        transaction: TransactionHandle,
        offsets: PendingOffsets,
    ) -> Result<(), TransactionError> {
        let group = offsets.group().clone();
        self.transactions.add_group(transaction, &group).await?;
        match self.add_pending(producer(transaction), offsets).await {
            // The group only knows that it is over: how, the coordinator says.
            Err(TransactionError::ProducerFenced) => {
                self.transactions.add_group(transaction, &group).await?;
                Err(TransactionError::ProducerFenced)
            }
            other => other,
        }
    }
}

/// Whose epoch a transaction is.
pub(super) fn producer(transaction: TransactionHandle) -> Producer {
    Producer { id: transaction.producer_id, epoch: transaction.producer_epoch }
}
