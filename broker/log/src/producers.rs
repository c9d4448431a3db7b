//! What a partition remembers of its producers, so that a retry is stored once (KIP-98) and outlives its records.
//!
//! Two memories. A producer with an id of the broker's has Kafka's rule: contiguous sequences, the last five batches
//! known. An `Idempotency-Key` is a derived id with one append: the same digest again is a repeat. Both forget only by
//! their own clock (`producer_expiration_ms` after the last append) or when there are too many of them, and then the one
//! whose last append is oldest; never because records were removed, and no producer while it has a transaction open.
//!
//! Transactions follow KIP-890: each has an epoch of its own, and its end carries a higher one, so that whatever is late
//! is fenced. Not here: the bytes of a snapshot, and which transactions were aborted (`partition::aborted`).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use levada_model::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, limits};

use crate::{AppendError, BatchHeader, CoordinatorEpoch, Marker, OpenTransaction, TransactionEnd};

/// Set in ids that are derived from an idempotency key. Ids that the broker gives out are below 2^53.
const DERIVED_BIT: i64 = 1 << 62;

/// The producer id that stands for an idempotency key with this hash.
#[must_use]
pub fn derived_producer_id(hash: u64) -> ProducerId {
    let low = hash & (DERIVED_BIT.cast_unsigned() - 1);
    ProducerId(low.cast_signed() | DERIVED_BIT)
}

/// Whether the id stands for an idempotency key.
#[must_use]
pub fn is_derived(id: ProducerId) -> bool {
    id.0 & DERIVED_BIT != 0
}

/// What a batch is to the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    New,
    Duplicate { base_offset: Offset, timestamp: Timestamp },
}

/// One batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub(crate) base_sequence: Sequence,
    pub(crate) last_sequence: Sequence,
    pub(crate) base_offset: Offset,
    /// What a repeat is answered with.
    pub(crate) timestamp: Timestamp,
}

/// One producer with its newest batches, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) epoch: ProducerEpoch,
    pub(crate) batches: VecDeque<Remembered>,
    pub(crate) last_append: Timestamp,
    /// First offset of its open transaction.
    pub(crate) open_since: Option<Offset>,
    /// The last end of one of its transactions.
    pub(crate) marker: Option<RememberedMarker>,
}

/// The last marker of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RememberedMarker {
    pub(crate) epoch: ProducerEpoch,
    pub(crate) end: TransactionEnd,
    pub(crate) coordinator_epoch: CoordinatorEpoch,
    pub(crate) offset: Offset,
    /// What a repeat is answered with.
    pub(crate) timestamp: Timestamp,
}

/// By what a batch is judged, besides what is remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judging {
    pub(crate) now: Timestamp,
    pub(crate) expiration_ms: i64,
    /// A planted fault: an old epoch is taken.
    pub(crate) ignore_epoch: bool,
}

/// The one append of an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyedAppend {
    pub(crate) digest: (ProducerEpoch, Sequence),
    pub(crate) base_offset: Offset,
    /// What a repeat is answered with.
    pub(crate) timestamp: Timestamp,
    pub(crate) last_append: Timestamp,
}

/// When a batch was appended: what a repeat is answered with, and what expiry counts from. They differ in a recovery,
/// which does not know the time of the append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppendTimes {
    pub(crate) answered: Timestamp,
    pub(crate) counted: Timestamp,
}

/// All producers and keys of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Producers {
    /// Ordered, so that the same state is always the same snapshot.
    producers: BTreeMap<ProducerId, Producer>,
    /// Those without an open transaction by their last append, oldest first.
    producer_order: BTreeSet<(Timestamp, ProducerId)>,
    /// Those with one by its first offset.
    open: BTreeSet<(Offset, ProducerId)>,
    keys: HashMap<ProducerId, KeyedAppend>,
    /// Keys in order of their appends; one whose offset is not its key's any more is a leftover.
    key_order: VecDeque<(ProducerId, Offset)>,
}

