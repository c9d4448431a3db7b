//! The records of the benches: values of exactly 100 bytes of JSON, of which about half pass the filter of the fixtures.

use bytes::Bytes;
use levada_log::{BatchBuilder, NewBatch};
use levada_model::{LeaderEpoch, Offset, Record, Timestamp};
use serde::Deserialize;

/// Records of one stored batch.
const BATCH_RECORDS: usize = 1_000;

#[derive(Deserialize)]
struct Body {
    amt: i64,
}

/// The fixture's filter as a native closure has it.
pub(crate) fn passes(value: &[u8]) -> bool {
    serde_json::from_slice::<Body>(value).is_ok_and(|body| body.amt >= 500)
}

/// So many values.
pub(crate) fn values(count: usize) -> Vec<Bytes> {
    let mut random = 0x1234_5678_9abc_def1_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let value = |_| {
        let head = format!("{{\"id\":{},\"type\":\"click\",\"amt\":{}", next() % 90_000_000, next() % 900 + 100);
        let value = format!("{head},\"z\":\"{}\"}}", "x".repeat(100 - head.len() - 8));
        assert_eq!(value.len(), 100);
        Bytes::from(value)
    };
    (0..count).map(value).collect()
}

/// A JSON request of keyed records with these values.
pub(crate) fn request(values: &[Bytes]) -> Vec<u8> {
    let record = |(place, value): (usize, &Bytes)| {
        let value = std::str::from_utf8(value).expect("it is JSON");
        format!(r#"{{"key":"key-{place:012}","value":{value}}}"#)
    };
    let records: Vec<_> = values.iter().enumerate().map(record).collect();
    format!(r#"{{"records":[{}]}}"#, records.join(",")).into_bytes()
}

/// The values as stored batches, in bodies of some MiB.
pub(crate) fn bodies(values: &[Bytes]) -> Vec<Vec<u8>> {
    let batches = values.chunks(BATCH_RECORDS).map(batch).collect::<Vec<_>>();
    batches.chunks(32).map(|some| some.concat()).collect()
}

fn batch(values: &[Bytes]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(NewBatch::default(), 0);
    for (place, value) in values.iter().enumerate() {
        let key = Some(Bytes::from(format!("key-{:012}", place % 100)));
        let record = Record { key, value: Some(value.clone()), headers: Vec::new() };
        builder.push(Timestamp(1_700_000_000_000), &record);
    }
    let built = builder.finish().expect("nothing is compressed");
    built.stamp(Offset(0), LeaderEpoch(0)).bytes().to_vec()
}
