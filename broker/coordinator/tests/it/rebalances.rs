//! When a group rebalances, and how partitions move.

use levada_coordinator::{GroupState, JoinError, MemberError, MemberState, NewMember};
use levada_model::limits;

use crate::kit::{World, member, new_member, static_member, topic};

#[test]
fn joining_never_waits_and_the_first_assignment_comes_after_the_initial_delay() {
    let mut world = World::new(4);
    let view = world.join(new_member("A")).expect("it may join");
    assert_eq!((view.holdings.len(), view.state, view.generation.0), (0, MemberState::Assigning, 0));
    world.pass(2_000);
    world.joins("B");
    world.pass(999);
    assert_eq!(world.state(), GroupState::Assigning);
    world.pass(1);
    assert_eq!((world.held("A").len(), world.held("B").len()), (2, 2));
    assert_eq!(world.describe().generation.0, 1, "one for both");
}

#[test]
fn every_empty_group_has_the_initial_delay_also_one_that_had_members() {
    let mut world = World::new(1);
    world.joins("A");
    world.pass(3_000);
    world.leave("A").expect("a member");
    world.joins("B");
    world.pass(2_999);
    assert_eq!(world.state(), GroupState::Assigning);
    world.pass(1);
    assert_eq!(world.held("B"), [0]);
}

#[test]
fn the_seeds_exercise_two_members_then_three_then_five() {
    let mut world = World::new(4);
    world.joins("A");
    world.joins("B");
    world.pass(3_000);
    assert_eq!((world.held("A").len(), world.held("B").len()), (2, 2));
    world.joins("C");
    world.pass(1_000);
    settle(&mut world, &["A", "B", "C"]);
    let mut held = ["A", "B", "C"].map(|id| world.held(id).len());
    held.sort_unstable();
    assert_eq!(held, [1, 1, 2]);
    world.joins("D");
    world.joins("E");
    world.pass(1_000);
    settle(&mut world, &["A", "B", "C", "D", "E"]);
    let states = world.describe().members.into_iter().map(|member| member.view.state);
    assert_eq!(states.filter(|state| *state == MemberState::Idle).count(), 1, "one is idle and says so");
}

fn settle(world: &mut World, ids: &[&str]) {
    for _ in 0..2 {
        ids.iter().for_each(|id| drop(world.poll(id).expect("a member")));
    }
    assert_eq!(world.state(), GroupState::Stable);
}

#[test]
fn a_partition_moves_only_when_its_holder_fetched_again_after_it_was_told() {
    let mut world = World::new(2);
    world.joins("A");
    world.pass(3_000);
    world.joins("B");
    world.pass(1_000);
    let lost = world.revoked("A");
    assert_eq!(lost.len(), 1);
    for _ in 0..3 {
        let view = world.heartbeat("A").expect("a member");
        assert!(view.revoke_deadline.is_some());
        world.look("A").expect("a member");
    }
    assert_eq!(world.held("B"), [0; 0], "heartbeats and looks of a waiting fetch tell, and give nothing up");
    let view = world.poll("A").expect("a member");
    assert_eq!(view.holdings.len(), 1, "it was told by a heartbeat");
    assert_eq!(world.held("B"), lost);
    assert!(world.changed.contains(&member("B")), "B's waiting fetch looks again");
    assert_eq!(world.written, 2, "the records of the two members");
}

#[test]
fn a_fetch_of_a_member_that_was_not_told_only_tells() {
    let mut world = World::new(2);
    world.joins("A");
    world.pass(3_000);
    world.joins("B");
    world.pass(1_000);
    assert_eq!(world.poll("A").expect("a member").holdings.len(), 2, "told");
    assert_eq!(world.poll("A").expect("a member").holdings.len(), 1, "given up");
}

#[test]
fn a_revocation_that_a_later_target_cancels_leaves_the_same_holding() {
    let mut world = World::new(2);
    world.joins("A");
    world.pass(3_000);
    world.joins("B");
    world.pass(1_000);
    let lost = world.revoked("A")[0];
    let epoch = world.epoch("A", lost);
    world.heartbeat("A").expect("a member");
    world.leave("B").expect("a member");
    world.pass(1_000);
    assert_eq!(world.held("A"), [0, 1]);
    assert_eq!(world.epoch("A", lost), epoch);
    assert_eq!(world.commit("A", lost, 3, Some(epoch)), Ok(Ok(3)));
    world.poll("A").expect("a member");
    assert_eq!(world.held("A"), [0, 1], "nothing is given up any more");
}

#[test]
fn what_a_silent_member_held_goes_to_who_waits_for_it_when_its_session_ends() {
    let mut world = World::new(2);
    world.joins("A");
    world.pass(3_000);
    world.poll("A").expect("a member");
    world.joins("B");
    world.pass(1_000);
    world.pass(43_999);
    world.heartbeat("B").expect("a member");
    assert_eq!(world.held("B"), [0; 0]);
    world.pass(1);
    assert_eq!(world.held("B"), [0, 1], "what it waits for, and by the rebalance that follows the rest");
    assert_eq!(world.poll("A"), Err(MemberError::UnknownMember(member("A"))));
}

