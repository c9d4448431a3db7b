//! Runs a module natively, over the very bytes that the broker sends: what is written and read here is what crosses.
//!
//! ```
//! use levada_plugin::testing::{TestRecord, transform};
//! use levada_plugin::{Emitted, Fields, Module, NoConfig, Record, Transform, Verdict};
//!
//! struct Shout;
//!
//! impl Module for Shout {
//!     type Config = NoConfig;
//!     const FIELDS: Fields = Fields::VALUE;
//!
//!     fn new(_: NoConfig) -> Result<Self, String> {
//!         Ok(Self)
//!     }
//! }
//!
//! impl Transform for Shout {
//!     fn transform(&self, record: &Record<'_>) -> Verdict {
//!         match record.value {
//!             Some(value) => Verdict::Replace(Emitted::new().value(value.to_ascii_uppercase())),
//!             None => Verdict::Reject("nothing to shout".to_owned()),
//!         }
//!     }
//! }
//!
//! let outcomes = transform(&Shout, &[TestRecord::value("hello"), TestRecord::default()]);
//! assert_eq!(outcomes[0], Ok(vec![TestRecord::value("HELLO")]));
//! assert_eq!(outcomes[1], Err("nothing to shout".to_owned()));
//! ```

use std::collections::BTreeSet;

use crate::export::glue::{self, Verdicts};
use crate::layout::{
    Batch, GroupRef, Groups, Place, Plain, decode_answers, decode_verdicts, encode_keys, put_group, put_section,
};
use crate::transform::Source;
use crate::{
    Aggregator, Assignor, AssignorInput, Call, Emitted, Fault, Fields, Filter, Group, KeyRecord, Module, Partitioner,
    TopicPartition, Transform, Verdict,
};

/// The clock and the randomness of the calls here.
pub const CALL: Call = Call { time_ms: 1_700_000_000_000, seed: 42 };

/// The topic that the records here are of, in partition 0, with offsets from 0.
pub const TOPIC: &str = "test";

/// A record for a module to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestRecord {
    /// Its key, or none.
    pub key: Option<Vec<u8>>,
    /// Its value; none is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Its headers in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Its time, in milliseconds since 1970 (UTC).
    pub timestamp_ms: i64,
}

impl TestRecord {
    /// A record with this value alone.
    #[must_use]
    pub fn value(value: impl Into<Vec<u8>>) -> Self {
        Self { value: Some(value.into()), ..Self::default() }
    }

    /// A record with this key and value.
    #[must_use]
    pub fn new(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self { key: Some(key.into()), ..Self::value(value) }
    }

    /// A record with this time.
    #[must_use]
    pub fn at(self, timestamp_ms: i64) -> Self {
        Self { timestamp_ms, ..self }
    }
}

/// A module out of its config, as JSON text.
///
/// # Errors
/// When the config is not right, and why.
pub fn module<M: Module>(config: &str) -> Result<M, String> {
    M::new(serde_json::from_str(config).map_err(|error| error.to_string())?)
}

/// Which records a filter keeps.
///
/// # Panics
/// When it has no answer.
pub fn filter<M: Filter>(module: &M, records: &[TestRecord]) -> Vec<bool> {
    let mut kept = vec![false; records.len()];
    match answer(glue::filter(module, &batch::<M>(records))) {
        Verdicts::Keep(places) => places.iter().for_each(|place| kept[*place as usize] = true),
        Verdicts::Each(_) => unreachable!("a filter answers with places"),
    }
    kept
}

/// What a transform makes of each record: the records in its place (the record itself where it passes, none where it is
/// dropped), or the reason why it is rejected.
///
/// # Panics
/// When it has no answer.
pub fn transform<M: Transform>(module: &M, records: &[TestRecord]) -> Vec<Result<Vec<TestRecord>, String>> {
    let Verdicts::Each(bytes) = answer(glue::transform(module, &batch::<M>(records))) else {
        unreachable!("a transform answers with verdicts")
    };
    let verdicts = decode_verdicts(&bytes).expect("a module's answer can be read");
    assert_eq!(verdicts.len(), records.len(), "a verdict for each record");
    let outcome = |(verdict, record): (Verdict, &TestRecord)| match verdict {
        Verdict::Pass => Ok(vec![record.clone()]),
        Verdict::Drop => Ok(vec![]),
        Verdict::Replace(emitted) => Ok(vec![in_place_of(record, emitted)]),
        Verdict::Emit(emitted) => Ok(emitted.into_iter().map(|emitted| in_place_of(record, emitted)).collect()),
        Verdict::Reject(reason) => Err(reason),
    };
    verdicts.into_iter().zip(records).map(outcome).collect()
}

/// Where a partitioner places each record; checked as the broker does.
///
/// # Panics
/// When it has no answer, or places a record beyond the last partition.
pub fn partition<M: Partitioner>(module: &M, records: &[TestRecord], partition_count: u32) -> Vec<u32> {
    let records: Vec<_> = records.iter().map(key_record).collect();
    let keys = encode_keys(TOPIC, CALL, M::FIELDS, &records);
    let partitions = answer(glue::partition(module, &keys, partition_count));
    for (place, partition) in partitions.iter().enumerate() {
        assert!(*partition < partition_count, "record {place} goes to partition {partition} of {partition_count}");
    }
    partitions
}

