//! Partitions that move from member to member.

use std::collections::BTreeSet;
use std::time::Duration;

use levada_engine::{GroupError, GroupFetch, MemberState};
use levada_model::Timestamp;

use super::{Member, REBALANCE_MS, committed, fill, filled, group, names, open, pass, quiet, refused, settle};
use crate::support::{Bench, START, create, me, until};

/// A member that holds all of a topic of two partitions, and another that has just joined.
async fn torn(bench: &Bench) -> (levada_engine::Engine, Member, Member) {
    let engine = open(bench);
    filled(&engine, "t", 2, 3).await;
    let mut old = Member::join(&engine, "g", &["t"]).await;
    old.fetch_waiting().await;
    let new = Member::join(&engine, "g", &["t"]).await;
    (engine, old, new)
}

#[tokio::test]
async fn a_partition_is_given_up_with_the_next_fetch_and_only_then_taken_over() {
    let (bench, _) = Bench::sim();
    let (engine, mut old, mut new) = torn(&bench).await;
    // The wait ends with the word that one is to be given up.
    let told = old.fetch_waiting().await.membership;
    assert_eq!((told.assignment.len(), told.revoked.len()), (1, 1));
    assert_eq!(told.revoke_deadline, Some(Timestamp(START.0 + REBALANCE_MS)));
    assert_eq!(told.state, MemberState::Reconciling);
    let lost = told.revoked[0].1.0;
    // Its records stop, its place in the cursor stays, and commits for it count.
    fill(&engine, "t", 2, 3..4).await;
    let waits = new.fetch().await;
    assert!(waits.parts.is_empty() && waits.membership.assignment.is_empty(), "it is not free yet");
    assert_eq!(old.cursor.as_ref().expect("a cursor").positions.len(), 2);
    assert_eq!(old.commit().await.expect("it counts").committed.len(), 2);
    let given_up = old.fetch().await;
    assert_eq!(old.got.iter().filter(|(_, partition, ..)| *partition == lost).count(), 3, "nothing new of it came");
    assert!(given_up.membership.revoked.is_empty());
    assert_eq!(given_up.cursor.positions.len(), 1);
    new.fetch_waiting().await;
    assert_eq!(new.got, [("t".to_owned(), lost, 3, format!("t/{lost}/3"))], "it goes on at what was committed");
    let stale = old.commit_offset("t", lost, 1).await;
    assert!(matches!(stale, Err(GroupError::IllegalGeneration(none)) if refused(&none) == [("t".to_owned(), lost)]));
}

#[tokio::test]
async fn a_first_fetch_that_is_told_of_a_revocation_keeps_the_place() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 2, &[]).await;
    let mut old = Member::join_as(&engine, "g", quiet(&["t"])).await;
    old.settled().await;
    let waiting = tokio::spawn(async move { old.fetch_waiting().await });
    tokio::task::yield_now().await;
    let _new = Member::join(&engine, "g", &["t"]).await;
    let told = waiting.await.expect("it ends");
    assert_eq!(told.membership.revoked.len(), 1);
    assert_eq!(told.cursor.positions.len(), 2);
}

#[tokio::test]
async fn a_cursor_from_before_the_loss_commits_nothing_of_what_was_lost() {
    let (bench, _) = Bench::sim();
    let (engine, mut old, mut new) = torn(&bench).await;
    let before = old.cursor.clone();
    settle_both(&mut old, &mut new).await;
    engine.leave_group(&me(), &group("g"), &new.id).await.expect("it leaves");
    until("all is back", async || old.holds().await.len() == 2).await;
    old.cursor = before;
    let done = old.commit().await.expect("one was held all the time");
    assert_eq!((done.committed.len(), done.refused.len()), (1, 1));
    assert!(done.refused[0].2.contains("since"), "{}", done.refused[0].2);
    // And reading with it begins the regained one anew, at what is committed.
    old.got.clear();
    old.fetch().await;
    let lost = done.refused[0].1.0;
    let offsets: Vec<_> = old.got.iter().map(|(_, partition, offset, _)| (*partition, *offset)).collect();
    assert_eq!(offsets, [(lost, 0), (lost, 1), (lost, 2)]);
}

#[tokio::test]
async fn whoever_misses_the_deadline_loses_the_partition_and_nothing_else() {
    let (bench, _) = Bench::sim();
    let (engine, mut old, mut new) = torn(&bench).await;
    let told = old.fetch_waiting().await.membership;
    let lost = told.revoked[0].1.0;
    // Heartbeats keep a member that works for long, and do not give up for it.
    for _ in 0..3 {
        pass(&bench, &engine, REBALANCE_MS / 3 - 1);
        let beat = old.heartbeat().await.expect("it lives");
        assert_eq!(beat.revoked.len(), 1);
        assert!(new.fetch().await.membership.assignment.is_empty());
    }
    pass(&bench, &engine, 3);
    let beat = old.heartbeat().await.expect("it is a member still");
    assert_eq!((beat.assignment.len(), beat.revoked.len()), (1, 0));
    new.fetch_waiting().await;
    assert_eq!(new.got.len(), 3);
    let done = old.commit().await.expect("the other one counts");
    assert_eq!(refused(&done), [("t".to_owned(), lost)]);
}

