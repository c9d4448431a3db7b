//! What a producer hands over comes back, through every compression.

use bytes::{Bytes, BytesMut};
use levada_log::{Batch, BatchBuf, BatchBuilder, NewBatch, RecordRef, RecordsError};
use levada_model::{Header, LeaderEpoch, Offset, Record, Timestamp};

fn record(key: Option<&str>, value: Option<&str>) -> Record {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    Record { key: key.map(bytes), value: value.map(bytes), headers: Vec::new() }
}

#[test]
fn records_come_back_with_their_offsets_times_and_headers() {
    let mut first = record(Some("k"), Some("value"));
    first.headers = vec![
        Header { name: "h".to_owned(), value: None },
        Header { name: String::new(), value: Some(Bytes::from_static(b"\xff\0")) },
        Header { name: "h".to_owned(), value: Some(Bytes::new()) },
    ];
    let records = [first, record(None, Some("")), record(Some(""), None)];
    let mut builder = BatchBuilder::new(NewBatch::default(), 100);
    for (index, record) in records.iter().enumerate() {
        builder.push(Timestamp(1000 - index as i64), record);
    }
    let mut bytes = BytesMut::from(&builder.finish().expect("no codec").stamp(Offset(0), LeaderEpoch(0)).bytes()[..]);
    bytes.extend_from_slice(b"rest");
    let batch = BatchBuf::parse(&mut bytes).expect("a batch");
    assert_eq!(&bytes[..], b"rest");
    let mut sizes = Vec::new();
    batch
        .check_records::<RecordsError>(0, |view| {
            sizes.push(view.size_bytes);
            Ok(())
        })
        .expect("dense records");
    assert_eq!(sizes, records.iter().map(Record::size_bytes).collect::<Vec<_>>());

    let batch = batch.stamp(Offset(7), LeaderEpoch(3));
    let again = Batch::parse(&mut batch.bytes().clone()).expect("the stamp is outside the CRC");
    assert_eq!(again, batch);
    let read: Vec<_> = again.records().expect("not packed").map(|record| record.expect("well-formed")).collect();
    let expected = records.into_iter().enumerate().map(|(index, record)| RecordRef {
        offset: Offset(7 + index as u64),
        timestamp: Timestamp(1000 - index as i64),
        record,
    });
    assert_eq!(read, expected.collect::<Vec<_>>());
}
