//! Many records through modules of each world, compared with a native computation.
//!
//! 50,000 of them; with `LEVADA_SOAK` a million.

use std::collections::BTreeMap;

use bytes::Bytes;
use levada_extension::{
    AssignorInput, AssignorMember, AssignorPartition, AssignorTopic, CallBatch, CallSection, Group, Groups, Moment,
    Murmur2, Partitioner, TopicPartition, Verdicts,
};
use levada_fixtures::{EVERYTHING, KEYS};
use levada_model::{MemberId, PartitionIndex, Record, Timestamp, TopicId, TopicName};
use uuid::Uuid;

use crate::support::Bench;

const CONFIG: &str = r#"{"at_least":500}"#;
/// Records of one call.
const CALL_RECORDS: u64 = 1_000;

fn count() -> u64 {
    if std::env::var_os("LEVADA_SOAK").is_some() { 1_000_000 } else { 50_000 }
}

/// The number in a record; some have none.
fn number(record: u64) -> Option<u64> {
    let scrambled = record.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (!scrambled.is_multiple_of(50)).then_some(scrambled % 1_000)
}

fn topic() -> TopicName {
    TopicName::new("t").expect("a name")
}

/// The records from one on, as many as a call has.
fn batch(first: u64) -> CallBatch {
    let record = |record: u64| {
        let value = number(record).map_or_else(|| "words".to_owned(), |n| format!("{{\"n\":{n}}}"));
        (
            Timestamp(5),
            Record { key: Some(Bytes::from(record.to_string())), value: Some(value.into()), headers: vec![] },
        )
    };
    let records: Vec<_> = (first..first + CALL_RECORDS).map(record).collect();
    let sections = vec![CallSection::unstored(topic(), PartitionIndex(0), &records)];
    CallBatch { moment: moment(), sections }
}

fn moment() -> Moment {
    Moment { time: Timestamp(1), seed: 2 }
}

fn calls() -> impl Iterator<Item = u64> {
    (0..count() / CALL_RECORDS).map(|call| call * CALL_RECORDS)
}

#[test]
fn a_filter_keeps_what_native_code_keeps() {
    let bench = Bench::new();
    let transform = bench.module(EVERYTHING).transform(CONFIG).expect("a transform");
    for first in calls() {
        let kept = |place: &u32| number(first + u64::from(*place)).is_some_and(|n| n >= 500);
        let expected = (0..u32::try_from(CALL_RECORDS).expect("small")).filter(kept).collect();
        assert_eq!(transform.transform(&batch(first)), Ok(Verdicts::Keep(expected)), "from {first} on");
    }
}

#[test]
fn a_partitioner_places_keys_as_native_code_does() {
    let bench = Bench::new();
    let keys = bench.module(KEYS).partitioner("{}").expect("a partitioner");
    for first in calls() {
        let texts: Vec<_> = (first..first + CALL_RECORDS).map(|key| format!("key-{key}")).collect();
        let given: Vec<Option<&[u8]>> = texts.iter().map(|text| Some(text.as_bytes())).collect();
        assert_eq!(keys.partition(&given, 37), Murmur2::default().partition(&given, 37), "from {first} on");
    }
}

#[test]
fn an_aggregator_adds_up_what_native_code_does() {
    const GROUPS: u64 = 10;
    let bench = Bench::new();
    let aggregator = bench.module(EVERYTHING).aggregator(CONFIG).expect("an aggregator");
    let group = |key: u64, accumulators, records| Group { key: key.to_string(), window: None, accumulators, records };
    let mut accumulators: BTreeMap<u64, Bytes> = BTreeMap::new();
    for first in calls() {
        let of = |key: u64| {
            let records = (0..CALL_RECORDS).filter(|place| (first + place) % GROUPS == key);
            records.map(|place| u32::try_from(place).expect("small")).collect()
        };
        let groups = (0..GROUPS).map(|key| group(key, accumulators.get(&key).cloned().into_iter().collect(), of(key)));
        let groups = Groups { moment: moment(), groups: groups.collect() };
        let folded = aggregator.fold(&groups, &batch(first), false).expect("an answer");
        accumulators = (0..).zip(folded).collect();
    }
    let groups = accumulators.into_iter().map(|(key, accumulator)| group(key, vec![accumulator], vec![]));
    let values = aggregator.result(&Groups { moment: moment(), groups: groups.collect() }).expect("an answer");
    let sum = |key| (0..count()).filter(|record| record % GROUPS == key).filter_map(number).sum::<u64>();
    let found = values.iter().map(|value| serde_json::from_slice::<f64>(value.as_ref().expect("a row")).expect("JSON"));
    let expected: Vec<_> = (0..GROUPS).map(|key| f64::from(u32::try_from(sum(key)).expect("below 2^32"))).collect();
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn an_assignor_shares_out_partitions_as_native_code_does() {
    const PARTITIONS: u32 = 1_000;
    let bench = Bench::new();
    let assignor = bench.module(EVERYTHING).assignor("module:everything", CONFIG).expect("an assignor");
    let topics: Vec<_> =
        (1..=5_u32).map(|number| (TopicId(Uuid::from_u128(number.into())), format!("t{number}"))).collect();
    for round in 0..count() / (u64::from(PARTITIONS) * 5) {
        // Each member leaves out another topic.
        let readers = |topic: usize| move |member: &usize| !(member + topic).is_multiple_of(3);
        let member = |member: usize| AssignorMember {
            member_id: MemberId::new(&format!("m{member}")).expect("an id"),
            instance_id: None,
            subscribed: (0..topics.len())
                .filter(|topic| readers(*topic)(&member))
                .map(|topic| topics[topic].0)
                .collect(),
            owned: vec![],
        };
        let members = 3 + usize::try_from(round % 6).expect("small");
        let partition = |partition| AssignorPartition { partition: PartitionIndex(partition), lag: Some(round) };
        let topic = |(topic, name): &(TopicId, String)| AssignorTopic {
            topic: *topic,
            name: TopicName::new(name).expect("a name"),
            partitions: (0..PARTITIONS).map(partition).collect(),
        };
        let input = AssignorInput::new((0..members).map(member).collect(), topics.iter().map(topic).collect());
        let mut expected = vec![Vec::new(); members];
        for (place, (topic, _)) in topics.iter().enumerate() {
            let readers: Vec<_> = (0..members).filter(readers(place)).collect();
            for partition in 0..PARTITIONS {
                let reader = readers[partition as usize % readers.len()];
                expected[reader].push(TopicPartition { topic: *topic, partition: PartitionIndex(partition) });
            }
        }
        assert_eq!(assignor.assign(&input), Ok(expected), "round {round}");
    }
}
