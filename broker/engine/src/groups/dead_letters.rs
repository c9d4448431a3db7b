//! Records that a member cannot process, copied to the dead letters of their topic: `<topic>.dead-letter`.
//!
//! A dead letter has the record's key, value and headers, and behind these headers that say where it came from and why:
//! see `levada_model::dead_letter`. Of a record that was a dead letter before, the run of these headers at its end is
//! replaced, so that each is there once; all others stay, `redrive_count` among them, by which a redrive knows that it goes
//! in circles.
//!
//! Each is stored under an idempotency key of group, topic id, partition and offset: asking again answers the first
//! places.
//!
//! All that is known to be wrong is refused before the first is stored. They are stored portion by portion, so that no
//! append is large, in the order of the rejection.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_coordinator::Holding;
use levada_extension::Partitioner;
use levada_log::{BatchBuf, BatchBuilder, NewBatch, SequenceCheck};
use levada_model::{
    GroupName, MemberId, Operation, PartitionIndex, Principal, Resource, Timestamp, TopicName, dead_letter,
};

use super::rejected::{Letter, RecordPlace};
use super::terms::{GroupCommitted, GroupError, RejectRecords};
use crate::catalog::{Topic, TopicState};
use crate::engine::Core;
use crate::heavy::{Work, compute};
use crate::partition::{NewAppend, Partition};
use crate::produce::{check_replicas, keyed_producer, landings};
use crate::{Acks, AppendFault, CreateTopic, Engine, ProduceError, TopicError};

/// Bytes of letters that are built and stored at once; one letter always is.
const PORTION_BYTES: usize = 4 << 20;

impl Engine {
    /// Copies records that the member cannot process to `<topic>.dead-letter`, each once however often it is asked for;
    /// answers where they are, in order. The member must hold their partitions. Commits nothing.
    ///
    /// # Errors
    /// See [`GroupError`]; [`GroupError::Offsets`] names the places where there is no record. When storing fails after
    /// some were stored it is [`GroupError::InPart`]; asking again is safe.
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

impl Core {
    async fn ensure_dead_letters(self: &Arc<Self>, of: &TopicName, name: TopicName) -> Result<Arc<Topic>, GroupError> {
        let new = CreateTopic { name, partitions: 1, config: BTreeMap::new() };
        self.ensure_topic(new).await.map_err(|error| match error {
            TopicError::Closing => GroupError::Closing,
            error @ TopicError::OutOfFiles => busy(of, &error),
            TopicError::Storage(error) => GroupError::Storage(error),
            TopicError::Fenced { reason, possible } => GroupError::Fenced { reason, possible },
            error => GroupError::DeadLetters { topic: of.clone(), reason: error.to_string() },
        })
    }

    /// Stores the letters; answers where each is.
    async fn store_dead_letters(
        &self,
        topics: &BTreeMap<TopicName, Arc<Topic>>,
        letters: Vec<Letter>,
    ) -> Result<Vec<RecordPlace>, GroupError> {
        check(topics, &letters)?;
        let (mut places, mut is_begun) = (Vec::with_capacity(letters.len()), false);
        for portion in portions(letters) {
            match self.store_portion(topics, portion, &mut is_begun).await {
                Ok(stored) => places.extend(stored),
                Err(error) if is_begun => return Err(GroupError::InPart(Box::new(error))),
                Err(error) => return Err(error),
            }
        }
        Ok(places)
    }

