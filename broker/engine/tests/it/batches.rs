//! Batches that come built.

use bytes::BytesMut;
use levada_engine::{Acks, AppendFault, BatchesRequest, Engine, From, ProduceError, Produced, RecordFault};
use levada_log::{AppendError, BatchBuf, BatchBuilder, NewBatch};
use levada_model::{Compression, Offset, ProducerEpoch, ProducerId, Record, Sequence, Timestamp, limits};
use serde_json::json;

use crate::support::{Bench, START, all, create, fetch, me, name, offsets, p};

fn batch(new: NewBatch, values: &[&str]) -> BytesMut {
    let mut builder = BatchBuilder::new(new, 0);
    for value in values {
        let value = Some(bytes::Bytes::copy_from_slice(value.as_bytes()));
        builder.push(START, &Record { value, ..Record::default() });
    }
    let batch = builder.finish().expect("it is built").stamp(Offset(0), levada_model::LeaderEpoch(0));
    BytesMut::from(&batch.bytes()[..])
}

fn plain(values: &[&str]) -> BytesMut {
    batch(NewBatch::default(), values)
}

async fn send(engine: &Engine, bytes: BytesMut) -> Result<Produced, ProduceError> {
    let request = BatchesRequest { partition: p(0), bytes, acks: Acks::All, expected_offset: None, transaction: None };
    engine.produce_batches(&me(), &name("t"), request).await
}

async fn refused(engine: &Engine, bytes: BytesMut) -> (usize, String) {
    match send(engine, bytes).await {
        Err(ProduceError::Batch { index, detail }) => (index, detail),
        other => panic!("it was to be refused: {other:?}"),
    }
}

#[tokio::test]
async fn batches_are_stored_as_they_are_in_one_piece() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let mut bytes = plain(&["a", "b"]);
    bytes.extend_from_slice(&batch(NewBatch { compression: Compression::Zstd, ..NewBatch::default() }, &["c"]));
    let sent = bytes.clone();
    let produced = send(&engine, bytes).await.expect("taken");
    assert_eq!((offsets(&produced), produced.duplicate), (vec![0, 1, 2], false));
    assert_eq!(produced.records[2].as_ref().expect("stored").timestamp, START);
    let fetched = fetch(&engine, "t", 0, From::Earliest).await.expect("a read");
    let stored: Vec<u8> = fetched.batches.iter().flat_map(|batch| batch.bytes().to_vec()).collect();
    // All but base offset and leader epoch.
    assert_eq!(stored.len(), sent.len());
    assert_eq!(stored[16..61], sent[16..61]);
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 3);
}

#[tokio::test]
async fn a_wrong_batch_is_named_and_nothing_is_stored() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("max.message.bytes", json!(100))]).await;
    let good = plain(&["a"]);
    let behind = |bad: BytesMut| {
        let mut bytes = good.clone();
        bytes.extend_from_slice(&bad);
        bytes
    };
    let producer = Some((ProducerId(5), ProducerEpoch(0), Sequence(0)));
    let mut flipped = plain(&["a"]);
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    let mut miscounted = plain(&["a", "b"]);
    miscounted[60] = 1;
    let control = batch(NewBatch { control: true, ..NewBatch::default() }, &["a"]);
    let transactional = batch(NewBatch { transactional: true, producer, ..NewBatch::default() }, &["a"]);
    let unknown = batch(NewBatch { producer, ..NewBatch::default() }, &["a"]);
    let derived = Some((levada_log::derived_producer_id(5), ProducerEpoch(0), Sequence(0)));
    let derived = batch(NewBatch { producer: derived, ..NewBatch::default() }, &["a"]);
    let large = plain(&["a", &"x".repeat(101)]);
    let mut early = BatchBuilder::new(NewBatch::default(), 0);
    early.push(Timestamp(-1), &Record::default());
    let early = early.finish().expect("it is built").stamp(Offset(0), levada_model::LeaderEpoch(0));
    let early = BytesMut::from(&early.bytes()[..]);
    let mut timed = BatchBuf::parse(&mut plain(&["a"])).expect("a batch");
    timed.set_append_time(START);
    let timed = BytesMut::from(&timed.stamp(Offset(0), levada_model::LeaderEpoch(0)).bytes()[..]);
    let mut lying = plain(&["a"]);
    lying[35..43].copy_from_slice(&1_i64.to_be_bytes());
    let crc = u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &lying[21..])).expect("32 bits");
    lying[17..21].copy_from_slice(&crc.to_be_bytes());
    for (bad, word) in [
        (flipped, "CRC"),
        (miscounted, ""),
        (good.clone().split_to(40), "cut off"),
        (control, "control"),
        (transactional, "transaction"),
        (unknown, "producer id 5"),
        (derived, "not given out"),
        (large, "record 1"),
        (early, "timestamp -1"),
        (timed, "LogAppendTime"),
        (lying, "the largest timestamp"),
    ] {
        let (index, detail) = refused(&engine, behind(bad)).await;
        assert_eq!(index, 1, "{detail}");
        assert!(detail.contains(word), "{detail}");
    }
    assert!(matches!(send(&engine, BytesMut::new()).await, Err(ProduceError::Empty)));
    let request =
        BatchesRequest { partition: p(3), bytes: good, acks: Acks::All, expected_offset: None, transaction: None };
    let elsewhere = engine.produce_batches(&me(), &name("t"), request).await;
    let Err(ProduceError::Records(faults)) = elsewhere else { panic!("there is no such partition") };
    assert_eq!(faults, [(0, RecordFault::NoPartition(p(3)))]);
    assert!(all(&engine, "t", 0, 0).await.is_empty());
}

