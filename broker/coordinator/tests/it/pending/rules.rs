//! What counts of offsets inside transactions, and who may add and end them.

use levada_coordinator::{
    Coordinator, MarkerError, MemberError, OffsetsMarker, Outcome, PendingError, Producer, StandaloneError,
};
use levada_model::{ProducerId, limits};

use crate::kit::{OPTIONS, World, group, member, next, partition, producer};

const P: Producer = Producer { id: ProducerId(1), epoch: levada_model::ProducerEpoch(4) };
const Q: Producer = Producer { id: ProducerId(2), epoch: levada_model::ProducerEpoch(0) };

#[test]
fn an_offset_in_a_transaction_is_pending_until_its_commit() {
    let mut world = World::new(2);
    world.commit_standalone(0, 3);
    world.add(P, 0, 7).expect("taken");
    world.add(P, 1, 8).expect("taken");
    world.check_replays();
    assert_eq!((world.committed(0), world.committed(1)), (Some(3), None), "the last stable ones");
    world.end(P, Outcome::Commit);
    world.check_replays();
    assert_eq!((world.committed(0), world.committed(1)), (Some(7), Some(8)));
    assert_eq!(world.coordinator.committed(&group()).expect("it is there").len(), 2);
}

#[test]
fn an_offset_of_an_aborted_transaction_is_gone_and_so_is_a_group_that_had_nothing_else() {
    let mut world = World::new(1);
    world.add(P, 0, 7).expect("taken");
    assert_eq!(world.describe().offsets, [], "a group that has something pending is there");
    assert_eq!(world.coordinator.groups().len(), 1);
    world.end(P, Outcome::Abort);
    assert!(world.coordinator.group(&group()).is_none());
    assert_eq!(world.coordinator.next_due(), None);
    world.commit_standalone(0, 3);
    world.add(next(P), 0, 7).expect("taken");
    world.end(next(P), Outcome::Abort);
    world.check_replays();
    assert_eq!(world.committed(0), Some(3));
}

#[test]
fn an_offset_counts_from_its_own_place_whichever_transaction_ends_first() {
    for earlier_first in [true, false] {
        let mut world = World::new(1);
        world.add(P, 0, 7).expect("taken");
        world.add(Q, 0, 5).expect("taken");
        let (first, second) = if earlier_first { (P, Q) } else { (Q, P) };
        world.end(first, Outcome::Commit);
        world.check_replays();
        assert_eq!(world.committed(0), Some(if earlier_first { 7 } else { 5 }));
        world.end(second, Outcome::Commit);
        world.check_replays();
        assert_eq!(world.committed(0), Some(5), "it is the later in the log");
    }
}

#[test]
fn an_offset_whose_later_rival_is_aborted_counts() {
    let mut world = World::new(1);
    world.add(P, 0, 7).expect("taken");
    world.add(Q, 0, 5).expect("taken");
    world.end(Q, Outcome::Abort);
    world.end(P, Outcome::Commit);
    world.check_replays();
    assert_eq!(world.committed(0), Some(7));
}

#[test]
fn a_plain_commit_behind_a_pending_one_wins_and_one_before_it_loses() {
    let mut world = World::new(1);
    world.add(P, 0, 7).expect("taken");
    world.commit_standalone(0, 3);
    world.end(P, Outcome::Commit);
    world.check_replays();
    assert_eq!(world.committed(0), Some(3));
    world.add(next(P), 0, 9).expect("taken");
    world.add(next(P), 0, 8).expect("taken");
    world.end(next(P), Outcome::Commit);
    world.check_replays();
    assert_eq!(world.committed(0), Some(8), "within a transaction the last word counts");
}

#[test]
fn the_same_end_again_changes_nothing_and_the_other_end_is_refused() {
    let mut world = World::new(1);
    world.add(P, 0, 7).expect("taken");
    let marker = OffsetsMarker { producer: next(P), coordinator_epoch: 4, outcome: Outcome::Commit };
    assert_eq!((world.end_by(marker), world.written), (Ok(()), 1));
    world.add(next(P), 0, 9).expect("taken");
    assert_eq!((world.end_by(marker), world.written), (Ok(()), 0), "also when the producer has gone on");
    let other = OffsetsMarker { outcome: Outcome::Abort, ..marker };
    assert_eq!(world.end_by(other), Err(MarkerError::OtherOutcome));
    let old = OffsetsMarker { coordinator_epoch: 3, producer: next(next(P)), ..marker };
    assert_eq!(world.end_by(old), Err(MarkerError::CoordinatorFenced { current: 4 }));
    let late = OffsetsMarker { producer: P, ..marker };
    assert_eq!((world.end_by(late), world.written), (Ok(()), 0), "the end of an earlier transaction");
    assert_eq!(world.committed(0), Some(7), "the next transaction is open still");
    world.check_replays();
}

