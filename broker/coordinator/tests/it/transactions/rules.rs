//! The life of a transaction, rule by rule.

use bytes::Bytes;
use levada_coordinator::{
    AddError, BeginError, EndError, Outcome, Producer, Progress, TransactionError, TransactionState,
};
use levada_model::{ProducerId, limits};

use super::kit::{PATIENCE_MS, TIMEOUT_MS, World, handle, off, participants, transactional_id};

const FENCED: TransactionError = TransactionError::ProducerFenced;
const UNKNOWN: TransactionError = TransactionError::UnknownTransaction;

fn ended(outcome: Outcome) -> TransactionError {
    TransactionError::TransactionEnded { outcome }
}

#[test]
fn every_end_answers_the_epoch_of_the_next_transaction() {
    let mut world = World::new();
    let first = world.started("t");
    let one = world.begin(first).expect("it may begin");
    world.add(one, &[0, 1]).expect("it is open");
    let second = world.ended(one, Outcome::Commit).expect("it is open");
    assert_eq!(second, off(first, 1));
    let two = world.begin(second).expect("it may begin");
    world.add(two, &[0]).expect("it is open");
    assert_eq!(world.ended(two, Outcome::Abort), Ok(off(second, 1)));
    assert_eq!(world.marked(one), Some((participants(&[0, 1], &[]), Outcome::Commit)));
    assert_eq!(world.marked(two), Some((participants(&[0], &[]), Outcome::Abort)));
}

#[test]
fn an_end_is_answered_only_when_all_its_markers_are_written() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0, 1]).expect("it is open");
    world.add_group(transaction, "g").expect("it is open");
    let wait = Ok(Progress::Wait(transactional_id("t")));
    assert_eq!(world.end(transaction, Outcome::Commit), wait);
    assert_eq!(world.sent[0].participants, participants(&[0, 1], &["g"]));
    for written in [participants(&[0], &[]), participants(&[1], &[])] {
        let step = world.coordinator.markers_written(world.now(), transaction, &written);
        world.take(step);
        assert_eq!(world.end(transaction, Outcome::Commit), wait);
        assert!(world.completed.is_empty());
    }
    let step = world.coordinator.markers_written(world.now(), transaction, &participants(&[], &["g"]));
    world.take(step);
    assert_eq!(world.completed, [transactional_id("t")]);
    assert_eq!(world.end(transaction, Outcome::Commit), Ok(Progress::Done(off(producer, 1))));
    assert_eq!(world.sent.len(), 1, "asking again sends nothing again");
}

#[test]
fn the_same_end_again_answers_the_same_and_the_other_is_refused() {
    for (outcome, other) in [(Outcome::Commit, Outcome::Abort), (Outcome::Abort, Outcome::Commit)] {
        let mut world = World::new();
        let producer = world.started("t");
        let transaction = world.begin(producer).expect("it may begin");
        world.add(transaction, &[0]).expect("it is open");
        world.end(transaction, outcome).expect("it is open");
        let refused = Err(EndError::Transaction(ended(outcome)));
        assert_eq!(world.end(transaction, other), refused, "while it ends");
        let next = world.ended(transaction, outcome).expect("it is being ended");
        assert_eq!(world.ended(transaction, outcome), Ok(next));
        assert_eq!(world.end(transaction, other), refused);
        world.started("t");
        assert_eq!(world.ended(transaction, outcome), Ok(next), "its producer learns it though it is fenced now");
        assert_eq!(world.begin(next), Err(BeginError::ProducerFenced));
    }
}

#[test]
fn a_late_end_of_one_transaction_never_touches_the_next() {
    let mut world = World::new();
    let producer = world.started("t");
    let old = world.begin(producer).expect("it may begin");
    world.add(old, &[0]).expect("it is open");
    let next = world.ended(old, Outcome::Commit).expect("it is open");
    let new = world.begin(next).expect("it may begin");
    world.add(new, &[0]).expect("it is open");
    assert_eq!(world.end(old, Outcome::Abort), Err(EndError::Transaction(ended(Outcome::Commit))));
    assert_eq!(world.end(old, Outcome::Commit), Ok(Progress::Done(next)));
    assert_eq!(world.add(old, &[1]), Err(AddError::Transaction(ended(Outcome::Commit))));
    assert_eq!((world.open(), world.state("t")), (vec![new], Some(TransactionState::Ongoing)));
    let last = world.ended(new, Outcome::Abort).expect("it is open");
    assert_eq!(world.end(old, Outcome::Commit), Err(EndError::Transaction(FENCED)), "two are too old to be known");
    assert_eq!(world.begin(last), Ok(handle(last)));
}

