//! Records in and out again: the main way, and what is refused on it.

use std::collections::BTreeSet;

use bytes::Bytes;
use levada_engine::{Acks, FetchError, From, Isolation, ProduceError, ProduceRequest, RecordFault};
use levada_log::DiskStorage;
use levada_model::{Header, Offset, Timestamp};
use serde_json::json;

use crate::support::{
    Bench, START, all, create, fetch, me, name, offsets, p, produce, read_from, record, request, to, values,
};

#[tokio::test]
async fn what_is_produced_comes_back_also_after_a_restart() {
    let (sim, _) = Bench::sim();
    let dir = tempfile::tempdir().expect("a directory");
    for bench in [sim, Bench::on(DiskStorage, dir.path().join("data"))] {
        for durability in ["fsync", "page-cache"] {
            let engine = bench.open();
            create(&engine, durability, 1, &[("durability", json!(durability))]).await;
            assert_eq!(offsets(&produce(&engine, durability, vec![record("a", "1"), record("b", "2")]).await), [0, 1]);
            assert_eq!(offsets(&produce(&engine, durability, vec![record("", "3")]).await), [2]);
            let expected = [(0, "1".to_owned()), (1, "2".to_owned()), (2, "3".to_owned())];
            assert_eq!(all(&engine, durability, 0, 0).await, expected);
            engine.close().await.expect("closed");
            let engine = bench.open();
            assert_eq!(all(&engine, durability, 0, 0).await, expected);
            assert_eq!(offsets(&produce(&engine, durability, vec![record("", "4")]).await), [3]);
            engine.close().await.expect("closed");
        }
    }
}

#[tokio::test]
async fn key_value_headers_and_time_come_back_as_they_were() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut full = record("k", "v");
    full.timestamp = Some(Timestamp(START.0 - 5));
    full.record.headers = vec![
        Header { name: "dup".to_owned(), value: Some(Bytes::from_static(b"1")) },
        Header { name: "dup".to_owned(), value: None },
    ];
    let mut tombstone = record("", "");
    tombstone.record.value = None;
    let mut empty = record("", "");
    empty.record.key = Some(Bytes::new());
    let sent = vec![full, tombstone, empty];
    produce(&engine, "t", sent.clone()).await;
    let fetched = fetch(&engine, "t", 0, From::Earliest).await.expect("a read");
    let got: Vec<_> = fetched.records().map(|record| record.expect("sound")).collect();
    for (sent, got) in sent.iter().zip(&got) {
        assert_eq!(got.record, sent.record);
        assert_eq!(got.timestamp, sent.timestamp.unwrap_or(START));
    }
    assert_eq!(got.len(), 3);
}

#[tokio::test]
async fn keys_go_where_kafka_puts_them_and_keyless_requests_take_turns() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "ten", 10, &[]).await;
    let produced = produce(&engine, "ten", vec![record("wu", "x"), record("thingäöüÄÖÜ", "y")]).await;
    let placed: Vec<_> = produced.records.iter().map(|placed| placed.as_ref().expect("stored").partition).collect();
    assert_eq!(placed, [p(0), p(2)]);
    let mut turns = BTreeSet::new();
    for _ in 0..10 {
        let produced = produce(&engine, "ten", vec![record("", "1"), record("", "2")]).await;
        let places: BTreeSet<_> =
            produced.records.iter().map(|placed| placed.as_ref().expect("stored").partition).collect();
        assert_eq!(places.len(), 1, "keyless records of one request go together");
        turns.extend(places);
    }
    assert_eq!(turns.len(), 10);
}

#[tokio::test]
async fn every_wrong_record_is_named_and_nothing_is_stored() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("max.message.bytes", json!(10))]).await;
    let mut many = record("", "1");
    many.record.headers = vec![Header { name: String::new(), value: None }; 1_001];
    let at = |time| levada_engine::ProduceRecord { timestamp: Some(Timestamp(time)), ..record("", "1") };
    let records =
        vec![record("", "12345678901"), record("", "fine"), many, to(7, "1"), at(-1), at(START.0 + 3_600_001)];
    let Err(ProduceError::Records(faults)) = engine.produce(&me(), &name("t"), request(records)).await else {
        panic!("the records are wrong");
    };
    let max = Timestamp(START.0 + 3_600_000);
    assert_eq!(
        faults,
        [
            (0, RecordFault::TooLarge { size_bytes: 11, limit_bytes: 10 }),
            (2, RecordFault::TooManyHeaders { count: 1_001, max: 1_000 }),
            (3, RecordFault::NoPartition(p(7))),
            (4, RecordFault::Timestamp { timestamp: Timestamp(-1), max }),
            (5, RecordFault::Timestamp { timestamp: Timestamp(START.0 + 3_600_001), max }),
        ]
    );
    assert!(all(&engine, "t", 0, 0).await.is_empty());
}