impl Producers {
    pub(crate) fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.keys.is_empty()
    }

    /// Judges a batch by what is remembered; `marker` is what a control batch says. Nothing is changed.
    pub(crate) fn check(
        &self,
        header: &BatchHeader,
        marker: Option<Marker>,
        judging: Judging,
    ) -> Result<Verdict, AppendError> {
        let Some(id) = header.producer_id else { return Ok(Verdict::New) };
        if is_derived(id) {
            return self.check_key(id, header, judging);
        }
        let known = self.producers.get(&id).filter(|producer| !producer.is_expired(judging));
        let verdict = match (known, marker) {
            (Some(producer), Some(marker)) => producer.check_marker(id, header, marker, judging),
            (Some(producer), None) => producer.check(id, header, judging),
            // Nothing of its transaction is here, so what came is not its first batch.
            (None, None) if header.is_transactional() && header.base_sequence != Sequence(0) => {
                Err(out_of_order(id, header.base_sequence, Sequence(0)))
            }
            // Kafka takes any first sequence of a producer that it does not know (KIP-360).
            (None, _) => Ok(Verdict::New),
        }?;
        let opens = header.is_transactional() && marker.is_none() && verdict == Verdict::New;
        if opens && self.open.len() >= limits::PRODUCERS_MAX && known.is_none_or(|known| known.open_since.is_none()) {
            return Err(AppendError::TooManyTransactions { limit: limits::PRODUCERS_MAX });
        }
        Ok(verdict)
    }

    /// The sequence with which a batch of this producer and epoch goes on; 0 where the epoch begins.
    pub(crate) fn next_sequence(&self, header: &BatchHeader, judging: Judging) -> Sequence {
        let known = header.producer_id.and_then(|id| self.producers.get(&id));
        let known = known.filter(|producer| producer.epoch == header.producer_epoch && !producer.is_expired(judging));
        known.map_or(Sequence(0), Producer::next_sequence)
    }

    /// Remembers a batch that has its place at `base_offset`; `marker` is what a control batch says.
    pub(crate) fn record(
        &mut self,
        header: &BatchHeader,
        marker: Option<Marker>,
        base_offset: Offset,
        times: AppendTimes,
    ) {
        let Some(id) = header.producer_id else { return };
        // A control batch of another kind ends nothing.
        if header.is_control() && marker.is_none() {
            return;
        }
        if is_derived(id) {
            let append = KeyedAppend {
                digest: (header.producer_epoch, header.base_sequence),
                base_offset,
                timestamp: times.answered,
                last_append: times.counted,
            };
            self.insert_key(id, append);
            return;
        }
        let mut producer = self.take_producer(id).unwrap_or_else(|| Producer::new(header.producer_epoch));
        producer.last_append = times.counted;
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.batches.clear();
            // Ended by a marker: this one, or one that is lost, since no batch of another epoch is taken before.
            producer.open_since = None;
        }
        match marker {
            None => producer.push(header, base_offset, times.answered),
            Some(Marker { end, coordinator_epoch }) => {
                let (epoch, timestamp) = (header.producer_epoch, times.answered);
                producer.open_since = None;
                producer.marker =
                    Some(RememberedMarker { epoch, end, coordinator_epoch, offset: base_offset, timestamp });
            }
        }
        self.insert_producer(id, producer);
    }

    /// First offset of the earliest transaction that is open.
    pub(crate) fn first_open(&self) -> Option<Offset> {
        self.open.first().map(|(offset, _)| *offset)
    }

    /// First offset of the transaction that this producer has open.
    pub(crate) fn open_since(&self, id: ProducerId) -> Option<Offset> {
        self.producers.get(&id)?.open_since
    }

    /// The transactions that are open, by their first offsets.
    pub(crate) fn open(&self) -> Vec<OpenTransaction> {
        let told = |(first_offset, id): &(Offset, ProducerId)| OpenTransaction {
            producer_id: *id,
            producer_epoch: self.producers[id].epoch,
            first_offset: *first_offset,
        };
        self.open.iter().map(told).collect()
    }

    /// Forgets whose last append is older than `expiration_ms`.
    pub(crate) fn expire(&mut self, now: Timestamp, expiration_ms: i64) {
        while let Some((last_append, _)) = self.producer_order.first()
            && is_expired(*last_append, now, expiration_ms)
        {
            self.forget_oldest_producer();
        }
        self.keys.retain(|_, key| !is_expired(key.last_append, now, expiration_ms));
        let keys = &self.keys;
        self.key_order.retain(|(id, offset)| keys.get(id).is_some_and(|key| key.base_offset == *offset));
    }

    /// The first offsets of all batches that a repeat would be recognised by, in rising order.
    pub(crate) fn remembered(&self) -> Vec<Offset> {
        let batches = self.producers.values().flat_map(|producer| &producer.batches).map(|batch| batch.base_offset);
        let markers = self.producers.values().filter_map(|producer| producer.marker).map(|marker| marker.offset);
        let keys = self.keys.values().map(|key| key.base_offset);
        let mut offsets: Vec<Offset> = batches.chain(markers).chain(keys).collect();
        offsets.sort_unstable();
        offsets
    }

    /// All producers, in order of their ids.
    pub(crate) fn producers(&self) -> impl ExactSizeIterator<Item = (ProducerId, &Producer)> {
        self.producers.iter().map(|(id, producer)| (*id, producer))
    }

    /// All keys, oldest append first.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (ProducerId, &KeyedAppend)> {
        self.key_order.iter().filter_map(|(id, offset)| {
            let key = self.keys.get(id)?;
            (key.base_offset == *offset).then_some((*id, key))
        })
    }

    pub(crate) fn insert_producer(&mut self, id: ProducerId, producer: Producer) {
        drop(self.take_producer(id));
        match producer.open_since {
            Some(first) => self.open.insert((first, id)),
            None => self.producer_order.insert((producer.last_append, id)),
        };
        self.producers.insert(id, producer);
        if self.producers.len() > limits::PRODUCERS_MAX {
            self.forget_oldest_producer();
        }
    }

    pub(crate) fn insert_key(&mut self, id: ProducerId, append: KeyedAppend) {
        self.keys.insert(id, append);
        self.key_order.push_back((id, append.base_offset));
        while self.keys.len() > limits::IDEMPOTENCY_KEYS_MAX || self.key_order.len() > 2 * limits::IDEMPOTENCY_KEYS_MAX
        {
            self.forget_oldest_key();
        }
    }

    /// What a key stands for, if it is not too old.
    pub(crate) fn keyed_append(&self, id: ProducerId, now: Timestamp, expiration_ms: i64) -> Option<&KeyedAppend> {
        self.keys.get(&id).filter(|key| !is_expired(key.last_append, now, expiration_ms))
    }

    fn check_key(&self, id: ProducerId, header: &BatchHeader, judging: Judging) -> Result<Verdict, AppendError> {
        match self.keyed_append(id, judging.now, judging.expiration_ms) {
            Some(key) if key.digest == (header.producer_epoch, header.base_sequence) => {
                Ok(Verdict::Duplicate { base_offset: key.base_offset, timestamp: key.timestamp })
            }
            Some(_) => Err(AppendError::KeyReused),
            None => Ok(Verdict::New),
        }
    }

    fn take_producer(&mut self, id: ProducerId) -> Option<Producer> {
        let producer = self.producers.remove(&id)?;
        match producer.open_since {
            Some(first) => self.open.remove(&(first, id)),
            None => self.producer_order.remove(&(producer.last_append, id)),
        };
        Some(producer)
    }

    fn forget_oldest_producer(&mut self) {
        if let Some((_, id)) = self.producer_order.pop_first() {
            self.producers.remove(&id);
        }
    }

    fn forget_oldest_key(&mut self) {
        let Some((id, offset)) = self.key_order.pop_front() else { return };
        if self.keys.get(&id).is_some_and(|key| key.base_offset == offset) {
            self.keys.remove(&id);
        }
    }
}

