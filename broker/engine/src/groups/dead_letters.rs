//! Records that a member cannot process, copied to the dead letters of their topic: `<topic>.dead-letter`.
//!
//! A dead letter has the record's key, value and headers, and behind these headers that say where it came from and why:
//! `error`, `original_topic`, `original_partition`, `original_offset`, `original_timestamp` (milliseconds since 1970),
//! `group`, and `attempts` where that is known. Of a record that was a dead letter before (it has an `original_topic`) the
//! old ones are replaced, so that each is there once; all others stay, `redrive_count` among them, by which a redrive
//! knows that it goes in circles.
//!
//! Each is stored under an idempotency key of group, topic id, partition and offset: asking again answers the first
//! places.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use levada_coordinator::Holding;
use levada_extension::Partitioner;
use levada_log::{BatchBuf, BatchBuilder, NewBatch, RecordRef, SequenceCheck};
use levada_model::{
    GroupName, Header, MemberId, Offset, Operation, PartitionIndex, Principal, Record, Resource, Timestamp, TopicId,
    TopicName,
};

use super::terms::{GroupCommitted, GroupError, RejectRecords};
use crate::catalog::{Topic, TopicState};
use crate::engine::Core;
use crate::fetch::{FetchError, Reading};
use crate::heavy::{Work, compute};
use crate::partition::NewAppend;
use crate::produce::{check_replicas, keyed_producer, landings};
use crate::{Acks, AppendFault, CreateTopic, Engine, Isolation, TopicError};

/// Headers that say where a dead letter came from.
const ORIGIN_HEADERS: [&str; 8] = [
    "error",
    "original_topic",
    "original_partition",
    "original_offset",
    "original_timestamp",
    "group",
    "module",
    "attempts",
];

/// A record's place.
type RecordPlace = (TopicName, PartitionIndex, Offset);

impl Engine {
    /// Copies records that the member cannot process to `<topic>.dead-letter`, each once however often it is asked for;
    /// answers where they are, in order. The member must hold their partitions. Commits nothing.
    ///
    /// # Errors
    /// See [`GroupError`]; [`GroupError::Offsets`] names the places where there is no record. When storing fails for
    /// some, others may be stored; asking again is safe.
    pub async fn reject(
        &self,
        who: &Principal,
        group: &GroupName,
        member: &MemberId,
        reject: RejectRecords,
    ) -> Result<Vec<RecordPlace>, GroupError> {
        self.core.authorize(who, Operation::Read, Resource::Group(group))?;
        let holdings = self.core.holdings(group, member).await?;
        let mut sources = BTreeMap::new();
        let mut refused = Vec::new();
        for (topic, partition, _) in &reject.records {
            let is_it = |held: &&Holding| held.topic == *topic && held.partition.partition == *partition;
            match holdings.iter().find(is_it) {
                Some(held) => drop(sources.insert(topic.clone(), held.partition.topic)),
                None => {
                    refused.push((topic.clone(), *partition, "the member does not hold the partition".to_owned()));
                }
            }
        }
        if !refused.is_empty() {
            return Err(GroupError::IllegalGeneration(GroupCommitted { committed: Vec::new(), refused }));
        }
        let mut names = BTreeMap::new();
        for topic in sources.keys() {
            let name = dead_letters_of(topic)?;
            self.core.authorize(who, Operation::Write, Resource::Topic(&name))?;
            names.insert(topic.clone(), name);
        }
        let letters = self.core.read_rejected(group, &reject, &sources).await?;
        let mut topics = BTreeMap::new();
        for (topic, name) in names {
            let dead_letters = self.core.ensure_dead_letters(&topic, name).await?;
            topics.insert(topic, dead_letters);
        }
        self.core.store_dead_letters(&topics, letters).await
    }
}

/// A dead letter on its way.
struct Letter {
    /// Where its record was.
    from: RecordPlace,
    record: Record,
    /// What makes it the same when it is asked for again.
    key: Vec<u8>,
}

