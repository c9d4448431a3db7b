//! The calls of producers and operators.

use std::sync::Arc;

use levada_coordinator::{Outcome, Producer, Progress, TransactionCoordinator, TransactionHandle, TransactionView};
use levada_model::{Operation, Principal, ProducerEpoch, ProducerId, Resource, TransactionalId};

use super::asking::{Promise, Reply, begin_reply, end_reply, init_reply, unless_awaited};
use super::kind::TransactionKind;
use super::participants::producer;
use super::terms::{TransactionError, TransactionOffsets};
use crate::Engine;
use crate::engine::Core;

impl Engine {
    /// A producer starts under a transactional id: all before it are fenced, and what they left open is aborted before
    /// this answers. `timeout_ms` is after how long its transactions are aborted.
    ///
    /// # Errors
    /// See [`TransactionError`].
    pub async fn init_transactional_producer(
        &self,
        who: &Principal,
        id: &TransactionalId,
        timeout_ms: u64,
    ) -> Result<Producer, TransactionError> {
        self.core.authorize(who, Operation::Write, Resource::Cluster)?;
        // Nothing is written for a producer that cannot be.
        init_reply(TransactionCoordinator::check_init(id, timeout_ms).map(Progress::Done))?;
        self.core.start_producer(id, timeout_ms).await
    }

    /// A transaction begins. The same again, while nothing has ended it, answers the same.
    ///
    /// # Errors
    /// See [`TransactionError`].
    pub async fn begin_transaction(
        &self,
        who: &Principal,
        id: ProducerId,
        epoch: ProducerEpoch,
    ) -> Result<TransactionHandle, TransactionError> {
        self.core.authorize(who, Operation::Write, Resource::Cluster)?;
        self.core.begin_of(Producer { id, epoch }).await
    }

    /// Takes offsets of a group into a transaction: they count once it is committed, and never if it is aborted.
    ///
    /// # Errors
    /// See [`TransactionError`].
    pub async fn add_transaction_offsets(
        &self,
        who: &Principal,
        transaction: TransactionHandle,
        offsets: TransactionOffsets,
    ) -> Result<(), TransactionError> {
        self.core.authorize(who, Operation::Write, Resource::Cluster)?;
        let offsets = self.core.judge_pending(who, offsets).await?;
        self.core.add_offsets(transaction, offsets).await
    }

    /// Ends a transaction, and answers once the outcome can be read, with the epoch of the producer's next one. The same
    /// end again answers the same.
    ///
    /// # Errors
    /// See [`TransactionError`].
    pub async fn end_transaction(
        &self,
        who: &Principal,
        transaction: TransactionHandle,
        outcome: Outcome,
    ) -> Result<Producer, TransactionError> {
        self.core.authorize(who, Operation::Write, Resource::Cluster)?;
        self.core.end_of(transaction, outcome).await
    }

    /// Transactions that are open or being ended, by transactional id behind `after`, at most `limit`.
    ///
    /// # Errors
    /// See [`TransactionError`].
    pub async fn transactions(
        &self,
        who: &Principal,
        after: Option<&TransactionalId>,
        limit: usize,
    ) -> Result<Vec<TransactionView>, TransactionError> {
        self.core.authorize(who, Operation::Describe, Resource::Cluster)?;
        if self.core.is_closing() {
            return Err(TransactionError::Closing);
        }
        self.core.transactions.load_all();
        let mut transactions = Vec::new();
        for coordinator in self.core.transactions.all() {
            transactions.extend(coordinator.look(|machine| machine.transactions(after, limit)).await?);
        }
        transactions.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        transactions.truncate(limit);
        Ok(transactions)
    }

    /// An operator aborts a transaction, and is answered once that can be read. Its producer may go on with the next.
    ///
    /// # Errors
    /// See [`TransactionError`].
    pub async fn abort_transaction(
        &self,
        who: &Principal,
        transaction: TransactionHandle,
    ) -> Result<(), TransactionError> {
        self.core.authorize(who, Operation::Alter, Resource::Cluster)?;
        let coordinator = self.core.transactions.coordinator_of(transaction)?;
        let reply = |answer: Result<_, levada_coordinator::TransactionError>| Ok(Reply::from(answer?));
        self.core.ask(&coordinator, Promise::End, |machine, now, _| machine.abort(now, transaction).map(reply)).await
    }
}

/// The same for users and for the broker's own tasks.
impl Core {
    /// A producer starts under a transactional id that may be, also one of the broker's own.
    pub(crate) async fn start_producer(
        self: &Arc<Self>,
        id: &TransactionalId,
        timeout_ms: u64,
    ) -> Result<Producer, TransactionError> {
        let topic = self.ensure_coordinators::<TransactionKind>().await?;
        let coordinator = self.transactions.by_key_in(&topic, id.as_str());
        let ask =
            |machine: &mut TransactionCoordinator, now, spare| machine.init(now, id, timeout_ms, spare).map(init_reply);
        self.ask(&coordinator, Promise::Change, ask).await
    }

    /// A transaction of a producer begins.
    pub(crate) async fn begin_of(self: &Arc<Self>, producer: Producer) -> Result<TransactionHandle, TransactionError> {
        let Producer { id, epoch } = producer;
        let coordinator = self.transactions.coordinator_of_producer(id).await?;
        let coordinator = coordinator.ok_or(TransactionError::UnknownProducer(id, epoch))?;
        let begin = |machine: &mut TransactionCoordinator, now, spare| {
            unless_awaited(machine, producer, |machine| {
                machine.begin(now, id, epoch, spare).map(|answer| begin_reply(producer, answer))
            })
        };
        self.ask(&coordinator, Promise::Nothing, begin).await
    }

    /// A transaction ends.
    pub(crate) async fn end_of(
        self: &Arc<Self>,
        transaction: TransactionHandle,
        outcome: Outcome,
    ) -> Result<Producer, TransactionError> {
        let coordinator = self.transactions.coordinator_of(transaction)?;
        let end = |machine: &mut TransactionCoordinator, now, _| {
            unless_awaited(machine, producer(transaction), |machine| {
                machine.end(now, transaction, outcome).map(end_reply)
            })
        };
        self.ask(&coordinator, Promise::End, end).await
    }
}
