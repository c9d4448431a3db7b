//! Bytes written out from the published format (KIP-98), so that both sides of a round trip cannot be wrong together.
//! Their CRCs were computed apart from this code, bit by bit.

use bytes::Bytes;
use levada_log::{BatchHeader, CoordinatorEpoch, HEADER_BYTES, Marker, NewBatch, RecordRef, TransactionEnd};
use levada_model::{
    Compression, Header, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Record, Sequence, Timestamp, TimestampType,
};

use super::{build, parse};

#[rustfmt::skip]
const TWO_RECORDS: [u8; 87] = [
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x2a, // base offset 42
    0x00, 0x00, 0x00, 0x4b,                         // 75 bytes follow
    0x00, 0x00, 0x00, 0x07,                         // leader epoch 7
    0x02,                                           // magic
    0xe8, 0x03, 0xe1, 0x7f,                         // CRC-32C of what follows
    0x00, 0x00,                                     // attributes
    0x00, 0x00, 0x00, 0x01,                         // last offset delta 1
    0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x00, // base timestamp 1700000000000
    0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x96, // max timestamp 150 ms later
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // no producer id,
    0xff, 0xff,                                     // epoch
    0xff, 0xff, 0xff, 0xff,                         // or sequence
    0x00, 0x00, 0x00, 0x02,                         // two records
    0x12, 0x00, 0x00, 0x00,                         // length 9, attributes, timestamp delta 0, offset delta 0
    0x02, 0x6b,                                     // key "k"
    0x04, 0x76, 0x30,                               // value "v0"
    0x00,                                           // no headers
    0x1e, 0x00, 0xac, 0x02, 0x02,                   // length 15, attributes, timestamp delta 150, offset delta 1
    0x01,                                           // key null
    0x00,                                           // value empty
    0x04,                                           // two headers
    0x02, 0x68, 0x01,                               // "h" = null
    0x04, 0xc3, 0xa9, 0x02, 0xff,                   // "é" = ff
];

/// A commit marker: the key says version 0 and type 1, the value version 0 and coordinator epoch 5.
#[rustfmt::skip]
const COMMIT_MARKER: [u8; 78] = [
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x64, 0x00, 0x00, 0x00, 0x42, 0x00, 0x00, 0x00, 0x00, 0x02,
    0x06, 0xb5, 0xa3, 0x23, // CRC-32C
    0x00, 0x30,             // attributes: transactional, control
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x00, 0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09, 0x00, 0x03, 0xff, 0xff, 0xff, 0xff, // producer 9, epoch 3, no sequence
    0x00, 0x00, 0x00, 0x01,
    0x20, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x01, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05, 0x00,
];

/// One record out of a batch of four offsets, as a broker other than ours sent it: the example in the documentation of
/// the crate `kafka-protocol`, with its CRC.
#[rustfmt::skip]
const COMPACTED: [u8; 79] = [
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x43, 0x00, 0x00, 0x00, 0x00, 0x02, // base offset 0, 67 bytes follow, leader epoch 0, magic
    0x73, 0x6d, 0x29, 0x7b, // CRC-32C
    0x00, 0x00, 0x00, 0x00, 0x00, 0x03, // attributes, last offset delta 3
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, // base and max timestamp
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, // producer 0, epoch 0, sequence 0, one record
    0x22, 0x01, 0xd0, 0x0f, 0x02, // length 17, attributes, timestamp delta 1000, offset delta 1
    0x0a, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x0a, 0x77, 0x6f, 0x72, 0x6c, 0x64, 0x00, // "hello" = "world"
];

const BASE: Timestamp = Timestamp(1_700_000_000_000);

fn bytes(text: &'static str) -> Option<Bytes> {
    Some(Bytes::from_static(text.as_bytes()))
}

fn two_records() -> [(Timestamp, Record); 2] {
    let header = |name: &str, value| Header { name: name.to_owned(), value };
    let headers = vec![header("h", None), header("é", Some(Bytes::from_static(b"\xff")))];
    [
        (BASE, Record { key: bytes("k"), value: bytes("v0"), headers: Vec::new() }),
        (Timestamp(BASE.0 + 150), Record { key: None, value: bytes(""), headers }),
    ]
}

fn read(vector: &[u8]) -> Vec<RecordRef> {
    let batch = parse(vector).expect("the CRC is right");
    batch.records().expect("not packed").map(|record| record.expect("well-formed")).collect()
}

