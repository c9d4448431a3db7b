//! Joining, fetching, committing and leaving.

use std::sync::Arc;
use std::time::Duration;

use levada_engine::{
    CommitWhat, Engine, EngineOptions, GroupCursor, GroupError, GroupFetch, GroupStart, JoinGroup, MemberState,
};
use levada_model::{Authorizer, Denied, InstanceId, MemberId, Offset, Operation, Principal, Resource};
use tokio::task::JoinSet;

use super::{Member, SESSION_MS, committed, fill, filled, flat, group, joining, names, open, pass, refused};
use crate::support::{Bench, LONG, START, create, me, name, p, until};

#[tokio::test]
async fn of_who_a_member_says_that_it_is_the_beginning_is_kept_whatever_its_length() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    // Characters of one, two and three bytes, and one that lies across the cut.
    for (client, kept) in [
        ("a".repeat(5_000), "a".repeat(256)),
        ("é".repeat(200), "é".repeat(128)),
        ("語".repeat(200), "語".repeat(85)),
        (String::new(), String::new()),
    ] {
        let joined = engine.join_group(&me(), &group("g"), JoinGroup { client, ..joining(&["t"]) }).await;
        let id = joined.expect("it joins").member_id;
        let members = engine.describe_group(&me(), &group("g")).await.expect("a group").members;
        assert_eq!(members.iter().find(|member| member.member_id == id).map(|member| &member.client), Some(&kept));
    }
}

#[tokio::test]
async fn a_member_joins_fetches_commits_and_leaves() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 2, 2).await;
    let joined = engine.join_group(&me(), &group("g"), joining(&["t"])).await.expect("it joins");
    assert!(joined.assignment.is_empty(), "joining never waits");
    assert_eq!(joined.state, MemberState::Assigning);
    let mut member = Member::join(&engine, "h", &["t"]).await;
    // PC-06: the first fetch waits for the assignment, and brings the records.
    let fetched = member.fetch_waiting().await;
    assert_eq!(names(&fetched.membership.assignment), [("t".to_owned(), 0), ("t".to_owned(), 1)]);
    assert_eq!(member.values(), ["t/0/0", "t/0/1", "t/1/0", "t/1/1"]);
    assert_eq!(fetched.membership.generation, super::FIRST_GENERATION);
    let done = member.commit().await.expect("committed");
    assert_eq!(done.committed, [(name("t"), p(0), Offset(2)), (name("t"), p(1), Offset(2))]);
    assert!(done.refused.is_empty());
    assert_eq!(committed(&engine, "h").await, [("t".to_owned(), 0, 2), ("t".to_owned(), 1, 2)]);
    engine.leave_group(&me(), &group("h"), &member.id).await.expect("it leaves");
    for refused in [
        member.heartbeat().await.map(drop),
        member.try_fetch(member.fetching(LONG)).await.map(drop),
        member.commit().await.map(drop),
        engine.leave_group(&me(), &group("h"), &member.id).await,
    ] {
        assert!(matches!(refused, Err(GroupError::UnknownMember(id)) if id == member.id));
    }
    // Committed means next to read.
    fill(&engine, "t", 1, 2..3).await;
    let mut next = Member::join(&engine, "h", &["t"]).await;
    next.fetch_waiting().await;
    assert_eq!(next.values(), ["t/0/2"]);
}

#[tokio::test]
async fn the_same_cursor_gives_the_same_records_also_when_the_answer_was_lost() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 3, 4).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.settled().await;
    let fetch = |cursor: Option<GroupCursor>| GroupFetch { cursor, max_records: 2, ..member.fetching(Duration::ZERO) };
    let mut cursor = None;
    let mut seen = Vec::new();
    for _ in 0..8 {
        let first = engine.fetch_group(&me(), &group("g"), &member.id, fetch(cursor.clone())).await.expect("a fetch");
        let again = engine.fetch_group(&me(), &group("g"), &member.id, fetch(cursor)).await.expect("a fetch");
        assert_eq!(flat(&first), flat(&again));
        assert_eq!(first.cursor, again.cursor);
        seen.extend(flat(&first));
        cursor = Some(first.cursor);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 12, "and all come in the end");
    member.cursor = cursor;
    assert!(flat(&member.fetch().await).is_empty());
}

#[tokio::test]
async fn one_busy_partition_does_not_starve_the_others() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 2, 100).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.settled().await;
    for _ in 0..40 {
        let fetch = GroupFetch { max_records: 2, ..member.fetching(Duration::ZERO) };
        member.try_fetch(fetch).await.expect("a fetch");
    }
    for partition in 0..2 {
        let count = member.got.iter().filter(|(_, of, ..)| *of == partition).count();
        assert!(count >= 10, "{count} records of partition {partition}");
    }
}

