//! Markers: sent until they are written, and whose answer counts.

use levada_coordinator::{Outcome, Progress, TransactionHandle, TransactionState};

use super::kit::{OPTIONS, PATIENCE_MS, World, off, participants};

/// A world in which a transaction over two partitions and a group is being committed.
fn committing() -> (World, TransactionHandle) {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0, 1]).expect("it is open");
    world.add_group(transaction, "g").expect("it is open");
    world.end(transaction, Outcome::Commit).expect("it is open");
    (world, transaction)
}

#[test]
fn markers_that_could_not_be_written_are_sent_again_until_they_are() {
    let (mut world, transaction) = committing();
    world.sent.clear();
    let step = world.coordinator.markers_written(world.now(), transaction, &participants(&[0], &[]));
    world.take(step);
    for _ in 0..100 {
        let failed = participants(&[0, 1, 9], &["g", "h"]);
        let step = world.coordinator.markers_failed(world.now(), transaction, &failed);
        world.take(step);
        world.pass(OPTIONS.marker_retry_ms - 1);
        assert!(world.sent.is_empty());
        world.pass(1);
        assert_eq!(world.sent.remove(0).participants, participants(&[1], &["g"]), "those that are missing");
    }
    let step = world.coordinator.markers_written(world.now(), transaction, &participants(&[1], &["g"]));
    world.take(step);
    assert!(matches!(world.end(transaction, Outcome::Commit), Ok(Progress::Done(_))));
}

#[test]
fn a_marker_that_is_on_its_way_is_not_sent_again_for_one_that_failed() {
    let (mut world, transaction) = committing();
    world.sent.clear();
    let step = world.coordinator.markers_failed(world.now(), transaction, &participants(&[1], &[]));
    world.take(step);
    world.pass(OPTIONS.marker_retry_ms);
    assert_eq!(world.sent.remove(0).participants, participants(&[1], &[]));
    world.pass(PATIENCE_MS);
    assert_eq!(world.sent.remove(0).participants, participants(&[0, 1], &["g"]), "nothing was heard of any");
}

#[test]
fn markers_that_nothing_was_heard_of_are_sent_again() {
    let (mut world, transaction) = committing();
    let first = world.sent.remove(0);
    world.pass(PATIENCE_MS - 1);
    assert!(world.sent.is_empty());
    world.pass(1);
    assert_eq!(world.sent, [first]);
    world.write_all();
    assert!(world.open().is_empty());
    assert_eq!(world.marked(transaction), Some((participants(&[0, 1], &["g"]), Outcome::Commit)));
}

#[test]
fn an_answer_about_an_older_transaction_changes_nothing() {
    let (mut world, old) = committing();
    world.write_all();
    let next = world.ended(old, Outcome::Commit).expect("it was committed");
    let new = world.begin(next).expect("it may begin");
    world.add(new, &[0, 1]).expect("it is open");
    let all = participants(&[0, 1], &["g"]);
    for ending in [false, true] {
        if ending {
            world.end(new, Outcome::Abort).expect("it is open");
        }
        let before = format!("{:?}", world.coordinator);
        for late in [old, TransactionHandle { producer_epoch: off(next, 1).epoch, ..new }] {
            let step = world.coordinator.markers_written(world.now(), late, &all);
            assert!(step.records.is_empty() && step.completed.is_empty());
            let step = world.coordinator.markers_failed(world.now(), late, &all);
            assert!(step.records.is_empty() && step.markers.is_empty());
        }
        assert_eq!(format!("{:?}", world.coordinator), before);
    }
    assert_eq!(world.state("t"), Some(TransactionState::Prepared(Outcome::Abort)));
}

#[test]
fn an_answer_from_before_a_restart_counts_since_it_is_true() {
    let (mut world, transaction) = committing();
    world.restart();
    let step = world.coordinator.markers_written(world.now(), transaction, &participants(&[0, 1], &["g"]));
    world.take(step);
    assert!(world.open().is_empty());
}

#[test]
fn an_answer_while_the_transaction_is_open_changes_nothing() {
    let mut world = World::new();
    let producer = world.started("t");
    let transaction = world.begin(producer).expect("it may begin");
    world.add(transaction, &[0]).expect("it is open");
    let step = world.coordinator.markers_written(world.now(), transaction, &participants(&[0], &[]));
    world.take(step);
    assert_eq!(world.state("t"), Some(TransactionState::Ongoing));
    world.end(transaction, Outcome::Commit).expect("it is open");
    assert_eq!(world.sent[0].participants, participants(&[0], &[]));
}