#[test]
fn the_written_out_batch_is_read() {
    assert_eq!(
        BatchHeader::parse(&TWO_RECORDS[..HEADER_BYTES]),
        Ok(BatchHeader {
            base_offset: Offset(42),
            size_bytes: 87,
            leader_epoch: LeaderEpoch(7),
            crc: 0xe803_e17f,
            attributes: 0,
            last_offset_delta: 1,
            base_timestamp: BASE,
            max_timestamp: Timestamp(BASE.0 + 150),
            producer_id: None,
            producer_epoch: ProducerEpoch(-1),
            base_sequence: Sequence(-1),
            record_count: 2,
        })
    );
    let expected = two_records().into_iter().zip(42..);
    let expected = expected.map(|((timestamp, record), offset)| RecordRef {
        offset: Offset(offset),
        timestamp,
        timestamp_type: TimestampType::CreateTime,
        record,
    });
    assert_eq!(read(&TWO_RECORDS), expected.collect::<Vec<_>>());
}

#[test]
fn the_builder_writes_the_written_out_batch() {
    let batch = build(NewBatch::default(), &two_records()).stamp(Offset(42), LeaderEpoch(7));
    assert_eq!(batch.bytes()[..], TWO_RECORDS);
}

#[test]
fn the_written_out_marker_is_read_and_written() {
    let batch = parse(&COMMIT_MARKER).expect("the CRC is right");
    assert!(batch.header().is_control() && batch.header().is_transactional());
    assert_eq!(batch.header().base_sequence, Sequence(-1));

    let new = NewBatch {
        compression: Compression::None,
        producer: Some((ProducerId(9), ProducerEpoch(3), Sequence(-1))),
        transactional: true,
        control: true,
    };
    let marker = Record { key: bytes("\0\0\0\x01"), value: bytes("\0\0\0\0\0\x05"), headers: Vec::new() };
    let built = build(new, &[(BASE, marker)]).stamp(Offset(100), LeaderEpoch(0));
    assert_eq!(built.bytes()[..], COMMIT_MARKER);

    let marker = Marker { end: TransactionEnd::Commit, coordinator_epoch: CoordinatorEpoch(5) };
    let built = marker.batch(ProducerId(9), ProducerEpoch(3), BASE).stamp(Offset(100), LeaderEpoch(0));
    assert_eq!((built.bytes().as_ref(), built.control()), (&COMMIT_MARKER[..], Some(marker)));
}

#[test]
fn a_control_batch_that_ends_no_transaction_is_no_marker() {
    let control = |compression, transactional, control, key: &'static str, value: &'static str| {
        let producer = Some((ProducerId(9), ProducerEpoch(3), Sequence(if control { -1 } else { 0 })));
        let record = Record { key: bytes(key), value: bytes(value), headers: Vec::new() };
        let batch = build(NewBatch { compression, producer, transactional, control }, &[(BASE, record)]);
        batch.stamp(Offset(0), LeaderEpoch(0)).control().map(|marker| (marker.end, marker.coordinator_epoch.0))
    };
    let (none, abort, epoch_5) = (Compression::None, "\0\0\0\0", "\0\0\0\0\0\x05");
    assert_eq!(control(none, true, true, abort, epoch_5), Some((TransactionEnd::Abort, 5)));
    // A later version may have more, and begins as this one does.
    assert_eq!(control(none, true, true, abort, "\0\x01\0\0\0\x05more"), Some((TransactionEnd::Abort, 5)));
    for key in ["", "\0\0", "\0\0\0", "\0\0\0\x02", "\0\x01\0\x01"] {
        assert_eq!(control(none, true, true, key, epoch_5), None, "{key:?}");
    }
    for value in ["", "\0\0", "\0\0\0\0\0"] {
        assert_eq!(control(none, true, true, abort, value), None, "{value:?}");
    }
    assert_eq!(control(none, true, false, abort, epoch_5), None, "data");
    assert_eq!(control(none, false, true, abort, epoch_5), None, "of no transaction");
    assert_eq!(control(Compression::Lz4, true, true, abort, epoch_5), None, "packed");
}

#[test]
fn a_batch_that_compaction_thinned_out_is_read_with_its_offsets() {
    let header = *parse(&COMPACTED).expect("the CRC is right").header();
    assert_eq!((header.record_count, header.next_offset()), (1, Offset(4)));
    assert_eq!(header.timestamp_type(), TimestampType::CreateTime);
    let record = Record { key: bytes("hello"), value: bytes("world"), headers: Vec::new() };
    assert_eq!(
        read(&COMPACTED),
        [RecordRef {
            offset: Offset(1),
            timestamp: Timestamp(1000),
            timestamp_type: TimestampType::CreateTime,
            record
        }]
    );
}
