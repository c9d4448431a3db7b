//! What a producer hands over comes back, through every compression.

use bytes::{Bytes, BytesMut};
use levada_log::{Batch, BatchBuf, HEADER_BYTES, NewBatch, RecordRef, RecordsError};
use levada_model::{
    Compression, Header, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Record, Sequence, Timestamp, TimestampType,
};
use proptest::option;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

use super::{build, bytes_of, check, parse, parse_buf, some_compression, some_records, text};

fn some_new_batch() -> impl Strategy<Value = NewBatch> {
    let producer = (0..=i64::MAX, 0..=i16::MAX, 0..=i32::MAX)
        .prop_map(|(id, epoch, first)| (ProducerId(id), ProducerEpoch(epoch), Sequence(first)));
    (some_compression(), option::of(producer), any::<bool>(), any::<bool>()).prop_map(
        |(compression, producer, transactional, control)| NewBatch {
            compression,
            producer,
            transactional: transactional && producer.is_some(),
            control,
        },
    )
}

fn read(batch: &Batch) -> Vec<RecordRef> {
    batch.records().expect("unpacks").map(|record| record.expect("well-formed")).collect()
}

proptest! {
    #[test]
    fn any_records_come_back_as_they_were(
        new in some_new_batch(),
        records in some_records(),
        base_offset in 0..=i64::MAX as u64 - 100,
        leader_epoch in any::<i32>(),
    ) {
        let batch = build(new, &records);
        check(&batch, 1 << 20).expect("dense and well-formed");
        let stamped = batch.stamp(Offset(base_offset), LeaderEpoch(leader_epoch));
        prop_assert_eq!(&parse(stamped.bytes()).expect("the stamp is outside the CRC"), &stamped);

        let header = stamped.header();
        prop_assert_eq!(header.base_offset, Offset(base_offset));
        prop_assert_eq!(header.leader_epoch, LeaderEpoch(leader_epoch));
        prop_assert_eq!(header.size_bytes, stamped.bytes().len());
        prop_assert_eq!(header.compression(), new.compression);
        prop_assert_eq!(header.is_transactional(), new.transactional);
        prop_assert_eq!(header.is_control(), new.control);
        prop_assert_eq!(header.timestamp_type(), TimestampType::CreateTime);
        prop_assert_eq!(header.record_count as usize, records.len());
        prop_assert_eq!(header.next_offset(), Offset(base_offset + records.len() as u64));
        prop_assert_eq!(Some(header.max_timestamp), records.iter().map(|(timestamp, _)| *timestamp).max());
        let producer = header.producer_id.map(|id| (id, header.producer_epoch, header.base_sequence));
        prop_assert_eq!(producer, new.producer);

        let expected = records.into_iter().zip(base_offset..);
        let expected = expected.map(|((timestamp, record), offset)| RecordRef { offset: Offset(offset), timestamp, timestamp_type: TimestampType::CreateTime, record });
        prop_assert_eq!(read(&stamped), expected.collect::<Vec<_>>());
    }

    #[test]
    fn a_check_shows_each_record_as_it_is_read_later(compression in some_compression(), records in some_records()) {
        let batch = build(NewBatch { compression, ..NewBatch::default() }, &records);
        let mut seen = 0;
        batch.check_records::<RecordsError>(1 << 20, |view| {
            let (timestamp, record) = &records[seen];
            assert_eq!(view.index as usize, seen);
            assert_eq!(view.timestamp, *timestamp);
            assert_eq!((view.key, view.value), (record.key.as_deref(), record.value.as_deref()));
            assert_eq!((view.header_count, view.size_bytes), (record.headers.len(), record.size_bytes()));
            seen += 1;
            Ok(())
        }).expect("dense and well-formed");
        prop_assert_eq!(seen, records.len());
    }

    #[test]
    fn append_time_replaces_the_time_of_every_record_and_nothing_else(
        compression in some_compression(),
        records in some_records(),
        now in any::<i64>(),
    ) {
        let mut batch = build(NewBatch { compression, ..NewBatch::default() }, &records);
        batch.set_append_time(Timestamp(now));
        let batch = batch.stamp(Offset(3), LeaderEpoch(1));
        prop_assert_eq!(&parse(batch.bytes()).expect("the CRC was computed anew"), &batch);
        prop_assert_eq!(batch.header().timestamp_type(), TimestampType::LogAppendTime);
        prop_assert_eq!(batch.header().compression(), compression);
        let read = read(&batch);
        prop_assert!(read.iter().all(|record| record.timestamp == Timestamp(now)));
        let read: Vec<Record> = read.into_iter().map(|record| record.record).collect();
        prop_assert_eq!(read, records.into_iter().map(|(_, record)| record).collect::<Vec<_>>());
    }
}

