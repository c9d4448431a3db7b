//! `application/vnd.levada.record-batch`.

use bytes::Bytes;
use http::Method;
use levada_log::{Batch, BatchBuilder, NewBatch};
use levada_model::{Compression, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Record, Sequence, Timestamp};
use serde_json::json;

use super::{count, read, topic};
use crate::harness::{Answer, Harness};

const MEDIA: &str = "application/vnd.levada.record-batch";
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const RECORD_COUNT_AT: usize = 57;
const RECORDS_AT: usize = 61;

pub(crate) fn batch(new: NewBatch, values: &[&'static str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(new, 0);
    for value in values {
        let record = Record { value: Some(Bytes::from_static(value.as_bytes())), ..Record::default() };
        builder.push(Timestamp(1_700_000_000_000), &record);
    }
    builder.finish().expect("a batch").stamp(Offset(0), LeaderEpoch(0)).bytes().to_vec()
}

fn plain() -> Vec<u8> {
    batch(NewBatch::default(), &["1", "two"])
}

/// Makes the CRC right again (CRC-32C, bit by bit).
fn sealed(mut batch: Vec<u8>) -> Vec<u8> {
    let crc = batch[ATTRIBUTES_AT..].iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    });
    batch[CRC_AT..ATTRIBUTES_AT].copy_from_slice(&(!crc).to_be_bytes());
    batch
}

async fn send(harness: &Harness, query: &str, body: Vec<u8>) -> Answer {
    harness.body(Method::POST, &format!("/v1/topics/t/records{query}"), MEDIA, body).await
}

async fn stored(harness: &Harness) -> Bytes {
    let request = harness.request(Method::GET, "/v1/topics/t/partitions/0/records").header("accept", MEDIA);
    let answer = harness.send(request).await.expect(200);
    assert_eq!(answer.header("content-length"), answer.body.len().to_string());
    answer.body
}

#[tokio::test]
async fn batches_are_stored_and_read_as_they_are() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    for compression in [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd]
    {
        let bytes = batch(NewBatch { compression, ..NewBatch::default() }, &["1", "two"]);
        let answer = send(&harness, "?partition=0", bytes).await.expect(200).json();
        assert_eq!(answer["records"].as_array().map(Vec::len), Some(2));
    }
    let two = [plain(), plain()].concat();
    let answer = send(&harness, "?partition=0", two).await.expect(200).json();
    assert_eq!(answer["records"][3], json!({ "partition": 0, "offset": 13, "timestamp": 1_700_000_000_000_u64 }));

    let mut bytes = stored(&harness).await;
    let (mut next, sent) = (Offset(0), sealed(plain()));
    while !bytes.is_empty() {
        let batch = Batch::parse(&mut bytes).expect("whole batches");
        assert_eq!(batch.header().base_offset, next);
        if batch.header().compression() == Compression::None {
            assert_eq!(batch.bytes()[CRC_AT..], sent[CRC_AT..], "nothing but place and term is changed");
        }
        next = batch.header().next_offset();
    }
    assert_eq!(next, Offset(14));
    let records = read(&harness, "t", 0, "").await["records"].clone();
    assert_eq!((&records[12]["value"], &records[13]["value_text"]), (&json!(1), &json!("two")));
}

#[tokio::test]
async fn a_read_of_batches_begins_with_the_one_that_holds_the_offset_and_says_where_to_go_on() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    for _ in 0..3 {
        send(&harness, "?partition=0", plain()).await.expect(200);
    }
    let path = "/v1/topics/t/partitions/0/records?offset=3&max_bytes=1";
    let answer = harness.send(harness.request(Method::GET, path).header("accept", MEDIA)).await.expect(200);
    let mut bytes = answer.body.clone();
    assert_eq!(Batch::parse(&mut bytes).expect("a batch").header().base_offset, Offset(2));
    assert!(bytes.is_empty());
    assert_eq!(answer.header("levada-next-offset"), "4");
    assert_eq!(answer.header("levada-high-watermark"), "6");
    assert_eq!(answer.header("levada-log-start-offset"), "0");
}

