//! Several groups of one coordinator.

use levada_coordinator::{Committed, Coordinator, GroupState, GroupSummary, NewMember, Now};
use levada_model::{GroupName, LeaderEpoch, Offset, Tick, Timestamp, limits};

use crate::kit::{OPTIONS, Topics, member, new_member, partition, well};

fn name(name: &str) -> GroupName {
    GroupName::new(name).expect("within the rule")
}

fn at(tick: u64) -> Now {
    Now { tick: Tick(tick), wall: Timestamp(0) }
}

fn topics() -> Topics {
    let mut topics = Topics::default();
    topics.set("t", 1, 2);
    topics
}

#[test]
fn groups_know_nothing_of_each_other() {
    let (mut coordinator, topics) = (Coordinator::new(OPTIONS), topics());
    for (tick, group) in [(0, "b"), (1_000, "a")] {
        let step = coordinator.join(at(tick), &topics, &name(group), new_member("M"));
        step.answer.expect("it may join");
    }
    let committed = Committed {
        offset: Offset(1),
        leader_epoch: LeaderEpoch(0),
        committed_at: Timestamp(0),
        metadata: String::new(),
    };
    let step = coordinator.commit_standalone(at(1_000), &name("c"), vec![(partition(0), committed)]);
    step.answer.expect("it has no members");
    assert_eq!(coordinator.next_due(), Some(Tick(3_000)), "b's first rebalance");
    let step = coordinator.tick(at(4_000), &topics);
    assert_eq!(step.assign.len(), 2, "one tick does what is due in all groups");
    for task in step.assign {
        let step = coordinator.assigned(at(4_000), &task.group, task.token, well(&task));
        assert_eq!(step.changed, [(task.group, member("M"))]);
    }
    let step = coordinator.leave(at(4_000), &name("b"), &member("M"));
    step.answer.expect("a member");
    let expected = [("a", GroupState::Stable, 1), ("b", GroupState::Empty, 0), ("c", GroupState::Empty, 0)];
    let expected = expected.map(|(group, state, members)| GroupSummary { group: name(group), state, members });
    assert_eq!(coordinator.groups(), expected);
}

#[test]
fn a_tick_with_nothing_due_does_nothing() {
    let (mut coordinator, topics) = (Coordinator::new(OPTIONS), topics());
    let step = coordinator.join(at(0), &topics, &name("a"), new_member("M"));
    step.answer.expect("it may join");
    let first = coordinator.tick(at(0), &topics);
    let before = coordinator.next_due();
    let second = coordinator.tick(at(2_999), &topics);
    for step in [first, second] {
        assert!(step.records.is_empty() && step.changed.is_empty() && step.assign.is_empty());
    }
    assert_eq!(coordinator.next_due(), before);
}

#[test]
fn what_a_client_calls_itself_is_cut_between_characters() {
    let (mut coordinator, topics) = (Coordinator::new(OPTIONS), topics());
    let client = format!("x{}", "ü".repeat(limits::CLIENT_BYTES_MAX));
    let step = coordinator.join(at(0), &topics, &name("a"), NewMember { client, ..new_member("M") });
    step.answer.expect("it may join");
    let view = coordinator.group(&name("a")).expect("it is there");
    assert_eq!(view.members[0].client.len(), limits::CLIENT_BYTES_MAX - 1);
}