impl Core {
    /// The records, as the dead letters that they will be. Each batch is read and unpacked once.
    async fn read_rejected(
        &self,
        group: &GroupName,
        reject: &RejectRecords,
        sources: &BTreeMap<TopicName, TopicId>,
    ) -> Result<Vec<Letter>, GroupError> {
        let mut order: Vec<_> = (0..reject.records.len()).collect();
        order.sort_by_key(|i| &reject.records[*i]);
        let mut found = BTreeMap::new();
        let mut rest = &order[..];
        while let Some(first) = rest.first() {
            let (topic, partition, from) = &reject.records[*first];
            let (records, end) = self.read_batch(sources[topic], *partition, *from).await?;
            let is_in = |i: &&usize| {
                let (other, index, offset) = &reject.records[**i];
                other == topic && index == partition && *offset < end
            };
            let here;
            (here, rest) = rest.split_at(rest.iter().take_while(is_in).count().max(1));
            for i in here {
                let offset = reject.records[*i].2;
                let record = records.binary_search_by_key(&offset, |record| record.offset);
                let record = record.map(|at| (records[at].record.clone(), records[at].timestamp));
                found.insert(*i, record.map_err(|_| format!("there is no record at offset {offset}")));
            }
        }
        let (mut letters, mut faults) = (Vec::with_capacity(found.len()), Vec::new());
        for ((i, record), from) in found.into_iter().zip(&reject.records) {
            match record {
                Ok((record, time)) => {
                    let key = format!("reject {group} {} {} {}", sources[&from.0], from.1, from.2).into_bytes();
                    letters.push(Letter {
                        from: from.clone(),
                        record: dead_letter(record, time, group, from, reject),
                        key,
                    });
                }
                Err(fault) => faults.push((i, fault)),
            }
        }
        if faults.is_empty() { Ok(letters) } else { Err(GroupError::Offsets(faults)) }
    }

    /// The records of the batch that holds an offset, from there on, and the offset behind them; none if there is none.
    async fn read_batch(
        &self,
        topic: TopicId,
        index: PartitionIndex,
        from: Offset,
    ) -> Result<(Vec<RecordRef>, Offset), GroupError> {
        let none = (Vec::new(), from);
        let Some(topic) = self.catalog.topics().by_id(topic).cloned() else { return Ok(none) };
        let Some(partition) = topic.state().partition(index).cloned() else { return Ok(none) };
        let reading = Reading { core: self, topic: &topic, partition: &partition, isolation: Isolation::ReadCommitted };
        match reading.read(from, usize::MAX, 1).await {
            Ok(mut fetched) => {
                let end = fetched.next_offset;
                let bytes = fetched.batches.iter().map(|batch| batch.bytes().len()).sum();
                // One that cannot be unpacked has no records that could be set aside.
                let unpack = move || fetched.take_records().filter_map(Result::ok).collect();
                Ok((compute(Work::Unpack, bytes, unpack).await, end))
            }
            Err(FetchError::Closing) => Err(GroupError::Closing),
            Err(FetchError::Storage(error)) => Err(GroupError::Storage(error)),
            Err(_) => Ok(none),
        }
    }

    async fn ensure_dead_letters(self: &Arc<Self>, of: &TopicName, name: TopicName) -> Result<Arc<Topic>, GroupError> {
        let new = CreateTopic { name, partitions: 1, config: BTreeMap::new() };
        self.ensure_topic(new).await.map_err(|error| match error {
            TopicError::Closing => GroupError::Closing,
            TopicError::OutOfFiles => GroupError::Overloaded,
            TopicError::Fenced { reason, possible } => GroupError::Fenced { reason, possible },
            error => GroupError::DeadLetters { topic: of.clone(), reason: error.to_string() },
        })
    }