#[test]
fn what_comes_after_the_end_of_its_transaction_is_fenced_also_where_nothing_was_pending() {
    let mut world = World::new(1);
    world.end(P, Outcome::Abort);
    assert_eq!(world.written, 1, "the marker fences");
    for restarted in [false, true] {
        assert_eq!(world.add(P, 0, 7), Err(PendingError::ProducerFenced), "restarted: {restarted}");
        assert!(world.coordinator.group(&group()).is_none());
        world.restart();
    }
    world.add(next(P), 0, 7).expect("the next transaction has the marker's epoch");
    let after = Producer { epoch: next(next(P)).epoch, ..P };
    assert_eq!(world.add(after, 0, 8), Err(PendingError::TransactionOpen(P.id)));
    world.end(next(P), Outcome::Commit);
    world.add(after, 0, 8).expect("now it is its turn");
}

#[test]
fn a_member_adds_what_it_holds_and_a_zombie_nothing() {
    let mut world = World::new(2);
    world.joins("A");
    world.pass(3_000);
    let (held, other) = (vec![(partition(0), 5)], vec![(partition(0), 6), (partition(7), 6)]);
    world.add_as(Some("A"), P, held.clone()).expect("held");
    assert_eq!(world.add_as(Some("A"), P, other), Err(PendingError::NotHeld(vec![1])), "all of it or nothing");
    let refused = PendingError::Standalone(StandaloneError::Active(1));
    assert_eq!(world.add_as(None, Q, held.clone()), Err(refused));
    let unknown = |id| PendingError::Member(MemberError::UnknownMember(member(id)));
    assert_eq!(world.add_as(Some("B"), Q, held.clone()), Err(unknown("B")));
    assert_eq!(world.holdings("A")[0].committed, None);
    world.end(P, Outcome::Commit);
    assert_eq!(world.holdings("A")[0].committed.map(|offset| offset.0), Some(5));
    world.joins("B");
    world.pass(1_000);
    let lost = world.revoked("A")[0];
    let lost = vec![(partition(lost), 9)];
    world.add_as(Some("A"), next(P), lost.clone()).expect("until it is given up");
    world.poll("A").expect("a member");
    world.poll("A").expect("a member");
    assert_eq!(world.add_as(Some("A"), next(P), lost), Err(PendingError::NotHeld(vec![0])));
    world.leave("A").expect("a member");
    assert_eq!(world.add_as(Some("A"), next(P), held), Err(unknown("A")));
    world.check_replays();
}

/// A has added an offset and gone; B holds the partition after it.
fn handed_over() -> World {
    let mut world = World::new(1);
    world.joins("A");
    world.pass(3_000);
    world.commit("A", 0, 2, None).expect("a member").expect("held");
    world.add_as(Some("A"), P, vec![(partition(0), 5)]).expect("held");
    world.joins("B");
    world.leave("A").expect("a member");
    world.pass(1_000);
    world
}

/// Whether the one partition is undecided for B, and what it finds committed.
fn finds(world: &World) -> (bool, Option<u64>) {
    let holding = &world.holdings("B")[0];
    (holding.undecided, holding.committed.map(|offset| offset.0))
}

#[test]
fn a_partition_stays_undecided_for_its_next_holder_until_the_end_which_is_news_of_it() {
    for (outcome, stands, restarted) in
        [(Outcome::Commit, 5, false), (Outcome::Abort, 2, false), (Outcome::Commit, 5, true), (Outcome::Abort, 2, true)]
    {
        let mut world = handed_over();
        if restarted {
            world.restart();
        }
        assert_eq!(finds(&world), (true, Some(2)), "the last stable offset, and the word that it may not be the last");
        world.check_replays();
        world.end(P, outcome);
        assert_eq!(world.changed.iter().cloned().collect::<Vec<_>>(), [member("B")]);
        assert_eq!(finds(&world), (false, Some(stands)));
        world.end(P, outcome);
        assert!(world.changed.is_empty(), "the same end again is no news");
    }
}

