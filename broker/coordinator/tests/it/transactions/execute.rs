//! Transactions of one request: all or nothing, and with a key once.

use levada_coordinator::{EndError, ExecuteError, Executing, Outcome, Progress, TransactionError};
use levada_model::limits;

use super::kit::{OPTIONS, TIMEOUT_MS, World, body, handle, participants, transactional_id};

const KEY: &str = "__execute-key-ab12";

fn wait<T>(id: &str) -> Progress<T> {
    Progress::Wait(transactional_id(id))
}

fn replayed(answer: &'static [u8]) -> Result<Progress<Executing>, ExecuteError> {
    Ok(Progress::Done(Executing::Replayed(answer.into())))
}

#[test]
fn without_a_key_an_id_is_used_again_and_again() {
    let mut world = World::new();
    let one = world.executing("__execute-1", None);
    world.add(one, &[0]).expect("it is open");
    let next = world.ended(one, Outcome::Commit).expect("it is open");
    let two = world.executing("__execute-1", None);
    assert_eq!(two, handle(next), "nothing was stored in between");
    world.add(two, &[0]).expect("it is open");
    world.ended(two, Outcome::Abort).expect("it is open");
    assert_eq!(world.marked(one), Some((participants(&[0], &[]), Outcome::Commit)));
}

#[test]
fn what_was_left_open_before_a_restart_is_aborted_first() {
    let mut world = World::new();
    let old = world.executing("__execute-1", None);
    world.add(old, &[0]).expect("it is open");
    world.restart();
    assert_eq!(world.execute("__execute-1", None), Ok(wait("__execute-1")));
    let fenced = TransactionError::ProducerFenced;
    assert_eq!(world.end(old, Outcome::Commit), Err(EndError::Transaction(fenced)));
    world.write_all();
    let new = world.executing("__execute-1", None);
    assert!(new > old);
    assert_eq!(world.marked(old), Some((participants(&[0], &[]), Outcome::Abort)));
}

#[test]
fn the_same_request_with_its_key_gets_the_same_answer_for_a_day() {
    let mut world = World::new();
    let transaction = world.executing(KEY, Some(body(1)));
    world.add(transaction, &[0]).expect("it is open");
    assert_eq!(world.commit_execution(transaction, body(1), b"done"), Ok(wait(KEY)));
    assert_eq!(world.execute(KEY, Some(body(1))), Ok(wait(KEY)), "it is not readable yet");
    world.restart();
    assert_eq!(world.execute(KEY, Some(body(1))), Ok(wait(KEY)));
    world.write_all();
    for _ in 0..2 {
        assert_eq!(world.execute(KEY, Some(body(1))), replayed(b"done"));
        world.restart();
    }
    world.pass(OPTIONS.execute_answer_ms - 1);
    assert_eq!(world.execute(KEY, Some(body(1))), replayed(b"done"));
    world.pass(1);
    assert!(world.log.is_empty());
    let again = world.executing(KEY, Some(body(2)));
    assert_ne!(again.producer_id, transaction.producer_id);
}

#[test]
fn another_body_with_the_key_is_refused() {
    let mut world = World::new();
    let transaction = world.executing(KEY, Some(body(1)));
    assert_eq!(world.execute(KEY, Some(body(2))), Err(ExecuteError::KeyReused), "while it is under way");
    world.add(transaction, &[0]).expect("it is open");
    assert_eq!(world.execute(KEY, Some(body(2))), Err(ExecuteError::KeyReused));
    world.commit_execution(transaction, body(1), b"done").expect("it is open");
    assert_eq!(world.execute(KEY, Some(body(2))), Err(ExecuteError::KeyReused));
    world.write_all();
    assert_eq!(world.execute(KEY, Some(body(2))), Err(ExecuteError::KeyReused));
    assert_eq!(world.execute(KEY, Some(body(1))), replayed(b"done"));
}

#[test]
fn another_body_is_refused_also_where_the_first_was_left_open_before_a_restart() {
    let mut world = World::new();
    let left = world.executing(KEY, Some(body(1)));
    world.add(left, &[0]).expect("it is open");
    world.restart();
    for _ in 0..2 {
        assert_eq!(world.execute(KEY, Some(body(2))), Err(ExecuteError::KeyReused));
    }
    assert_eq!(world.execute(KEY, Some(body(1))), Ok(wait(KEY)), "the same request gives it up");
    world.write_all();
    assert_eq!(world.marked(left), Some((participants(&[0], &[]), Outcome::Abort)));
    world.executing(KEY, Some(body(2)));
}

#[test]
fn what_began_before_a_restart_and_was_not_stored_shares_no_transaction_with_the_next() {
    for stored in [false, true] {
        let mut world = World::new();
        if stored {
            let before = world.executing(KEY, Some(body(1)));
            world.add(before, &[0]).expect("it is open");
            world.ended(before, Outcome::Abort).expect("it is open");
        }
        let old = world.executing(KEY, Some(body(1)));
        world.restart();
        let new = world.executing(KEY, Some(body(2)));
        assert_ne!(old, new);
        world.add(old, &[0]).expect_err("its first word comes too late");
        world.end(old, Outcome::Commit).expect_err("likewise");
        world.add(new, &[1]).expect("it is open");
        world.ended(new, Outcome::Commit).expect("it is open");
        assert_eq!(world.marked(new), Some((participants(&[1], &[]), Outcome::Commit)));
    }
}