impl Producer {
    fn new(epoch: ProducerEpoch) -> Self {
        Self { epoch, batches: VecDeque::new(), last_append: Timestamp(0), open_since: None, marker: None }
    }

    /// The sequence with which its epoch goes on. Where a marker alone is of this epoch, the epoch has just begun.
    fn next_sequence(&self) -> Sequence {
        self.batches.back().map_or(Sequence(0), |batch| batch.last_sequence.advance(1))
    }

    /// Whether it may be forgotten. While its transaction is open readers wait for its end.
    fn is_expired(&self, judging: Judging) -> bool {
        self.open_since.is_none() && is_expired(self.last_append, judging.now, judging.expiration_ms)
    }

    fn push(&mut self, header: &BatchHeader, base_offset: Offset, timestamp: Timestamp) {
        if self.batches.len() == limits::PRODUCER_BATCHES_REMEMBERED {
            self.batches.pop_front();
        }
        self.batches.push_back(Remembered {
            base_sequence: header.base_sequence,
            last_sequence: last_sequence(header),
            base_offset,
            timestamp,
        });
        if header.is_transactional() {
            self.open_since.get_or_insert(base_offset);
        }
    }

    fn check(&self, id: ProducerId, header: &BatchHeader, judging: Judging) -> Result<Verdict, AppendError> {
        if header.producer_epoch < self.epoch {
            return if judging.ignore_epoch { Ok(Verdict::New) } else { Err(self.fenced(id, header)) };
        }
        // A transaction has one epoch: that it ended must be written before a batch of the next may come.
        let is_other = !header.is_transactional() || header.producer_epoch > self.epoch;
        if let Some(first_offset) = self.open_since.filter(|_| is_other) {
            return Err(AppendError::TransactionOpen { producer_id: id, first_offset });
        }
        let got = header.base_sequence;
        let expected = if header.producer_epoch > self.epoch {
            Sequence(0)
        } else {
            let last = last_sequence(header);
            let repeated = self.batches.iter().find(|b| b.base_sequence == got && b.last_sequence == last);
            if let Some(batch) = repeated {
                return Ok(Verdict::Duplicate { base_offset: batch.base_offset, timestamp: batch.timestamp });
            }
            self.next_sequence()
        };
        if got == expected { Ok(Verdict::New) } else { Err(out_of_order(id, got, expected)) }
    }