#[tokio::test]
async fn a_waiting_fetch_ends_with_the_first_record_of_any_partition() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 3, &[]).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.settled().await;
    let waiting = tokio::spawn(async move {
        member.fetch_waiting().await;
        member.got
    });
    tokio::task::yield_now().await;
    crate::support::produce(&engine, "t", vec![crate::support::to(2, "x")]).await;
    assert_eq!(waiting.await.expect("it ends"), [("t".to_owned(), 2, 0, "x".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_waits_in_vain_answers_in_time_and_keeps_the_member_alive() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.settled().await;
    let asked = tokio::time::Instant::now();
    let waiting = tokio::spawn(async move {
        let fetched = member.fetch_for(Duration::from_secs(60)).await;
        (fetched, member)
    });
    // Longer than a session, on the clock of the group and on the runtime's.
    while !waiting.is_finished() {
        tokio::time::advance(Duration::from_secs(5)).await;
        pass(&bench, &engine, 5_000);
    }
    let (fetched, member) = waiting.await.expect("it ends");
    assert!(fetched.parts.is_empty());
    assert!((60..=65).contains(&asked.elapsed().as_secs()), "on the runtime's paused clock");
    member.heartbeat().await.expect("it is a member still");
}

#[tokio::test]
async fn a_silent_member_is_removed_and_its_partitions_go_to_others() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 2, 1).await;
    let mut members = vec![Member::join(&engine, "g", &["t"]).await, Member::join(&engine, "g", &["t"]).await];
    super::settle(&mut members).await;
    pass(&bench, &engine, SESSION_MS - 1);
    members[0].heartbeat().await.expect("in time");
    pass(&bench, &engine, 1);
    assert!(matches!(members[1].heartbeat().await, Err(GroupError::UnknownMember(_))));
    until("the other has both", async || members[0].holds().await.len() == 2).await;
    assert!(matches!(members[1].commit().await, Err(GroupError::UnknownMember(_))), "whatever it holds in its hands");
}

#[tokio::test]
async fn heartbeats_alone_do_not_keep_a_member_for_ever() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    let member = Member::join(&engine, "g", &["t"]).await;
    for _ in 0..11 {
        pass(&bench, &engine, 27_000);
        member.heartbeat().await.expect("it has fetched not long ago");
    }
    pass(&bench, &engine, 27_000);
    assert!(matches!(member.heartbeat().await, Err(GroupError::UnknownMember(_))), "max_poll_interval_ms is over");
}

#[tokio::test]
async fn commits_are_judged_by_partition() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 2, 3).await;
    filled(&engine, "u", 1, 1).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    let offsets = vec![
        (name("t"), p(1), Offset(2)),
        (name("u"), p(0), Offset(1)),
        (name("none"), p(0), Offset(1)),
        (name("t"), p(7), Offset(1)),
    ];
    let done = engine.commit_member(&me(), &group("g"), &member.id, CommitWhat::Offsets(offsets)).await.expect("some");
    assert_eq!(done.committed, [(name("t"), p(1), Offset(2))]);
    assert_eq!(refused(&done), [("u".to_owned(), 0), ("none".to_owned(), 0), ("t".to_owned(), 7)]);
    let Err(GroupError::IllegalGeneration(none)) = member.commit_offset("u", 0, 1).await else { panic!("not held") };
    assert_eq!(refused(&none), [("u".to_owned(), 0)]);
    // Beyond the end: nothing is done.
    let offsets = vec![(name("t"), p(1), Offset(3)), (name("t"), p(0), Offset(4)), (name("t"), p(1), Offset(3))];
    let wrong = engine.commit_member(&me(), &group("g"), &member.id, CommitWhat::Offsets(offsets)).await;
    let Err(GroupError::Offsets(faults)) = wrong else { panic!("beyond the end") };
    assert_eq!(faults.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 1, 2)]);
    // Of a member that is none that is said first.
    let nobody = MemberId::new("nobody").expect("an id");
    let wrong = vec![(name("t"), p(0), Offset(4))];
    let refused = engine.commit_member(&me(), &group("g"), &nobody, CommitWhat::Offsets(wrong)).await;
    assert!(matches!(refused, Err(GroupError::UnknownMember(_))));
}

