//! Asking a coordinator until it has an answer: with a new producer id where it needs one, and again when what it waits for
//! has come.
//!
//! No wake-up is lost: whoever waits for an id registers first and then asks. A future that is dropped in between leaves
//! nothing but what the coordinator has taken in. Once something of a question is durable, no fault of a later try says that
//! nothing came of it.

use std::sync::Arc;

use levada_coordinator::{
    AddError, BeginError, EndError, ExecuteError, InitError, Now, Producer, Progress, TransactionCoordinator,
    TransactionHandle, TransactionStep,
};
use levada_model::{ProducerId, TransactionalId};
use tokio::sync::Notify;

use super::kind::TransactionsCoordinator;
use super::terms::TransactionError;
use crate::coordinators::Watch;
use crate::engine::Core;
use crate::partition::blocking;

/// What a coordinator says to a question.
pub(super) enum Reply<T> {
    /// The answer.
    Done(T),
    /// The answer, which follows from nothing else: it is not given before all is durable that the machine has taken in.
    Known(T),
    /// To be asked again once something has ended that was before it.
    Wait(TransactionalId),
    /// To be asked again once it has ended: its outcome stands, or the same is being done for another who asked.
    UnderWay(TransactionalId),
    /// To be asked again with a producer id to take.
    NeedsProducerId,
}

/// Whether an answer may be given before what the machine has taken in is durable, as long as the step had nothing stored
/// and there is nothing wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// It promises nothing: that a transaction has begun is nowhere but in memory anyway.
    Nothing,
    /// It may be given if it was waited for: then it follows from an outcome and markers that are durable.
    End,
    /// It may not.
    Change,
}

/// What a step of the machine says.
pub(super) type Asked<T> = TransactionStep<Result<Reply<T>, TransactionError>>;

impl Core {
    /// Asks until there is an answer.
    pub(super) async fn ask<T>(
        self: &Arc<Self>,
        coordinator: &TransactionsCoordinator,
        promise: Promise,
        ask: impl Fn(&mut TransactionCoordinator, Now, Option<ProducerId>) -> Asked<T>,
    ) -> Result<T, TransactionError> {
        let mut asking = Asking::new(coordinator, promise);
        let mut spare = None;
        loop {
            match asking.step(|machine, now| ask(machine, now, spare)).await? {
                Some(answer) => return Ok(answer),
                None => spare = Some(self.new_producer_id().await.map_err(|error| asking.in_words(error))?),
            }
        }
    }

    async fn new_producer_id(self: &Arc<Self>) -> Result<ProducerId, TransactionError> {
        let core = self.clone();
        let id = blocking(move || core.producer_ids.give_transactional(&*core.metadata)).await;
        id.map_err(|error| TransactionError::Fenced { reason: error.to_string(), possible: false })
    }
}

/// A question to a coordinator, with its place among those that wait.
pub(super) struct Asking<'a> {
    coordinator: &'a TransactionsCoordinator,
    promise: Promise,
    woken: Arc<Notify>,
    watch: Option<Watch<TransactionalId>>,
    /// Whether something of it is durable.
    may_stand: bool,
}

impl<'a> Asking<'a> {
    pub(super) fn new(coordinator: &'a TransactionsCoordinator, promise: Promise) -> Self {
        Self { coordinator, promise, woken: Arc::default(), watch: None, may_stand: false }
    }

    /// Asks until there is an answer, or (none) a producer id is needed for it.
    pub(super) async fn step<T>(
        &mut self,
        ask: impl Fn(&mut TransactionCoordinator, Now) -> Asked<T>,
    ) -> Result<Option<T>, TransactionError> {
        self.until_answered(ask).await.map_err(|error| self.in_words(error))
    }

    /// What is said of an error, after all that was asked up to now.
    fn in_words(&self, error: TransactionError) -> TransactionError {
        if self.may_stand { error.unanswered() } else { error }
    }

