//! A disk that fails, a queue that is full, requests that vanish: nobody is shown what is not there.

use std::pin::pin;
use std::time::Duration;

use levada_engine::{Engine, From, GroupDescription, GroupError, GroupState, OffsetCommit};
use levada_log::{CrashPlan, SimStorage};
use levada_model::{Offset, limits};
use tokio::task::JoinSet;

use super::{Member, committed, filled, group, joining, open};
use crate::gate::Gate;
use crate::support::{Bench, LONG, create, me, name, p, poll_times, until};

#[tokio::test]
async fn a_failed_sync_refuses_what_was_under_way_and_shows_nothing_of_it() {
    let (bench, disk) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 2).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    member.commit_offset("t", 0, 1).await.expect("committed");
    disk.fail_sync(true);
    let refused = member.commit().await;
    assert!(matches!(refused, Err(GroupError::Fenced { possible: true, .. })), "{refused:?}");
    for refused in [
        member.heartbeat().await.map(drop),
        member.commit().await.map(drop),
        engine.join_group(&me(), &group("g"), joining(&["t"])).await.map(drop),
        engine.leave_group(&me(), &group("g"), &member.id).await,
    ] {
        assert!(matches!(refused, Err(GroupError::Fenced { possible: false, .. })), "{refused:?}");
    }
    assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, 1)], "looks go on, at what was synced");
    assert_eq!(engine.describe_group(&me(), &group("g")).await.expect("a group").members.len(), 1);
    let kept = super::kill(engine, vec![member]).remove(0);
    let engine = open(&bench.with(disk.restart()));
    let member = kept.at(&engine);
    member.heartbeat().await.expect("a member");
    assert!([1, 2].contains(&committed(&engine, "g").await[0].2), "what was possible may have come back");
    member.commit().await.expect("committed");
}

#[tokio::test]
async fn nobody_is_answered_before_what_was_handed_over_before_is_durable() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = open(&bench.with(gate.clone()));
    filled(&engine, "t", 1, 2).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    member.settled().await;
    gate.shut();
    let committing = tokio::spawn(async move { (member.commit().await, member) });
    gate.until_waiting(1).await;
    let looking = tokio::spawn({
        let engine = engine.clone();
        async move { committed(&engine, "g").await }
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!looking.is_finished() && !committing.is_finished(), "a crash could take it back");
    gate.open();
    assert_eq!(looking.await.expect("it ends"), [("t".to_owned(), 0, 2)]);
    committing.await.expect("it ends").0.expect("committed");
}

#[tokio::test]
async fn a_full_queue_refuses_and_changes_nothing() {
    let (bench, disk) = Bench::sim();
    let gate = Gate::before(disk);
    let engine = open(&bench.with(gate.clone()));
    filled(&engine, "t", 1, 2).await;
    let commit =
        |offset| vec![OffsetCommit { topic: name("t"), partition: p(0), offset: From::Offset(Offset(offset)) }];
    engine.commit_group_offsets(&me(), &group("g"), commit(0), false).await.expect("committed");
    gate.shut();
    let mut commits = JoinSet::new();
    let read_before = engine.stats().read_bytes;
    // One group may be on its way to the disk, and another one waits.
    for number in 0..2 * limits::PARTITION_QUEUE_APPENDS_MAX as u64 + 100 {
        let (engine, commit) = (engine.clone(), commit(number % 3));
        commits.spawn(async move { engine.commit_group_offsets(&me(), &group("g"), commit, false).await });
    }
    for _ in 0..100 {
        let refused = commits.join_next().await.expect("many").expect("no panic");
        assert!(matches!(refused, Err(GroupError::Overloaded)), "{refused:?}");
    }
    gate.open();
    while let Some(done) = commits.join_next().await {
        assert!(matches!(done.expect("no panic"), Ok(_) | Err(GroupError::Overloaded)));
    }
    assert_eq!(engine.stats().read_bytes, read_before, "nothing had to be loaded anew for it");
    let live = committed(&engine, "g").await;
    drop(engine);
    assert_eq!(committed(&open(&bench), "g").await, live);
}

#[tokio::test]
async fn without_file_descriptors_groups_are_refused_and_loaded_anew() {
    let (bench, disk) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 2).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    for _ in 0..2 {
        engine.run_maintenance();
    }
    disk.set_open_files_max(0);
    let mut commits = JoinSet::new();
    for _ in 0..10 {
        let (engine, id, cursor) = (engine.clone(), member.id.clone(), member.cursor.clone().expect("it has fetched"));
        let what = levada_engine::CommitWhat::Cursor(cursor);
        commits.spawn(async move { engine.commit_member(&me(), &group("g"), &id, what).await });
    }
    for refused in commits.join_all().await {
        let is_fitting = matches!(
            refused,
            Err(GroupError::Overloaded | GroupError::Loading | GroupError::Storage(_) | GroupError::UnknownMember(_))
        );
        assert!(is_fitting && !matches!(refused, Err(GroupError::UnknownMember(_))), "{refused:?}");
    }
    disk.heal();
    assert_eq!(member.commit().await.expect("committed").committed.len(), 1);
    assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, 2)]);
}

