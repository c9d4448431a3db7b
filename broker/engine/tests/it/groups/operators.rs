//! Groups as an operator sees them.

use levada_engine::{From, GroupError, GroupState, GroupStats, MemberState, OffsetCommit, RejectRecords};
use levada_model::Offset;

use super::{Member, committed, fill, filled, group, joining, names, open};
use crate::support::{Bench, START, create, me, name, p, until};

fn reset(offset: u64) -> Vec<OffsetCommit> {
    vec![OffsetCommit { topic: name("t"), partition: p(0), offset: From::Offset(Offset(offset)) }]
}

#[tokio::test]
async fn a_group_is_described_with_its_members_and_lags() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 2, 2).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    member.commit().await.expect("committed");
    bench.clock.advance(1_000);
    fill(&engine, "t", 1, 2..4).await;
    bench.clock.advance(250);
    fill(&engine, "t", 1, 4..5).await;
    let described = engine.describe_group(&me(), &group("g")).await.expect("a group");
    assert_eq!((described.state, described.generation), (GroupState::Stable, 1));
    assert_eq!(described.assignor.as_deref(), Some("cooperative-sticky"));
    assert!(described.fallback.is_none());
    let [of] = &described.members[..] else { panic!("one member") };
    assert_eq!((&of.member_id, of.client.as_str(), of.state), (&member.id, "test", MemberState::Stable));
    assert_eq!(of.topics, [name("t")]);
    assert_eq!(names(&of.assignment), [("t".to_owned(), 0), ("t".to_owned(), 1)]);
    let lag = |place: usize| {
        let offset = &described.offsets[place];
        (offset.offset.committed.0, offset.offset.high_watermark.0, offset.offset.lag, offset.lag_ms)
    };
    assert_eq!(lag(0), (2, 5, 3, Some(250)), "since the next record to read");
    assert_eq!(lag(1), (2, 2, 0, Some(0)));
    assert_eq!(described.offsets[0].offset.committed_at, START);
    // A clock that went back makes no negative lag.
    bench.clock.set(START);
    let described = engine.describe_group(&me(), &group("g")).await.expect("a group");
    assert_eq!(described.offsets[0].lag_ms, Some(0));
    // Committed below the log start: what counts is what there is.
    bench.clock.set(levada_model::Timestamp(START.0 + 2_000));
    engine.truncate_topic(&me(), &name("t"), vec![(p(0), Offset(4))]).await.expect("truncated");
    let described = engine.describe_group(&me(), &group("g")).await.expect("a group");
    assert_eq!(described.offsets[0].lag_ms, Some(750));
}

#[tokio::test]
async fn all_groups_are_listed_by_name_also_after_a_restart() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 1).await;
    for of in ["b", "a", "d", "c"] {
        engine.join_group(&me(), &group(of), joining(&["t"])).await.expect("it joins");
    }
    engine.commit_group_offsets(&me(), &group("e"), reset(1), false).await.expect("committed");
    let listed = async |engine: &levada_engine::Engine| {
        let groups = engine.list_groups(&me()).await.expect("a list");
        groups.iter().map(|of| (of.group.to_string(), of.members)).collect::<Vec<_>>()
    };
    let expected = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 0)].map(|(of, members)| (of.to_owned(), members));
    assert_eq!(listed(&engine).await, expected);
    drop(engine);
    assert_eq!(listed(&open(&bench)).await, expected);
}

#[tokio::test]
async fn offsets_are_not_set_and_groups_not_deleted_while_members_are_active() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 3).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    member.commit().await.expect("committed");
    for dry_run in [false, true] {
        let refused = engine.commit_group_offsets(&me(), &group("g"), reset(0), dry_run).await;
        assert!(matches!(refused, Err(GroupError::Active(1))), "dry run: {dry_run}");
    }
    assert!(matches!(engine.delete_group(&me(), &group("g")).await, Err(GroupError::Active(1))));
    engine.leave_group(&me(), &group("g"), &member.id).await.expect("it leaves");
    engine.commit_group_offsets(&me(), &group("g"), reset(1), false).await.expect("nobody is there");
    assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, 1)]);
    engine.delete_group(&me(), &group("g")).await.expect("deleted");
    for _ in 0..2 {
        assert!(matches!(engine.delete_group(&me(), &group("g")).await, Err(GroupError::NotFound(_))));
        assert!(matches!(engine.describe_group(&me(), &group("g")).await, Err(GroupError::NotFound(_))));
        assert!(matches!(engine.group_offsets(&me(), &group("g")).await, Err(GroupError::NotFound(_))));
        assert!(engine.list_groups(&me()).await.expect("a list").is_empty());
    }
}

#[tokio::test]
async fn nothing_is_known_of_groups_before_the_first() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    assert!(engine.list_groups(&me()).await.expect("a list").is_empty());
    assert!(matches!(engine.describe_group(&me(), &group("g")).await, Err(GroupError::NotFound(_))));
    assert!(matches!(engine.delete_group(&me(), &group("g")).await, Err(GroupError::NotFound(_))));
    assert!(engine.describe_topic(&me(), &name("__consumer_offsets")).is_err(), "looking creates nothing");
    engine.close().await.expect("closed");
    assert!(matches!(engine.list_groups(&me()).await, Err(GroupError::Closing)));
    assert!(matches!(engine.join_group(&me(), &group("g"), joining(&["t"])).await, Err(GroupError::Closing)));
}

#[tokio::test]
async fn groups_their_rebalances_and_dead_letters_are_counted_without_a_wait() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    assert_eq!(engine.stats().groups, GroupStats::default());
    filled(&engine, "t", 2, 2).await;
    engine.commit_group_offsets(&me(), &group("e"), reset(1), false).await.expect("committed");
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    let stats = engine.stats();
    assert_eq!(stats.groups, GroupStats { empty: 1, stable: 1, members: 1, ..GroupStats::default() });
    assert_eq!((stats.group_rebalances, stats.dead_letters), (1, 0));
    for _ in 0..2 {
        let records = vec![(name("t"), p(0), Offset(0)), (name("t"), p(1), Offset(1))];
        let reject = RejectRecords { records, reason: "bad".to_owned(), attempts: None };
        engine.reject(&me(), &group("g"), &member.id, reject).await.expect("rejected");
    }
    assert_eq!(engine.stats().dead_letters, 2, "the same again is none more");
    let other = Member::join(&engine, "g", &["t"]).await;
    until("it is told to give up one", async || !member.heartbeat().await.expect("it is a member").revoked.is_empty())
        .await;
    let stats = engine.stats();
    assert_eq!(stats.groups, GroupStats { empty: 1, reconciling: 1, members: 2, ..GroupStats::default() });
    assert_eq!(stats.group_rebalances, 2);
    drop(other);
    super::kill(engine, vec![member]);
    // Also while coordinators are loaded, and before.
    let engine = open(&bench);
    let seen = engine.stats().groups;
    assert!(seen.members <= 2 && seen.empty <= 1, "{seen:?}");
    assert_eq!(engine.list_groups(&me()).await.expect("listed").len(), 2);
    assert_eq!(engine.stats().groups.members, 2);
}