    async fn until_answered<T>(
        &mut self,
        ask: impl Fn(&mut TransactionCoordinator, Now) -> Asked<T>,
    ) -> Result<Option<T>, TransactionError> {
        loop {
            let stepped = self.coordinator.take_step(|machine, now, _| ask(machine, now)).await?;
            let may_be_early = match self.promise {
                Promise::Nothing => true,
                Promise::End => self.watch.is_some(),
                Promise::Change => false,
            };
            if !may_be_early || stepped.has_entry || !matches!(stepped.answer, Ok(Reply::Done(_))) {
                stepped.receipt.durable().await?;
                self.may_stand |= stepped.has_entry || matches!(stepped.answer, Ok(Reply::UnderWay(_)));
            }
            match stepped.answer? {
                Reply::Done(answer) | Reply::Known(answer) => return Ok(Some(answer)),
                Reply::NeedsProducerId => return Ok(None),
                Reply::Wait(_) | Reply::UnderWay(_) if self.watch.is_some() => self.woken.notified().await,
                Reply::Wait(id) | Reply::UnderWay(id) => {
                    self.watch = Some(self.coordinator.watches().register(&id, &self.woken))
                }
            }
        }
    }
}

/// What a producer is told that comes after a transaction which is still being ended: after a restart it may be that it
/// was told of its epoch before the log says so.
pub(super) fn unless_awaited<T>(
    machine: &mut TransactionCoordinator,
    producer: Producer,
    step: impl FnOnce(&mut TransactionCoordinator) -> Asked<T>,
) -> Asked<T> {
    match machine.awaited(producer.id, producer.epoch) {
        Some(id) => TransactionStep::empty(Ok(Reply::Wait(id.clone()))),
        None => step(machine),
    }
}

/// The answer to the start of a producer.
pub(super) fn init_reply<T>(answer: Result<Progress<T>, InitError>) -> Result<Reply<T>, TransactionError> {
    match answer {
        Ok(Progress::Done(producer)) => Ok(Reply::Done(producer)),
        Ok(Progress::Wait(id)) => Ok(Reply::Wait(id)),
        Err(InitError::NeedsProducerId) => Ok(Reply::NeedsProducerId),
        Err(InitError::InvalidTimeout { min, max }) => Err(TransactionError::InvalidTimeout { min, max }),
        Err(InitError::ReservedId) => Err(TransactionError::ReservedId),
        Err(InitError::TooManyIds { limit }) => Err(TransactionError::TooManyIds { limit }),
    }
}

/// The answer to the begin of a transaction of this producer.
pub(super) fn begin_reply<T>(producer: Producer, answer: Result<T, BeginError>) -> Result<Reply<T>, TransactionError> {
    match answer {
        Ok(begun) => Ok(Reply::Done(begun)),
        Err(BeginError::NeedsProducerId) => Ok(Reply::NeedsProducerId),
        Err(BeginError::UnknownProducer) => Err(TransactionError::UnknownProducer(producer.id, producer.epoch)),
        Err(BeginError::ProducerFenced) => Err(TransactionError::ProducerFenced),
        Err(BeginError::ConcurrentTransactions) => Err(TransactionError::ConcurrentTransactions),
    }
}

/// The answer to what a transaction is told that it takes in.
pub(super) fn add_reply(answer: Result<(), AddError>) -> Result<Reply<()>, TransactionError> {
    answer.map(Reply::Done).map_err(TransactionError::from)
}

/// The answer to the end of a transaction. That its producer goes on with the next epoch follows from the outcome and its
/// markers, but which id takes over behind the last epoch is known by its record alone.
pub(super) fn end_reply(
    transaction: TransactionHandle,
    answer: Result<Progress<Producer>, EndError>,
) -> Result<Reply<Producer>, TransactionError> {
    match answer {
        Ok(Progress::Done(next)) if next.id == transaction.producer_id => Ok(Reply::Done(next)),
        Ok(Progress::Done(next)) => Ok(Reply::Known(next)),
        Ok(Progress::Wait(id)) => Ok(Reply::UnderWay(id)),
        Err(EndError::Transaction(error)) => Err(error.into()),
        Err(EndError::AnswerTooLarge { limit }) => Err(TransactionError::AnswerTooLarge { limit }),
    }
}

/// The answer to a transaction of one request: with a key others may be at the same.
pub(super) fn execute_reply<T>(
    has_key: bool,
    answer: Result<Progress<T>, ExecuteError>,
) -> Result<Reply<T>, TransactionError> {
    match answer {
        Ok(Progress::Done(executing)) => Ok(Reply::Done(executing)),
        Ok(Progress::Wait(id)) if has_key => Ok(Reply::UnderWay(id)),
        Ok(Progress::Wait(id)) => Ok(Reply::Wait(id)),
        Err(ExecuteError::NeedsProducerId) => Ok(Reply::NeedsProducerId),
        Err(ExecuteError::KeyReused) => Err(TransactionError::KeyReused),
        Err(ExecuteError::TooManyIds { limit }) => Err(TransactionError::TooManyIds { limit }),
    }
}