#[test]
fn what_was_ended_or_is_being_ended_takes_nothing_more() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    world.end(transaction, Outcome::Commit).expect("it is open");
    for _ in 0..2 {
        assert_eq!(world.add(transaction, &[1]), Err(AddError::Transaction(ended(Outcome::Commit))));
        assert_eq!(world.add_group(transaction, "g"), Err(AddError::Transaction(ended(Outcome::Commit))));
        world.write_all();
    }
    assert_eq!(world.marked(transaction), Some((participants(&[0], &[]), Outcome::Commit)));
}

#[test]
fn begin_answers_the_same_again_and_waits_for_the_end_of_the_one_before() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    assert_eq!(world.begin(producer), Ok(transaction));
    world.end(transaction, Outcome::Commit).expect("it is open");
    assert_eq!(world.begin(producer), Err(BeginError::ConcurrentTransactions));
    world.write_all();
    assert_eq!(world.begin(producer), Err(BeginError::ProducerFenced));
    assert_eq!(world.begin(off(producer, 2)), Err(BeginError::UnknownProducer), "it was never given out");
    assert_eq!(world.begin(Producer { id: ProducerId(5), ..producer }), Err(BeginError::UnknownProducer));
}

#[test]
fn what_never_was_is_unknown() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    let mut elsewhere = transaction;
    elsewhere.coordinator.0 += 1;
    let mut nobody = transaction;
    nobody.producer_id.0 += 50;
    let later = handle(off(producer, 1));
    for wrong in [elsewhere, nobody, later] {
        assert_eq!(world.add(wrong, &[0]), Err(AddError::Transaction(UNKNOWN)), "{wrong}");
        assert_eq!(world.end(wrong, Outcome::Commit), Err(EndError::Transaction(UNKNOWN)), "{wrong}");
        assert_eq!(world.end(wrong, Outcome::Abort), Err(EndError::Transaction(UNKNOWN)), "{wrong}");
    }
}

#[test]
fn a_transaction_with_nothing_in_it_stores_nothing_until_its_end_and_needs_no_marker() {
    let mut world = World::new();
    let producer = world.started("t");
    let before = world.written;
    let transaction = world.begin(producer).expect("it may begin");
    assert_eq!((world.written, world.open()), (before, vec![transaction]));
    assert_eq!(world.end(transaction, Outcome::Commit), Ok(Progress::Done(off(producer, 1))));
    assert_eq!((world.written, world.sent.len(), world.open()), (before + 1, 0, vec![]));
}

#[test]
fn what_a_transaction_has_already_costs_nothing() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0, 1, 1]).expect("it is open");
    world.add_group(transaction, "g").expect("it is open");
    let before = world.written;
    world.add(transaction, &[1, 0]).expect("it is open");
    world.add(transaction, &[]).expect("it is open");
    world.add_group(transaction, "g").expect("it is open");
    assert_eq!(world.written, before);
}

#[test]
fn a_transaction_has_so_many_partitions_and_groups_and_no_more() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    let most = u32::try_from(limits::TRANSACTION_PARTITIONS_MAX).expect("a small number");
    world.add(transaction, &(1..most).collect::<Vec<_>>()).expect("so many");
    let limit = limits::TRANSACTION_PARTITIONS_MAX;
    assert_eq!(world.add(transaction, &[0, most]), Err(AddError::TooManyPartitions { limit }));
    world.add(transaction, &[0, 1, 2]).expect("one more");
    assert_eq!(world.add(transaction, &[most]), Err(AddError::TooManyPartitions { limit }));
    let limit = limits::TRANSACTION_GROUPS_MAX;
    for n in 0..limit {
        world.add_group(transaction, &format!("{n}-{}", "g".repeat(240))).expect("so many");
    }
    assert_eq!(world.add_group(transaction, "g"), Err(AddError::TooManyGroups { limit }));
    let largest = world.log.values().map(|value| value.len()).max().expect("there is a record");
    assert!(largest + limits::EXECUTE_ANSWER_BYTES_MAX < limits::MESSAGE_BYTES_MAX, "{largest} bytes");
    world.end(transaction, Outcome::Commit).expect("it is open");
    assert_eq!(world.sent[0].participants.len(), limits::TRANSACTION_PARTITIONS_MAX + limit);
}

#[test]
fn a_transaction_whose_time_is_over_is_aborted_and_its_producer_may_go_on() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    world.pass(TIMEOUT_MS - 1);
    assert_eq!(world.state("t"), Some(TransactionState::Ongoing));
    world.pass(1);
    assert_eq!(world.state("t"), Some(TransactionState::Prepared(Outcome::Abort)));
    let refused = Err(EndError::Transaction(ended(Outcome::Abort)));
    assert_eq!(world.end(transaction, Outcome::Commit), refused, "while it is aborted");
    assert_eq!(world.add(transaction, &[1]), Err(AddError::Transaction(ended(Outcome::Abort))));
    assert_eq!(world.end(transaction, Outcome::Abort), Ok(Progress::Wait(transactional_id("t"))));
    world.write_all();
    assert_eq!(world.end(transaction, Outcome::Commit), refused);
    let next = world.ended(transaction, Outcome::Abort).expect("it was aborted");
    assert_eq!(world.begin(next), Ok(handle(off(producer, 1))));
}

