//! Record batches: what goes in comes out, what is not a batch is refused, and nothing that comes in costs more than it
//! weighs.

mod corpus;
mod damage;
mod hostile;
mod oracle;
mod round_trip;
mod vectors;

use bytes::{Bytes, BytesMut};
use levada_log::{Batch, BatchBuf, BatchBuilder, NewBatch, RecordsError};
use levada_model::{Compression, Header, LeaderEpoch, Offset, Record, Timestamp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::sample::select;

const COMPRESSIONS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

/// Where the fields lie that tests write one by one.
const LENGTH_AT: usize = 8;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const RECORDS_AT: usize = 61;

fn build(new: NewBatch, records: &[(Timestamp, Record)]) -> BatchBuf {
    let mut builder = BatchBuilder::new(new, 0);
    for (timestamp, record) in records {
        builder.push(*timestamp, record);
    }
    builder.finish().expect("packs into memory")
}

/// The bytes of a batch, stamped with offset 0 and epoch 0.
fn bytes_of(new: NewBatch, records: &[(Timestamp, Record)]) -> Vec<u8> {
    build(new, records).stamp(Offset(0), LeaderEpoch(0)).bytes().to_vec()
}

fn parse(bytes: &[u8]) -> Result<Batch, levada_log::BatchError> {
    Batch::parse(&mut Bytes::copy_from_slice(bytes))
}

fn parse_buf(bytes: &[u8]) -> BatchBuf {
    BatchBuf::parse(&mut BytesMut::from(bytes)).expect("a batch")
}

/// Checks the records and keeps nothing.
fn check(batch: &BatchBuf, unpacked_bytes_max: usize) -> Result<(), RecordsError> {
    batch.check_records(unpacked_bytes_max, |_| Ok(()))
}

/// Makes length and CRC right again after the bytes were changed.
fn reseal(bytes: &mut [u8]) {
    let length = i32::try_from(bytes.len() - 12).expect("small");
    bytes[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_be_bytes());
    let crc = crc_fast::crc32_iscsi(&bytes[ATTRIBUTES_AT..]);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
}

fn text(value: &str) -> Record {
    Record { value: Some(Bytes::copy_from_slice(value.as_bytes())), ..Record::default() }
}

fn some_bytes(max: usize) -> impl Strategy<Value = Option<Bytes>> {
    option::of(vec(any::<u8>(), 0..max).prop_map(Bytes::from))
}

fn some_record() -> impl Strategy<Value = Record> {
    let header = (".{0,8}", some_bytes(8)).prop_map(|(name, value)| Header { name, value });
    (some_bytes(20), some_bytes(300), vec(header, 0..4)).prop_map(|(key, value, headers)| Record {
        key,
        value,
        headers,
    })
}

fn some_records() -> impl Strategy<Value = Vec<(Timestamp, Record)>> {
    let timestamp = prop_oneof![any::<i64>(), 1_700_000_000_000..1_700_000_100_000_i64].prop_map(Timestamp);
    vec((timestamp, some_record()), 1..20)
}

fn some_compression() -> impl Strategy<Value = Compression> {
    select(&COMPRESSIONS)
}
