//! Commits: by cursor and by offsets, of what a member holds and of what it does not (PC-14).

use serde_json::{Value, json};

use super::member::{Member, Seen, places, settle, store_in};
use super::timed::Timed;
use crate::harness::Harness;
use crate::produce::topic;

async fn committed(harness: &Harness, group: &str) -> Value {
    harness.get(&format!("/v1/groups/{group}")).await.expect(200).json()["offsets"].clone()
}

/// PC-14, first part.
#[tokio::test]
async fn a_new_instance_begins_at_the_commit_of_the_one_that_expired() {
    let timed = Timed::start(|_| {}).await;
    let harness = &timed.harness;
    harness.topic("t").await;
    store_in(harness, "t", 0, 14).await;
    let mut first = Member::join(harness, "g", &["t"]).await;
    timed.advance(500).await;
    first.until(|member| member.state() == "stable").await;
    first.cursor.clear();
    assert_eq!(first.fetch("max_records=10").await.len(), 10);
    let answer = first.commit_as(json!({ "offsets": [{ "topic": "t", "partition": 0, "offset": 10 }] })).await;
    let place = json!({ "topic": "t", "partition": 0, "offset": 10 });
    assert_eq!(answer.expect(200).json(), json!({ "committed": [place], "refused": [] }));
    timed.advance(45_001).await;
    while harness.get("/v1/groups/g").await.expect(200).json()["members"] != json!([]) {}

    let mut second = Member::join(harness, "g", &["t"]).await;
    timed.advance(500).await;
    let records = second.until(|member| member.state() == "stable").await;
    assert_eq!(places(&records)[0], (0, 10), "committed is next to read");
    assert_eq!(committed(harness, "g").await[0]["lag"], 4);
}

/// PC-14, second part: nothing is committed unless somebody does.
#[tokio::test]
async fn who_reads_and_does_not_commit_reads_it_again() {
    let harness = Harness::start(|options| options.group_initial_rebalance_delay = Default::default()).await;
    harness.topic("t").await;
    store_in(&harness, "t", 0, 3).await;
    for _ in 0..2 {
        let mut member = Member::join(&harness, "g", &["t"]).await;
        let records = member.until(|member| member.state() == "stable").await;
        assert_eq!(places(&records), [(0, 0), (0, 1), (0, 2)]);
        member.leave().await.expect(204);
    }
    assert!(harness.get("/v1/groups/g").await.json()["offsets"].as_array().is_none_or(Vec::is_empty));
}

/// PC-14, third part: a place for each partition.
#[tokio::test]
async fn one_member_of_three_partitions_sees_all_of_each() {
    let harness = Harness::start(|options| options.group_initial_rebalance_delay = Default::default()).await;
    topic(&harness, "t", 3, json!({})).await;
    for (partition, count) in [(0, 10), (1, 3), (2, 7)] {
        store_in(&harness, "t", partition, count).await;
    }
    let mut member = Member::join(&harness, "g", &["t"]).await;
    let seen = Seen::default();
    while seen.count() < 20 {
        let records = member.fetch("max_records=2&wait_ms=1000").await;
        assert!(records.len() <= 2);
        seen.take(&records);
        member.commit().await.expect(200);
    }
    assert_eq!(seen.doubled(), []);
    let stands = committed(&harness, "g").await;
    let stands: Vec<_> = stands.as_array().expect("offsets").iter().map(|o| o["committed"].clone()).collect();
    assert_eq!(json!(stands), json!([10, 3, 7]));
}

#[tokio::test]
async fn the_same_cursor_gives_the_same_records_until_they_are_committed_and_after() {
    let harness = Harness::start(|options| options.group_initial_rebalance_delay = Default::default()).await;
    topic(&harness, "t", 3, json!({})).await;
    for partition in 0..3 {
        store_in(&harness, "t", partition, 10).await;
    }
    let mut member = Member::join(&harness, "g", &["t"]).await;
    member.until(|member| member.state() == "stable").await;
    member.cursor.clear();
    let mut all = Vec::new();
    while all.len() < 30 {
        let again = member.clone().fetch("max_records=7").await;
        let records = member.fetch("max_records=7").await;
        assert_eq!(again, records);
        all.extend(records);
    }
    let seen = Seen::default();
    seen.take(&all);
    assert_eq!((seen.count(), seen.doubled()), (30, vec![]));
    member.commit().await.expect(200);
    assert_eq!(member.fetch("").await, Vec::<Value>::new());
    member.cursor.clear();
    assert_eq!(member.fetch("").await, Vec::<Value>::new(), "without a cursor it begins at what is committed");
}