#[test]
fn it_is_known_of_a_producer_whether_it_is_the_brokers_own() {
    let mut world = World::new();
    let (own, users) = (world.executing("__execute-1", None), world.started("t"));
    assert!(world.coordinator.is_internal(own.producer_id));
    assert!(!world.coordinator.is_internal(users.id));
}

#[test]
fn a_retry_while_the_first_try_is_under_way_waits_for_it() {
    for outcome in [Outcome::Commit, Outcome::Abort] {
        let mut world = World::new();
        let transaction = world.executing(KEY, Some(body(1)));
        assert_eq!(world.execute(KEY, Some(body(1))), Ok(wait(KEY)));
        world.add(transaction, &[0]).expect("the first goes on");
        assert_eq!(world.execute(KEY, Some(body(1))), Ok(wait(KEY)));
        match outcome {
            Outcome::Commit => world.commit_execution(transaction, body(1), b"done").expect("it is open"),
            Outcome::Abort => world.end(transaction, outcome).expect("it is open"),
        };
        world.write_all();
        assert_eq!(world.completed, [transactional_id(KEY)]);
        match outcome {
            Outcome::Commit => assert_eq!(world.execute(KEY, Some(body(1))), replayed(b"done")),
            Outcome::Abort => drop(world.executing(KEY, Some(body(1)))),
        }
    }
}

#[test]
fn a_first_try_that_vanished_is_aborted_by_its_time_and_its_waiter_is_told() {
    for adds in [true, false] {
        let mut world = World::new();
        let transaction = world.executing(KEY, Some(body(1)));
        if adds {
            world.add(transaction, &[0]).expect("it is open");
        }
        assert_eq!(world.execute(KEY, Some(body(1))), Ok(wait(KEY)));
        world.pass(TIMEOUT_MS);
        world.write_all();
        assert_eq!(world.completed, [transactional_id(KEY)]);
        world.executing(KEY, Some(body(1)));
    }
}

#[test]
fn a_first_try_that_goes_on_over_a_restart_keeps_its_answer() {
    let mut world = World::new();
    let transaction = world.executing(KEY, Some(body(1)));
    world.add(transaction, &[0]).expect("it is open");
    world.restart();
    world.commit_execution(transaction, body(1), b"done").expect("it is open");
    world.write_all();
    assert_eq!(world.execute(KEY, Some(body(1))), replayed(b"done"));
}

#[test]
fn nothing_said_about_the_transaction_takes_a_kept_answer_away() {
    let mut world = World::new();
    let transaction = world.executing(KEY, Some(body(1)));
    world.add(transaction, &[0]).expect("it is open");
    world.commit_execution(transaction, body(1), b"done").expect("it is open");
    world.write_all();
    let next = world.ended(transaction, Outcome::Commit).expect("it was committed");
    world.begin(next).expect_err("nothing follows it");
    world.add(handle(next), &[0]).expect_err("nothing follows it");
    world.end(handle(next), Outcome::Commit).expect_err("nothing follows it");
    world.end(transaction, Outcome::Abort).expect_err("it was committed");
    assert_eq!(world.execute(KEY, Some(body(1))), replayed(b"done"));
}

#[test]
fn an_answer_that_is_too_long_is_refused_and_the_transaction_stays_open() {
    let mut world = World::new();
    let transaction = world.executing(KEY, Some(body(1)));
    world.add(transaction, &[0]).expect("it is open");
    let limit = limits::EXECUTE_ANSWER_BYTES_MAX;
    let refused = Err(EndError::AnswerTooLarge { limit });
    assert_eq!(world.commit_execution(transaction, body(1), &vec![b'x'; limit + 1]), refused);
    world.check_log();
    assert_eq!(world.commit_execution(transaction, body(1), &vec![b'x'; limit]), Ok(wait(KEY)));
}

#[test]
fn the_oldest_answers_go_when_they_take_too_much_room() {
    let mut world = World::new();
    let each = limits::EXECUTE_ANSWER_BYTES_MAX;
    let fit = limits::EXECUTE_ANSWERS_BYTES_MAX / (each + limits::EXECUTE_ENTRY_BYTES);
    let id = |n: usize| format!("__execute-key-{}", 1_000 - n);
    for n in 0..fit + 2 {
        let transaction = world.executing(&id(n), Some(body(1)));
        world.add(transaction, &[0]).expect("it is open");
        world.commit_execution(transaction, body(1), &vec![b'x'; each]).expect("it is open");
        if n == fit {
            world.restart();
        }
        world.write_all();
        world.pass(1);
    }
    world.check_log();
    assert_eq!(world.log.len(), fit);
    world.executing(&id(0), Some(body(1)));
    world.executing(&id(1), Some(body(1)));
    let kept = world.execute(&id(2), Some(body(1))).expect("it is kept");
    assert!(matches!(kept, Progress::Done(Executing::Replayed(_))));
}
