//! Topics that come, grow, shrink and go under a subscription.

use levada_engine::{AlterTopic, GroupError};
use levada_model::Offset;
use serde_json::json;

use super::{Member, committed, fill, filled, group, open, pass, refused};
use crate::support::{Bench, create, me, name, p, set, until};

async fn alter(engine: &levada_engine::Engine, partitions: u32) {
    let change = AlterTopic { partitions: Some(partitions), ..AlterTopic::default() };
    engine.alter_topic(&me(), &name("t"), change).await.expect("altered");
}

#[tokio::test]
async fn partitions_that_are_added_are_assigned_to_a_member_that_waits() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.settled().await;
    let waiting = tokio::spawn(async move {
        let told = member.fetch_waiting().await.membership;
        (told, member)
    });
    tokio::task::yield_now().await;
    alter(&engine, 3).await;
    let (told, mut member) = waiting.await.expect("it ends");
    assert_eq!(told.assignment.len(), 3);
    fill(&engine, "t", 3, 0..1).await;
    until("records of all come", async || {
        member.fetch().await;
        member.values() == ["t/0/0", "t/1/0", "t/2/0"]
    })
    .await;
}

#[tokio::test]
async fn a_topic_deleted_under_a_subscription_ends_the_wait_and_its_commits_are_refused() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 1).await;
    filled(&engine, "u", 1, 1).await;
    let mut member = Member::join(&engine, "g", &["t", "u"]).await;
    member.settled().await;
    member.fetch().await;
    let before = member.cursor.clone();
    let waiting = tokio::spawn(async move {
        let told = member.fetch_waiting().await;
        (told, member)
    });
    tokio::task::yield_now().await;
    engine.delete_topic(&me(), &name("t")).await.expect("deleted");
    let (told, mut member) = waiting.await.expect("it ends");
    assert_eq!(super::names(&told.membership.assignment), [("u".to_owned(), 0)]);
    assert_eq!(told.cursor.positions.len(), 1);
    member.cursor = before;
    let done = member.commit().await.expect("the other counts");
    assert_eq!(done.committed, [(name("u"), p(0), Offset(1))]);
    assert_eq!(done.refused.len(), 1);
    assert_eq!(done.refused[0].2, "the topic was deleted");
    let gone = member.commit_offset("t", 0, 0).await;
    assert!(matches!(gone, Err(GroupError::IllegalGeneration(none)) if refused(&none) == [("t".to_owned(), 0)]));
    // Another topic of the name is read from its own start.
    filled(&engine, "t", 1, 2).await;
    member.got.clear();
    until("the new topic is read", async || {
        member.fetch().await;
        member.values() == ["t/0/0", "t/0/1"]
    })
    .await;
    member.commit().await.expect("committed");
    assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, 2), ("u".to_owned(), 0, 1)]);
}

#[tokio::test]
async fn a_group_whose_only_topic_goes_is_idle_and_waits_on() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 2, 1).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    engine.delete_topic(&me(), &name("t")).await.expect("deleted");
    until("nothing is held", async || member.fetch().await.membership.assignment.is_empty()).await;
    assert!(matches!(member.commit().await, Ok(done) if done.committed.is_empty() && done.refused.is_empty()));
    assert_eq!(engine.describe_group(&me(), &group("g")).await.expect("a group").members.len(), 1);
}

#[tokio::test]
async fn a_retiring_partition_is_read_until_it_is_dropped() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    let config = [("retention.ms", json!(10_000))];
    create(&engine, "t", 2, &config).await;
    fill(&engine, "t", 2, 0..2).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    alter(&engine, 1).await;
    until("both are held", async || member.holds().await.len() == 2).await;
    member.fetch_waiting().await;
    assert_eq!(member.values(), ["t/0/0", "t/0/1", "t/1/0", "t/1/1"]);
    for _ in 0..3 {
        pass(&bench, &engine, 20_000);
        member.fetch().await;
    }
    let change =
        AlterTopic { config: set(&[]).into_iter().map(|(k, v)| (k, Some(v))).collect(), ..AlterTopic::default() };
    engine.alter_topic(&me(), &name("t"), change).await.expect("no change");
    until("it is gone", async || member.holds().await == [("t".to_owned(), 0)]).await;
    until("its place in the cursor, too", async || member.fetch().await.cursor.positions.len() == 1).await;
}