/// Which partitions an assignor gives to each member; checked as the broker does.
///
/// # Panics
/// When it has no answer, or one that breaks the rules: a list for each member, every partition that somebody reads given
/// to exactly one member, who subscribes to its topic.
pub fn assign<M: Assignor>(module: &M, input: &AssignorInput) -> Vec<Vec<TopicPartition>> {
    let lists = answer(module.assign(input));
    assert_eq!(lists.len(), input.members.len(), "a list for each member");
    let mut given = BTreeSet::new();
    for (member, list) in input.members.iter().zip(&lists) {
        for TopicPartition { topic, partition } in list {
            assert!(
                member.subscribed.contains(topic),
                "{} gets topic {topic}, which it does not read",
                member.member_id
            );
            assert!(given.insert((*topic, *partition)), "partition {partition} of topic {topic} is given twice");
        }
    }
    let read = |topic: &u32| input.members.iter().any(|member| member.subscribed.contains(topic));
    let topics = (0..).zip(&input.topics).filter(|(topic, _)| read(topic));
    let wanted = topics.flat_map(|(topic, of)| of.partitions.iter().map(move |partition| (topic, partition.partition)));
    assert_eq!(given, wanted.collect(), "exactly the partitions that somebody reads");
    lists
}

/// What an aggregator says of one group of records: its value after each, as JSON.
///
/// # Panics
/// When it has no answer.
pub fn aggregate<M: Aggregator>(module: &M, key: &str, records: &[TestRecord]) -> Vec<Option<serde_json::Value>> {
    let places = (0..).take(records.len()).collect();
    let touched = groups(&[GroupRef { group: group(key), accumulators: vec![], places }]);
    let changes = decoded(answer(glue::fold(module, &touched, &batch::<M>(records), true)));
    let changes: Vec<_> = changes.into_iter().map(|change| change.expect("an accumulator is never null")).collect();
    let of_change = |change| GroupRef { group: group(key), accumulators: vec![change], places: vec![] };
    let changed: Vec<GroupRef<'_>> = changes.iter().map(|change| of_change(change.as_slice())).collect();
    let values = decoded(answer(glue::result(module, &groups(&changed))));
    let json = |value: Vec<u8>| serde_json::from_slice(&value).expect("a value is JSON");
    values.into_iter().map(|value| value.map(json)).collect()
}

fn answer<T>(answer: Result<T, Fault>) -> T {
    match answer {
        Ok(answer) => answer,
        Err(Fault::Unsupported) => panic!("the module does not offer this call"),
        Err(Fault::Failed(reason)) => panic!("the module has no answer: {reason}"),
    }
}

fn decoded(bytes: Vec<u8>) -> Vec<Option<Vec<u8>>> {
    decode_answers(&bytes).expect("a module's answer can be read")
}

fn group(key: &str) -> Group<'_> {
    Group { key, window: None, call: CALL }
}

fn groups(groups: &[GroupRef<'_>]) -> Vec<u8> {
    let mut bytes = Groups::head(CALL, groups.len());
    groups.iter().for_each(|group| put_group(&mut bytes, group));
    bytes
}

/// The records as the broker would show them to this module: without the parts that it does not name.
fn batch<M: Module>(records: &[TestRecord]) -> Vec<u8> {
    let place =
        Place { topic: TOPIC, partition: 0, base_offset: 0, base_timestamp_ms: CALL.time_ms, append_time: false };
    let plain: Vec<_> = (0..).zip(records).map(|(offset, record)| plain::<M>(offset, record)).collect();
    let mut bytes = Batch::head(CALL, M::FIELDS, usize::from(!plain.is_empty()));
    if !plain.is_empty() {
        put_section(&mut bytes, &place, &plain);
    }
    bytes
}

fn plain<M: Module>(offset: u64, record: &TestRecord) -> Plain<'_> {
    let has = |part| M::FIELDS.contains(part);
    let record = key_record(record);
    let delta = record.timestamp_ms.wrapping_sub(CALL.time_ms);
    let key = record.key.filter(|_| has(Fields::KEY));
    let value = record.value.filter(|_| has(Fields::VALUE));
    (offset, delta, key, value, if has(Fields::HEADERS) { record.headers } else { vec![] })
}

fn key_record(record: &TestRecord) -> KeyRecord<'_> {
    KeyRecord {
        topic: TOPIC,
        timestamp_ms: record.timestamp_ms,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: record.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect(),
        call: CALL,
    }
}

fn in_place_of(record: &TestRecord, emitted: Emitted) -> TestRecord {
    fn or<T>(part: Source<T>, input: T) -> T {
        match part {
            Source::Given(part) => part,
            Source::Input => input,
        }
    }
    let input = record.clone();
    TestRecord {
        key: or(emitted.key, input.key),
        value: or(emitted.value, input.value),
        headers: or(emitted.headers, input.headers),
        timestamp_ms: or(emitted.timestamp_ms, input.timestamp_ms),
    }
}
