//! What is remembered of producers, against one who remembers everything.

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

fn judging(now: i64) -> Judging {
    Judging { now: Timestamp(now), expiration_ms: EXPIRATION_MS, ignore_epoch: false }
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
            let judged = producers.check(&header, None, judging(now)).map_err(|error| words(&error));
            prop_assert_eq!(&judged, &naive.check(epoch, sequence, records, now));
            if judged == Ok(Verdict::New) {
                let expired = naive.0.last().is_some_and(|last| now - last.4 > EXPIRATION_MS);
                producers.expire(Timestamp(now), EXPIRATION_MS);
                prop_assert!(!expired || producers.is_empty());
                if expired {
                    naive.0.clear();
                }
                producers.record(&header, None, Offset(next_offset), at(now));
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
    producers.record(&header(id, 4, 1000, 2), None, Offset(40), at(5));
    let check = |epoch, sequence, now| producers.check(&header(id, epoch, sequence, 1), None, judging(now));
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
    (0..most).for_each(|id| producers.record(&of(id), None, Offset(0), at(id)));
    let sequel = BatchHeader { base_sequence: Sequence(1), ..of(0) };
    producers.record(&sequel, None, Offset(1), at(most));
    producers.record(&of(most), None, Offset(2), at(most));
    let ids: Vec<_> = producers.producers().map(|(id, _)| id.0).collect();
    assert_eq!(ids.len() as i64, most);
    assert_eq!((ids[0], ids[1]), (0, 2), "it has appended since, so the next one was the oldest");
    assert_eq!(
        producers.check(&sequel, None, judging(most)).expect("known"),
        Verdict::Duplicate { base_offset: Offset(1), timestamp: Timestamp(most) }
    );
    producers.expire(Timestamp(most + EXPIRATION_MS), EXPIRATION_MS);
    assert_eq!(producers.producers().len(), 2, "those whose last append is not older");
    producers.expire(Timestamp(most + EXPIRATION_MS + 1), EXPIRATION_MS);
    assert!(producers.is_empty() && producers == Producers::default());
}

/// A transactional batch of one record.
fn transactional(id: ProducerId, epoch: i16, sequence: i32) -> BatchHeader {
    BatchHeader { attributes: 0x10, ..header(id, epoch, sequence, 1) }
}

fn marker(id: ProducerId, epoch: i16, end: TransactionEnd, coordinator: i32) -> (BatchHeader, Option<Marker>) {
    let marker = Marker { end, coordinator_epoch: CoordinatorEpoch(coordinator) };
    (*marker.batch(id, ProducerEpoch(epoch), Timestamp(0)).header(), Some(marker))
}

/// What became of a batch: stored at the next offset, or why not.
fn append(
    producers: &mut Producers,
    next: &mut u64,
    (header, marker): (BatchHeader, Option<Marker>),
    now: i64,
) -> String {
    match producers.check(&header, marker, judging(now)) {
        Ok(Verdict::New) => {
            producers.record(&header, marker, Offset(*next), at(now));
            *next += 1;
            "stored".to_owned()
        }
        Ok(Verdict::Duplicate { base_offset, .. }) => format!("duplicate of {base_offset}"),
        Err(error) => format!("{error:?}").split([' ', '{']).next().expect("a name").to_owned(),
    }
}

#[test]
fn a_transaction_ends_by_a_higher_epoch_and_what_is_late_is_fenced() {
    use TransactionEnd::{Abort, Commit};
    let id = ProducerId(3);
    let (mut producers, mut next) = (Producers::default(), 0);
    let mut step = |what, expected: &str| {
        assert_eq!(append(&mut producers, &mut next, what, 0), expected, "{what:?}");
        (producers.first_open(), producers.open().len())
    };
    let data = |epoch, sequence| (transactional(id, epoch, sequence), None);
    let end = |epoch, end, coordinator| marker(id, epoch, end, coordinator);
    assert_eq!(step(data(0, 5), "OutOfOrderSequence"), (None, 0));
    assert_eq!(step(data(0, 0), "stored"), (Some(Offset(0)), 1));
    assert_eq!(step(data(0, 1), "stored"), (Some(Offset(0)), 1));
    assert_eq!(step(data(0, 1), "duplicate of 1"), (Some(Offset(0)), 1));
    step((header(id, 0, 2, 1), None), "TransactionOpen");
    step(data(1, 0), "TransactionOpen");
    // An end of the transaction's own epoch is of the one before.
    step(end(0, Commit, 7), "ProducerFenced");
    assert_eq!(step(end(1, Commit, 7), "stored"), (None, 0));
    step(data(0, 2), "ProducerFenced");
    step(end(1, Commit, 6), "CoordinatorFenced");
    step(end(1, Commit, 7), "duplicate of 2");
    step(end(1, Commit, 8), "duplicate of 2");
    step(end(1, Abort, 8), "TransactionEnded");
    step(data(1, 1), "OutOfOrderSequence");
    assert_eq!(step(data(1, 0), "stored"), (Some(Offset(3)), 1));
    // A late end of the first does not touch the second.
    assert_eq!(step(end(1, Commit, 8), "duplicate of 2"), (Some(Offset(3)), 1));
    assert_eq!(step(end(1, Abort, 8), "TransactionEnded"), (Some(Offset(3)), 1));
    assert_eq!(step(end(2, Abort, 8), "stored"), (None, 0));
    // Where nothing is open, an end fences.
    step(end(4, Abort, 8), "stored");
    step(data(3, 0), "ProducerFenced");
    step((header(id, 4, 0, 1), None), "stored");
}

#[test]
fn a_producer_is_not_forgotten_while_its_transaction_is_open() {
    let id = ProducerId(3);
    let (mut producers, mut next) = (Producers::default(), 0);
    append(&mut producers, &mut next, (transactional(id, 0, 0), None), 0);
    producers.expire(Timestamp(EXPIRATION_MS + 1), EXPIRATION_MS);
    for other in 0..=limits::PRODUCERS_MAX as i64 {
        producers.record(&header(ProducerId(10 + other), 0, 0, 1), None, Offset(1), at(1));
    }
    assert_eq!(producers.producers().len(), limits::PRODUCERS_MAX);
    let late = EXPIRATION_MS * 10;
    assert_eq!(append(&mut producers, &mut next, (transactional(id, 0, 0), None), late), "duplicate of 0");
    assert_eq!(append(&mut producers, &mut next, (transactional(id, 0, 1), None), late), "stored");
    assert_eq!(append(&mut producers, &mut next, marker(id, 1, TransactionEnd::Abort, 0), late), "stored");
    producers.expire(Timestamp(late + EXPIRATION_MS + 1), EXPIRATION_MS);
    assert!(producers.is_empty() && producers == Producers::default());
}

#[test]
fn no_more_transactions_are_open_than_producers_are_remembered() {
    let (mut producers, mut next) = (Producers::default(), 0);
    let most = limits::PRODUCERS_MAX as i64;
    for id in 0..most {
        assert_eq!(append(&mut producers, &mut next, (transactional(ProducerId(id), 0, 0), None), 0), "stored");
    }
    let one_more = (transactional(ProducerId(most), 0, 0), None);
    assert_eq!(append(&mut producers, &mut next, one_more, 0), "TooManyTransactions");
    assert_eq!(append(&mut producers, &mut next, (transactional(ProducerId(5), 0, 1), None), 0), "stored");
    assert_eq!(append(&mut producers, &mut next, marker(ProducerId(0), 1, TransactionEnd::Commit, 0), 0), "stored");
    assert_eq!(append(&mut producers, &mut next, one_more, 0), "stored");
}