#[test]
fn the_end_that_leaves_nothing_pending_of_a_partition_decides_it() {
    for earlier_first in [true, false] {
        let mut world = World::new(2);
        world.add(P, 0, 7).expect("taken");
        world.add(Q, 0, 5).expect("taken");
        world.joins("B");
        world.pass(3_000);
        assert_eq!(world.holdings("B").iter().map(|holding| holding.undecided).collect::<Vec<_>>(), [true, false]);
        let (first, second) = if earlier_first { (P, Q) } else { (Q, P) };
        world.end(first, Outcome::Commit);
        assert_eq!((world.changed.is_empty(), finds(&world).0), (earlier_first, earlier_first), "Q's is the later");
        world.end(second, Outcome::Commit);
        assert_eq!((world.changed.is_empty(), finds(&world)), (!earlier_first, (false, Some(5))));
    }
}

#[test]
fn the_explicit_word_of_the_holder_decides_its_partition() {
    let mut world = handed_over();
    world.commit("B", 0, 1, None).expect("a member").expect("held");
    assert_eq!((world.changed.contains(&member("B")), finds(&world)), (true, (false, Some(1))));
    world.commit("B", 0, 2, None).expect("a member").expect("held");
    assert!(world.changed.is_empty());
    world.end(P, Outcome::Commit);
    assert_eq!((world.changed.is_empty(), finds(&world)), (true, (false, Some(2))));
    world.check_replays();
}

#[test]
fn a_member_that_adds_offsets_lives() {
    let mut world = World::new(1);
    world.joins("A");
    world.pass(3_000);
    world.pass(40_000);
    world.add_as(Some("A"), P, vec![(partition(0), 1)]).expect("a member");
    world.pass(44_000);
    world.heartbeat("A").expect("a member still");
}

#[test]
fn a_group_that_is_deleted_takes_its_pending_offsets_with_it() {
    let mut world = World::new(2);
    world.commit_standalone(0, 3);
    world.add(P, 0, 7).expect("taken");
    world.add(P, 1, 7).expect("taken");
    world.delete().expect("no member is active");
    assert_eq!(world.written, 2, "what was never committed has its tombstone too");
    world.restart();
    world.end(P, Outcome::Commit);
    world.check_replays();
    assert!(world.coordinator.group(&group()).is_none(), "nothing came back");
    world.add(next(P), 1, 9).expect("taken");
    world.delete().expect("a group of pending offsets alone");
    world.commit_standalone(1, 2);
    world.end(next(P), Outcome::Commit);
    world.check_replays();
    assert_eq!(world.committed(1), Some(2));
}

#[test]
fn pending_offsets_of_a_deleted_topic_do_not_come_back() {
    let mut world = World::new(1);
    world.add(P, 0, 7).expect("taken");
    world.topics.set("t", 2, 1);
    world.run();
    assert!(world.coordinator.group(&group()).is_none());
    world.end(P, Outcome::Commit);
    world.check_replays();
    assert!(world.coordinator.group(&group()).is_none());
}

#[test]
fn a_group_does_not_expire_while_a_transaction_has_offsets_of_it() {
    let mut world = World::new(1);
    world.commit_standalone(0, 3);
    world.pass(100_000);
    world.add(P, 0, 7).expect("taken");
    world.pass(119_999);
    assert_eq!(world.committed(0), Some(3), "as from any commit");
    world.pass(100_000);
    assert_eq!(world.committed(0), Some(3));
    world.restart();
    world.pass(100_000);
    world.end(P, Outcome::Commit);
    world.check_replays();
    assert_eq!(world.committed(0), Some(7));
    world.pass(120_000);
    assert_eq!(world.committed(0), None, "now it has");
    world.add(next(P), 0, 9).expect("taken");
    world.pass(500_000);
    world.end(next(P), Outcome::Commit);
    assert_eq!(world.committed(0), Some(9), "the mark of what has expired takes nothing along");
}

#[test]
fn the_time_for_which_an_offset_is_kept_counts_from_when_it_was_added_also_over_a_restart() {
    for restarted in [false, true] {
        let mut world = World::new(1);
        world.commit_standalone(0, 3);
        world.pass(100_000);
        world.add(P, 0, 7).expect("taken");
        if restarted {
            world.restart();
        }
        world.end(P, Outcome::Commit);
        world.pass(119_999);
        assert_eq!(world.committed(0), Some(7), "restarted: {restarted}");
        world.pass(1);
        assert_eq!(world.committed(0), None, "restarted: {restarted}");
    }
}

