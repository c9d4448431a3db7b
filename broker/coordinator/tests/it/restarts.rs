//! A new coordinator goes on where the one before was.

use levada_coordinator::{AssignmentEpoch, Coordinator, CoordinatorRecord, GroupState, Holding};

use crate::kit::{Answers, OPTIONS, World, group, member};

#[test]
fn a_restart_in_the_middle_of_a_rebalance_goes_on_with_it() {
    let mut world = World::new(2);
    world.joins("A");
    world.pass(3_000);
    world.joins("B");
    world.pass(1_000);
    let lost = world.revoked("A");
    world.heartbeat("A").expect("a member");
    world.restart();
    assert_eq!((world.revoked("A"), world.state()), (lost.clone(), GroupState::Reconciling));
    assert_eq!(world.poll("A").expect("a member").holdings.len(), 2, "it is told again");
    world.poll("A").expect("a member");
    assert_eq!((world.held("B"), world.state()), (lost, GroupState::Stable));
}

#[test]
fn a_rebalance_that_was_due_before_a_restart_is_due_after_it() {
    let mut world = World::new(2);
    world.answers = Answers::ByHand;
    world.joins("A");
    world.pass(3_000);
    world.restart();
    world.pass(3_000);
    world.answer_well();
    assert_eq!(world.held("A"), [0, 1]);
    world.joins("B");
    world.restart();
    world.run();
    world.answer_well();
    assert_eq!(world.revoked("A").len(), 1);
}

#[test]
fn a_restart_of_a_stable_group_makes_no_rebalance() {
    let mut world = World::new(3);
    world.joins("A");
    world.joins("B");
    world.pass(3_000);
    world.answers = Answers::ByHand;
    let before = world.describe();
    world.restart();
    world.pass(10_000);
    assert!(world.tasks.is_empty());
    assert_eq!(world.describe().generation, before.generation);
}

#[test]
fn a_topic_that_changed_while_nobody_looked_is_noticed_after_the_restart() {
    let mut world = World::new(1);
    world.joins("A");
    world.pass(3_000);
    world.topics.set("t", 1, 2);
    world.restart();
    world.pass(1_000);
    assert_eq!(world.held("A"), [0, 1]);
    world.topics.delete("t");
    world.restart();
    world.run();
    assert!(world.holdings("A").is_empty());
}

#[test]
fn of_the_time_that_offsets_are_kept_a_restart_takes_what_passed_by_the_time_of_day() {
    let mut world = World::new(1);
    world.joins("A");
    world.pass(3_000);
    world.commit("A", 0, 1, None).expect("a member").expect("held");
    world.leave("A").expect("a member");
    world.pass(20_000);
    world.set_wall(world.now().wall.0 + 60_000);
    world.restart();
    world.pass(39_999);
    assert_eq!(world.committed(0), Some(1));
    world.set_wall(0);
    world.restart();
    world.pass(119_999);
    assert_eq!(world.committed(0), Some(1), "a clock that was set back makes it longer, never shorter");
    world.pass(1);
    assert_eq!(world.committed(0), None);
}

/// What a coordinator that is given the records makes of the members A and B, and whether it mended anything.
fn mended(world: &World, records: &[CoordinatorRecord]) -> ([Vec<Holding>; 2], bool) {
    let mut coordinator = Coordinator::new(OPTIONS);
    for record in records {
        coordinator.replay(&record.key, record.value.as_deref()).expect("it can be read");
    }
    let step = coordinator.loaded(world.now());
    let members = coordinator.group(&group()).expect("it is there").members;
    let held = |id| members.iter().find(|m| m.view.member_id == member(id)).expect("a member").view.holdings.clone();
    ([held("A"), held("B")], !step.records.is_empty())
}

#[test]
fn of_two_owners_in_a_damaged_log_the_one_that_began_later_stays() {
    let mut world = World::new(1);
    world.joins("A");
    world.pass(3_000);
    let mut both = world.coordinator.records();
    world.leave("A").expect("a member");
    world.joins("B");
    world.pass(3_000);
    both.extend(world.coordinator.records());
    let ([a, b], mended) = mended(&world, &both);
    assert!(mended && a.is_empty());
    assert_eq!(b.iter().map(|holding| holding.epoch).collect::<Vec<_>>(), [AssignmentEpoch(2)]);
}

#[test]
fn of_two_owners_of_one_generation_in_a_damaged_log_none_stays() {
    let world = World::new(1);
    let mut both = Vec::new();
    for id in ["A", "B"] {
        let mut alone = World::new(1);
        alone.joins(id);
        alone.pass(3_000);
        both.extend(alone.coordinator.records());
    }
    let (held, mended) = mended(&world, &both);
    assert!(mended && held.iter().all(Vec::is_empty), "{held:?}");
}

#[test]
fn what_cannot_be_read_changes_nothing() {
    let mut coordinator = Coordinator::new(OPTIONS);
    for key in [&b""[..], &[9], &[1, 0], &[2, 0, 1, b'/'], &[3, 0, 1, b'g', 0, 1, b'm', 0]] {
        coordinator.replay(key, Some(&[1])).expect_err("it says what is wrong");
    }
    coordinator.replay(&[2, 0, 1, b'g'], Some(&[1])).expect_err("the value is cut off");
    assert!(coordinator.records().is_empty());
}
