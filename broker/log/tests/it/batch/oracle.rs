//! Another codec (the crate `kafka-protocol`, with the reference LZ4) reads what ours wrote, and ours what it wrote.

use bytes::BytesMut;
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records as other;
use levada_log::{NewBatch, RecordRef};
use levada_model::{Compression, Header, LeaderEpoch, Offset, Record, Timestamp, TimestampType};
use proptest::prelude::{ProptestConfig, Strategy, prop_assert_eq, proptest};
use proptest::sample::select;

use super::{build, check, parse, parse_buf, some_records};

/// The other codec's zstd is the same C library as ours, so it is left out.
const SHARED: [Compression; 4] = [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4];

/// Records as the other codec can hold them: a header's name comes once, and times are after 1970.
fn some_plain_records() -> impl Strategy<Value = Vec<(Timestamp, Record)>> {
    some_records().prop_map(|mut records| {
        for (timestamp, record) in &mut records {
            timestamp.0 = timestamp.0.rem_euclid(1 << 44);
            for (index, header) in record.headers.iter_mut().enumerate() {
                header.name = format!("{index}{}", header.name);
            }
        }
        records
    })
}

fn their_compression(compression: Compression) -> other::Compression {
    match compression {
        Compression::None => other::Compression::None,
        Compression::Gzip => other::Compression::Gzip,
        Compression::Snappy => other::Compression::Snappy,
        Compression::Lz4 => other::Compression::Lz4,
        Compression::Zstd => other::Compression::Zstd,
    }
}

fn to_theirs(offset: u64, timestamp: Timestamp, record: &Record) -> other::Record {
    let headers: IndexMap<_, _> =
        record.headers.iter().map(|h| (StrBytes::from_string(h.name.clone()), h.value.clone())).collect();
    other::Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: 4,
        producer_id: 77,
        producer_epoch: 2,
        timestamp_type: other::TimestampType::Creation,
        offset: offset.cast_signed(),
        sequence: i32::try_from(offset).expect("small"),
        timestamp: timestamp.0,
        key: record.key.clone(),
        value: record.value.clone(),
        headers,
    }
}

fn to_ours(theirs: other::Record) -> RecordRef {
    let headers = theirs.headers.into_iter().map(|(name, value)| Header { name: name.to_string(), value }).collect();
    RecordRef {
        offset: Offset(theirs.offset.cast_unsigned()),
        timestamp: Timestamp(theirs.timestamp),
        timestamp_type: TimestampType::CreateTime,
        record: Record { key: theirs.key, value: theirs.value, headers },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_we_write_the_other_codec_reads(compression in select(&SHARED), records in some_plain_records()) {
        let batch = build(NewBatch { compression, ..NewBatch::default() }, &records).stamp(Offset(9), LeaderEpoch(4));
        let theirs = other::RecordBatchDecoder::decode(&mut batch.bytes().clone()).expect("a batch");
        prop_assert_eq!(theirs.compression, their_compression(compression));
        let ours: Result<Vec<_>, _> = batch.records().expect("unpacks").collect();
        prop_assert_eq!(theirs.records.into_iter().map(to_ours).collect::<Vec<_>>(), ours.expect("well-formed"));
    }

    #[test]
    fn what_the_other_codec_writes_we_read(compression in select(&SHARED), records in some_plain_records()) {
        let theirs: Vec<_> = records.iter().zip(0..).map(|((time, record), offset)| to_theirs(offset, *time, record)).collect();
        let options = other::RecordEncodeOptions { version: 2, compression: their_compression(compression) };
        let mut bytes = BytesMut::new();
        other::RecordBatchEncoder::encode(&mut bytes, &theirs, &options).expect("encodes");
        let batch = parse(&bytes).expect("one batch");
        prop_assert_eq!(batch.header().size_bytes, bytes.len());
        check(&parse_buf(&bytes), 1 << 20).expect("dense and well-formed");
        let ours: Result<Vec<_>, _> = batch.records().expect("unpacks").collect();
        prop_assert_eq!(ours.expect("well-formed"), theirs.into_iter().map(to_ours).collect::<Vec<_>>());
    }
}