    /// Stores some letters, one append a partition, and waits for all; notes whether any of them is new.
    async fn store_portion(
        &self,
        topics: &BTreeMap<TopicName, Arc<Topic>>,
        letters: Vec<Letter>,
        is_begun: &mut bool,
    ) -> Result<Vec<RecordPlace>, GroupError> {
        let count = letters.len();
        let bytes = letters.iter().map(|letter| letter.record.size_bytes()).sum();
        let (topics, now) = (topics.clone(), self.directory.now());
        let appends = compute(Work::Parse, bytes, move || appends(&topics, &letters, now)).await;
        let (mut answers, mut fault) = (Vec::with_capacity(appends.len()), None);
        for LettersAppend { of, topic, partition, places, append } in appends {
            match partition.push(append) {
                Ok(answer) => answers.push((of, topic, partition.index(), places, answer)),
                Err(refused) => {
                    fault = Some(not_stored(&of, &refused));
                    break;
                }
            }
        }
        let mut stored = vec![None; count];
        for (of, topic, index, places, answer) in answers {
            let landings = landings(answer).await;
            for (i, place) in places.into_iter().enumerate() {
                // An owner that panicked answers once for all.
                match landings.get(i).or(landings.last()).expect("it answers each batch") {
                    Ok(landed) => {
                        *is_begun |= !landed.duplicate;
                        self.directory.counters().dead_letters.add(u64::from(!landed.duplicate));
                        stored[place] = Some((topic.clone(), index, landed.base_offset));
                    }
                    Err(refused) => drop(fault.get_or_insert_with(|| not_stored(&of, refused))),
                }
            }
        }
        match fault {
            Some(fault) => Err(fault),
            None => Ok(stored.into_iter().map(|place| place.expect("each letter is in one append")).collect()),
        }
    }
}

/// The letters of one partition.
struct LettersAppend {
    /// Whose records they were.
    of: TopicName,
    /// Where they go.
    topic: TopicName,
    partition: Arc<Partition>,
    /// Their places among the letters.
    places: Vec<usize>,
    append: NewAppend,
}

fn dead_letters_of(topic: &TopicName) -> Result<TopicName, GroupError> {
    let cannot = |reason| GroupError::DeadLetters { topic: topic.clone(), reason };
    if topic.is_internal() {
        return Err(cannot("it is the broker's own topic".to_owned()));
    }
    TopicName::new(&format!("{topic}{}", dead_letter::SUFFIX)).map_err(|error| cannot(error.to_string()))
}

/// Whether the topics take the letters, as far as that is known before.
fn check(topics: &BTreeMap<TopicName, Arc<Topic>>, letters: &[Letter]) -> Result<(), GroupError> {
    for (of, topic) in topics {
        let state = topic.state_full();
        check_replicas(&state, Acks::All).map_err(|error| match error {
            ProduceError::NotEnoughReplicas { in_sync, needed } => {
                GroupError::NotEnoughReplicas { topic: topic.name().clone(), in_sync, needed }
            }
            error => GroupError::DeadLetters { topic: of.clone(), reason: error.to_string() },
        })?;
        let is_keyless = |letter: &Letter| letter.from.0 == *of && letter.record.key.is_none();
        if state.config.cleanup.compact && letters.iter().any(is_keyless) {
            let reason = format!("{} is compacted and takes no records without a key", topic.name());
            return Err(GroupError::DeadLetters { topic: of.clone(), reason });
        }
    }
    Ok(())
}

/// The letters in order, parted so that each part is bounded.
fn portions(letters: Vec<Letter>) -> Vec<Vec<Letter>> {
    let mut portions: Vec<Vec<Letter>> = Vec::new();
    let mut size_bytes = 0;
    for letter in letters {
        size_bytes += letter.record.size_bytes();
        match portions.last_mut().filter(|_| size_bytes <= PORTION_BYTES) {
            Some(portion) => portion.push(letter),
            None => {
                size_bytes = letter.record.size_bytes();
                portions.push(vec![letter]);
            }
        }
    }
    portions
}

/// The letters by their partitions, built.
fn appends(topics: &BTreeMap<TopicName, Arc<Topic>>, letters: &[Letter], now: Timestamp) -> Vec<LettersAppend> {
    let mut appends: BTreeMap<(&TopicName, PartitionIndex), LettersAppend> = BTreeMap::new();
    let states: BTreeMap<_, _> = topics.iter().map(|(of, topic)| (of, topic.state_full())).collect();
    for (i, letter) in letters.iter().enumerate() {
        let of = &letter.from.0;
        let (topic, state) = (&topics[of], &states[of]);
        let index = place(topic, state, letter);
        let append = appends.entry((of, index)).or_insert_with(|| LettersAppend {
            of: of.clone(),
            topic: topic.name().clone(),
            partition: state.partition(index).expect("letters are placed in active partitions").clone(),
            places: Vec::new(),
            append: NewAppend { batches: Vec::new(), check: SequenceCheck::Key, expected_offset: None, keyless: false },
        });
        append.places.push(i);
        append.append.batches.push(batch(topic, state, letter, now));
        append.append.keyless |= letter.record.key.is_none();
    }
    appends.into_values().collect()
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
        AppendFault::Fenced { reason, possible } => GroupError::Fenced { reason: reason.clone(), possible: *possible },
        // What was deleted meanwhile is made anew by the next try, which places letters anew too.
        AppendFault::Overloaded(_)
        | AppendFault::OutOfFiles(_)
        | AppendFault::Keyless(_)
        | AppendFault::TopicDeleted
        | AppendFault::Retiring(_) => busy(of, fault),
        AppendFault::Refused(_) | AppendFault::Transaction(_) => {
            GroupError::DeadLetters { topic: of.clone(), reason: fault.to_string() }
        }
    }
}

/// A fault that passes.
fn busy(of: &TopicName, fault: &impl ToString) -> GroupError {
    GroupError::DeadLettersBusy { topic: of.clone(), reason: fault.to_string() }
}