#[tokio::test]
async fn requests_that_cannot_be_stored_at_all_are_refused_as_a_whole() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 2, &[]).await;
    let refused = async |topic: &str, request| engine.produce(&me(), &name(topic), request).await.expect_err("refused");
    assert!(matches!(refused("t", request(Vec::new())).await, ProduceError::Empty));
    assert!(matches!(refused("none", request(vec![record("", "1")])).await, ProduceError::NotFound(_)));
    assert!(matches!(refused("__x", request(vec![record("", "1")])).await, ProduceError::Internal(_)));
    let parted = ProduceRequest { expected_offset: Some(Offset(0)), ..request(vec![to(0, "1"), to(1, "2")]) };
    assert!(matches!(refused("t", parted).await, ProduceError::OnePartition(_)));
    let unnamed = ProduceRequest { expected_offset: Some(Offset(0)), ..request(vec![record("k", "1")]) };
    assert!(matches!(refused("t", unnamed).await, ProduceError::OnePartition(_)), "which partition is meant?");
}

#[tokio::test]
async fn without_acks_the_answer_has_no_offset_and_the_record_is_stored() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let unasked = ProduceRequest { acks: Acks::None, ..request(vec![record("", "1")]) };
    let produced = engine.produce(&me(), &name("t"), unasked).await.expect("taken");
    assert_eq!(produced.records[0].as_ref().expect("accepted").offset, None);
    // The next append of the partition is answered after it.
    assert_eq!(offsets(&produce(&engine, "t", vec![record("", "2")]).await), [1]);
}

#[tokio::test]
async fn a_read_says_where_it_begins_and_where_to_go_on() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    produce(&engine, "t", (0..10).map(|i| record("", &i.to_string())).collect()).await;
    produce(&engine, "t", vec![record("", "10")]).await;
    let read = async |from, max_records, max_bytes| {
        let request = levada_engine::FetchRequest { max_records, max_bytes, ..read_from(from) };
        let fetched = engine.fetch(&me(), &name("t"), p(0), request).await.expect("a read");
        let offsets: Vec<_> = values(&fetched).into_iter().map(|(offset, _)| offset).collect();
        (offsets, fetched.next_offset.0)
    };
    assert_eq!(read(From::Offset(Offset(3)), 2, 1 << 20).await, (vec![3, 4], 5), "in the middle of a batch");
    assert_eq!(read(From::Offset(Offset(9)), 500, 1 << 20).await, (vec![9, 10], 11));
    assert_eq!(read(From::Tail(2), 500, 1 << 20).await, (vec![9, 10], 11));
    assert_eq!(read(From::Tail(99), 1, 1 << 20).await, (vec![0], 1));
    assert_eq!(read(From::Latest, 500, 1 << 20).await, (Vec::new(), 11));
    assert_eq!(read(From::Earliest, 500, 1).await, (vec![0], 1), "the first record comes whatever its size");
    assert_eq!(read(From::Offset(Offset(3)), 500, 4).await, (vec![3, 4, 5, 6], 7), "and no more than fit");
    assert_eq!(read(From::Offset(Offset(11)), 500, 1).await, (Vec::new(), 11), "the end is no error");
    let beyond = fetch(&engine, "t", 0, From::Offset(Offset(12))).await.expect_err("beyond");
    assert!(matches!(beyond, FetchError::BeyondEnd { high_watermark: Offset(11), .. }));
    assert!(matches!(fetch(&engine, "t", 1, From::Earliest).await, Err(FetchError::NoPartition { .. })));
    assert!(matches!(fetch(&engine, "none", 0, From::Earliest).await, Err(FetchError::NotFound(_))));
    let request = levada_engine::FetchRequest { isolation: Isolation::ReadUncommitted, ..read_from(From::Tail(1)) };
    assert_eq!(values(&engine.fetch(&me(), &name("t"), p(0), request).await.expect("a read")).len(), 1);
}

#[tokio::test]
async fn the_tail_is_read_from_memory_and_the_rest_from_files() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    produce(&engine, "t", vec![record("", "1")]).await;
    all(&engine, "t", 0, 0).await;
    let stats = engine.stats();
    assert_eq!((stats.tail_cache_hits, stats.file_reads), (1, 0));
    assert!(stats.tail_cache_bytes > 0);
    engine.close().await.expect("closed");
    let engine = bench.open();
    all(&engine, "t", 0, 0).await;
    let stats = engine.stats();
    assert_eq!((stats.tail_cache_hits, stats.file_reads), (0, 1));
    assert!(stats.read_bytes > 0 && stats.log_bytes > 0);
}

#[tokio::test]
async fn much_that_is_compressed_or_large_is_stored_in_order_too() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    for (topic, compression, size_bytes) in [("packed", "zstd", 2 << 10), ("large", "uncompressed", 32 << 10)] {
        create(&engine, topic, 1, &[("compression.type", json!(compression))]).await;
        let value = |i: u64| format!("{i}{}", "v".repeat(size_bytes));
        let records = (0..50).map(|i| record("", &value(i))).collect();
        assert_eq!(offsets(&produce(&engine, topic, records).await), (0..50).collect::<Vec<_>>());
        let stored = all(&engine, topic, 0, 0).await;
        assert!(stored.iter().all(|(offset, stored)| *stored == value(*offset)) && stored.len() == 50);
    }
}
