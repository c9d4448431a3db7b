//! Commits: which ones count, what stands, and how long it is kept.

use levada_coordinator::{DeleteError, Refusal, StandaloneError};

use crate::kit::{World, group, partition};

#[test]
fn a_commit_from_a_cursor_never_goes_back_and_an_owners_explicit_word_may() {
    let mut world = World::new(1);
    world.joins("A");
    world.pass(3_000);
    let epoch = Some(world.epoch("A", 0));
    assert_eq!(world.commit("A", 0, 10, epoch), Ok(Ok(10)));
    assert_eq!(world.commit("A", 0, 4, epoch), Ok(Ok(10)), "the answer tells what stands");
    assert_eq!(world.written, 0);
    assert_eq!(world.commit("A", 0, 4, None), Ok(Ok(4)));
    assert_eq!(world.committed(0), Some(4));
    assert_eq!(world.commit("A", 0, 6, epoch), Ok(Ok(6)));
}

#[test]
fn a_commit_counts_while_the_partition_was_held_without_a_break_since_the_delivery() {
    let mut world = World::new(2);
    world.joins("A");
    world.pass(3_000);
    let old = world.epoch("A", 0);
    world.joins("B");
    world.pass(1_000);
    let lost = world.revoked("A")[0];
    assert_eq!(world.commit("A", lost, 5, Some(old)), Ok(Ok(5)), "until it is given up");
    world.poll("A").expect("a member");
    assert_eq!(world.commit("A", lost, 6, Some(old)), Ok(Ok(6)), "the fetch that told it gave nothing up");
    world.poll("A").expect("a member");
    assert_eq!(world.commit("A", lost, 7, Some(old)), Ok(Err(Refusal::NotHeld)));
    world.leave("B").expect("a member");
    world.pass(1_000);
    assert_eq!(world.held("A"), [0, 1]);
    assert!(world.epoch("A", lost) > old);
    assert_eq!(world.commit("A", lost, 7, Some(old)), Ok(Err(Refusal::LostSince)));
    assert_eq!(world.commit("A", 1 - lost, 7, Some(old)), Ok(Ok(7)), "the other was never lost");
    assert_eq!(world.committed(lost), Some(6));
}

#[test]
fn offsets_of_a_group_without_members_are_kept_from_the_last_commit() {
    let mut world = World::new(1);
    world.commit_standalone(0, 5);
    world.pass(100_000);
    world.commit_standalone(0, 3);
    world.pass(119_999);
    assert_eq!(world.committed(0), Some(3), "an outsider's commit may go back");
    world.pass(1);
    assert_eq!(world.committed(0), None);
    world.pass(120_000);
    assert!(world.coordinator.records().is_empty(), "the marks go too");
    assert_eq!(world.coordinator.next_due(), None);
}

#[test]
fn outsiders_do_not_commit_while_members_are_active() {
    let mut world = World::new(1);
    world.joins("A");
    let refused = world.coordinator.commit_standalone(world.now(), &group(), Vec::new());
    assert_eq!(refused.answer, Err(StandaloneError::Active(1)));
}

#[test]
fn only_a_group_without_members_is_deleted_and_nothing_of_it_stays() {
    let mut world = World::new(1);
    world.joins("A");
    world.pass(3_000);
    world.commit("A", 0, 1, None).expect("a member").expect("held");
    assert_eq!(world.coordinator.delete(world.now(), &group()).answer, Err(DeleteError::Active(1)));
    world.leave("A").expect("a member");
    let step = world.coordinator.delete(world.now(), &group());
    assert_eq!((step.answer, step.records.len()), (Ok(()), 2), "its own record and one offset");
    assert!(world.coordinator.records().is_empty());
    assert_eq!(world.coordinator.delete(world.now(), &group()).answer, Err(DeleteError::NotFound));
}

#[test]
fn offsets_of_a_deleted_topic_are_removed_and_do_not_hold_for_its_successor() {
    let mut world = World::new(2);
    world.joins("A");
    world.pass(3_000);
    world.commit("A", 1, 9, None).expect("a member").expect("held");
    world.topics.set("t", 2, 2);
    world.run();
    assert!(world.describe().offsets.is_empty());
    assert_eq!(world.commit("A", 1, 9, None), Ok(Err(Refusal::NotHeld)));
    world.pass(1_000);
    let holdings = world.poll("A").expect("a member").holdings;
    assert_eq!(holdings.len(), 2);
    assert!(
        holdings.iter().all(|holding| holding.partition.topic != partition(0).topic && holding.committed.is_none())
    );
}

#[test]
fn a_clock_that_is_set_changes_nothing_at_run_time() {
    let mut world = World::new(1);
    world.joins("A");
    world.pass(3_000);
    world.commit("A", 0, 1, None).expect("a member").expect("held");
    let day = 86_400_000;
    world.set_wall(world.now().wall.0 + 365 * day);
    world.run();
    world.poll("A").expect("no session has ended");
    world.leave("A").expect("a member");
    world.set_wall(0);
    world.run();
    world.pass(119_999);
    assert_eq!(world.committed(0), Some(1));
    world.pass(1);
    assert_eq!(world.committed(0), None);
}
