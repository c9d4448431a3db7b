//! What a partition remembers of its producers, so that a retry is stored once (KIP-98) and outlives its records.
//!
//! Two memories. A producer with an id of the broker's has Kafka's rule: contiguous sequences, the last five batches
//! known. An `Idempotency-Key` is a derived id with one append: the same digest again is a repeat. Both forget only by
//! their own clock (`producer_expiration_ms` after the last append) or when there are too many of them, and then the one
//! whose last append is oldest; never because records were removed. Not here: the bytes of a snapshot.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

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
    /// The same by their last append, oldest first.
    producer_order: BTreeSet<(Timestamp, ProducerId)>,
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
        let mut producer = self.take_producer(id).unwrap_or_else(|| Producer {
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
        self.insert_producer(id, producer);
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
        let of_producers = self.producers.values().flat_map(|producer| &producer.batches).map(|b| b.base_offset);
        let mut offsets: Vec<Offset> = of_producers.chain(self.keys.values().map(|key| key.base_offset)).collect();
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
        self.producer_order.insert((producer.last_append, id));
        self.producers.insert(id, producer);
        while self.producers.len() > limits::PRODUCERS_MAX {
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

    /// Whether a key stands for an append with another digest.
    pub(crate) fn is_key_reused(
        &self,
        id: ProducerId,
        digest: (ProducerEpoch, Sequence),
        now: Timestamp,
        expiration_ms: i64,
    ) -> bool {
        let other = |key: &KeyedAppend| key.digest != digest && !is_expired(key.last_append, now, expiration_ms);
        self.keys.get(&id).is_some_and(other)
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

    fn take_producer(&mut self, id: ProducerId) -> Option<Producer> {
        let producer = self.producers.remove(&id)?;
        self.producer_order.remove(&(producer.last_append, id));
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

#[cfg(test)]
mod tests {
    use levada_model::{LeaderEpoch, Record};
    use proptest::prelude::{Strategy, any, prop, proptest};
    use proptest::{prop_assert, prop_assert_eq};

    use super::*;
    use crate::{BatchBuilder, NewBatch};

    const EXPIRATION_MS: i64 = 100;

    fn header(id: ProducerId, epoch: i16, sequence: i32, records: usize) -> BatchHeader {
        let producer = Some((id, ProducerEpoch(epoch), Sequence(sequence)));
        let mut builder = BatchBuilder::new(NewBatch { producer, ..NewBatch::default() }, 0);
        (0..records).for_each(|_| builder.push(Timestamp(0), &Record::default()));
        *builder.finish().expect("no compression").stamp(Offset(0), LeaderEpoch(0)).header()
    }

    fn at(now: i64) -> AppendTimes {
        AppendTimes { answered: Timestamp(now), counted: Timestamp(now) }
    }

    /// What the memory is, said the slow way: all appends that ever were.
    #[derive(Default)]
    struct Naive(Vec<(i16, i32, usize, Offset, i64)>);

    impl Naive {
        fn check(&self, epoch: i16, sequence: i32, records: usize, now: i64) -> Result<Verdict, String> {
            let Some((last_epoch, last_sequence, last_records, _, last_now)) = self.0.last().copied() else {
                return Ok(Verdict::New);
            };
            // An entry that expired is forgotten whole.
            if now - last_now > EXPIRATION_MS {
                return Ok(Verdict::New);
            }
            if epoch < last_epoch {
                return Err("fenced".to_owned());
            }
            if epoch > last_epoch {
                return if sequence == 0 { Ok(Verdict::New) } else { Err("expected 0".to_owned()) };
            }
            let of_epoch = self.0.iter().rev().take_while(|append| append.0 == epoch).take(5);
            for (_, base, count, offset, when) in of_epoch {
                if (*base, *count) == (sequence, records) {
                    return Ok(Verdict::Duplicate { base_offset: *offset, timestamp: Timestamp(*when) });
                }
            }
            let expected = (i64::from(last_sequence) + last_records as i64) % (1 << 31);
            if i64::from(sequence) == expected { Ok(Verdict::New) } else { Err(format!("expected {expected}")) }
        }
    }

    fn words(error: &AppendError) -> String {
        match error {
            AppendError::ProducerFenced { .. } => "fenced".to_owned(),
            AppendError::OutOfOrderSequence { expected, .. } => format!("expected {expected}"),
            other => other.to_string(),
        }
    }

    /// Epoch, step from the right sequence, records, and the time since the last append.
    fn appends() -> impl Strategy<Value = Vec<(i16, i64, usize, i64)>> {
        let step = proptest::prop_oneof![4 => proptest::strategy::Just(0_i64), 2 => -20..20_i64];
        prop::collection::vec((0..3_i16, step, 1..4_usize, 0..60_i64), 1..40)
    }

    proptest! {
        #[test]
        fn a_producer_is_judged_as_by_one_who_remembers_everything(start in any::<bool>(), appends in appends()) {
            let id = ProducerId(7);
            let (mut producers, mut naive) = (Producers::default(), Naive::default());
            let (mut now, mut next_offset) = (0, 0);
            // Near the largest sequence, so that it wraps.
            let mut right = if start { i64::from(i32::MAX) - 3 } else { 0 };
            let mut highest = 0;
            for (epoch, step, records, wait) in appends {
                now += wait;
                if epoch > highest {
                    right = 0;
                }
                let sequence = i32::try_from((right + step).rem_euclid(1 << 31)).expect("below");
                let header = header(id, epoch, sequence, records);
                let judged = producers.check(&header, Timestamp(now), EXPIRATION_MS).map_err(|error| words(&error));
                prop_assert_eq!(&judged, &naive.check(epoch, sequence, records, now));
                if judged == Ok(Verdict::New) {
                    let expired = naive.0.last().is_some_and(|last| now - last.4 > EXPIRATION_MS);
                    producers.expire(Timestamp(now), EXPIRATION_MS);
                    prop_assert!(!expired || producers.is_empty());
                    if expired {
                        naive.0.clear();
                    }
                    producers.record(&header, Offset(next_offset), at(now));
                    naive.0.push((epoch, sequence, records, Offset(next_offset), now));
                    next_offset += records as u64;
                    right = (i64::from(sequence) + records as i64) % (1 << 31);
                    highest = epoch;
                }
            }
        }
    }

    #[test]
    fn ids_derived_from_keys_are_told_from_ids_given_out() {
        for hash in [0, 1, u64::MAX, 1 << 62, 1 << 63] {
            let id = derived_producer_id(hash);
            assert!(is_derived(id) && id.0 > 0, "{id}");
        }
        assert!(!is_derived(ProducerId((1 << 53) - 1)));
        assert_ne!(derived_producer_id(1), derived_producer_id(2));
    }

    #[test]
    fn a_key_is_answered_again_only_with_the_same_digest_and_only_until_it_expires() {
        let mut producers = Producers::default();
        let id = derived_producer_id(99);
        producers.record(&header(id, 4, 1000, 2), Offset(40), at(5));
        let check =
            |epoch, sequence, now| producers.check(&header(id, epoch, sequence, 1), Timestamp(now), EXPIRATION_MS);
        let repeat = Verdict::Duplicate { base_offset: Offset(40), timestamp: Timestamp(5) };
        assert_eq!(check(4, 1000, 105).expect("a repeat"), repeat);
        assert!(matches!(check(4, 1001, 105), Err(AppendError::KeyReused)));
        assert!(matches!(check(5, 1000, 105), Err(AppendError::KeyReused)));
        assert_eq!(check(4, 1001, 106).expect("expired"), Verdict::New);
    }

    #[test]
    fn only_the_newest_keys_are_remembered() {
        let mut producers = Producers::default();
        let most = limits::IDEMPOTENCY_KEYS_MAX as u64;
        let append = |offset| KeyedAppend {
            digest: (ProducerEpoch(0), Sequence(0)),
            base_offset: Offset(offset),
            timestamp: Timestamp(0),
            last_append: Timestamp(0),
        };
        // The oldest comes again after it expired, so it is now the newest.
        (0..most).for_each(|n| producers.insert_key(derived_producer_id(n), append(n)));
        producers.insert_key(derived_producer_id(0), append(most));
        producers.insert_key(derived_producer_id(most), append(most + 1));
        assert_eq!(producers.keys().count() as u64, most);
        let first = producers.keys().next().map(|(id, _)| id);
        assert_eq!(first, Some(derived_producer_id(2)));
        let newest: Vec<_> = producers.keys().skip(limits::IDEMPOTENCY_KEYS_MAX - 2).map(|(id, _)| id).collect();
        assert_eq!(newest, [derived_producer_id(0), derived_producer_id(most)]);
        producers.expire(Timestamp(EXPIRATION_MS + 1), EXPIRATION_MS);
        assert!(producers.is_empty() && producers.keys().next().is_none());
    }

    #[test]
    fn a_producer_too_many_takes_the_place_of_the_one_whose_last_append_is_oldest() {
        let mut producers = Producers::default();
        let most = limits::PRODUCERS_MAX as i64;
        let one = header(ProducerId(0), 0, 0, 1);
        let of = |id| BatchHeader { producer_id: Some(ProducerId(id)), ..one };
        (0..most).for_each(|id| producers.record(&of(id), Offset(0), at(id)));
        let sequel = BatchHeader { base_sequence: Sequence(1), ..of(0) };
        producers.record(&sequel, Offset(1), at(most));
        producers.record(&of(most), Offset(2), at(most));
        let ids: Vec<_> = producers.producers().map(|(id, _)| id.0).collect();
        assert_eq!(ids.len() as i64, most);
        assert_eq!((ids[0], ids[1]), (0, 2), "it has appended since, so the next one was the oldest");
        assert_eq!(
            producers.check(&sequel, Timestamp(most), i64::MAX).expect("known"),
            Verdict::Duplicate { base_offset: Offset(1), timestamp: Timestamp(most) }
        );
        producers.expire(Timestamp(most + EXPIRATION_MS), EXPIRATION_MS);
        assert_eq!(producers.producers().len(), 2, "those whose last append is not older");
        producers.expire(Timestamp(most + EXPIRATION_MS + 1), EXPIRATION_MS);
        assert!(producers.is_empty() && producers == Producers::default());
    }

    #[test]
    fn a_marker_fences_and_leaves_the_sequence_alone() {
        let id = ProducerId(3);
        let mut marker = header(id, 2, 0, 1);
        marker.attributes |= 0x30;
        marker.base_sequence = Sequence(-1);
        let mut producers = Producers::default();
        producers.record(&header(id, 2, 0, 2), Offset(0), at(0));
        assert_eq!(producers.check(&marker, Timestamp(1), EXPIRATION_MS).expect("taken"), Verdict::New);
        producers.record(&marker, Offset(2), at(1));
        assert_eq!(producers.check(&header(id, 2, 2, 1), Timestamp(1), EXPIRATION_MS).expect("goes on"), Verdict::New);
        marker.producer_epoch = ProducerEpoch(1);
        let fenced = producers.check(&marker, Timestamp(1), EXPIRATION_MS);
        assert!(matches!(fenced, Err(AppendError::ProducerFenced { current: ProducerEpoch(2), .. })));
    }
}