    /// Stores the letters, one append a partition; answers where each is.
    async fn store_dead_letters(
        &self,
        topics: &BTreeMap<TopicName, Arc<Topic>>,
        letters: Vec<Letter>,
    ) -> Result<Vec<RecordPlace>, GroupError> {
        let now = self.directory.now();
        let mut appends: BTreeMap<_, (Vec<usize>, Vec<BatchBuf>)> = BTreeMap::new();
        let states: BTreeMap<_, _> = topics.iter().map(|(of, topic)| (of, topic.state_full())).collect();
        for (i, letter) in letters.iter().enumerate() {
            let (of, topic) = topics.get_key_value(&letter.from.0).expect("there is one for each");
            let state = &states[of];
            let (places, batches) = appends.entry((of, place(topic, state, letter))).or_default();
            places.push(i);
            batches.push(batch(topic, state, letter, now));
        }
        let mut answers = Vec::with_capacity(appends.len());
        for ((of, index), (places, batches)) in appends {
            let failed = |fault: &AppendFault| not_stored(of, fault);
            check_replicas(&states[of], Acks::All)
                .map_err(|error| GroupError::DeadLetters { topic: of.clone(), reason: error.to_string() })?;
            let partition = states[of].partition(index).expect("letters are placed in active partitions");
            let keyless = places.iter().any(|i| letters[*i].record.key.is_none());
            let append = NewAppend { batches, check: SequenceCheck::Key, expected_offset: None, keyless };
            let answer = partition.push(append).map_err(|fault| failed(&fault))?;
            answers.push((of, index, places, answer));
        }
        let mut stored = vec![None; letters.len()];
        for (of, index, places, answer) in answers {
            let landings = landings(answer).await;
            for (i, place) in places.into_iter().enumerate() {
                // An owner that panicked answers once for all.
                let landed = landings.get(i).or(landings.last()).expect("it answers each batch").as_ref();
                let landed = landed.map_err(|fault| not_stored(of, fault))?;
                self.directory.counters().dead_letters.add(u64::from(!landed.duplicate));
                stored[place] = Some((topics[of].name().clone(), index, landed.base_offset));
            }
        }
        Ok(stored.into_iter().map(|place| place.expect("each letter is in one append")).collect())
    }
}

fn dead_letters_of(topic: &TopicName) -> Result<TopicName, GroupError> {
    let cannot = |reason| GroupError::DeadLetters { topic: topic.clone(), reason };
    if topic.is_internal() {
        return Err(cannot("it is the broker's own topic".to_owned()));
    }
    TopicName::new(&format!("{topic}.dead-letter")).map_err(|error| cannot(error.to_string()))
}

/// The record with its headers of origin.
fn dead_letter(
    mut record: Record,
    time: Timestamp,
    group: &GroupName,
    (topic, partition, offset): &RecordPlace,
    reject: &RejectRecords,
) -> Record {
    if record.headers.iter().any(|header| header.name == "original_topic") {
        record.headers.retain(|header| !ORIGIN_HEADERS.contains(&header.name.as_str()));
    }
    let mut add = |name: &str, value: String| {
        record.headers.push(Header { name: name.to_owned(), value: Some(Bytes::from(value)) });
    };
    add("error", reject.reason.clone());
    add("original_topic", topic.to_string());
    add("original_partition", partition.to_string());
    add("original_offset", offset.to_string());
    add("original_timestamp", time.0.to_string());
    add("group", group.to_string());
    if let Some(attempts) = reject.attempts {
        add("attempts", attempts.to_string());
    }
    record
}

/// The partition of a letter: by the record's key, else by its own, so that it goes where it went before.
fn place(topic: &Topic, state: &TopicState, letter: &Letter) -> PartitionIndex {
    let key = letter.record.key.as_deref().unwrap_or(&letter.key);
    topic.partitioner().partition(&[Some(key)], state.active_count)[0]
}

/// A letter as a batch of its own. It may be larger than `max.message.bytes` by its headers of origin: a record that was
/// taken once is never too large to be set aside.
fn batch(topic: &Topic, state: &TopicState, letter: &Letter, now: Timestamp) -> BatchBuf {
    // The key says all: another reason is no other letter.
    let producer = Some(keyed_producer(&Principal::broker(), topic, &letter.key, [0; 32]));
    let new = NewBatch { compression: state.config.compression, producer, ..NewBatch::default() };
    let mut builder = BatchBuilder::new(new, letter.record.size_bytes());
    builder.push(now, &letter.record);
    builder.finish().expect("compressing into memory does not fail")
}

fn not_stored(of: &TopicName, fault: &AppendFault) -> GroupError {
    match fault {
        AppendFault::Closing => GroupError::Closing,
        AppendFault::Overloaded(_) | AppendFault::OutOfFiles(_) => GroupError::Overloaded,
        AppendFault::Fenced { reason, possible } => GroupError::Fenced { reason: reason.clone(), possible: *possible },
        AppendFault::Refused(_) | AppendFault::TopicDeleted | AppendFault::Retiring(_) | AppendFault::Keyless(_) => {
            GroupError::DeadLetters { topic: of.clone(), reason: fault.to_string() }
        }
    }
}