#[test]
fn null_and_empty_and_repeated_names_stay_what_they_are() {
    let header = |name: &str, value: Option<&'static [u8]>| Header {
        name: name.to_owned(),
        value: value.map(Bytes::from_static),
    };
    let headers = vec![header("h", None), header("", Some(b"\xff\0")), header("h", Some(b"")), header("é", None)];
    let record = Record { key: Some(Bytes::new()), value: None, headers };
    let batch = build(NewBatch::default(), &[(Timestamp(-1), record.clone())]).stamp(Offset(0), LeaderEpoch(0));
    assert_eq!(
        read(&batch),
        [RecordRef { offset: Offset(0), timestamp: Timestamp(-1), timestamp_type: TimestampType::CreateTime, record }]
    );
}

#[test]
fn a_batch_is_taken_from_the_front_and_the_rest_is_left() {
    let new = NewBatch::default();
    let (first, second) = (bytes_of(new, &[(Timestamp(1), text("a"))]), bytes_of(new, &[(Timestamp(2), text("bb"))]));
    let all = [&first[..], &second, b"rest"].concat();

    let mut shared = Bytes::copy_from_slice(&all);
    assert_eq!(Batch::parse(&mut shared).expect("the first").bytes()[..], first);
    assert_eq!(Batch::parse(&mut shared).expect("the second").bytes()[..], second);
    Batch::parse(&mut shared).expect_err("no batch");
    assert_eq!(shared, "rest");

    let mut own = BytesMut::from(&all[..]);
    assert_eq!(BatchBuf::parse(&mut own).expect("the first").header().size_bytes, first.len());
    assert_eq!(BatchBuf::parse(&mut own).expect("the second").header().size_bytes, second.len());
    BatchBuf::parse(&mut own).expect_err("no batch");
    assert_eq!(own, "rest");
}

#[test]
fn a_batch_is_taken_stamped_and_read_without_copying_its_bytes() {
    let mut bytes = BytesMut::from(&bytes_of(NewBatch::default(), &[(Timestamp(1), text("value"))])[..]);
    let place = bytes.as_ptr();
    let batch = BatchBuf::parse(&mut bytes).expect("a batch").stamp(Offset(5), LeaderEpoch(0));
    assert_eq!(batch.bytes().as_ptr(), place);
    let value = read(&batch).remove(0).record.value.expect("a value");
    assert!(batch.bytes().as_ptr_range().contains(&value.as_ptr()));
}

#[test]
fn a_builder_with_room_writes_into_it_once() {
    let record = text(&"x".repeat(1024));
    let records: Vec<_> = (0..100).map(|n| (Timestamp(n), record.clone())).collect();
    let mut builder = levada_log::BatchBuilder::new(NewBatch::default(), 100 * 1040);
    let counted = allocation_counter::measure(|| {
        for (timestamp, record) in &records {
            builder.push(*timestamp, record);
        }
    });
    assert_eq!(counted.count_total, 0, "the values were copied into the buffer that was there");
    assert_eq!(builder.record_count(), 100);
    let size = builder.size_bytes();
    assert_eq!(builder.finish().expect("no codec").header().size_bytes, size);
}

#[test]
fn the_smallest_batch_is_a_head_and_seven_bytes() {
    let bytes = bytes_of(NewBatch::default(), &[(Timestamp(0), Record::default())]);
    assert_eq!(bytes.len(), HEADER_BYTES + 7);
    check(&parse_buf(&bytes), 0).expect("nothing is unpacked");
}

#[test]
#[should_panic(expected = "a batch has at least one record")]
fn a_batch_without_records_is_our_own_mistake() {
    let _ = build(NewBatch { compression: Compression::None, ..NewBatch::default() }, &[]);
}
