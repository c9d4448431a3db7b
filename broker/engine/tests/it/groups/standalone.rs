//! Committed offsets of groups: records in the broker's own topic.

use levada_engine::{CommittedOffset, Engine, From, GroupError, OffsetCommit};
use levada_model::{Offset, Timestamp};
use tokio::task::JoinSet;

use super::{committed, group, partition_of};
use crate::support::{Bench, START, all, create, me, name, p, produce, to, until};

fn commit(topic: &str, partition: u32, offset: From) -> OffsetCommit {
    OffsetCommit { topic: name(topic), partition: p(partition), offset }
}

async fn filled(bench: &Bench) -> Engine {
    let engine = bench.open();
    create(&engine, "t", 2, &[]).await;
    create(&engine, "u", 1, &[]).await;
    produce(&engine, "t", (0..5).map(|_| to(0, "x")).chain([to(1, "y")]).collect()).await;
    engine
}

#[tokio::test]
async fn commits_come_back_with_their_lag_also_after_restarts() {
    let (bench, _) = Bench::sim();
    let mut engine = filled(&bench).await;
    assert!(matches!(engine.group_offsets(&me(), &group("g")).await, Err(GroupError::NotFound(_))));
    let commits = vec![commit("t", 0, From::Offset(Offset(3))), commit("t", 1, From::Latest)];
    let answer = engine.commit_group_offsets(&me(), &group("g"), commits, false).await.expect("committed");
    let first = CommittedOffset {
        topic: name("t"),
        partition: p(0),
        committed: Offset(3),
        high_watermark: Offset(5),
        lag: 2,
        committed_at: START,
    };
    assert_eq!(answer[0], first);
    assert_eq!((answer[1].committed, answer[1].lag), (Offset(1), 0));
    for clean in [true, false] {
        assert_eq!(engine.group_offsets(&me(), &group("g")).await.expect("offsets"), answer);
        if clean {
            engine.close().await.expect("closed");
        }
        drop(engine);
        engine = bench.open();
    }
    assert_eq!(engine.group_offsets(&me(), &group("g")).await.expect("offsets"), answer);
    assert!(matches!(engine.group_offsets(&me(), &group("h")).await, Err(GroupError::NotFound(_))));
    let internal = engine.describe_topic(&me(), &name("__consumer_offsets")).expect("it was created");
    assert!(internal.internal);
    assert_eq!(internal.partition_count, 50);
}

#[tokio::test]
async fn the_newest_commit_holds_and_places_are_resolved() {
    let (bench, _) = Bench::sim();
    let engine = filled(&bench).await;
    let places = [From::Offset(Offset(2)), From::Tail(1), From::Earliest, From::Time(Timestamp(START.0 + 1))];
    for (place, expected) in places.into_iter().zip([2, 4, 0, 5]) {
        engine.commit_group_offsets(&me(), &group("g"), vec![commit("t", 0, place)], false).await.expect("committed");
        assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, expected)]);
    }
    drop(engine);
    assert_eq!(committed(&bench.open(), "g").await, [("t".to_owned(), 0, 5)]);
}

#[tokio::test]
async fn every_wrong_commit_is_named_and_none_is_done() {
    let (bench, _) = Bench::sim();
    let engine = filled(&bench).await;
    let commits = vec![
        commit("none", 0, From::Earliest),
        commit("t", 0, From::Offset(Offset(1))),
        commit("t", 7, From::Earliest),
        commit("t", 0, From::Offset(Offset(6))),
    ];
    let refused = engine.commit_group_offsets(&me(), &group("g"), commits, false).await;
    let Err(GroupError::Offsets(faults)) = refused else { panic!("they are wrong") };
    assert_eq!(faults.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 2, 3]);
    assert!(faults[2].1.contains("beyond the end 5"), "{}", faults[2].1);
    assert!(matches!(engine.group_offsets(&me(), &group("g")).await, Err(GroupError::NotFound(_))));
}

#[tokio::test]
async fn a_dry_run_commits_nothing() {
    let (bench, _) = Bench::sim();
    let engine = filled(&bench).await;
    let commits = vec![commit("t", 0, From::Latest)];
    let answer = engine.commit_group_offsets(&me(), &group("g"), commits, true).await.expect("a dry run");
    assert_eq!(answer[0].committed, Offset(5));
    assert!(matches!(engine.group_offsets(&me(), &group("g")).await, Err(GroupError::NotFound(_))));
}

#[tokio::test]
async fn commits_of_deleted_topics_are_left_out() {
    let (bench, _) = Bench::sim();
    let engine = filled(&bench).await;
    let commits = vec![commit("t", 0, From::Latest), commit("u", 0, From::Latest)];
    engine.commit_group_offsets(&me(), &group("g"), commits, false).await.expect("committed");
    engine.delete_topic(&me(), &name("t")).await.expect("deleted");
    create(&engine, "t", 1, &[]).await;
    assert_eq!(committed(&engine, "g").await, [("u".to_owned(), 0, 0)], "the new topic of the same name is another");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn groups_that_commit_at_once_do_not_disturb_each_other() {
    let (bench, _) = Bench::sim();
    let engine = filled(&bench).await;
    let mut groups = JoinSet::new();
    for number in 0..30 {
        let engine = engine.clone();
        groups.spawn(async move {
            for offset in 0..=5 {
                let commits = vec![commit("t", 0, From::Offset(Offset(offset)))];
                engine.commit_group_offsets(&me(), &group(&format!("g{number}")), commits, false).await.expect("done");
            }
        });
    }
    groups.join_all().await;
    let engine = {
        drop(engine);
        bench.open()
    };
    for number in 0..30 {
        assert_eq!(committed(&engine, &format!("g{number}")).await, [("t".to_owned(), 0, 5)]);
    }
}

#[tokio::test]
async fn a_commit_whose_future_is_dropped_is_in_the_view_when_it_is_in_the_log() {
    let (bench, disk) = Bench::sim();
    let gate = crate::gate::Gate::before(disk);
    let engine = filled(&bench.with(gate.clone())).await;
    engine.commit_group_offsets(&me(), &group("g"), vec![commit("t", 0, From::Earliest)], false).await.expect("done");
    gate.shut();
    let dropped = tokio::spawn({
        let engine = engine.clone();
        let commits = vec![commit("t", 0, From::Offset(Offset(4)))];
        async move { engine.commit_group_offsets(&me(), &group("g"), commits, false).await }
    });
    // The sync that waits may be one of the zeros ahead; the commit has to be on its way all the same.
    tokio::task::yield_now().await;
    gate.until_waiting(1).await;
    dropped.abort();
    assert!(dropped.await.is_err());
    gate.open();
    until("the commit holds", async || committed(&engine, "g").await == [("t".to_owned(), 0, 4)]).await;
    let own = partition_of("g");
    assert_eq!(all(&engine, "__consumer_offsets", own, 0).await.len(), 2, "the topic can be read as any other");
}
