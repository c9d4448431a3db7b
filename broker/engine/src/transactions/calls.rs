//! The calls of producers and operators.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_coordinator::{Outcome, Producer, Progress, TransactionCoordinator, TransactionHandle};
use levada_model::{Operation, Principal, ProducerEpoch, ProducerId, Resource, TransactionalId, limits};

use super::asking::{Promise, begin_reply, end_reply, init_reply, unless_awaited};
use super::kind::TransactionKind;
use super::participants::producer;
use super::terms::{OpenTransactions, TransactionError, TransactionOffsets};
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
        self.core.authorize_transaction(who, transaction).await?;
        let offsets = self.core.judge_pending(who, offsets).await?;
        self.core.add_offsets(transaction, offsets).await
    }

    /// Ends a transaction, and answers once the outcome can be read, with the epoch of the producer's next one. The same
    /// end again answers the same. An operator aborts any in the same way, also those of one request.
    ///
    /// # Errors
    /// See [`TransactionError`].
    pub async fn end_transaction(
        &self,
        who: &Principal,
        transaction: TransactionHandle,
        outcome: Outcome,
    ) -> Result<Producer, TransactionError> {
        match outcome {
            Outcome::Commit => self.core.authorize_transaction(who, transaction).await?,
            Outcome::Abort => self.core.authorize(who, Operation::Write, Resource::Cluster)?,
        }
        self.core.end_of(transaction, outcome).await
    }

    /// A page of the transactions that are open or being ended, by transactional id behind `after`, at most `limit`. A
    /// coordinator that cannot be asked keeps nobody from seeing the others.
    ///
    /// # Errors
    /// See [`TransactionError`]; those of a coordinator only if none can be asked.
    pub async fn transactions(
        &self,
        who: &Principal,
        after: Option<&TransactionalId>,
        limit: usize,
    ) -> Result<OpenTransactions, TransactionError> {
        self.core.authorize(who, Operation::Describe, Resource::Cluster)?;
        if self.core.is_closing() {
            return Err(TransactionError::Closing);
        }
        self.core.transactions.load_all();
        let all = self.core.transactions.all();
        // Which are on the page, before anything else of them is looked at.
        let (mut ids, mut unread, mut fault) = (BTreeMap::new(), 0, None);
        for (number, coordinator) in all.iter().enumerate() {
            match coordinator.look(|machine| machine.open_ids(after, limit + 1)).await {
                Ok(open) => ids.extend(open.into_iter().map(|id| (id, number))),
                Err(error) => (unread, fault) = (unread + 1, Some(error)),
            }
            while ids.len() > limit + 1 {
                ids.pop_last();
            }
        }
        if let Some(fault) = fault.filter(|_| unread == all.len()) {
            return Err(fault.into());
        }
        let has_more = ids.len() > limit;
        if has_more {
            ids.pop_last();
        }
        let next_after = ids.last_key_value().filter(|_| has_more).map(|(id, _)| id.clone());
        let mut of: BTreeMap<_, Vec<_>> = BTreeMap::new();
        ids.into_iter().for_each(|(id, number)| of.entry(number).or_default().push(id));
        let mut transactions = Vec::new();
        for (number, ids) in of {
            let view = |machine: &TransactionCoordinator| {
                let views = ids.iter().map(|id| machine.transaction(id, limits::TRANSACTION_PARTITIONS_TOLD_MAX));
                views.flatten().collect::<Vec<_>>()
            };
            match all[number].look(view).await {
                Ok(views) => transactions.extend(views),
                Err(_) => unread += 1,
            }
        }
        transactions.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        Ok(OpenTransactions { transactions, next_after, unread })
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
                machine.end(now, transaction, outcome).map(|answer| end_reply(transaction, answer))
            })
        };
        self.ask(&coordinator, Promise::End, end).await
    }
}