#[test]
fn heartbeats_alone_do_not_keep_a_member_that_never_fetches() {
    let mut world = World::new(1);
    world.joins("A");
    for _ in 0..29 {
        world.pass(10_000);
        world.heartbeat("A").expect("a member");
        world.commit("A", 0, 1, None).expect("a member").expect("held");
    }
    world.pass(9_999);
    world.heartbeat("A").expect("a member");
    world.pass(1);
    assert_eq!(world.heartbeat("A"), Err(MemberError::UnknownMember(member("A"))));
}

#[test]
fn thousands_of_joins_make_a_few_rebalances() {
    let mut world = World::new(8);
    world.joins("first");
    world.pass(3_000);
    for i in 0..3_000 {
        world.coordinator_join(&format!("m{i}"));
    }
    world.pass(1_000);
    assert_eq!(world.describe().generation.0, 2);
    assert_eq!(world.describe().members.len(), 3_001);
}

#[test]
fn a_group_that_is_full_says_so() {
    let mut world = World::new(1);
    for i in 0..limits::GROUP_MEMBERS_MAX {
        world.coordinator_join(&format!("m{i}"));
    }
    assert_eq!(world.join(new_member("more")), Err(JoinError::GroupFull { limit: limits::GROUP_MEMBERS_MAX }));
}

#[test]
fn a_join_to_topics_that_are_not_there_names_them_and_changes_nothing() {
    let mut world = World::new(1);
    let topics = ["x", "t", "y"].map(topic).to_vec();
    let refused = world.join(NewMember { topics, ..new_member("A") });
    assert_eq!(refused, Err(JoinError::UnknownTopics(vec![0, 2])));
    assert!(world.coordinator.groups().is_empty());
}

#[test]
fn partitions_that_are_added_are_assigned_and_nobody_else_loses_any() {
    let mut world = World::new(2);
    world.joins("A");
    world.joins("B");
    world.pass(3_000);
    let before = [world.held("A"), world.held("B")];
    world.topics.set("t", 1, 4);
    world.pass(1_000);
    for (id, before) in ["A", "B"].into_iter().zip(before) {
        let held = world.held(id);
        assert!(held.len() == 2 && held.contains(&before[0]), "{held:?}");
    }
    assert_eq!((world.state(), world.describe().generation.0), (GroupState::Stable, 2));
    world.topics.set("other", 2, 4);
    world.pass(10_000);
    assert_eq!(world.describe().generation.0, 2, "another topic is not the group's business");
}

#[test]
fn partitions_of_a_deleted_topic_leave_everybody_at_once() {
    let mut world = World::new(2);
    world.joins("A");
    world.pass(3_000);
    world.joins("B");
    world.pass(1_000);
    assert_eq!(world.revoked("A").len(), 1);
    world.topics.delete("t");
    world.run();
    assert!(world.holdings("A").is_empty() && world.holdings("B").is_empty());
    world.pass(60_000);
    assert_eq!(world.coordinator.groups()[0].state, GroupState::Empty, "both were silent");
}

#[test]
fn a_rebalance_that_changes_nothing_makes_no_new_generation() {
    let mut world = World::new(1);
    world.joins("A");
    world.pass(3_000);
    world.joins("B");
    world.pass(1_000);
    assert_eq!((world.describe().generation.0, world.state()), (1, GroupState::Stable));
    assert!(world.changed.contains(&member("B")), "B waits for this word");
    assert_eq!(world.poll("B").expect("a member").state, MemberState::Idle);
}

/// A member that subscribes to 1,000 topics of the longest names.
fn widest(id: &str, topics: &[levada_model::TopicName]) -> NewMember {
    NewMember { topics: topics.to_vec(), ..new_member(id) }
}

#[test]
fn members_whose_subscriptions_are_more_than_a_group_may_have_are_refused() {
    let mut world = World::new(1);
    let names: Vec<_> = (0..limits::GROUP_TOPICS_MAX).map(|i| format!("{i:0>249}")).collect();
    names.iter().zip(2..).for_each(|(name, id)| world.topics.set(name, id, 1));
    let topics: Vec<_> = names.iter().map(|name| topic(name)).collect();
    let full = Err(JoinError::SubscriptionsFull { limit_bytes: limits::GROUP_SUBSCRIPTIONS_BYTES_MAX });
    let mut count = 0;
    let refused = loop {
        let member = NewMember { topics: topics.clone(), ..static_member("first", "i") };
        let joined = world.join(if count == 0 { member } else { widest(&format!("m{count}"), &topics) });
        match joined {
            Ok(_) => count += 1,
            Err(error) => break Err(error),
        }
    };
    assert_eq!(refused, full);
    // Name, id and count in a record, and the name once more: 522,000 bytes a member; and the assignor's name.
    assert_eq!(count, limits::GROUP_SUBSCRIPTIONS_BYTES_MAX / 522_018);
    world.join(new_member("narrow")).expect("there is room for few topics");
    let again = NewMember { topics: topics.clone(), ..static_member("second", "i") };
    world.join(again).expect("it takes the place of the one before");
    world.leave("m1").expect("a member");
    world.join(widest("more", &topics)).expect("there is room again");
    assert_eq!(world.join(widest("surplus", &topics)), full);
}
