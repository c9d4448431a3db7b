//! Producers that start: who is fenced, which epochs and ids they get, and when an id is forgotten.

use levada_coordinator::{
    AddError, BeginError, EndError, InitError, Outcome, Producer, Progress, TransactionCoordinator, TransactionError,
    TransactionState,
};
use levada_model::{ProducerEpoch, ProducerId};

use super::kit::{OPTIONS, TIMEOUT_MS, World, handle, off, participants, transactional_id};

const FENCED: TransactionError = TransactionError::ProducerFenced;

/// Has transactions with nothing in them until the producer has this epoch.
fn at_epoch(world: &mut World, id: &str, epoch: i16) -> Producer {
    let mut producer = world.started(id);
    while producer.epoch.0 < epoch {
        let next = world.ended(handle(producer), Outcome::Commit).expect("it is open");
        assert_eq!(next, off(producer, 1));
        producer = next;
    }
    producer
}

#[test]
fn a_producer_that_starts_fences_those_before_it() {
    let mut world = World::new();
    let old = world.started("t");
    let transaction = world.begin(old).expect("it may begin");
    let new = world.started("t");
    assert!(new > old);
    assert_eq!(world.begin(old), Err(BeginError::ProducerFenced));
    assert_eq!(world.add(transaction, &[0]), Err(AddError::Transaction(FENCED)));
    assert_eq!(world.add_group(transaction, "g"), Err(AddError::Transaction(FENCED)));
    for outcome in [Outcome::Commit, Outcome::Abort] {
        assert_eq!(world.end(transaction, outcome), Err(EndError::Transaction(FENCED)));
    }
    world.begin(new).expect("it may begin");
}

#[test]
fn a_producer_that_starts_aborts_what_was_left_open_and_is_answered_after_that() {
    let mut world = World::new();
    let old = world.started("t");
    let transaction = world.begin(old).expect("it may begin");
    world.add(transaction, &[0, 1]).expect("it is open");
    world.add_group(transaction, "g").expect("it is open");
    let wait = Ok(Progress::Wait(transactional_id("t")));
    assert_eq!(world.init("t"), wait);
    assert_eq!(world.init("t"), wait, "asking again changes nothing");
    assert_eq!(world.sent.len(), 1);
    let refused = Err(EndError::Transaction(FENCED));
    assert_eq!(world.end(transaction, Outcome::Abort), refused, "no answer would be of use to it");
    assert_eq!(world.end(transaction, Outcome::Commit), refused);
    assert_eq!(world.begin(old), Err(BeginError::ProducerFenced));
    world.write_all();
    assert_eq!(world.completed, [transactional_id("t")]);
    assert_eq!(world.end(transaction, Outcome::Abort), refused);
    assert_eq!(world.marked(transaction), Some((participants(&[0, 1], &["g"]), Outcome::Abort)));
    let new = world.started("t");
    assert_eq!(new, off(old, 2), "the markers' epoch is nobody's");
    assert_eq!(world.begin(off(old, 1)), Err(BeginError::ProducerFenced));
    world.begin(new).expect("it may begin");
}

#[test]
fn of_producers_that_start_at_once_the_last_one_stays() {
    let mut world = World::new();
    let old = world.started("t");
    let transaction = world.begin(old).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    assert_eq!(world.init("t"), Ok(Progress::Wait(transactional_id("t"))));
    world.write_all();
    let (one, two) = (world.started("t"), world.started("t"));
    assert_eq!(world.begin(one), Err(BeginError::ProducerFenced));
    world.begin(two).expect("it may begin");
}

#[test]
fn a_producer_that_starts_waits_for_a_commit_and_does_not_undo_it() {
    let mut world = World::new();
    let old = world.started("t");
    let transaction = world.begin(old).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    world.end(transaction, Outcome::Commit).expect("it is open");
    assert_eq!(world.init("t"), Ok(Progress::Wait(transactional_id("t"))));
    world.write_all();
    let new = world.started("t");
    assert_eq!(world.marked(transaction), Some((participants(&[0], &[]), Outcome::Commit)));
    let answered = world.ended(transaction, Outcome::Commit).expect("it was committed");
    assert!(answered < new);
    assert_eq!(world.begin(answered), Err(BeginError::ProducerFenced));
}

#[test]
fn ids_have_nothing_to_do_with_each_other() {
    let mut world = World::new();
    let (a, b) = (world.started("a"), world.started("b"));
    assert_ne!(a.id, b.id);
    let transaction = world.begin(a).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    world.started("b");
    assert_eq!(world.state("a"), Some(TransactionState::Ongoing));
    assert!(world.coordinator.knows_producer(a.id) && world.coordinator.knows_producer(b.id));
}

