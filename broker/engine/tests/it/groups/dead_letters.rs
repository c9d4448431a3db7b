//! Records that a member cannot process.

use bytes::Bytes;
use levada_engine::{Engine, From, GroupError, ProduceRecord, RejectRecords};
use levada_model::{GroupName, Header, MemberId, Offset, Record, TopicName};
use serde_json::json;

use super::{Member, filled, group, open, refused};
use crate::support::{Bench, all, create, fetch, me, name, p, produce, record, set};

fn rejecting(records: &[(&str, u32, u64)], reason: &str, attempts: Option<u32>) -> RejectRecords {
    let records = records.iter().map(|(topic, partition, offset)| (name(topic), p(*partition), Offset(*offset)));
    RejectRecords { records: records.collect(), reason: reason.to_owned(), attempts }
}

async fn reject(member: &Member, reject: RejectRecords) -> Result<Vec<(String, u32, u64)>, GroupError> {
    let places = member.engine.reject(&me(), &member.group, &member.id, reject).await?;
    Ok(places.into_iter().map(|(topic, partition, offset)| (topic.to_string(), partition.0, offset.0)).collect())
}

async fn record_at(engine: &Engine, topic: &str, offset: u64) -> Record {
    let mut fetched = fetch(engine, topic, 0, From::Offset(Offset(offset))).await.expect("a read");
    fetched.take_records().next().expect("a record").expect("sound").record
}

fn headers(record: &Record) -> Vec<(String, String)> {
    let text = |header: &Header| String::from_utf8_lossy(header.value.as_deref().expect("not null")).into_owned();
    record.headers.iter().map(|header| (header.name.clone(), text(header))).collect()
}

fn owned(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn with_headers(key: &str, value: &str, headers: &[(&str, &str)]) -> ProduceRecord {
    let mut new = record(key, value);
    let header = |(name, value): &(&str, &str)| Header {
        name: (*name).to_owned(),
        value: Some(Bytes::from((*value).to_owned())),
    };
    new.record.headers = headers.iter().map(header).collect();
    new
}

#[tokio::test]
async fn a_rejected_record_goes_to_the_dead_letters_as_it_was_with_its_origin() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    produce(&engine, "t", vec![with_headers("k", "bad", &[("trace", "1"), ("error", "mine")]), record("", "x")]).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    bench.clock.advance(1_000);
    let places = reject(&member, rejecting(&[("t", 0, 1), ("t", 0, 0)], "no number", Some(3))).await.expect("rejected");
    assert_eq!(places, [("t.dead-letter".to_owned(), 0, 0), ("t.dead-letter".to_owned(), 0, 1)]);
    let letter = record_at(&engine, "t.dead-letter", 1).await;
    assert_eq!((letter.key.as_deref(), letter.value.as_deref()), (Some(&b"k"[..]), Some(&b"bad"[..])));
    let origin = [
        ("trace", "1"),
        ("error", "mine"),
        ("error", "no number"),
        ("original_topic", "t"),
        ("original_partition", "0"),
        ("original_offset", "0"),
        ("original_timestamp", "1700000000000"),
        ("group", "g"),
        ("attempts", "3"),
    ];
    assert_eq!(headers(&letter), owned(&origin), "its own headers stay");
    assert_eq!(record_at(&engine, "t.dead-letter", 0).await.key, None);
    assert_eq!(engine.describe_topic(&me(), &name("t.dead-letter")).expect("a topic").partition_count, 1);
    assert!(engine.group_offsets(&me(), &group("g")).await.expect("a group").is_empty(), "nothing is committed by it");
}

#[tokio::test]
async fn a_rejection_that_is_tried_again_stores_nothing_twice_also_after_a_restart() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 3).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    let first = reject(&member, rejecting(&[("t", 0, 1)], "one", None)).await.expect("rejected");
    let more = reject(&member, rejecting(&[("t", 0, 2), ("t", 0, 1)], "another", Some(2))).await.expect("rejected");
    assert_eq!((first[0].2, more[0].2, more[1].2), (0, 1, 0));
    let mut other = Member::join(&engine, "h", &["t"]).await;
    other.fetch_waiting().await;
    assert_eq!(reject(&other, rejecting(&[("t", 0, 1)], "one", None)).await.expect("another group's")[0].2, 2);
    drop(other);
    let kept = super::kill(engine, vec![member]).remove(0);
    let engine = open(&bench);
    let member = kept.at(&engine);
    assert_eq!(reject(&member, rejecting(&[("t", 0, 1)], "one", None)).await.expect("rejected"), first);
    assert_eq!(all(&engine, "t.dead-letter", 0, 0).await.len(), 3);
}

#[tokio::test]
async fn nothing_is_rejected_where_something_is_wrong() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 3).await;
    filled(&engine, "u", 1, 1).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    engine.truncate_topic(&me(), &name("t"), vec![(p(0), Offset(1))]).await.expect("truncated");
    let records = [("t", 0, 0), ("t", 0, 1), ("t", 0, 3), ("t", 0, 99)];
    let Err(GroupError::Offsets(faults)) = reject(&member, rejecting(&records, "bad", None)).await else {
        panic!("three are not there")
    };
    assert_eq!(faults.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 2, 3]);
    let records = [("t", 0, 1), ("u", 0, 0), ("t", 5, 0)];
    let Err(GroupError::IllegalGeneration(none)) = reject(&member, rejecting(&records, "bad", None)).await else {
        panic!("two are not held")
    };
    assert_eq!(refused(&none), [("u".to_owned(), 0), ("t".to_owned(), 5)]);
    let nobody =
        Member { id: MemberId::new("nobody").expect("an id"), group: GroupName::new("g").expect("a group"), ..member };
    assert!(matches!(reject(&nobody, rejecting(&[("t", 0, 1)], "bad", None)).await, Err(GroupError::UnknownMember(_))));
    assert!(engine.describe_topic(&me(), &name("t.dead-letter")).is_err(), "no topic was made for it");
}