#[tokio::test]
async fn wrong_batches_are_refused_and_nothing_is_stored() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let changed = |at: usize, byte: u8| {
        let mut batch = plain();
        batch[at] ^= byte;
        batch
    };
    let cut = plain()[..plain().len() - 1].to_vec();
    let with_flag = |flag: u8| sealed(changed(ATTRIBUTES_AT + 1, flag));
    for (what, bytes) in [
        ("nothing", Vec::new()),
        ("a cut batch", cut.clone()),
        ("a wrong CRC", changed(RECORDS_AT, 1)),
        ("a wrong count", sealed(changed(RECORD_COUNT_AT + 3, 1))),
        ("a huge count", sealed(changed(RECORD_COUNT_AT, 0x7f))),
        ("a longer length than there are bytes", changed(8, 0x7f)),
        ("a negative length", changed(8, 0x80)),
        ("another magic", changed(16, 3)),
        ("a control batch", with_flag(0x20)),
        ("a transactional batch", with_flag(0x10)),
        ("an unknown compression", with_flag(0x07)),
        ("records that are not gzip", with_flag(0x01)),
        ("a good batch and a bad one", [plain(), changed(RECORDS_AT, 1)].concat()),
        ("a good batch and rubbish", [plain(), b"rubbish".to_vec()].concat()),
    ] {
        let answer = send(&harness, "?partition=0", bytes).await.expect(422);
        assert_eq!(answer.code(), "invalid-batch", "{what}");
    }
    assert_eq!(count(&harness, "t").await, 0);
}

/// Case PC-49: the counts and sizes that tiny batches declare.
#[tokio::test]
async fn declared_counts_and_windows_are_not_believed() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    // The one record ends in a header count of i32::MAX, as a zigzag varint.
    let mut many_headers = batch(NewBatch::default(), &["1"]);
    many_headers.pop();
    many_headers.extend_from_slice(&[0xfe, 0xff, 0xff, 0xff, 0x0f]);
    many_headers[RECORDS_AT] += 8;
    let length = u32::try_from(many_headers.len() - 12).expect("small");
    many_headers[8..12].copy_from_slice(&length.to_be_bytes());
    // A zstd frame head that declares a window of 512 MiB and content to match.
    let mut window = plain()[..RECORDS_AT].to_vec();
    window[ATTRIBUTES_AT + 1] |= 4;
    window.extend_from_slice(&[0x28, 0xb5, 0x2f, 0xfd, 0x80, 0x98, 0, 0, 0, 0x20, 1, 0, 0]);
    let length = u32::try_from(window.len() - 12).expect("small");
    window[8..12].copy_from_slice(&length.to_be_bytes());
    for bytes in [sealed(many_headers), sealed(window)] {
        assert_eq!(send(&harness, "?partition=0", bytes).await.expect(422).code(), "invalid-batch");
    }
    assert_eq!(count(&harness, "t").await, 0);
}

#[tokio::test]
async fn a_batch_needs_its_partition_and_has_its_producer_inside() {
    let harness = Harness::start(|_| {}).await;
    topic(&harness, "t", 2, json!({})).await;
    assert_eq!(send(&harness, "", plain()).await.expect(400).code(), "invalid-parameter");
    assert_eq!(send(&harness, "?partition=2", plain()).await.expect(422).code(), "invalid-record");
    send(&harness, "?partition=0&results=all", plain()).await.expect(400);
    let request = || harness.request(Method::POST, "/v1/topics/t/records?partition=0").header("content-type", MEDIA);
    harness.send(request().header("idempotency-key", "1").body(plain())).await.expect(400);
    harness.send(request().header("expected-offset", "1").body(plain())).await.expect(412);
    let producer = harness.json(Method::POST, "/v1/producers", &json!({})).await.expect(200).json();
    let id = ProducerId(producer["producer_id"].as_i64().expect("an id"));
    let new = NewBatch { producer: Some((id, ProducerEpoch(0), Sequence(0))), ..NewBatch::default() };
    let numbered = batch(new, &["1"]);
    send(&harness, "?partition=0", numbered.clone()).await.expect(200);
    let again = send(&harness, "?partition=0", numbered).await.expect(200).json();
    assert_eq!((&again["duplicate"], &again["records"][0]["offset"]), (&json!(true), &json!(0)));
    send(&harness, "?partition=0&acks=none", plain()).await.expect(202);
}

#[tokio::test]
async fn more_records_than_a_request_may_have_are_refused_by_the_limit() {
    let harness = Harness::start(|_| {}).await;
    harness.topic("t").await;
    let half = batch(NewBatch { compression: Compression::Zstd, ..NewBatch::default() }, &[""; 50_001]);
    send(&harness, "?partition=0", half.clone()).await.expect(200);
    let answer = send(&harness, "?partition=0", half.repeat(2)).await.expect(413).json();
    assert_eq!((&answer["limit"], &answer["limit_value"]), (&json!("REQUEST_RECORDS_MAX"), &json!(100_000)));
    assert_eq!(count(&harness, "t").await, 50_001);
}