#[test]
fn after_the_last_epoch_a_commit_answers_a_new_producer_id() {
    let mut world = World::new();
    let last = at_epoch(&mut world, "t", i16::MAX - 1);
    let bare = world.add(handle(last), &[0]);
    assert_eq!(bare, Err(AddError::Transaction(TransactionError::UnknownTransaction)), "it has to begin first");
    let step = world.coordinator.begin(world.now(), last.id, last.epoch, None);
    assert_eq!(world.take(step), Err(BeginError::NeedsProducerId));
    let transaction = world.begin(last).expect("it may begin");
    world.restart();
    world.add(transaction, &[0]).expect("it is open");
    world.end(transaction, Outcome::Commit).expect("it is open");
    assert_eq!(world.sent[0].producer_epoch, ProducerEpoch(i16::MAX));
    world.restart();
    let next = world.ended(transaction, Outcome::Commit).expect("it is open");
    assert!(next.id != last.id && next.epoch == ProducerEpoch(0), "{next:?}");
    world.restart();
    assert_eq!(world.ended(transaction, Outcome::Commit), Ok(next));
    assert_eq!(world.begin(last), Err(BeginError::ProducerFenced));
    let two = world.begin(next).expect("it may begin");
    world.ended(two, Outcome::Commit).expect("it is open");
    assert!(!world.coordinator.knows_producer(last.id), "nothing is left of it");
}

#[test]
fn after_the_last_epoch_a_transaction_whose_time_is_over_leaves_a_new_producer_id_too() {
    let mut world = World::new();
    let last = at_epoch(&mut world, "t", i16::MAX - 1);
    let transaction = world.begin(last).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    world.pass(TIMEOUT_MS);
    let next = world.ended(transaction, Outcome::Abort).expect("it was aborted");
    assert!(next.id != last.id && next.epoch == ProducerEpoch(0), "{next:?}");
    world.begin(next).expect("it may begin");
}

#[test]
fn a_producer_that_starts_near_the_last_epoch_gets_a_new_id() {
    for (epoch, opens) in [(i16::MAX - 1, false), (i16::MAX - 1, true), (i16::MAX - 2, true)] {
        let mut world = World::new();
        let old = at_epoch(&mut world, "t", epoch);
        if opens {
            let transaction = world.begin(old).expect("it may begin");
            world.add(transaction, &[0]).expect("it is open");
            world.init("t").expect("it may start");
            world.write_all();
            assert_eq!(world.begin(off(old, 1)), Err(BeginError::ProducerFenced), "nobody was given it");
            world.restart();
        }
        let new = world.started("t");
        assert!(new.id != old.id && new.epoch == ProducerEpoch(0), "{epoch} {opens} {new:?}");
        world.begin(old).expect_err("it is fenced");
        let transaction = world.begin(new).expect("it may begin");
        world.add(transaction, &[0]).expect("it is open");
        world.ended(transaction, Outcome::Commit).expect("it is open");
    }
}

#[test]
fn a_time_out_is_within_bounds_and_ids_of_the_broker_are_its_own() {
    let mut world = World::new();
    let id = transactional_id("t");
    for timeout_ms in [0, 99, 900_001, u64::MAX] {
        let step = world.coordinator.init(world.now(), &id, timeout_ms, Some(ProducerId(1)));
        assert_eq!(world.take(step), Err(InitError::InvalidTimeout { min: 100, max: 900_000 }));
    }
    assert_eq!(world.init("__execute-1"), Err(InitError::ReservedId));
    for timeout_ms in [100, 900_000] {
        let step = world.coordinator.init(world.now(), &id, timeout_ms, Some(ProducerId(1)));
        let Ok(Progress::Done(producer)) = world.take(step) else { panic!("it may start") };
        let transaction = world.begin(producer).expect("it may begin");
        world.add(transaction, &[0]).expect("it is open");
        world.pass(timeout_ms - 1);
        assert_eq!(world.state("t"), Some(TransactionState::Ongoing));
        world.pass(1);
        world.write_all();
        assert_eq!(world.state("t"), None);
    }
}

#[test]
fn an_id_that_is_not_used_is_forgotten() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    world.ended(transaction, Outcome::Commit).expect("it is open");
    world.pass(OPTIONS.id_expiration_ms - 1);
    world.ended(transaction, Outcome::Commit).expect("it is still known");
    world.pass(1);
    assert!(world.log.is_empty() && world.coordinator.records().is_empty());
    assert_eq!(world.begin(off(producer, 1)), Err(BeginError::UnknownProducer));
    let unknown = TransactionError::UnknownTransaction;
    assert_eq!(world.end(transaction, Outcome::Commit), Err(EndError::Transaction(unknown)));
    assert_ne!(world.started("t").id, producer.id);
    assert_eq!(world.coordinator.next_due().map(|due| due.0), Some(world.tick + OPTIONS.id_expiration_ms));
}

#[test]
fn an_id_is_not_forgotten_while_markers_are_missing() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    world.end(transaction, Outcome::Commit).expect("it is open");
    world.pass(3 * OPTIONS.id_expiration_ms);
    assert_eq!(world.state("t"), Some(TransactionState::Prepared(Outcome::Commit)));
    world.write_all();
    assert_eq!(world.ended(transaction, Outcome::Commit), Ok(off(producer, 1)));
}

#[test]
fn what_cannot_be_read_changes_nothing() {
    let mut coordinator = TransactionCoordinator::new(OPTIONS);
    for key in [&b""[..], &[2, 0, 1, b't'], &[1, 0, 2, b't'], &[1, 0, 0], &[1, 0, 1, b't', 0]] {
        coordinator.replay(key, None).expect_err("it says what is wrong");
    }
    coordinator.replay(&[1, 0, 1, b't'], Some(&[1, 0])).expect_err("the value is cut off");
    assert!(coordinator.records().is_empty());
}
