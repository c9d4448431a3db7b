//! The client's calls against the real server: those that no command of the program uses, too.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream};
use levada_api::{AlterTopic, ErrorCode, LineAnswer, Placement, ProduceAnswer};
use levada_client::{
    AcksWord, Client, ClientError, FetchQuery, FollowEvent, NewRecord, NewValue, Producer, ProducerOptions, RawOptions,
};

use crate::program::Server;

fn with_client<T>(test: impl AsyncFnOnce(Client) -> T) -> T {
    let server = Server::new(&[]);
    let client = Client::new(&server.url).expect("a good address");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(test(client))
}

fn code<T: std::fmt::Debug>(result: Result<T, ClientError>) -> ErrorCode {
    result.expect_err("it is refused").problem().expect("the server refuses it").code
}

#[test]
fn the_server_tells_who_it_is() {
    with_client(async |client| {
        client.ready().await.expect("it is ready");
        let cluster = client.cluster().await.expect("it answers");
        assert_eq!(format!("http://{}", cluster.nodes[0].address), client.url());
    });
}

#[test]
fn keys_values_and_headers_of_any_kind_come_back() {
    with_client(async |client| {
        let bytes = |bytes: &'static [u8]| Some(bytes.into());
        let records = [
            NewRecord::json("{\"n\": 1.00}").expect("JSON").with_key("text"),
            NewRecord { key: bytes(b"\xff\x00"), value: NewValue::Bytes(b"\xfe"[..].into()), ..NewRecord::default() },
            NewRecord::text("null").with_key(""),
            NewRecord { key: bytes(b"gone"), timestamp: Some(5), ..NewRecord::default() },
            NewRecord {
                headers: vec![("a".into(), bytes(b"x")), ("a".into(), None), ("b".into(), bytes(b"\xfd"))],
                ..NewRecord::text("")
            },
        ];
        client.produce("t", &records, AcksWord::All).await.expect("they are stored");
        let fetched = client.fetch("t", 0, &FetchQuery::default()).await.expect("they are read");
        let read = |index: usize| &fetched.records[index];
        assert_eq!(read(0).value.as_deref(), Some(&b"{\"n\": 1.00}"[..]));
        assert_eq!((read(1).key.as_deref(), read(1).value.as_deref()), (Some(&b"\xff\x00"[..]), Some(&b"\xfe"[..])));
        assert_eq!((read(2).key.as_deref(), read(2).value.as_deref()), (Some(&b""[..]), Some(&b"null"[..])));
        assert_eq!((&read(3).value, read(3).timestamp), (&None, 5));
        assert_eq!((&read(4).key, read(4).value.as_deref()), (&None, Some(&b""[..])));
        assert_eq!(read(4).headers, records[4].headers);
        let one = client.record("t", 0, 1).await.expect("it is there");
        assert_eq!(one, *read(1));
        assert_eq!(client.record_value("t", 0, 1).await.expect("it is there"), &b"\xfe"[..]);
        assert_eq!(code(client.record("t", 0, 99).await), ErrorCode::NoRecord);
    });
}

#[test]
fn a_key_stores_once() {
    with_client(async |client| {
        let produce =
            async |text| client.produce_with_key("t", &[NewRecord::text(text)], AcksWord::All, Some("k")).await;
        let place = |answer: ProduceAnswer| match &answer.records[0] {
            Placement::Placed(placed) => (placed.partition, placed.offset),
            Placement::Failed { problem } => panic!("{problem:?}"),
        };
        let first = place(produce("a").await.expect("it is stored"));
        assert_eq!(place(produce("a").await.expect("it is told again")), first);
        assert_eq!(code(produce("b").await), ErrorCode::IdempotencyKeyReused);
        let options = RawOptions { idempotency_key: Some("raw".into()), ..RawOptions::default() };
        let raw = client.produce_raw("t", "x", &options).await.expect("it is stored");
        assert_eq!(client.produce_raw("t", "x", &options).await.expect("it is told again").offset, raw.offset);
        assert_eq!(client.fetch("t", 0, &FetchQuery::default()).await.expect("read").records.len(), 2);
    });
}

