//! Which assignor is asked, and what becomes of answers that come late, never, or to a group that has changed.

use levada_coordinator::{GroupState, NewMember};
use levada_model::limits;

use crate::kit::{Answers, World, new_member, partition};

#[test]
fn the_assignor_that_most_members_ask_for_is_taken_and_of_several_the_first_by_name() {
    let mut world = World::new(1);
    world.answers = Answers::ByHand;
    let asks = |id, assignor: &str| NewMember { assignor: assignor.into(), ..new_member(id) };
    for (id, assignor) in [("A", "sticky"), ("B", "range"), ("C", "sticky"), ("D", "range")] {
        world.join(asks(id, assignor)).expect("it may join");
    }
    world.pass(3_000);
    assert_eq!(&*world.tasks[0].assignor, "range");
    world.answer_well();
    world.join(asks("E", "sticky")).expect("it may join");
    world.pass(1_000);
    assert_eq!(&*world.tasks[0].assignor, "sticky");
    world.answer_well();
    assert_eq!(world.describe().assignor.as_deref(), Some("sticky"));
}

#[test]
fn an_assignor_that_never_answers_does_not_block_the_group() {
    let mut world = World::new(2);
    world.answers = Answers::ByHand;
    world.joins("A");
    world.pass(3_000);
    world.poll("A").expect("a member");
    world.pass(limits::ASSIGN_MS_MAX - 1);
    assert_eq!(world.state(), GroupState::Assigning);
    world.pass(1);
    assert_eq!(world.held("A"), [0, 1]);
    assert!(world.describe().fallback.expect("it is shown").reason.contains("no answer within"));
    let before = world.describe().generation;
    world.answer(Ok(vec![vec![]]));
    assert_eq!((world.held("A"), world.describe().generation), (vec![0, 1], before), "a late answer changes nothing");
}

#[test]
fn an_answer_is_put_in_force_for_those_who_are_members_still_and_another_rebalance_follows() {
    let mut world = World::new(4);
    world.answers = Answers::ByHand;
    world.joins("A");
    world.joins("B");
    world.pass(3_000);
    world.leave("B").expect("a member");
    world.joins("C");
    world.answer_well();
    assert_eq!(world.held("A").len(), 2, "its part of the answer");
    assert_eq!(world.state(), GroupState::Assigning);
    world.pass(1_000);
    world.answer_well();
    assert_eq!(world.state(), GroupState::Stable);
    assert_eq!((world.held("A").len(), world.held("C").len()), (2, 2));
}

#[test]
fn a_group_that_members_join_without_end_makes_progress() {
    let mut world = World::new(8);
    world.answers = Answers::ByHand;
    world.joins("A");
    world.pass(3_000);
    for round in 0..6 {
        world.joins(&format!("B{round}"));
        world.answer_well();
        let held: usize = world.describe().members.iter().map(|member| member.view.holdings.len()).sum();
        assert_eq!(held, 8, "every partition is held while the group never rests");
        for member in world.describe().members {
            world.poll(member.view.member_id.as_str()).expect("a member");
        }
        world.pass(1_000);
    }
    assert!(!world.held("B3").is_empty(), "who came before has its share");
}

#[test]
fn what_is_meant_for_a_member_that_has_left_stays_with_its_holder_or_free() {
    let mut world = World::new(2);
    world.joins("A");
    world.pass(3_000);
    world.answers = Answers::ByHand;
    world.joins("B");
    world.pass(1_000);
    world.leave("B").expect("a member");
    let before = world.describe().generation;
    world.answer(Ok(vec![vec![partition(0)], vec![partition(1)]]));
    assert_eq!(world.held("A"), [0, 1]);
    assert_eq!(world.describe().generation, before, "nothing has changed for anybody");
}
