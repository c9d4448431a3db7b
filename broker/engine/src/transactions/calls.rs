//! The calls of producers and operators.

use levada_coordinator::{Outcome, Producer, TransactionHandle, TransactionView};
use levada_model::{Principal, ProducerEpoch, ProducerId, TransactionalId};

use super::terms::{ExecuteRequest, Executed, TransactionError, TransactionOffsets};
use crate::Engine;

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
        let _ = (id, timeout_ms);
        let (id, epoch) = self.init_producer(who).await.expect("an id");
        Ok(Producer { id, epoch })
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
        let _ = who;
        let coordinator = levada_model::PartitionIndex(0);
        Ok(TransactionHandle { coordinator, producer_id: id, producer_epoch: epoch })
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
        let _ = (who, transaction, offsets);
        todo!()
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
        let _ = who;
        Ok(super::stand_in::end(&self.core, transaction, outcome).await)
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
        let _ = (who, after, limit);
        todo!()
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
        let _ = (who, transaction);
        todo!()
    }

    /// A whole transaction at once: stores records in any topics and commits offsets of a group, all or nothing.
    ///
    /// # Errors
    /// See [`TransactionError`]; nothing of it can be read then, unless it says that it may have been done.
    pub async fn execute_transaction(
        &self,
        who: &Principal,
        request: ExecuteRequest,
    ) -> Result<Executed, TransactionError> {
        let _ = (who, request);
        todo!()
    }
}