#[tokio::test]
async fn sequences_in_the_head_are_honoured() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let (id, epoch) = engine.init_producer(&me()).await.expect("an id");
    let at = |sequence| {
        batch(NewBatch { producer: Some((id, epoch, Sequence(sequence))), ..NewBatch::default() }, &["a", "b"])
    };
    let both = || {
        let mut bytes = at(0);
        bytes.extend_from_slice(&at(2));
        bytes
    };
    assert!(!send(&engine, both()).await.expect("taken").duplicate);
    let again = send(&engine, both()).await.expect("taken");
    assert_eq!((offsets(&again), again.duplicate), (vec![0, 1, 2, 3], true));
    let mut gap = at(4);
    gap.extend_from_slice(&at(8));
    gap.extend_from_slice(&at(6));
    let produced = send(&engine, gap).await.expect("taken");
    assert!(!produced.duplicate);
    let places: Vec<_> = produced.records.iter().map(|placed| placed.as_ref().ok().and_then(|p| p.offset)).collect();
    assert_eq!(places, [Some(Offset(4)), Some(Offset(5)), None, None, None, None], "none behind the first refused");
    let fault = produced.records[2].as_ref().expect_err("a gap");
    assert!(matches!(**fault, AppendFault::Refused(AppendError::OutOfOrderSequence { expected: Sequence(6), .. })));
}

#[tokio::test]
async fn an_expected_offset_holds_for_the_first_batch() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let expecting = async |offset| {
        let mut bytes = plain(&["a"]);
        bytes.extend_from_slice(&plain(&["b"]));
        let request = BatchesRequest {
            partition: p(0),
            bytes,
            acks: Acks::All,
            expected_offset: Some(Offset(offset)),
            transaction: None,
        };
        engine.produce_batches(&me(), &name("t"), request).await.expect("taken")
    };
    assert_eq!(offsets(&expecting(0).await), [0, 1]);
    let late = expecting(0).await;
    assert!(late.records.iter().all(Result::is_err), "and none of those behind it");
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 2);
}

#[tokio::test]
async fn a_body_that_unpacks_to_more_than_its_records_may_hold_is_refused() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("max.message.bytes", json!(1_000))]).await;
    let bomb = "\0".repeat(8 << 20);
    for compression in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let (index, detail) = refused(&engine, batch(NewBatch { compression, ..NewBatch::default() }, &[&bomb])).await;
        assert_eq!(index, 0);
        assert!(detail.contains("stream"), "{detail}");
    }
}

#[tokio::test]
async fn a_batch_that_readers_would_have_to_unpack_for_long_is_refused_by_the_name_of_the_limit() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[("max.message.bytes", json!(limits::UNPACKED_BYTES_MAX + 100))]).await;
    let zstd = NewBatch { compression: Compression::Zstd, ..NewBatch::default() };
    let half = "\0".repeat(limits::UNPACKED_BYTES_MAX / 2 + (64 << 10));
    let (_, detail) = refused(&engine, batch(zstd, &[&half, &half])).await;
    assert!(detail.contains("UNPACKED_BYTES_MAX"), "{detail}");
    let whole = "\0".repeat(limits::UNPACKED_BYTES_MAX + 100);
    let produced = send(&engine, batch(zstd, &[&whole])).await.expect("one record may be as large as the topic says");
    assert_eq!(offsets(&produced), [0]);
}

#[tokio::test]
async fn large_bodies_are_stored_too() {
    let (bench, _) = Bench::sim();
    let engine = bench.open();
    create(&engine, "t", 1, &[]).await;
    let value = "x".repeat(900 << 10);
    let mut bytes = plain(&[&value, &value]);
    bytes.extend_from_slice(&batch(NewBatch { compression: Compression::Lz4, ..NewBatch::default() }, &[&value]));
    assert_eq!(offsets(&send(&engine, bytes).await.expect("taken")), [0, 1, 2]);
    assert_eq!(all(&engine, "t", 0, 0).await.len(), 3);
}
