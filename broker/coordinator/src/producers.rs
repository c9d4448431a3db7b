//! What the coordinator of groups remembers of the producers of transactions, so that nothing reaches its log that the log
//! would refuse: by the rules of the log (KIP-890), and no more of them than it does.

use std::collections::{BTreeMap, BTreeSet};

use levada_model::{GroupName, ProducerEpoch, ProducerId, limits};

use crate::Producer;
use crate::offsets::{MarkerError, OffsetsMarker, PendingError};

/// The producers whose offsets or markers are in the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Producers {
    known: BTreeMap<ProducerId, Known>,
    /// Those without an open transaction, by their last write, the oldest first.
    idle: BTreeSet<(u64, ProducerId)>,
    next_write: u64,
}

#[derive(Clone, Debug)]
struct Known {
    /// Of its last write.
    epoch: ProducerEpoch,
    /// Its last marker.
    marker: Option<OffsetsMarker>,
    /// The groups whose offsets are in its open transaction; none is open where there are none.
    groups: BTreeSet<GroupName>,
    last_write: u64,
}

/// What a marker is to the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkerVerdict {
    New,
    /// It, or a later one, is in the log.
    Known,
}

impl Producers {
    /// Whether the log takes an offset of this transaction.
    pub(crate) fn judge_offsets(&self, producer: Producer) -> Result<(), PendingError> {
        let known = self.known.get(&producer.id);
        let is_open = known.is_some_and(|known| !known.groups.is_empty());
        match known {
            Some(known) if producer.epoch < known.epoch => Err(PendingError::ProducerFenced),
            Some(known) if is_open && producer.epoch > known.epoch => Err(PendingError::TransactionOpen(producer.id)),
            _ if !is_open && self.open() >= limits::GROUP_TRANSACTIONS_MAX => {
                Err(PendingError::TooManyTransactions { limit: limits::GROUP_TRANSACTIONS_MAX })
            }
            _ => Ok(()),
        }
    }

    /// Whether the log takes a marker.
    pub(crate) fn judge_marker(&self, marker: &OffsetsMarker) -> Result<MarkerVerdict, MarkerError> {
        let Some(known) = self.known.get(&marker.producer.id) else { return Ok(MarkerVerdict::New) };
        if let Some(last) = &known.marker {
            if marker.coordinator_epoch < last.coordinator_epoch {
                return Err(MarkerError::CoordinatorFenced { current: last.coordinator_epoch });
            }
            if marker.producer.epoch == last.producer.epoch && marker.outcome != last.outcome {
                return Err(MarkerError::OtherOutcome);
            }
        }
        Ok(if marker.producer.epoch > known.epoch { MarkerVerdict::New } else { MarkerVerdict::Known })
    }

    /// Notes offsets of a group. If a transaction of a lower epoch is open still, its marker was lost, and it counts as
    /// aborted: those groups are answered.
    pub(crate) fn add(&mut self, producer: Producer, group: &GroupName) -> BTreeSet<GroupName> {
        let mut known = self.take(producer);
        let lost = if known.epoch == producer.epoch { BTreeSet::new() } else { std::mem::take(&mut known.groups) };
        known.epoch = producer.epoch;
        known.groups.insert(group.clone());
        self.put(producer.id, known);
        lost
    }

    /// Notes a marker. Answers the groups with offsets in the transaction that it ends.
    pub(crate) fn end(&mut self, marker: OffsetsMarker) -> BTreeSet<GroupName> {
        let mut known = self.take(marker.producer);
        let groups = std::mem::take(&mut known.groups);
        known.epoch = marker.producer.epoch;
        known.marker = Some(marker);
        self.put(marker.producer.id, known);
        groups
    }

    fn open(&self) -> usize {
        self.known.len() - self.idle.len()
    }

    fn take(&mut self, producer: Producer) -> Known {
        let new = || Known { epoch: producer.epoch, marker: None, groups: BTreeSet::new(), last_write: 0 };
        let known = self.known.remove(&producer.id).unwrap_or_else(new);
        self.idle.remove(&(known.last_write, producer.id));
        known
    }

    fn put(&mut self, id: ProducerId, mut known: Known) {
        known.last_write = self.next_write;
        self.next_write += 1;
        if known.groups.is_empty() {
            self.idle.insert((known.last_write, id));
        }
        self.known.insert(id, known);
        if self.known.len() > limits::PRODUCERS_MAX
            && let Some((_, oldest)) = self.idle.pop_first()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;

    fn marker(id: i64, epoch: i16) -> OffsetsMarker {
        let producer = Producer { id: ProducerId(id), epoch: ProducerEpoch(epoch) };
        OffsetsMarker { producer, coordinator_epoch: 0, outcome: Outcome::Commit }
    }

    #[test]
    fn a_producer_too_many_takes_the_place_of_the_one_that_wrote_last_of_all_and_none_that_is_open_is_forgotten() {
        let mut producers = Producers::default();
        let group = GroupName::new("g").expect("a name");
        let open = Producer { id: ProducerId(-1), epoch: ProducerEpoch(0) };
        assert!(producers.add(open, &group).is_empty());
        let most = i64::try_from(limits::PRODUCERS_MAX).expect("small");
        (0..most).for_each(|id| drop(producers.end(marker(id, 1))));
        producers.end(marker(0, 2));
        producers.end(marker(most, 1));
        let is_known = |id| producers.judge_marker(&marker(id, 1)) == Ok(MarkerVerdict::Known);
        assert_eq!(producers.known.len(), limits::PRODUCERS_MAX);
        let forgotten: Vec<_> = (0..=most).filter(|id| !is_known(*id)).collect();
        assert_eq!(forgotten, [1, 2], "the first has written since");
        let late = Producer { epoch: ProducerEpoch(1), ..open };
        assert_eq!(producers.judge_offsets(late), Err(PendingError::TransactionOpen(open.id)));
    }
}