#[tokio::test]
async fn cursors_never_commit_back_and_explicit_offsets_may() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 3).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.settled().await;
    member.try_fetch(GroupFetch { max_records: 1, ..member.fetching(LONG) }).await.expect("a fetch");
    let early = member.cursor.clone();
    member.fetch_waiting().await;
    member.commit().await.expect("committed");
    member.cursor = early;
    let stands = member.commit().await.expect("it is no fault");
    assert_eq!(stands.committed, [(name("t"), p(0), Offset(3))], "what stands is answered");
    member.commit_offset("t", 0, 1).await.expect("the owner's word");
    assert_eq!(committed(&engine, "g").await, [("t".to_owned(), 0, 1)]);
    member.cursor = None;
    member.got.clear();
    member.fetch().await;
    assert_eq!(member.values(), ["t/0/1", "t/0/2"], "an empty cursor begins at what is committed");
}

#[tokio::test]
async fn a_cursor_of_another_group_is_refused() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 1).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    let mut other = Member::join(&engine, "h", &["t"]).await;
    other.cursor = member.cursor.clone();
    assert!(matches!(other.try_fetch(other.fetching(LONG)).await, Err(GroupError::OtherGroup)));
    assert!(matches!(other.commit().await, Err(GroupError::OtherGroup)));
}

#[tokio::test]
async fn unknown_topics_are_named_and_no_group_is_left_behind() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    let refused = engine.join_group(&me(), &group("g"), joining(&["x", "t", "y"])).await;
    let Err(GroupError::UnknownTopics(unknown)) = refused else { panic!("two are not there") };
    assert_eq!(unknown, [(0, name("x")), (2, name("y"))]);
    assert!(engine.list_groups(&me()).await.expect("a list").is_empty());
    assert!(engine.describe_topic(&me(), &name("__consumer_offsets")).is_err());
    let nobody = MemberId::new("nobody").expect("an id");
    assert!(matches!(engine.heartbeat(&me(), &group("g"), &nobody).await, Err(GroupError::UnknownMember(_))));
}

#[tokio::test]
async fn a_member_begins_where_its_join_said() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 2).await;
    bench.clock.advance(1_000);
    fill(&engine, "t", 1, 2..3).await;
    let starts = [(GroupStart::Earliest, 0), (GroupStart::Latest, 3), (GroupStart::Time(START), 0)];
    let later = GroupStart::Time(levada_model::Timestamp(START.0 + 1));
    for (number, (start, expected)) in starts.into_iter().chain([(later, 2)]).enumerate() {
        let of = format!("g{number}");
        let mut member = Member::join_as(&engine, &of, levada_engine::JoinGroup { start, ..joining(&["t"]) }).await;
        member.settled().await;
        let fetch = GroupFetch { max_records: 1, ..member.fetching(Duration::ZERO) };
        let fetched = member.try_fetch(fetch).await.expect("a fetch");
        let first = flat(&fetched).first().map_or(fetched.cursor.positions[0].next.0, |record| record.2);
        assert_eq!(first, expected, "{start:?}");
        assert!(fetched.resets.is_empty());
    }
}

#[tokio::test]
async fn of_two_with_one_instance_id_the_newer_wins_and_nothing_is_rebalanced() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 2, 1).await;
    let instance_id = Some(InstanceId::new("pod-0/a").expect("an id"));
    let join = || levada_engine::JoinGroup { instance_id: instance_id.clone(), ..joining(&["t"]) };
    let mut old = Member::join_as(&engine, "g", join()).await;
    let generation = old.fetch_waiting().await.membership.generation;
    let joined = engine.join_group(&me(), &group("g"), join()).await.expect("it joins");
    assert_eq!(joined.assignment.len(), 2, "it has what the older one had");
    assert_eq!(joined.generation, generation);
    assert!(matches!(old.heartbeat().await, Err(GroupError::FencedInstance { .. })));
    assert!(matches!(old.commit().await, Err(GroupError::FencedInstance { .. })));
    let refused = old.try_fetch(old.fetching(LONG)).await;
    assert!(matches!(refused, Err(GroupError::FencedInstance { .. })));
}