#[tokio::test]
async fn a_dead_letter_of_a_dead_letter_has_its_words_of_origin_once() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    let old = [
        ("trace", "1"),
        ("error", "first"),
        ("original_topic", "t"),
        ("original_partition", "4"),
        ("original_offset", "9"),
        ("original_timestamp", "5"),
        ("attempts", "3"),
        ("redrive_count", "2"),
    ];
    create(&engine, "t.dead-letter", 1, &[]).await;
    produce(&engine, "t.dead-letter", vec![with_headers("k", "bad", &old)]).await;
    let mut member = Member::join(&engine, "g", &["t.dead-letter"]).await;
    member.fetch_waiting().await;
    let places = reject(&member, rejecting(&[("t.dead-letter", 0, 0)], "again", None)).await.expect("rejected");
    assert_eq!(places, [("t.dead-letter.dead-letter".to_owned(), 0, 0)]);
    let letter = record_at(&engine, "t.dead-letter.dead-letter", 0).await;
    let origin = [
        ("trace", "1"),
        ("redrive_count", "2"),
        ("error", "again"),
        ("original_topic", "t.dead-letter"),
        ("original_partition", "0"),
        ("original_offset", "0"),
        ("original_timestamp", "1700000000000"),
        ("group", "g"),
    ];
    assert_eq!(headers(&letter), owned(&origin));
}

#[tokio::test]
async fn topics_that_can_have_no_dead_letters_say_why() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    let long = "x".repeat(240);
    filled(&engine, &long, 1, 1).await;
    let mut member = Member::join(&engine, "g", &[&long]).await;
    member.fetch_waiting().await;
    let refused = reject(&member, rejecting(&[(&long, 0, 0)], "bad", None)).await;
    let Err(GroupError::DeadLetters { topic, reason }) = refused else { panic!("its name is too long") };
    assert_eq!(topic, TopicName::new(&long).expect("a name"));
    assert!(reason.contains("has 252 characters"), "{reason}");
    let mut member = Member::join(&engine, "g", &["__consumer_offsets"]).await;
    super::until("it has some of them", async || !member.fetch().await.parts.is_empty()).await;
    let partition = member.got[0].1;
    let refused = reject(&member, rejecting(&[("__consumer_offsets", partition, member.got[0].2)], "bad", None)).await;
    assert!(matches!(refused, Err(GroupError::DeadLetters { .. })));
}

#[tokio::test]
async fn compacted_dead_letters_take_none_without_a_key() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    filled(&engine, "t", 1, 1).await;
    create(&engine, "t.dead-letter", 1, &[("cleanup.policy", json!("compact"))]).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    let refused = reject(&member, rejecting(&[("t", 0, 0)], "bad", None)).await;
    let Err(GroupError::DeadLetters { reason, .. }) = refused else { panic!("its log would be damaged by it") };
    assert!(reason.contains("key"), "{reason}");
    assert!(all(&engine, "t.dead-letter", 0, 0).await.is_empty());
}

#[tokio::test]
async fn a_record_of_the_largest_size_can_be_set_aside() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    produce(&engine, "t", vec![record("", &"x".repeat(1 << 20))]).await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    reject(&member, rejecting(&[("t", 0, 0)], "too much of it", None)).await.expect("rejected");
    assert_eq!(record_at(&engine, "t.dead-letter", 0).await.value.expect("a value").len(), 1 << 20);
}

#[tokio::test]
async fn letters_with_keys_keep_their_order_in_a_topic_of_several_partitions() {
    let (bench, _) = Bench::sim();
    let engine = open(&bench);
    create(&engine, "t", 1, &[]).await;
    let new = levada_engine::CreateTopic {
        name: name("t.dead-letter"),
        partitions: 4,
        config: set(&[("compression.type", json!("zstd"))]),
    };
    engine.create_topic(&me(), new).await.expect("created");
    produce(&engine, "t", (0..20).map(|number| record(["a", "b", "c", ""][number % 4], &number.to_string())).collect())
        .await;
    let mut member = Member::join(&engine, "g", &["t"]).await;
    member.fetch_waiting().await;
    let records: Vec<_> = (0..20).map(|offset| ("t", 0, offset)).collect();
    let places = reject(&member, rejecting(&records, "bad", None)).await.expect("rejected");
    for key in 0..3 {
        let of_key: Vec<_> = places.iter().skip(key).step_by(4).collect();
        assert!(of_key.windows(2).all(|pair| pair[0].1 == pair[1].1 && pair[0].2 < pair[1].2), "{of_key:?}");
    }
    assert_eq!(reject(&member, rejecting(&records, "bad", None)).await.expect("rejected"), places);
}
