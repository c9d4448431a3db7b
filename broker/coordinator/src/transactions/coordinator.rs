//! The coordinator of one partition of `__transaction_state`: finds the transactional id of an event, and gathers what
//! follows.

use bytes::Bytes;
use levada_extension::TopicPartition;
use levada_model::{GroupName, ProducerEpoch, ProducerId, Tick, TransactionalId};

use super::TransactionHandle;
use super::terms::{
    AbortError, AddError, BeginError, BodyDigest, EndError, ExecuteError, Executing, InitError, Outcome, Participants,
    Producer, Progress, TransactionOptions, TransactionStep, TransactionView,
};
use crate::terms::{CoordinatorRecord, Now};

/// The transactional ids of one partition of `__transaction_state`: their producers, transactions and timers.
#[derive(Clone, Debug)]
pub struct TransactionCoordinator {
    options: TransactionOptions,
}

impl TransactionCoordinator {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(options: TransactionOptions) -> Self {
        Self { options }
    }

    /// Takes in one record of the partition, in order; what cannot be read changes nothing.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        todo!()
    }

    /// Ends the replay: markers of outcomes that stand are sent again, and what is open has what is left of its time.
    pub fn loaded(&mut self, now: Now) -> TransactionStep<()> {
        todo!()
    }

    /// When [`tick`](Self::tick) has something to do next; none while nothing is timed.
    #[must_use]
    pub fn next_due(&self) -> Option<Tick> {
        todo!()
    }

    /// Does all that is due: aborts transactions whose time is over, sends markers again, forgets ids that were not used.
    pub fn tick(&mut self, now: Now) -> TransactionStep<()> {
        todo!()
    }

    /// A producer starts: all before it under this id are fenced, and what they left open is aborted first.
    ///
    /// `spare` is a producer id that nobody has; it is taken only if a call without it said so.
    ///
    /// # Errors
    /// See [`InitError`].
    pub fn init(
        &mut self,
        now: Now,
        id: &TransactionalId,
        timeout_ms: u64,
        spare: Option<ProducerId>,
    ) -> TransactionStep<Result<Progress<Producer>, InitError>> {
        todo!()
    }

    /// A transaction begins. Nothing is stored before something is in it. The same again answers the same.
    ///
    /// # Errors
    /// See [`BeginError`].
    pub fn begin(
        &mut self,
        now: Now,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        spare: Option<ProducerId>,
    ) -> TransactionStep<Result<TransactionHandle, BeginError>> {
        todo!()
    }

    /// A transaction is going to write to these partitions: to be asked before each append, and durable before it.
    /// Partitions that it has already cost nothing.
    ///
    /// # Errors
    /// See [`AddError`].
    pub fn add_partitions(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        partitions: &[TopicPartition],
    ) -> TransactionStep<Result<(), AddError>> {
        todo!()
    }

    /// A transaction is going to commit offsets of this group: to be asked before, and durable before it.
    ///
    /// # Errors
    /// See [`AddError`].
    pub fn add_offsets(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        group: &GroupName,
    ) -> TransactionStep<Result<(), AddError>> {
        todo!()
    }

    /// A transaction ends. The same end again answers the same.
    ///
    /// # Errors
    /// See [`EndError`].
    pub fn end(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        outcome: Outcome,
    ) -> TransactionStep<Result<Progress<Producer>, EndError>> {
        todo!()
    }

    /// An operator aborts the transaction that this id has open. Its producer is told so, and may go on.
    ///
    /// # Errors
    /// See [`AbortError`].
    pub fn abort_id(&mut self, now: Now, id: &TransactionalId) -> TransactionStep<Result<Progress<()>, AbortError>> {
        todo!()
    }

    /// An operator aborts this transaction. Its producer is told so, and may go on.
    ///
    /// # Errors
    /// See [`AbortError`].
    pub fn abort(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
    ) -> TransactionStep<Result<Progress<()>, AbortError>> {
        todo!()
    }

    /// A transaction of one request begins under an id of the broker's own (one that
    /// [`is_internal`](TransactionalId::is_internal)): one that it uses again and again, or, with `body`, the one that is
    /// derived from an `Idempotency-Key` and its principal. A try that is under way is waited for; one that a crash left
    /// open is aborted first.
    ///
    /// # Errors
    /// See [`ExecuteError`].
    pub fn execute(
        &mut self,
        now: Now,
        id: &TransactionalId,
        timeout_ms: u64,
        body: Option<BodyDigest>,
        spare: Option<ProducerId>,
    ) -> TransactionStep<Result<Progress<Executing>, ExecuteError>> {
        todo!()
    }

    /// Commits a transaction that [`execute`](Self::execute) began with a `body`, and keeps what is answered to it.
    ///
    /// # Errors
    /// See [`EndError`].
    pub fn commit_execution(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        answer: Bytes,
    ) -> TransactionStep<Result<Progress<Producer>, EndError>> {
        todo!()
    }

    /// These participants have their markers. Of a transaction that is not being ended it changes nothing.
    pub fn markers_written(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        written: &Participants,
    ) -> TransactionStep<()> {
        todo!()
    }

    /// These markers could not be written: they are sent again after a while.
    pub fn markers_failed(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        failed: &Participants,
    ) -> TransactionStep<()> {
        todo!()
    }

    /// Whether this producer id was given to one of its ids.
    #[must_use]
    pub fn knows_producer(&self, producer_id: ProducerId) -> bool {
        todo!()
    }

    /// At most `limit` transactions that are open or being ended, by transactional id, behind `after`.
    #[must_use]
    pub fn transactions(&self, after: Option<&TransactionalId>, limit: usize) -> Vec<TransactionView> {
        todo!()
    }

    /// Records that hold all that it knows: what is left of all its steps' records after compaction.
    #[must_use]
    pub fn records(&self) -> Vec<CoordinatorRecord> {
        todo!()
    }
}