#[test]
fn streams_and_batches_go_both_ways() {
    with_client(async |client| {
        let records = (0..2000).map(|n| NewRecord::json(n.to_string()).expect("JSON"));
        let mut answers = client.produce_stream("t", stream::iter(records), AcksWord::All).await.expect("it is taken");
        let mut last = None;
        while let Some(answer) = answers.next().await {
            last = Some(answer.expect("a good line"));
        }
        assert!(matches!(last, Some(LineAnswer::Done { done: true, accepted: 2000, refused: 0, .. })), "{last:?}");
        let all = FetchQuery { max_records: Some(10_000), ..FetchQuery::default() };
        let read = client.fetch_stream("t", 0, &all).await.expect("it is read");
        let values: Vec<_> = read.map(|record| record.expect("a record").value.expect("a value")).collect().await;
        assert!(
            values.iter().map(|value| &value[..]).eq((0..2000)
                .map(|n| n.to_string())
                .collect::<Vec<_>>()
                .iter()
                .map(String::as_bytes))
        );

        let query = FetchQuery { max_bytes: Some(64 << 20), ..FetchQuery::default() };
        let batches = client.fetch_batches("t", 0, &query).await.expect("they are read");
        client.create_topic("copy", 1, BTreeMap::new()).await.expect("it is created");
        let copied = client.produce_batches("copy", 0, batches.clone(), AcksWord::All).await.expect("they are stored");
        assert!(!copied.records.is_empty());
        let copy = client.fetch_topic("copy", "earliest", Some(10_000), 0).await.expect("it is read");
        assert_eq!(copy.records.len(), 2000);
        assert_eq!(client.fetch_batches("copy", 0, &query).await.expect("they are read").len(), batches.len());
    });
}

#[test]
fn a_time_is_found_in_every_partition() {
    with_client(async |client| {
        client.create_topic("t", 2, BTreeMap::new()).await.expect("it is created");
        let at = |partition, timestamp| NewRecord {
            partition: Some(partition),
            timestamp: Some(timestamp),
            ..NewRecord::text("x")
        };
        client.produce("t", &[at(0, 10), at(0, 20), at(1, 5)], AcksWord::All).await.expect("they are stored");
        let offsets = client.offsets_at("t", 15).await.expect("it is found");
        let found: Vec<_> = offsets.iter().map(|o| (o.partition, o.offset, o.timestamp)).collect();
        assert_eq!(found, [(0, 1, Some(20)), (1, 1, None)]);
    });
}

#[test]
fn a_topic_is_altered_only_if_it_is_what_was_seen() {
    with_client(async |client| {
        client.create_topic("t", 1, BTreeMap::new()).await.expect("it is created");
        let (topic, etag) = client.topic_with_etag("t").await.expect("it is there");
        let change = AlterTopic { partitions: Some(topic.partition_count + 1), ..AlterTopic::default() };
        assert_eq!(client.alter_topic("t", &change, Some(&etag)).await.expect("it is altered").partition_count, 2);
        assert_eq!(code(client.alter_topic("t", &change, Some(&etag)).await), ErrorCode::PreconditionFailed);
    });
}

#[test]
fn a_producer_keeps_the_order_and_a_follower_sees_all() {
    with_client(async |client| {
        let options = ProducerOptions { batch_records: 7, ..ProducerOptions::default() };
        let producer = Producer::new(client.clone(), "t", options);
        for n in 0..100 {
            producer.send(NewRecord::json(n.to_string()).expect("JSON")).await;
        }
        assert_eq!(producer.close().await.records, 100);
        let mut follow = client.follow("t", "earliest");
        for n in 0..100 {
            let FollowEvent::Record(record) = follow.next().await.expect("it goes on") else { panic!("a record") };
            assert_eq!((record.offset, record.value.as_deref()), (n, Some(n.to_string().as_bytes())));
        }
        let cursor = follow.cursor().expect("it has one").to_owned();
        let placed = client.produce("t", &[NewRecord::text("next")], AcksWord::All).await.expect("it is stored");
        assert!(matches!(&placed.records[0], Placement::Placed(placed) if placed.offset == Some(100)));
        let FollowEvent::Record(record) = client.follow("t", &cursor).next().await.expect("it goes on") else {
            panic!("a record")
        };
        assert_eq!(record.offset, 100);
    });
}
