//! A new coordinator of transactions goes on where the one before was.

use levada_coordinator::{EndError, Outcome, Producer, Progress, TransactionError, TransactionState};

use super::kit::{OPTIONS, TIMEOUT_MS, World, handle, off, participants, transactional_id};

#[test]
fn what_is_open_is_open_after_a_restart_and_goes_on() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    world.add(transaction, &[2]).expect("it is open");
    world.restart();
    assert_eq!(world.begin(producer), Ok(transaction));
    world.add(transaction, &[1]).expect("it is open");
    assert_eq!(world.ended(transaction, Outcome::Commit), Ok(off(producer, 1)));
    assert_eq!(world.marked(transaction), Some((participants(&[0, 1, 2], &[]), Outcome::Commit)));
}

#[test]
fn a_transaction_with_nothing_in_it_goes_on_after_a_restart() {
    for adds in [true, false] {
        let mut world = World::new();
        let producer = world.started("t");
        let transaction = world.begin(producer).expect("it may begin");
        world.restart();
        assert!(world.open().is_empty());
        if adds {
            world.add(transaction, &[0]).expect("it is open again");
            world.pass(TIMEOUT_MS);
            assert_eq!(world.state("t"), Some(TransactionState::Prepared(Outcome::Abort)));
        } else {
            assert_eq!(world.end(transaction, Outcome::Commit), Ok(Progress::Done(off(producer, 1))));
        }
    }
}

#[test]
fn how_the_last_transaction_ended_is_known_after_a_restart() {
    let mut world = World::new();
    let producer = world.started("t");
    world.restart();
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    let next = world.ended(transaction, Outcome::Commit).expect("it is open");
    world.restart();
    assert_eq!(world.end(transaction, Outcome::Commit), Ok(Progress::Done(next)));
    let ended = TransactionError::TransactionEnded { outcome: Outcome::Commit };
    assert_eq!(world.end(transaction, Outcome::Abort), Err(EndError::Transaction(ended)));
    assert_eq!(world.begin(next), Ok(handle(next)));
}

#[test]
fn a_producer_is_fenced_though_the_coordinator_dies_while_it_aborts() {
    let mut world = World::new();
    let old = world.started("t");
    let transaction = world.begin(old).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    assert_eq!(world.init("t"), Ok(Progress::Wait(transactional_id("t"))));
    for _ in 0..2 {
        world.restart();
        let refused = Err(EndError::Transaction(TransactionError::ProducerFenced));
        assert_eq!(world.end(transaction, Outcome::Abort), refused);
        world.write_all();
    }
    assert!(world.started("t") > off(old, 1));
}

#[test]
fn of_its_time_a_restart_takes_what_passed_by_the_time_of_day() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.pass(1_000);
    world.add(transaction, &[0]).expect("it is open");
    world.wall += 5_000;
    world.restart();
    world.pass(TIMEOUT_MS - 6_001);
    assert_eq!(world.state("t"), Some(TransactionState::Ongoing));
    world.pass(1);
    assert_eq!(world.state("t"), Some(TransactionState::Prepared(Outcome::Abort)));
}

#[test]
fn a_time_of_day_that_was_set_back_over_a_restart_makes_a_transaction_no_longer_than_its_time_once_more() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    world.pass(1_000);
    world.wall = 0;
    world.restart();
    world.pass(TIMEOUT_MS - 1);
    assert_eq!(world.state("t"), Some(TransactionState::Ongoing));
    world.pass(1);
    assert_eq!(world.state("t"), Some(TransactionState::Prepared(Outcome::Abort)));
}

#[test]
fn a_time_of_day_that_jumps_ends_nothing_while_the_coordinator_lives() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    world.wall += 1_000_000_000;
    world.pass(TIMEOUT_MS - 1);
    assert_eq!(world.state("t"), Some(TransactionState::Ongoing));
}

#[test]
fn an_id_that_was_not_used_over_a_restart_is_forgotten() {
    let mut world = World::new();
    world.started("t");
    world.pass(20_000);
    world.wall += 30_000;
    world.restart();
    world.pass(OPTIONS.id_expiration_ms - 50_001);
    assert_eq!(world.coordinator.records().len(), 1);
    world.pass(1);
    assert!(world.coordinator.records().is_empty());
}

#[test]
fn a_producer_that_was_told_of_its_epoch_is_known_while_the_transaction_before_is_being_ended() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    let awaited = |world: &World, by| {
        let Producer { id, epoch } = off(producer, by);
        world.coordinator.awaited(id, epoch).cloned()
    };
    assert_eq!([0, 1].map(|by| awaited(&world, by)), [None, None], "it is not being ended");
    world.end(transaction, Outcome::Commit).expect("it is open");
    world.restart();
    assert_eq!([0, 1, 2].map(|by| awaited(&world, by)), [None, Some(transactional_id("t")), None]);
    world.write_all();
    assert_eq!([0, 1, 2].map(|by| awaited(&world, by)), [None, None, None]);
    // Nobody is told of an epoch that comes after a start.
    let transaction = world.begin(off(producer, 1)).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    world.init("t").expect("it may start");
    assert_eq!([1, 2].map(|by| awaited(&world, by)), [None, None]);
}