    /// A marker ends what is of a lower epoch than its own, and nothing else (KIP-1228).
    fn check_marker(
        &self,
        id: ProducerId,
        header: &BatchHeader,
        marker: Marker,
        judging: Judging,
    ) -> Result<Verdict, AppendError> {
        if let Some(last) = self.marker {
            let (got, current) = (marker.coordinator_epoch, last.coordinator_epoch);
            if got < current {
                return Err(AppendError::CoordinatorFenced { producer_id: id, got, current });
            }
            if header.producer_epoch == last.epoch {
                return if marker.end == last.end {
                    Ok(Verdict::Duplicate { base_offset: last.offset, timestamp: last.timestamp })
                } else {
                    Err(AppendError::TransactionEnded { producer_id: id, marker_offset: last.offset })
                };
            }
        }
        if header.producer_epoch <= self.epoch && !judging.ignore_epoch {
            return Err(self.fenced(id, header));
        }
        Ok(Verdict::New)
    }

    fn fenced(&self, id: ProducerId, header: &BatchHeader) -> AppendError {
        AppendError::ProducerFenced { producer_id: id, got: header.producer_epoch, current: self.epoch }
    }
}

fn out_of_order(producer_id: ProducerId, got: Sequence, expected: Sequence) -> AppendError {
    AppendError::OutOfOrderSequence { producer_id, got, expected }
}

fn last_sequence(header: &BatchHeader) -> Sequence {
    header.base_sequence.advance(header.last_offset_delta)
}

fn is_expired(last_append: Timestamp, now: Timestamp, expiration_ms: i64) -> bool {
    now.0.saturating_sub(last_append.0) > expiration_ms
}

#[cfg(test)]
mod tests;
