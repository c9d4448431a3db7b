//! The answer to a transaction of one request, as its coordinator keeps it for the request's `Idempotency-Key`.
//!
//! All numbers are big-endian. Version u8 = 1; count u16 of topics, each a length u16 and the name; count u32 of runs, each
//! topic u16, partition u32 and offset u64; count u32 of records, each run u32 and time i64. A run is what went to one
//! partition: its records have one offset after the other, in the order of the request.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use levada_model::{Offset, PartitionIndex, Timestamp, TopicName};

use super::super::terms::ExecutedRecord;
use crate::Placed;

const VERSION: u8 = 1;
const COUNTS_BYTES: usize = 1 + 2 + 4 + 4;
const RUN_BYTES: usize = 2 + 4 + 8;
const RECORD_BYTES: usize = 4 + 8;

/// The bytes that an answer takes at most: these topics, with how many records and to how many partitions these may go.
pub(super) fn size_bytes_max<'a>(topics: impl Iterator<Item = (&'a TopicName, usize, usize)>) -> usize {
    let one = |(name, records, partitions): (&TopicName, usize, usize)| {
        2 + name.as_str().len() + records.min(partitions) * RUN_BYTES + records * RECORD_BYTES
    };
    COUNTS_BYTES + topics.map(one).sum::<usize>()
}

/// The answer as it is kept.
pub(super) fn encode(records: &[ExecutedRecord]) -> Bytes {
    let mut topics: Vec<&TopicName> = Vec::new();
    let mut runs: Vec<(usize, PartitionIndex, Offset)> = Vec::new();
    let mut topic_of = std::collections::HashMap::new();
    let mut run_of = std::collections::HashMap::new();
    let mut places = Vec::with_capacity(records.len());
    for ExecutedRecord { topic, placed } in records {
        let topic = *topic_of.entry(topic).or_insert_with(|| {
            topics.push(topic);
            topics.len() - 1
        });
        let run = *run_of.entry((topic, placed.partition)).or_insert_with(|| {
            runs.push((topic, placed.partition, placed.offset.expect("it was waited for")));
            runs.len() - 1
        });
        places.push((run, placed.timestamp));
    }
    let mut bytes = BytesMut::new();
    bytes.put_u8(VERSION);
    bytes.put_u16(u16::try_from(topics.len()).expect("an answer is bounded"));
    for topic in topics {
        let name = topic.as_str();
        bytes.put_u16(u16::try_from(name.len()).expect("names are short"));
        bytes.put_slice(name.as_bytes());
    }
    bytes.put_u32(u32::try_from(runs.len()).expect("an answer is bounded"));
    for (topic, partition, offset) in runs {
        bytes.put_u16(u16::try_from(topic).expect("counted above"));
        bytes.put_u32(partition.0);
        bytes.put_u64(offset.0);
    }
    bytes.put_u32(u32::try_from(places.len()).expect("an answer is bounded"));
    for (run, timestamp) in places {
        bytes.put_u32(u32::try_from(run).expect("counted above"));
        bytes.put_i64(timestamp.0);
    }
    bytes.freeze()
}

/// The answer that was kept; none if it is of another version.
pub(super) fn decode(mut bytes: Bytes) -> Option<Vec<ExecutedRecord>> {
    if bytes.try_get_u8().ok()? != VERSION {
        return None;
    }
    let mut topics = Vec::new();
    for _ in 0..bytes.try_get_u16().ok()? {
        let length = usize::from(bytes.try_get_u16().ok()?);
        let name = (length <= bytes.len()).then(|| bytes.split_to(length))?;
        topics.push(TopicName::new(std::str::from_utf8(&name).ok()?).ok()?);
    }
    let mut runs = Vec::new();
    for _ in 0..bytes.try_get_u32().ok()? {
        let topic = topics.get(usize::from(bytes.try_get_u16().ok()?))?;
        let partition = PartitionIndex(bytes.try_get_u32().ok()?);
        runs.push((topic, partition, Offset(bytes.try_get_u64().ok()?)));
    }
    let mut records = Vec::new();
    for _ in 0..bytes.try_get_u32().ok()? {
        let run = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
        let (topic, partition, offset) = runs.get_mut(run)?;
        let timestamp = Timestamp(bytes.try_get_i64().ok()?);
        let placed = Placed { partition: *partition, offset: Some(*offset), timestamp };
        *offset = offset.advance(1);
        records.push(ExecutedRecord { topic: topic.clone(), placed });
    }
    bytes.is_empty().then_some(records)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::{any, prop, proptest};
    use proptest::prop_assert_eq;

    use super::*;

    proptest! {
        #[test]
        fn what_is_kept_is_read_back_and_within_its_bound(
            records in prop::collection::vec((0..3_usize, 0..4_u32, any::<i64>()), 0..50),
            first in 0..1_000_u64,
        ) {
            let names = ["a", "longer.name", "c"].map(|name| TopicName::new(name).expect("a name"));
            let mut next = BTreeMap::new();
            let records: Vec<_> = records
                .into_iter()
                .map(|(topic, partition, time)| {
                    let next = next.entry((topic, partition)).or_insert(first + u64::from(partition));
                    *next += 1;
                    let offset = Some(Offset(*next - 1));
                    let placed = Placed { partition: PartitionIndex(partition), offset, timestamp: Timestamp(time) };
                    ExecutedRecord { topic: names[topic].clone(), placed }
                })
                .collect();
            let kept = encode(&records);
            let counts = names.iter().filter_map(|name| {
                let count = records.iter().filter(|record| record.topic == *name).count();
                (count > 0).then_some((name, count, 4))
            });
            assert!(kept.len() <= size_bytes_max(counts));
            prop_assert_eq!(decode(kept), Some(records));
        }

        #[test]
        fn no_bytes_stop_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(decode(bytes.into()));
        }
    }
}