#[tokio::test]
async fn nothing_is_stored_behind_what_was_not() {
    let (bench, disk) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 2).await;
    let of = group("g");
    let commit = |offset| {
        let offset = From::Offset(Offset(offset));
        let commits = vec![OffsetCommit { topic: name("t"), partition: p(0), offset }];
        let (engine, of) = (&engine, &of);
        async move { engine.commit_group_offsets(&me(), of, commits, false).await }
    };
    commit(0).await.expect("committed");
    for _ in 0..2 {
        engine.run_maintenance();
    }
    // The first is refused by the owner, and the second handed over before the coordinator hears of it.
    disk.set_open_files_max(0);
    let (mut first, mut second) = (pin!(commit(1)), pin!(commit(2)));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending());
    while engine.stats().waiting_appends > 0 {
        std::thread::yield_now();
    }
    engine.run_maintenance();
    disk.heal();
    assert!(second.as_mut().poll(&mut context).is_pending());
    let (first, second) = (first.await, second.await);
    assert!(matches!(first, Err(GroupError::Overloaded)), "{first:?}");
    assert!(matches!(second, Err(GroupError::Overloaded)), "as the first fault says: {second:?}");
    assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, 0)]);
    commit(1).await.expect("it is loaded anew");
    assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, 1)]);
}

#[tokio::test]
async fn a_load_that_fails_is_tried_again_by_the_next_request() {
    let (bench, disk) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 2).await;
    let member = Member::join(&engine, "g", &["t"]).await;
    member.settled().await;
    let kept = super::kill(engine, vec![member]).remove(0);
    let engine = open(&bench);
    disk.fail_reads(true);
    let member = kept.at(&engine);
    for _ in 0..3 {
        let refused = member.heartbeat().await;
        assert!(matches!(refused, Err(GroupError::Storage(_))), "{refused:?}");
    }
    disk.fail_reads(false);
    member.heartbeat().await.expect("it is there");
}

#[tokio::test]
async fn a_waiting_fetch_ends_when_the_engine_closes() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    let mut fetches = JoinSet::new();
    for of in ["g", "h", "i"] {
        let mut member = Member::join(&engine, of, &["t"]).await;
        member.settled().await;
        fetches.spawn(async move { member.try_fetch(member.fetching(Duration::from_secs(3_600))).await });
    }
    let mut idle = Member::join_as(&engine, "g", super::quiet(&["t"])).await;
    until("there is no partition for it", async || {
        idle.heartbeat().await.expect("a member").state == levada_engine::MemberState::Idle
    })
    .await;
    fetches.spawn(async move { idle.try_fetch(idle.fetching(Duration::from_secs(3_600))).await });
    let other = engine.join_group(&me(), &group("j"), joining(&["t"])).await.expect("it joins");
    tokio::task::yield_now().await;
    engine.close().await.expect("closed");
    while let Some(ended) = tokio::time::timeout(LONG, fetches.join_next()).await.expect("they end by themselves") {
        assert!(matches!(ended.expect("it ends"), Err(GroupError::Closing)));
    }
    assert!(matches!(engine.heartbeat(&me(), &group("j"), &other.member_id).await, Err(GroupError::Closing)));
}

/// Shows the same as a copy of the disk from which all is lost that was not synced. Where a rebalance is due the copy goes
/// on with it, so who holds what is only compared when the group is settled; answers whether it is.
async fn is_in_the_log(bench: &Bench, disk: &SimStorage, engine: &Engine) -> bool {
    let live = engine.describe_group(&me(), &group("g")).await.expect("a group");
    let copy = open(&bench.with(disk.crash(&CrashPlan::all_lost())));
    let stored = copy.describe_group(&me(), &group("g")).await.expect("a group");
    assert_eq!(live.offsets, stored.offsets);
    let ids = |of: &GroupDescription| of.members.iter().map(|member| member.member_id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&live), ids(&stored));
    let settled = matches!(live.state, GroupState::Stable | GroupState::Empty);
    if settled {
        assert_eq!((live.generation, &live.members), (stored.generation, &stored.members));
    }
    settled
}

#[tokio::test]
async fn a_request_that_vanishes_at_any_await_leaves_the_log_and_the_memory_alike() {
    let mut complete = [false; 5];
    for times in 1..12 {
        for (number, complete) in complete.iter_mut().enumerate() {
            let (bench, disk) = Bench::sim();
            let engine = open(&bench);
            filled(&engine, "t", 2, 2).await;
            let mut member = Member::join(&engine, "g", &["t"]).await;
            member.fetch_waiting().await;
            member.settled().await;
            let of = group("g");
            let commit = levada_engine::CommitWhat::Cursor(member.cursor.clone().expect("it has fetched"));
            let done = match number {
                0 => poll_times(engine.join_group(&me(), &of, joining(&["t"])), times).await.map(|done| done.is_ok()),
                1 => poll_times(engine.commit_member(&me(), &of, &member.id, commit), times)
                    .await
                    .map(|done| done.is_ok()),
                2 => poll_times(engine.leave_group(&me(), &of, &member.id), times).await.map(|done| done.is_ok()),
                3 => poll_times(member.heartbeat(), times).await.map(|done| done.is_ok()),
                _ => {
                    let fetch = member.fetching(Duration::ZERO);
                    poll_times(engine.fetch_group(&me(), &of, &member.id, fetch), times).await.map(|done| done.is_ok())
                }
            };
            *complete |= done == Some(true);
            assert_ne!(done, Some(false), "request {number} after {times} polls");
            // Whatever it did goes on by itself; a join is assigned meanwhile, once the first member gives something up.
            is_in_the_log(&bench, &disk, &engine).await;
            until("the group is settled", async || {
                drop(member.try_fetch(member.fetching(Duration::ZERO)).await);
                is_in_the_log(&bench, &disk, &engine).await
            })
            .await;
            drop(engine);
        }
    }
    assert!(complete.iter().all(|complete| *complete), "each came to its end at last: {complete:?}");
}
