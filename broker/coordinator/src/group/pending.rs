//! Offsets inside transactions: taken in, and then committed or dropped by the transaction's marker.
//!
//! An offset counts from its own place in the log, as if its record had been alone there: so what stands is what a
//! compaction of the log leaves. Whatever is written for its partition behind it, without a transaction or in one that
//! commits, wins, whichever ends first. So a record without a transaction ends all that is pending of its partition:
//! commits, and the tombstones of a group that is deleted or of a topic that is gone.

use std::collections::{BTreeMap, BTreeSet};

use levada_extension::TopicPartition;
use levada_model::{MemberId, ProducerId, Timestamp};

use super::commits::is_held;
use super::{Context, Group};
use crate::Outcome;
use crate::offsets::PendingError;
use crate::records::{OffsetKey, OffsetRecord};
use crate::terms::{Committed, CoordinatorRecord, StandaloneError};

/// Offsets that wait for the ends of their transactions.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    /// By partition, and then in the order of the log.
    offsets: BTreeMap<Place, PendingOffset>,
    by_producer: BTreeMap<ProducerId, BTreeSet<Place>>,
    next: u64,
}

/// A partition, and a number that rises with the places in the log.
type Place = (TopicPartition, u64);

#[derive(Clone, Debug)]
struct PendingOffset {
    producer: ProducerId,
    committed: Committed,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Whether something of the partition waits.
    pub(super) fn has(&self, partition: TopicPartition) -> bool {
        self.offsets.range((partition, 0)..=(partition, u64::MAX)).next().is_some()
    }

    /// The partitions, some of them more than once.
    pub(super) fn partitions(&self) -> impl Iterator<Item = TopicPartition> {
        self.offsets.keys().map(|(partition, _)| *partition)
    }

    /// When they were written.
    pub(super) fn written_at(&self) -> impl Iterator<Item = Timestamp> {
        self.offsets.values().map(|pending| pending.committed.committed_at)
    }

    /// Takes in an offset that is the last in the log.
    fn insert(&mut self, producer: ProducerId, partition: TopicPartition, committed: Committed) {
        let of_partition = self.offsets.range((partition, 0)..=(partition, u64::MAX));
        let own = of_partition.filter(|(_, pending)| pending.producer == producer).map(|(place, _)| *place).next();
        own.into_iter().for_each(|place| self.remove(place));
        let place = (partition, self.next);
        self.next += 1;
        self.offsets.insert(place, PendingOffset { producer, committed });
        self.by_producer.entry(producer).or_default().insert(place);
    }

    /// Something of the partition counts from `place` on: what is before it can never stand.
    fn supersede(&mut self, (partition, before): Place) {
        let earlier = self.offsets.range((partition, 0)..(partition, before)).map(|(place, _)| *place);
        earlier.collect::<Vec<_>>().into_iter().for_each(|place| self.remove(place));
    }

    /// A record of the partition was written without a transaction. Whether that ended anything.
    pub(super) fn supersede_all(&mut self, partition: TopicPartition) -> bool {
        let had_some = self.has(partition);
        self.supersede((partition, u64::MAX));
        had_some
    }

    fn remove(&mut self, place: Place) {
        let pending = self.offsets.remove(&place).expect("it was found there");
        let places = self.by_producer.get_mut(&pending.producer).expect("both say the same");
        places.remove(&place);
        if places.is_empty() {
            self.by_producer.remove(&pending.producer);
        }
    }

    fn take(&mut self, producer: ProducerId) -> Vec<(Place, Committed)> {
        let places = self.by_producer.remove(&producer).unwrap_or_default();
        let take = |place| (place, self.offsets.remove(&place).expect("both say the same").committed);
        places.into_iter().map(take).collect()
    }
}

impl Group {
    /// How many offsets wait for the ends of their transactions.
    pub(crate) fn pending(&self) -> usize {
        self.pending.offsets.len()
    }

    /// Whether offsets of these partitions may be taken into a transaction by a member, or (none) by somebody who is none.
    pub(crate) fn judge_pending(
        &mut self,
        ctx: &Context<'_>,
        member: Option<&MemberId>,
        commits: &[(TopicPartition, Committed)],
    ) -> Result<(), PendingError> {
        let Some(member) = member else {
            return match self.active() {
                0 => Ok(()),
                active => Err(StandaloneError::Active(active).into()),
            };
        };
        self.admit(member)?;
        self.alive(ctx, member, false);
        let record = self.members.get(member).expect("it was admitted");
        let not_held = commits.iter().enumerate().filter(|(_, (partition, _))| !is_held(record, partition));
        let not_held: Vec<_> = not_held.map(|(place, _)| place).collect();
        if not_held.is_empty() { Ok(()) } else { Err(PendingError::NotHeld(not_held)) }
    }

    /// Takes offsets into a transaction; the records that say so. They keep a group without members as commits do.
    pub(crate) fn add_pending(
        &mut self,
        ctx: &Context<'_>,
        producer: ProducerId,
        commits: Vec<(TopicPartition, Committed)>,
    ) -> Vec<CoordinatorRecord> {
        let mut records = Vec::with_capacity(commits.len());
        for (partition, committed) in commits {
            let key = OffsetKey { group: self.name.clone(), partition };
            let value = OffsetRecord::Committed(committed.clone()).encode();
            records.push(CoordinatorRecord { key: key.encode(), value: Some(value) });
            self.pending.insert(producer, partition, committed);
        }
        if self.active() == 0 {
            self.keep_for_a_while(ctx);
        }
        records
    }

    /// Takes in an offset of a transaction that was read from the log.
    pub(crate) fn load_pending(&mut self, producer: ProducerId, partition: TopicPartition, committed: Committed) {
        self.pending.insert(producer, partition, committed);
    }

    /// A producer's transaction has ended. What it changes is in the log already. Answers who holds a partition that is
    /// decided now.
    pub(crate) fn end_pending(&mut self, producer: ProducerId, outcome: Outcome) -> BTreeSet<MemberId> {
        let mut holders = BTreeSet::new();
        for (place, committed) in self.pending.take(producer) {
            if outcome == Outcome::Commit {
                self.pending.supersede(place);
                self.offsets.load(place.0, Some(OffsetRecord::Committed(committed)));
            }
            if !self.pending.has(place.0) {
                holders.extend(self.holders.get(&place.0).cloned());
            }
        }
        holders
    }

    /// Ends what is pending of these partitions with tombstones, so that it does not come back.
    pub(super) fn drop_pending(&mut self, is_gone: impl Fn(&TopicPartition) -> bool) {
        for partition in self.pending.partitions().filter(is_gone) {
            self.offsets.touch(partition);
        }
    }
}