#[tokio::test]
async fn a_waiting_fetch_takes_up_what_another_member_gives_up() {
    let (bench, _) = Bench::sim();
    let (_engine, mut old, mut new) = torn(&bench).await;
    let waiting = tokio::spawn(async move {
        while new.got.is_empty() {
            new.fetch_waiting().await;
        }
        new.got.len()
    });
    old.fetch_waiting().await;
    old.fetch().await;
    assert_eq!(waiting.await.expect("it ends"), 3);
}

#[tokio::test]
async fn the_exercise_of_the_seed_loses_and_doubles_nothing() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 4, &[]).await;
    let mut members = vec![Member::join(&engine, "g", &["t"]).await, Member::join(&engine, "g", &["t"]).await];
    settle(&mut members).await;
    assert_eq!(shares(&members).await, [2, 2]);
    fill(&engine, "t", 4, 0..12).await;
    work(&mut members, 5).await;
    members.push(Member::join(&engine, "g", &["t"]).await);
    fill(&engine, "t", 4, 12..25).await;
    settle_and_work(&mut members).await;
    assert_eq!(shares(&members).await, [1, 1, 2]);
    until_all(&mut members, 100).await;
    for _ in 0..2 {
        members.push(Member::join(&engine, "g", &["t"]).await);
    }
    settle_and_work(&mut members).await;
    assert_eq!(shares(&members).await, [0, 1, 1, 1, 1]);
    let mut idle = 0;
    for member in &members {
        idle += usize::from(member.heartbeat().await.expect("a member").state == MemberState::Idle);
    }
    assert_eq!(idle, 1, "one is idle and says so");
    let all: Vec<_> = members.iter().flat_map(|member| &member.got).collect();
    assert_eq!(all.len(), 100);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 100);
    assert_eq!(committed(&engine, "g").await, [0, 1, 2, 3].map(|partition| ("t".to_owned(), partition, 25)));
}

#[tokio::test]
async fn a_waiting_member_learns_at_once_that_it_is_idle() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let first = Member::join(&engine, "g", &["t"]).await;
    pass(&bench, &engine, 500);
    first.settled().await;
    let mut second = Member::join_as(&engine, "g", quiet(&["t"])).await;
    let waiting = tokio::spawn(async move { second.fetch_waiting().await.membership });
    until("it waits", async || !waiting.is_finished() && engine.stats().waiting_appends == 0).await;
    pass(&bench, &engine, 500);
    let told = waiting.await.expect("it ends");
    assert_eq!(told.state, MemberState::Idle);
    assert!(told.assignment.is_empty());
}

#[tokio::test]
async fn a_fetch_whose_cursor_knows_less_than_the_member_has_answers_at_once() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    create(&engine, "u", 1, &[]).await;
    let mut first = Member::join(&engine, "g", &["t", "u"]).await;
    first.settled().await;
    first.fetch().await;
    let mut second = Member::join(&engine, "g", &["t", "u"]).await;
    settle_both(&mut first, &mut second).await;
    engine.leave_group(&me(), &group("g"), &second.id).await.expect("it leaves");
    until("all is back", async || first.holds().await.len() == 2).await;
    let told = first.fetch_waiting().await;
    assert_eq!(told.membership.assignment.len(), 2);
    assert_eq!(told.cursor.positions.len(), 2, "so the next one waits");
}

#[tokio::test]
async fn the_first_assignment_waits_a_moment_for_more_members() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 2, &[]).await;
    let first = Member::join(&engine, "g", &["t"]).await;
    pass(&bench, &engine, 499);
    let second = Member::join(&engine, "g", &["t"]).await;
    assert_eq!(first.heartbeat().await.expect("a member").state, MemberState::Assigning);
    pass(&bench, &engine, 1);
    for member in [first, second] {
        member.settled().await;
        let beat = member.heartbeat().await.expect("a member");
        assert_eq!((beat.assignment.len(), beat.generation), (1, 1));
    }
}

async fn settle_both(old: &mut Member, new: &mut Member) {
    until("both are settled", async || {
        let states = [old.fetch().await.membership.state, new.fetch().await.membership.state];
        states == [MemberState::Stable; 2]
    })
    .await;
}

/// How many partitions each holds, fewest first.
async fn shares(members: &[Member]) -> Vec<usize> {
    let mut shares = Vec::new();
    for member in members {
        shares.push(member.holds().await.len());
    }
    shares.sort_unstable();
    shares
}

/// Each fetches a few records and commits them, as consumers do.
async fn work(members: &mut [Member], max_records: usize) {
    for member in members {
        let fetch = GroupFetch { max_records, ..member.fetching(Duration::ZERO) };
        let fetched = member.try_fetch(fetch).await.expect("a fetch");
        if !fetched.cursor.positions.is_empty() {
            let done = member.commit().await.expect("committed");
            assert!(done.refused.is_empty(), "{:?} of {:?}", done.refused, names(&fetched.membership.assignment));
        }
    }
}

async fn settle_and_work(members: &mut [Member]) {
    until("the group is settled", async || {
        work(members, 7).await;
        let mut settled = true;
        for member in &*members {
            let state = member.heartbeat().await.expect("a member").state;
            settled &= matches!(state, MemberState::Stable | MemberState::Idle);
        }
        settled
    })
    .await;
}

async fn until_all(members: &mut [Member], count: usize) {
    until("all records have come", async || {
        work(members, 7).await;
        members.iter().map(|member| member.got.len()).sum::<usize>() >= count
    })
    .await;
}