#[test]
fn one_marker_ends_the_transaction_in_all_groups_of_the_partition() {
    let mut world = World::new(1);
    let others = ["h", "i"].map(|name| levada_model::GroupName::new(name).expect("a name"));
    world.add(P, 0, 7).expect("taken");
    for other in &others {
        let committed = levada_coordinator::Committed {
            offset: levada_model::Offset(4),
            leader_epoch: levada_model::LeaderEpoch(0),
            committed_at: world.now().wall,
            metadata: String::new(),
        };
        let commits = vec![(partition(0), committed)];
        let step = world.coordinator.add_transaction_offsets(world.now(), other, None, P, commits);
        world.take(step).expect("taken");
    }
    world.check_replays();
    world.end(P, Outcome::Commit);
    for other in &others {
        assert_eq!(world.coordinator.committed(other).expect("it is there").len(), 1);
    }
    world.end(P, Outcome::Commit);
    assert_eq!(world.written, 0, "the end for the next group is the same end");
}

#[test]
fn more_than_the_caps_is_refused_until_something_ends() {
    let mut coordinator = Coordinator::new(OPTIONS);
    let now = World::new(1).now();
    let add = |coordinator: &mut Coordinator, id: i64, offsets: usize| {
        let committed = |index: usize| {
            let offset = levada_coordinator::Committed {
                offset: levada_model::Offset(1),
                leader_epoch: levada_model::LeaderEpoch(0),
                committed_at: now.wall,
                metadata: String::new(),
            };
            (partition(u32::try_from(index).expect("small")), offset)
        };
        let commits = (0..offsets).map(committed).collect();
        coordinator.add_transaction_offsets(now, &group(), None, producer(id, 0), commits).answer
    };
    let many = i64::try_from(limits::GROUP_TRANSACTIONS_MAX).expect("small");
    (0..many).for_each(|id| add(&mut coordinator, id, 1).expect("room"));
    let full = PendingError::TooManyTransactions { limit: limits::GROUP_TRANSACTIONS_MAX };
    assert_eq!(add(&mut coordinator, many, 1), Err(full));
    add(&mut coordinator, 0, 2).expect("one that is open goes on");
    let most = limits::GROUP_PENDING_OFFSETS_MAX;
    let rest = most - limits::GROUP_TRANSACTIONS_MAX - 1;
    add(&mut coordinator, 0, rest).expect("they just fit");
    let full = PendingError::TooManyOffsets { limit: most };
    assert_eq!(add(&mut coordinator, 1, 3), Err(full), "two of the others were written again");
    let marker = OffsetsMarker { producer: producer(0, 1), coordinator_epoch: 0, outcome: Outcome::Abort };
    coordinator.end_transaction(now, marker).answer.expect("it ends");
    add(&mut coordinator, many, 3).expect("there is room again");
}

#[test]
fn what_is_no_offset_is_not_taken_from_a_transaction() {
    let mut coordinator = Coordinator::new(OPTIONS);
    let mut world = World::new(1);
    world.add(P, 0, 7).expect("taken");
    let crate::log::Entry::Record { key, value, .. } = world.log.0.remove(0) else { panic!("a record") };
    coordinator.replay_transactional(P, &[2, 0, 1, b'g'], Some(&[1])).expect_err("a group");
    coordinator.replay_transactional(P, &key, None).expect_err("a tombstone");
    coordinator.replay_transactional(P, &key, Some(&[2, 0, 0, 0, 0, 0, 0, 0, 0])).expect_err("a mark of expiry");
    assert!(coordinator.groups().is_empty());
    coordinator.replay_transactional(P, &key, value.as_deref()).expect("an offset");
}

#[test]
fn an_open_transaction_whose_marker_was_lost_counts_as_aborted_once_the_next_one_is_read() {
    let mut world = World::new(2);
    world.add(P, 0, 7).expect("taken");
    world.end(P, Outcome::Commit);
    world.add(next(P), 1, 8).expect("taken");
    world.end(next(P), Outcome::Commit);
    world.log.0.remove(1);
    let coordinator = world.log.replayed(&OPTIONS);
    let offsets = coordinator.committed(&group()).expect("it is there");
    assert_eq!(offsets.iter().map(|(at, offset)| (*at, offset.offset.0)).collect::<Vec<_>>(), [(partition(1), 8)]);
}
