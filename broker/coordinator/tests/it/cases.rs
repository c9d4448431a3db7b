//! The cases of `reference/cases.md` that are the coordinator's, literally.

use levada_coordinator::{GroupState, MemberError, NewMember, Refusal};
use levada_extension::{AssignorFault, TopicPartition};
use levada_model::{PartitionIndex, TopicId};
use uuid::Uuid;

use crate::kit::{Answers, World, instance_id, member, new_member, partition, static_member};

fn hasty(id: &str) -> NewMember {
    NewMember { session_timeout_ms: 6_000, rebalance_timeout_ms: 30_000, ..new_member(id) }
}

/// PC-13: A works 20 s on a batch and only heartbeats, B joins at 5 s, C holds nothing and only heartbeats.
#[test]
fn pc_13_a_member_that_works_long_is_told_in_time_and_nobody_is_expelled() {
    let mut world = World::new(2);
    world.join(hasty("A")).expect("it may join");
    world.pass(3_000);
    assert_eq!(world.poll("A").expect("a member").holdings.len(), 2);
    let first = world.describe().generation.0;
    let batch = world.tick();
    world.pass(1_000);
    world.join(hasty("C")).expect("it may join");
    world.pass(1_000);
    world.join(hasty("B")).expect("it may join");
    let mut told_at = None;
    while world.tick().0 < batch.0 + 20_000 {
        world.pass(2_000);
        for id in ["A", "B", "C"] {
            let view = world.heartbeat(id).expect("heartbeats in a rebalance keep it alive");
            if id == "A" && view.holdings.iter().any(|holding| holding.revoked) && told_at.is_none() {
                told_at = Some(world.tick());
                let deadline = view.revoke_deadline.expect("what is revoked has a deadline");
                assert!(deadline.0 > world.tick().0 + 20_000 && deadline.0 <= world.tick().0 + 30_000);
            }
        }
    }
    assert!(told_at.expect("A was told").0 <= batch.0 + 6_000, "A is told at its next heartbeat");
    assert_eq!(world.commit("A", world.revoked("A")[0], 500, None), Ok(Ok(500)), "commits of it still count");
    world.poll("A").expect("a member");
    assert_eq!(world.state(), GroupState::Stable);
    assert!(world.describe().generation.0 <= first + 2, "at most 3 generations");
    let held = ["A", "B", "C"].map(|id| world.held(id).len());
    assert_eq!(held.iter().sum::<usize>(), 2);
    assert_eq!(held[0], 1);
}

/// PC-13, the end: A does not come back from its batch, but its heartbeats go on.
#[test]
fn pc_13_missing_the_deadline_fences_only_the_laggard_and_only_for_the_partition() {
    let mut world = World::new(2);
    world.join(hasty("A")).expect("it may join");
    world.pass(3_000);
    world.poll("A").expect("a member");
    world.join(hasty("B")).expect("it may join");
    world.pass(1_000);
    let lost = world.revoked("A")[0];
    let kept = world.held("A")[0];
    let (of_lost, of_kept) = (world.epoch("A", lost), world.epoch("A", kept));
    let deadline = world.heartbeat("A").expect("a member").revoke_deadline.expect("something is revoked");
    while world.tick().0 + 2_000 < deadline.0 {
        world.pass(2_000);
        world.heartbeat("A").expect("a member");
        world.heartbeat("B").expect("a member");
        assert_eq!(world.held("B"), [0; 0]);
    }
    world.pass(deadline.0 - world.tick().0);
    assert_eq!(world.held("B"), [lost]);
    assert_eq!(world.state(), GroupState::Stable);
    assert_eq!(world.commit("A", lost, 1_000, Some(of_lost)), Ok(Err(Refusal::NotHeld)));
    assert_eq!(world.commit("A", kept, 1_000, Some(of_kept)), Ok(Ok(1_000)), "A is a member still");
    assert_eq!(world.describe().generation.0, 2);
}

/// PC-14, the judgement of commits.
#[test]
fn pc_14_committed_is_next_to_read_and_is_there_for_the_next_instance() {
    let mut world = World::new(1);
    world.joins("A");
    world.pass(3_000);
    let view = world.poll("A").expect("a member");
    assert_eq!((view.holdings.len(), view.holdings[0].committed), (1, None));
    assert_eq!(world.commit("A", 0, 10, None), Ok(Ok(10)));
    world.pass(45_000);
    assert_eq!(world.heartbeat("A"), Err(MemberError::UnknownMember(member("A"))));
    world.joins("B");
    world.pass(3_000);
    let view = world.poll("B").expect("a member");
    assert_eq!(view.holdings[0].committed.map(|offset| offset.0), Some(10));
}

/// PC-14: nothing is committed that nobody commits, and nothing that is not owned.
#[test]
fn pc_14_polls_commit_nothing_and_foreign_partitions_are_refused() {
    let mut world = World::new(3);
    world.joins("A");
    world.pass(3_000);
    for _ in 0..3 {
        world.poll("A").expect("a member");
    }
    assert!(world.describe().offsets.is_empty());
    assert_eq!(world.commit("A", 3, 1, None), Ok(Err(Refusal::NotHeld)));
    world.joins("B");
    world.pass(1_000);
    let waits_for = world.revoked("A")[0];
    assert_eq!(world.commit("B", waits_for, 1, None), Ok(Err(Refusal::NotHeld)), "its own only later");
}

