//! What a partition remembers of its producers, so that a retry is stored once (KIP-98) and outlives its records.
//!
//! Two memories. A producer with an id of the broker's has Kafka's rule: contiguous sequences, the last five batches
//! known. An `Idempotency-Key` is a derived id with one append: the same digest again is a repeat. Both forget only by
//! their own clock (`producer_expiration_ms` after the last append), never because records were removed. Not here: the
//! bytes of a snapshot.

use std::collections::{BTreeMap, HashMap, VecDeque};

use levada_model::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, limits};

use crate::{AppendError, BatchHeader};

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
    keys: HashMap<ProducerId, KeyedAppend>,
    /// Keys in order of their appends; one whose offset is not its key's any more is a leftover.
    key_order: VecDeque<(ProducerId, Offset)>,
}

impl Producers {
    pub(crate) fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.keys.is_empty()
    }

    /// Judges a batch by what is remembered. Nothing is changed.
    pub(crate) fn check(
        &self,
        header: &BatchHeader,
        now: Timestamp,
        expiration_ms: i64,
    ) -> Result<Verdict, AppendError> {
        let Some(id) = header.producer_id else { return Ok(Verdict::New) };
        if is_derived(id) {
            return self.check_key(id, header, now, expiration_ms);
        }
        match self.producers.get(&id) {
            Some(producer) if !is_expired(producer.last_append, now, expiration_ms) => producer.check(id, header),
            // Kafka takes any first sequence of a producer that it does not know (KIP-360).
            _ => Ok(Verdict::New),
        }
    }

    /// Remembers a batch that has its place at `base_offset`.
    pub(crate) fn record(&mut self, header: &BatchHeader, base_offset: Offset, times: AppendTimes) {
        let Some(id) = header.producer_id else { return };
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
        let producer = self.producers.entry(id).or_insert_with(|| Producer {
            epoch: header.producer_epoch,
            batches: VecDeque::new(),
            last_append: times.counted,
        });
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.batches.clear();
        }
        producer.last_append = times.counted;
        if !header.is_control() {
            if producer.batches.len() == limits::PRODUCER_BATCHES_REMEMBERED {
                producer.batches.pop_front();
            }
            producer.batches.push_back(Remembered {
                base_sequence: header.base_sequence,
                last_sequence: last_sequence(header),
                base_offset,
                timestamp: times.answered,
            });
        }
    }

    /// Forgets whose last append is older than `expiration_ms`.
    pub(crate) fn expire(&mut self, now: Timestamp, expiration_ms: i64) {
        self.producers.retain(|_, producer| !is_expired(producer.last_append, now, expiration_ms));
        self.keys.retain(|_, key| !is_expired(key.last_append, now, expiration_ms));
        let keys = &self.keys;
        self.key_order.retain(|(id, offset)| keys.get(id).is_some_and(|key| key.base_offset == *offset));
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
        self.producers.insert(id, producer);
    }

    pub(crate) fn insert_key(&mut self, id: ProducerId, append: KeyedAppend) {
        self.keys.insert(id, append);
        self.key_order.push_back((id, append.base_offset));
        while self.keys.len() > limits::IDEMPOTENCY_KEYS_MAX || self.key_order.len() > 2 * limits::IDEMPOTENCY_KEYS_MAX
        {
            self.forget_oldest_key();
        }
    }

    fn check_key(
        &self,
        id: ProducerId,
        header: &BatchHeader,
        now: Timestamp,
        expiration_ms: i64,
    ) -> Result<Verdict, AppendError> {
        match self.keys.get(&id) {
            Some(key) if !is_expired(key.last_append, now, expiration_ms) => {
                if key.digest == (header.producer_epoch, header.base_sequence) {
                    Ok(Verdict::Duplicate { base_offset: key.base_offset, timestamp: key.timestamp })
                } else {
                    Err(AppendError::KeyReused)
                }
            }
            _ => Ok(Verdict::New),
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
    fn check(&self, id: ProducerId, header: &BatchHeader) -> Result<Verdict, AppendError> {
        if header.producer_epoch < self.epoch {
            return Err(AppendError::ProducerFenced {
                producer_id: id,
                got: header.producer_epoch,
                current: self.epoch,
            });
        }
        if header.is_control() {
            return Ok(Verdict::New);
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
            // Known by a marker alone: its sequence may start anywhere.
            self.batches.back().map_or(got, |batch| batch.last_sequence.advance(1))
        };
        if got == expected {
            Ok(Verdict::New)
        } else {
            Err(AppendError::OutOfOrderSequence { producer_id: id, got, expected })
        }
    }
}

fn last_sequence(header: &BatchHeader) -> Sequence {
    header.base_sequence.advance(header.last_offset_delta)
}

fn is_expired(last_append: Timestamp, now: Timestamp, expiration_ms: i64) -> bool {
    now.0.saturating_sub(last_append.0) > expiration_ms
}
