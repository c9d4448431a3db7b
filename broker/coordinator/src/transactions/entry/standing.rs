//! Who may speak for a transactional id: what a producer id and epoch stand for, and which are given out next.

use levada_model::{ProducerEpoch, ProducerId};

use super::super::record::{Ended, LAST_EPOCH, Phase};
use super::super::terms::{Outcome, Producer, TransactionError};
use super::Entry;

/// What a producer id and epoch stand for.
pub(super) enum Standing {
    /// The transaction that is open, or the next one.
    Current,
    /// A transaction that is being ended.
    Ending(Outcome),
    /// The transaction that ended last, and what is answered to its end.
    Ended(Outcome, Producer),
    /// A later epoch was given out.
    Fenced,
    /// This was never given out.
    Unknown,
}

impl Entry {
    /// Whether this producer goes on with the next transaction once the one that is being ended has.
    pub(in super::super) fn is_ending_before(&self, producer: Producer) -> bool {
        let Producer { id, epoch } = self.record.producer;
        let is_next = producer.id == id && producer.epoch.0 == epoch.0 + 1;
        is_next && epoch.0 < LAST_EPOCH && matches!(self.record.phase, Phase::Ending { fences: false, .. })
    }

    pub(super) fn standing(&self, producer: Producer) -> Standing {
        let current = self.record.producer;
        if producer == current {
            return match self.record.phase {
                Phase::Ending { fences: true, .. } => Standing::Fenced,
                Phase::Ending { outcome, .. } => Standing::Ending(outcome),
                Phase::Idle if self.is_vacant() => Standing::Fenced,
                // What was answered stands until it is forgotten.
                Phase::Idle if self.record.answer.is_some() => Standing::Unknown,
                Phase::Idle | Phase::Open(_) => Standing::Current,
            };
        }
        match self.record.last {
            Some(Ended { transaction, outcome, next: Some(next) }) if transaction == producer => {
                Standing::Ended(outcome, next)
            }
            _ if producer.id == current.id && producer.epoch > current.epoch => Standing::Unknown,
            _ => Standing::Fenced,
        }
    }

    /// Whether this is the transaction that is open, or the next one, which may begin without a word.
    pub(super) fn admit(&self, producer: Producer) -> Result<(), TransactionError> {
        match self.standing(producer) {
            Standing::Current if self.lacks_successor() => Err(TransactionError::UnknownTransaction),
            Standing::Current => Ok(()),
            Standing::Ending(outcome) | Standing::Ended(outcome, _) => {
                Err(TransactionError::TransactionEnded { outcome })
            }
            Standing::Fenced => Err(TransactionError::ProducerFenced),
            Standing::Unknown => Err(TransactionError::UnknownTransaction),
        }
    }

    /// Whether nobody was given the epoch, since the transaction before was aborted to fence its producer.
    pub(super) fn is_vacant(&self) -> bool {
        let Producer { id, epoch } = self.record.producer;
        let fenced = self.record.last.filter(|last| last.next.is_none()).map(|last| last.transaction);
        fenced.is_some_and(|fenced| fenced.id == id && fenced.epoch.0 + 1 == epoch.0)
    }

    /// Whether the transaction of this epoch has nobody yet who goes on after it.
    fn lacks_successor(&self) -> bool {
        self.record.producer.epoch.0 >= LAST_EPOCH && self.record.successor.is_none()
    }

    /// Sees to it that somebody goes on after the transaction of this epoch; none if that needs a new id.
    pub(super) fn reserve_successor(&mut self, spare: Option<ProducerId>) -> Option<()> {
        if self.lacks_successor() {
            self.record.successor = Some(spare?);
            self.changed = true;
        }
        Some(())
    }

    /// Gives the next producer an epoch that nobody has; none if that needs a new id.
    pub(super) fn fence(&mut self, spare: Option<ProducerId>) -> Option<()> {
        let Producer { id, epoch } = self.record.producer;
        self.record.producer = if epoch.0 < LAST_EPOCH {
            Producer { id, epoch: ProducerEpoch(epoch.0 + 1) }
        } else {
            let id = self.record.successor.or(spare)?;
            self.record.successor = None;
            Producer { id, epoch: ProducerEpoch(0) }
        };
        self.changed = true;
        Some(())
    }
}