/// PC-15, group G: its member is alive for longer than offsets are kept, and then comes back.
#[test]
fn pc_15_offsets_of_a_group_with_members_never_expire() {
    let mut world = World::new(1);
    world.joins("A");
    world.pass(3_000);
    world.commit("A", 0, 7, None).expect("a member").expect("held");
    for _ in 0..10 {
        world.pass(30_000);
        world.poll("A").expect("a member");
    }
    world.leave("A").expect("a member");
    world.joins("A2");
    world.pass(3_000);
    let holding = &world.poll("A2").expect("a member").holdings[0];
    assert_eq!((holding.committed.map(|offset| offset.0), holding.expired), (Some(7), false));
}

/// PC-15, group H: empty for 3 minutes, then a member joins.
#[test]
fn pc_15_offsets_of_an_empty_group_expire_and_the_next_member_is_told() {
    let mut world = World::new(2);
    world.joins("A");
    world.pass(3_000);
    world.commit("A", 0, 7, None).expect("a member").expect("held");
    world.leave("A").expect("a member");
    world.pass(119_999);
    assert_eq!(world.committed(0), Some(7), "the clock starts when the group becomes empty");
    world.pass(1);
    assert!(world.coordinator.groups().is_empty());
    world.pass(60_000);
    world.joins("B");
    world.pass(3_000);
    let expired: Vec<_> = world.poll("B").expect("a member").holdings.iter().map(|holding| holding.expired).collect();
    assert_eq!(expired, [true, false], "only what was committed once");
    world.commit("B", 0, 1, None).expect("a member").expect("held");
    assert!(!world.poll("B").expect("a member").holdings[0].expired);
}

/// PC-16, the second half: an uploaded assignor answers wrongly in every way.
#[test]
fn pc_16_a_bad_answer_falls_back_to_the_built_in_assignor_and_says_so() {
    let foreign = TopicPartition { topic: TopicId(Uuid::from_u128(9)), partition: PartitionIndex(0) };
    let (p0, p1, p2) = (partition(0), partition(1), partition(2));
    let bad = [
        (Ok(vec![vec![p0, p1], vec![p1, p2]]), "was given to member A and to member B"),
        (Ok(vec![vec![p0], vec![p1]]), "was given to nobody"),
        (Ok(vec![vec![p0, foreign], vec![p1, p2]]), "does not exist"),
        (Ok(vec![vec![p0], vec![p1, p2], vec![]]), "3 lists for 2 members"),
        (Err(AssignorFault { reason: "the module trapped".to_owned() }), "the module trapped"),
    ];
    for (answer, reason) in bad {
        let mut world = World::new(3);
        world.answers = Answers::ByHand;
        for id in ["A", "B"] {
            world.join(NewMember { assignor: "module:mine".into(), ..new_member(id) }).expect("it may join");
        }
        world.pass(3_000);
        world.answer(answer);
        let view = world.describe();
        let fallback = view.fallback.expect("it is shown");
        assert_eq!((fallback.generation, &*fallback.assignor), (view.generation, "module:mine"));
        assert!(fallback.reason.contains(reason), "{}", fallback.reason);
        assert_eq!(world.held("A").len() + world.held("B").len(), 3);
        assert_eq!(world.state(), GroupState::Stable);
    }
}

/// PC-17: a process with a fixed instance id is killed and started again.
#[test]
fn pc_17_a_restarted_instance_gets_the_same_partitions_with_no_new_generation() {
    let quick = |id| NewMember { session_timeout_ms: 10_000, ..static_member(id, "pod-0/a") };
    let mut world = World::new(4);
    world.join(quick("A1")).expect("it may join");
    world.joins("B");
    world.pass(3_000);
    let before = world.describe();
    let (held, epoch) = (world.held("A1"), world.epoch("A1", world.held("A1")[0]));
    world.pass(2_000);
    let view = world.join(quick("A2")).expect("it may join");
    assert_eq!(view.holdings.len(), held.len(), "at once");
    world.pass(5_000);
    assert_eq!((world.held("A2"), world.describe().generation), (held.clone(), before.generation));
    assert_eq!(world.state(), GroupState::Stable);
    assert_eq!(world.commit("A2", held[0], 5, Some(epoch)), Ok(Ok(5)), "its cursors go on");
}

/// PC-17, the end: two live processes with one instance id.
#[test]
fn pc_17_of_two_live_instances_the_newer_wins_and_the_older_gets_its_own_error() {
    let mut world = World::new(1);
    for id in ["A1", "A2", "A3"] {
        world.join(static_member(id, "pod-0/a")).expect("it may join");
    }
    world.pass(3_000);
    let fenced = MemberError::FencedInstance { instance_id: instance_id("pod-0/a") };
    for old in ["A1", "A2"] {
        assert_eq!(world.poll(old), Err(fenced.clone()));
        assert_eq!(world.heartbeat(old), Err(fenced.clone()));
        assert_eq!(world.commit(old, 0, 1, None), Err(fenced.clone()));
        assert_eq!(world.leave(old), Err(fenced.clone()));
    }
    world.restart();
    assert_eq!(world.poll("A1"), Err(fenced), "after a restart too");
    assert_eq!(world.poll("A3").expect("the newest wins").holdings.len(), 1);
}