#[tokio::test]
async fn two_fetches_of_one_member_at_once_both_get_their_answers() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    let member = Member::join(&engine, "g", &["t"]).await;
    member.settled().await;
    let mut fetches = JoinSet::new();
    for _ in 0..2 {
        let (engine, id, fetch) = (engine.clone(), member.id.clone(), member.fetching(LONG));
        fetches.spawn(async move { engine.fetch_group(&me(), &group("g"), &id, fetch).await.expect("a fetch") });
    }
    tokio::task::yield_now().await;
    fill(&engine, "t", 1, 0..1).await;
    while let Some(fetched) = fetches.join_next().await {
        assert_eq!(flat(&fetched.expect("it ends")).len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_joins_at_once_make_one_group() {
    const MEMBERS: usize = 3_000;
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 10, &[]).await;
    let mut joins = JoinSet::new();
    for number in 0..MEMBERS {
        let engine = engine.clone();
        let of = group(&format!("g{}", number % 5));
        joins.spawn(async move { engine.join_group(&me(), &of, joining(&["t"])).await.expect("it joins").member_id });
    }
    let ids: std::collections::BTreeSet<_> = joins.join_all().await.into_iter().collect();
    assert_eq!(ids.len(), MEMBERS);
    pass(&bench, &engine, 500);
    let groups = engine.list_groups(&me()).await.expect("a list");
    assert_eq!(groups.iter().map(|group| group.members).collect::<Vec<_>>(), [MEMBERS / 5; 5]);
    for number in 0..5 {
        let of = group(&format!("g{number}"));
        let describe = async || engine.describe_group(&me(), &of).await.expect("a group");
        until("all is assigned", async || {
            describe().await.members.iter().map(|member| member.assignment.len()).sum::<usize>() == 10
        })
        .await;
        assert_eq!(describe().await.generation, super::FIRST_GENERATION, "many joins make one rebalance");
    }
}

/// Refuses everything about what is called `secret`.
struct NoSecrets;

impl Authorizer for NoSecrets {
    fn authorize(&self, who: &Principal, operation: Operation, resource: Resource<'_>) -> Result<(), Denied> {
        let name = match resource {
            Resource::Topic(topic) => topic.as_str(),
            Resource::Group(group) => group.as_str(),
            Resource::Module(module) => module.as_str(),
            Resource::Processor(processor) => processor.as_str(),
            Resource::Cluster => "",
        };
        if name != "secret" {
            return Ok(());
        }
        Err(Denied { principal: who.clone(), operation, resource: name.to_owned() })
    }
}

#[tokio::test]
async fn every_call_asks_whether_it_is_allowed() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 1).await;
    filled(&engine, "secret", 1, 1).await;
    let members =
        vec![Member::join(&engine, "g", &["t", "secret"]).await, Member::join(&engine, "secret", &["t"]).await];
    members[0].settled().await;
    let mut kept = super::kill(engine, members);
    let engine = Engine::open(EngineOptions { authorizer: Arc::new(NoSecrets), ..bench.options() }).expect("it opens");
    let hidden = kept.pop().expect("two").at(&engine);
    let mut member = kept.pop().expect("two").at(&engine);
    let secret = group("secret");
    let offsets = CommitWhat::Offsets(Vec::new());
    let rejected = levada_engine::RejectRecords { records: Vec::new(), reason: String::new(), attempts: None };
    for refused in [
        member.try_fetch(member.fetching(Duration::ZERO)).await.map(drop),
        engine.join_group(&me(), &group("g"), joining(&["secret"])).await.map(drop),
        engine.join_group(&me(), &secret, joining(&["t"])).await.map(drop),
        hidden.heartbeat().await.map(drop),
        engine.fetch_group(&me(), &secret, &hidden.id, hidden.fetching(Duration::ZERO)).await.map(drop),
        engine.commit_member(&me(), &secret, &hidden.id, offsets).await.map(drop),
        engine.reject(&me(), &secret, &hidden.id, rejected).await.map(drop),
        engine.leave_group(&me(), &secret, &hidden.id).await,
        engine.describe_group(&me(), &secret).await.map(drop),
        engine.delete_group(&me(), &secret).await,
        engine.group_offsets(&me(), &secret).await.map(drop),
    ] {
        assert!(matches!(refused, Err(GroupError::Denied(_))), "{refused:?}");
    }
    let listed = engine.list_groups(&me()).await.expect("a list");
    assert_eq!(listed.iter().map(|of| of.group.as_str()).collect::<Vec<_>>(), ["g"]);
}

#[tokio::test]
async fn a_cursor_of_a_group_that_was_deleted_says_nothing_in_the_one_that_begins_anew() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 3).await;
    let mut old = Member::join(&engine, "g", &["t"]).await;
    old.fetch_waiting().await;
    let cursor = old.cursor.clone();
    engine.leave_group(&me(), &old.group, &old.id).await.expect("it leaves");
    engine.delete_group(&me(), &group("g")).await.expect("deleted");
    bench.clock.advance(1_000);
    let mut new = Member::join(&engine, "g", &["t"]).await;
    new.settled().await;
    new.cursor = cursor;
    let refused = new.commit().await;
    assert!(matches!(refused, Err(GroupError::IllegalGeneration(_))), "{refused:?}");
    new.fetch_waiting().await;
    assert_eq!(new.values().len(), 3, "all of it comes again");
}
