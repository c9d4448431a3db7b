//! Cases from the field that are the coordinator's: PC-39.

use levada_coordinator::{EndError, Outcome, TransactionError, TransactionState};

use super::kit::{TIMEOUT_MS, World, participants};

#[test]
fn pc_39_a_coordinator_that_died_between_prepare_and_markers_finishes_by_itself() {
    for outcome in [Outcome::Commit, Outcome::Abort] {
        let mut world = World::new();
        let producer = world.started("t");
        let transaction = world.begin(producer).expect("it may begin");
        world.add(transaction, &[0, 1]).expect("it is open");
        world.end(transaction, outcome).expect("it is open");
        world.restart();
        assert_eq!(world.sent[0].participants, participants(&[0, 1], &[]), "nobody has to ask");
        world.write_all();
        assert_eq!(world.marked(transaction), Some((participants(&[0, 1], &[]), outcome)));
        let next = world.ended(transaction, outcome).expect("its producer learns it");
        world.begin(next).expect("it goes on");
        assert!(world.started("t") > next, "the same id starts");
    }
}

#[test]
fn pc_39_a_group_waits_for_the_offsets_of_a_dead_producer_no_longer_than_the_time_out() {
    for restarts in [false, true] {
        let mut world = World::new();
        let dead = world.started("one");
        let transaction = world.begin(dead).expect("it may begin");
        world.add_group(transaction, "g").expect("it is open");
        world.started("two");
        world.pass(TIMEOUT_MS / 2);
        if restarts {
            world.restart();
        }
        world.pass(TIMEOUT_MS - TIMEOUT_MS / 2);
        assert_eq!(world.state("one"), Some(TransactionState::Prepared(Outcome::Abort)));
        world.write_all();
        assert_eq!(world.marked(transaction), Some((participants(&[], &["g"]), Outcome::Abort)));
        let ended = TransactionError::TransactionEnded { outcome: Outcome::Abort };
        assert_eq!(world.end(transaction, Outcome::Commit), Err(EndError::Transaction(ended)));
    }
}

#[test]
fn pc_39_an_operator_ends_it_at_once() {
    let mut world = World::new();
    let producer = world.started("one");
    let transaction = world.begin(producer).expect("it may begin");
    world.add_group(transaction, "g").expect("it is open");
    assert_eq!(world.open(), [transaction]);
    world.end(transaction, Outcome::Abort).expect("it is open");
    world.write_all();
    assert!(world.open().is_empty());
    assert_eq!(world.marked(transaction), Some((participants(&[], &["g"]), Outcome::Abort)));
}
