//! Asking a coordinator until it has an answer: with a new producer id where it needs one, and again when what it waits for
//! has come.
//!
//! No wake-up is lost: whoever waits for an id registers first and then asks. A future that is dropped in between leaves
//! nothing but what the coordinator has taken in.

use std::sync::Arc;

use levada_coordinator::{
    self as machine, BeginError, EndError, ExecuteError, InitError, Now, Progress, TransactionCoordinator,
    TransactionStep,
};
use levada_model::{ProducerId, TransactionalId};
use tokio::sync::Notify;

use super::kind::TransactionsCoordinator;
use super::terms::TransactionError;
use crate::engine::Core;
use crate::partition::blocking;

/// What a coordinator says to a question.
pub(super) enum Reply<T> {
    /// The answer.
    Done(T),
    /// To be asked again once something has ended.
    Wait(TransactionalId),
    /// To be asked again with a producer id to take.
    NeedsProducerId,
}

impl<T> From<Progress<T>> for Reply<T> {
    fn from(progress: Progress<T>) -> Self {
        match progress {
            Progress::Done(answer) => Self::Done(answer),
            Progress::Wait(id) => Self::Wait(id),
        }
    }
}

impl Core {
    /// Asks until there is an answer.
    pub(super) async fn ask<T>(
        self: &Arc<Self>,
        coordinator: &TransactionsCoordinator,
        ask: impl Fn(
            &mut TransactionCoordinator,
            Now,
            Option<ProducerId>,
        ) -> TransactionStep<Result<Reply<T>, TransactionError>>,
    ) -> Result<T, TransactionError> {
        let woken = Arc::new(Notify::new());
        let (mut watch, mut spare) = (None, None);
        loop {
            match coordinator.step(|machine, now, _| ask(machine, now, spare)).await?? {
                Reply::Done(answer) => return Ok(answer),
                Reply::NeedsProducerId => spare = Some(self.new_producer_id().await?),
                Reply::Wait(_) if watch.is_some() => woken.notified().await,
                Reply::Wait(id) => watch = Some(coordinator.watches().register(&id, &woken)),
            }
        }
    }

    async fn new_producer_id(self: &Arc<Self>) -> Result<ProducerId, TransactionError> {
        let core = self.clone();
        let id = blocking(move || core.producer_ids.give(&*core.metadata)).await;
        id.map_err(|error| TransactionError::Fenced { reason: error.to_string(), possible: false })
    }
}

/// The answer to the start of a producer.
pub(super) fn init_reply<T>(answer: Result<Progress<T>, InitError>) -> Result<Reply<T>, TransactionError> {
    match answer {
        Ok(progress) => Ok(progress.into()),
        Err(InitError::NeedsProducerId) => Ok(Reply::NeedsProducerId),
        Err(InitError::InvalidTimeout { min, max }) => Err(TransactionError::InvalidTimeout { min, max }),
        Err(InitError::ReservedId) => Err(TransactionError::ReservedId),
        Err(InitError::TooManyIds { limit }) => Err(TransactionError::TooManyIds { limit }),
    }
}

/// The answer to the begin of a transaction of this producer.
pub(super) fn begin_reply<T>(
    producer: machine::Producer,
    answer: Result<T, BeginError>,
) -> Result<Reply<T>, TransactionError> {
    match answer {
        Ok(begun) => Ok(Reply::Done(begun)),
        Err(BeginError::NeedsProducerId) => Ok(Reply::NeedsProducerId),
        Err(BeginError::UnknownProducer) => Err(TransactionError::UnknownProducer(producer.id, producer.epoch)),
        Err(BeginError::ProducerFenced) => Err(TransactionError::ProducerFenced),
        Err(BeginError::ConcurrentTransactions) => Err(TransactionError::ConcurrentTransactions),
    }
}

/// The answer to the end of a transaction.
pub(super) fn end_reply<T>(answer: Result<Progress<T>, EndError>) -> Result<Reply<T>, TransactionError> {
    match answer {
        Ok(progress) => Ok(progress.into()),
        Err(EndError::Transaction(error)) => Err(error.into()),
        Err(EndError::AnswerTooLarge { limit }) => Err(TransactionError::AnswerTooLarge { limit }),
    }
}

/// The answer to a transaction of one request.
pub(super) fn execute_reply<T>(answer: Result<Progress<T>, ExecuteError>) -> Result<Reply<T>, TransactionError> {
    match answer {
        Ok(progress) => Ok(progress.into()),
        Err(ExecuteError::NeedsProducerId) => Ok(Reply::NeedsProducerId),
        Err(ExecuteError::KeyReused) => Err(TransactionError::KeyReused),
        Err(ExecuteError::TooManyIds { limit }) => Err(TransactionError::TooManyIds { limit }),
    }
}
