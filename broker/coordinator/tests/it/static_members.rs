//! Members that keep an identity over their restarts (KIP-345).

use levada_coordinator::{GroupState, MemberError, NewMember};
use levada_model::limits;

use crate::kit::{Answers, World, instance_id, member, static_member, topic};

#[test]
fn an_instance_that_comes_back_with_another_subscription_keeps_what_it_still_reads() {
    let mut world = World::new(2);
    world.topics.set("u", 2, 2);
    let both = vec![topic("t"), topic("u")];
    world.join(NewMember { topics: both, ..static_member("A1", "a") }).expect("it may join");
    world.pass(3_000);
    assert_eq!(world.holdings("A1").len(), 4);
    let view = world.join(static_member("A2", "a")).expect("it may join");
    assert!(view.holdings.len() == 2 && view.holdings.iter().all(|holding| holding.topic == topic("t")));
    world.pass(1_000);
    assert_eq!((world.state(), world.held("A2")), (GroupState::Stable, vec![0, 1]));
}

#[test]
fn what_the_old_process_was_told_is_told_to_the_new_one_again() {
    let mut world = World::new(2);
    world.join(static_member("A1", "a")).expect("it may join");
    world.pass(3_000);
    world.joins("B");
    world.pass(1_000);
    world.heartbeat("A1").expect("a member");
    world.join(static_member("A2", "a")).expect("it may join");
    let view = world.poll("A2").expect("a member");
    assert_eq!(view.holdings.len(), 2, "its first fetch tells");
    assert_eq!(world.poll("A2").expect("a member").holdings.len(), 1);
}

#[test]
fn an_instance_that_comes_back_while_the_assignor_works_gets_what_was_meant_for_it() {
    let mut world = World::new(2);
    world.answers = Answers::ByHand;
    world.join(static_member("A1", "a")).expect("it may join");
    world.pass(3_000);
    world.join(static_member("A2", "a")).expect("it may join");
    world.answer_well();
    assert_eq!((world.held("A2"), world.state()), (vec![0, 1], GroupState::Stable));
}

#[test]
fn after_its_session_an_instance_is_a_new_member() {
    let mut world = World::new(1);
    world.join(static_member("A1", "a")).expect("it may join");
    world.pass(3_000);
    world.pass(45_000);
    let view = world.join(static_member("A2", "a")).expect("it may join");
    assert!(view.holdings.is_empty());
    assert_eq!(world.poll("A1"), Err(MemberError::UnknownMember(member("A1"))));
}

#[test]
fn replaced_ids_are_remembered_up_to_a_bound() {
    let mut world = World::new(1);
    for i in 0..=limits::REPLACED_MEMBERS_REMEMBERED + 1 {
        world.join(static_member(&format!("A{i}"), "a")).expect("it may join");
    }
    assert_eq!(world.poll("A0"), Err(MemberError::UnknownMember(member("A0"))), "the oldest is forgotten");
    assert_eq!(world.poll("A1"), Err(MemberError::FencedInstance { instance_id: instance_id("a") }));
}