#[test]
fn a_transaction_with_nothing_in_it_does_not_outlive_its_time_either() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.pass(TIMEOUT_MS);
    assert!(world.open().is_empty());
    assert_eq!(world.add(transaction, &[0]), Err(AddError::Transaction(ended(Outcome::Abort))));
    assert_eq!(world.end(transaction, Outcome::Abort), Ok(Progress::Done(off(producer, 1))));
}

#[test]
fn an_operator_sees_what_is_open_in_pages_and_may_abort_it() {
    let mut world = World::new();
    let ids = ["a", "b", "c", "d"];
    let producers: Vec<_> = ids.iter().map(|id| world.started(id)).collect();
    let began_at = world.now().wall;
    let open: Vec<_> = [0, 1, 3].map(|n| world.begin(producers[n]).expect("it may begin")).into();
    world.add(open[1], &[4, 5, 6]).expect("it is open");
    world.add_group(open[1], "g").expect("it is open");
    world.pass(5);
    let page = |world: &World, after: Option<&str>| {
        let after = after.map(transactional_id);
        let page = world.coordinator.open_ids(after.as_ref(), 2);
        page.into_iter().map(|id| id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((page(&world, None), page(&world, Some("b"))), (vec!["a".into(), "b".into()], vec!["d".into()]));
    let view = world.coordinator.transaction(&transactional_id("b"), 2).expect("it is open");
    assert_eq!((view.transaction, view.started_at, view.timeout_ms), (open[1], began_at, TIMEOUT_MS));
    assert_eq!((view.participants, view.partition_count), (participants(&[4, 5], &["g"]), 3), "the first of them");
    assert_eq!(view.markers_missing, None);
    world.end(open[0], Outcome::Abort).expect("nothing is in it");
    assert_eq!(world.end(open[1], Outcome::Abort), Ok(Progress::Wait(transactional_id("b"))));
    let view = world.view("b").expect("it is being aborted");
    assert_eq!(view.markers_missing, Some(4));
    world.write_all();
    let next = world.ended(open[1], Outcome::Abort).expect("the same again answers the same");
    assert_eq!(world.end(open[1], Outcome::Commit), Err(EndError::Transaction(ended(Outcome::Abort))));
    assert_eq!(world.ended(open[1], Outcome::Abort), Ok(next), "its producer learns how to go on");
    world.begin(next).expect("its producer goes on");
    assert_eq!(world.view("c"), None, "it is not open");
    assert_eq!(world.marked(open[1]), Some((participants(&[4, 5, 6], &["g"]), Outcome::Abort)));
}

#[test]
fn what_is_due_at_once_is_done_in_steps_that_are_bounded() {
    const MOST_BYTES: usize = 9 << 20;
    let mut world = World::new();
    let most = u32::try_from(limits::TRANSACTION_PARTITIONS_MAX).expect("a small number");
    let all: Vec<_> = (0..most).collect();
    let count = 60;
    for n in 0..count {
        let producer = world.started(&format!("t{n}"));
        let transaction = world.begin(producer).expect("it may begin");
        world.add(transaction, &all).expect("it is open");
    }
    // Their time is over; and then no marker is heard of.
    for millis in [TIMEOUT_MS, PATIENCE_MS] {
        world.sent.clear();
        world.tick += millis;
        let mut ticks = 0;
        while world.coordinator.next_due().is_some_and(|due| due <= world.now().tick) {
            let step = world.coordinator.tick(world.now());
            let records = step.records.iter().map(|record| record.value.as_ref().map_or(0, Bytes::len));
            let markers = step.markers.iter().map(|markers| markers.participants.len() * 20);
            assert!(records.sum::<usize>() < MOST_BYTES && markers.sum::<usize>() < MOST_BYTES);
            world.take(step);
            ticks += 1;
        }
        assert!(ticks > 1);
        assert_eq!(world.sent.len(), count, "all of them in the end");
    }
}

#[test]
fn an_operator_does_not_undo_what_is_being_committed() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    world.end(transaction, Outcome::Commit).expect("it is open");
    let refused = Err(EndError::Transaction(ended(Outcome::Commit)));
    assert_eq!(world.end(transaction, Outcome::Abort), refused);
    world.write_all();
    assert_eq!(world.end(transaction, Outcome::Abort), refused);
}