#[tokio::test]
async fn a_cursor_never_takes_a_commit_back_and_offsets_may() {
    let harness = Harness::start(|options| options.group_initial_rebalance_delay = Default::default()).await;
    harness.topic("t").await;
    store_in(&harness, "t", 0, 10).await;
    let mut member = Member::join(&harness, "g", &["t"]).await;
    member.until(|member| member.state() == "stable").await;
    member.cursor.clear();
    member.fetch("max_records=3").await;
    let early = member.cursor.clone();
    member.fetch("max_records=3").await;
    member.commit().await.expect(200);
    let answer = member.commit_as(json!({ "cursor": early })).await.expect(200).json();
    assert_eq!(answer["committed"][0]["offset"], 6, "what stands is told");
    assert_eq!(committed(&harness, "g").await[0]["committed"], 6);
    let back = json!({ "offsets": [{ "topic": "t", "partition": 0, "offset": 1 }] });
    assert_eq!(member.commit_as(back).await.expect(200).json()["committed"][0]["offset"], 1);
    let nothing = member.commit_as(json!({ "cursor": "" })).await.expect(200).json();
    assert_eq!(nothing, json!({ "committed": [], "refused": [] }), "up to the empty cursor nothing was delivered");
}

#[tokio::test]
async fn what_cannot_be_committed_is_refused_with_its_place() {
    let harness = Harness::start(|options| options.group_initial_rebalance_delay = Default::default()).await;
    topic(&harness, "t", 2, json!({})).await;
    harness.topic("other").await;
    store_in(&harness, "t", 0, 5).await;
    let mut member = Member::join(&harness, "g", &["t"]).await;
    member.until(|member| member.state() == "stable").await;
    let before = committed(&harness, "g").await;
    let place =
        |topic: &str, partition: u64, offset: u64| json!({ "topic": topic, "partition": partition, "offset": offset });
    for (offsets, status, code, pointer) in [
        (json!([place("t", 1, 0), place("t", 0, 6)]), 422, "invalid-offset", "/offsets/1"),
        (json!([place("t", 0, 1), place("t", 0, 2)]), 422, "invalid-field", "/offsets/1/partition"),
        (json!([place("a b", 0, 0)]), 422, "invalid-offset", "/offsets/0/topic"),
    ] {
        let answer = member.commit_as(json!({ "offsets": offsets })).await.expect(status);
        assert_eq!((answer.code().as_str(), answer.json()["errors"][0]["pointer"].as_str()), (code, Some(pointer)));
    }
    for foreign in [place("other", 0, 0), place("t", 9, 0), place("nowhere", 0, 0)] {
        let answer = member.commit_as(json!({ "offsets": [foreign] })).await.expect(409);
        assert_eq!(answer.code(), "illegal-generation");
        let refused = answer.json()["refused"][0].clone();
        assert_eq!((&refused["topic"], &refused["partition"]), (&foreign["topic"], &foreign["partition"]));
    }
    assert_eq!(committed(&harness, "g").await, before, "nothing was committed");
    let mixed = json!({ "offsets": [place("t", 0, 2), place("other", 0, 0)] });
    let answer = member.commit_as(mixed).await.expect(200).json();
    assert_eq!(
        (&answer["committed"], answer["refused"].as_array().map(Vec::len)),
        (&json!([place("t", 0, 2)]), Some(1))
    );
}

#[tokio::test]
async fn cursors_of_others_mangled_ones_and_old_ones_are_told_apart() {
    let harness = Harness::start(|options| options.group_initial_rebalance_delay = Default::default()).await;
    topic(&harness, "t", 2, json!({})).await;
    store_in(&harness, "t", 0, 5).await;
    let mut member = Member::join(&harness, "g", &["t"]).await;
    member.until(|member| member.state() == "stable").await;
    let mut other = Member::join(&harness, "others", &["t"]).await;
    other.until(|other| other.state() == "stable").await;

    let with = |cursor: &str| Member { cursor: cursor.to_owned(), ..member.clone() };
    let of_other = with(&other.cursor);
    assert_eq!(of_other.try_fetch("").await.expect(410).code(), "cursor-gone");
    assert_eq!(of_other.commit().await.expect(410).code(), "cursor-gone");
    let mut mangled = member.cursor.clone();
    let last = if mangled.ends_with('A') { 'B' } else { 'A' };
    mangled.pop();
    mangled.push(last);
    let of_topic = harness.get("/v1/topics/t/records").await.expect(200).json()["cursor"].clone();
    for bad in [mangled.as_str(), "AAAA", "x", of_topic.as_str().expect("a cursor")] {
        assert_eq!(with(bad).try_fetch("").await.expect(400).code(), "invalid-cursor", "{bad}");
        let refused = with(bad).commit().await.expect(400);
        assert_eq!(
            (refused.code().as_str(), &refused.json()["errors"][0]["pointer"]),
            ("invalid-cursor", &json!("/cursor"))
        );
    }
    // A partition that was lost and came back is another holding, so what was delivered before does not count.
    let old = member.cursor.clone();
    let mut members = vec![member.clone(), Member::join(&harness, "g", &["t"]).await];
    settle(&mut members, 2, &Seen::default()).await;
    members.pop().expect("the second").leave().await.expect(204);
    let refused = loop {
        members[0].fetch("wait_ms=50").await;
        if members[0].assignment().len() == 2 {
            break with(&old).commit().await.expect(200).json();
        }
    };
    assert_eq!(refused["refused"].as_array().map(Vec::len), Some(1), "{refused}");
}
