//! Dead letters of processors: stored with the outputs of the same batch, and under `exactly-once` in their transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_coordinator::TransactionHandle;
use levada_extension::{Partitioner, TopicPartition};
use levada_log::{BatchBuilder, NewBatch, SequenceCheck};
use levada_model::{PartitionIndex, Record, Sequence, TopicName, dead_letter};

use super::halt::Halt;
use crate::catalog::{Topic, TopicState};
use crate::engine::Core;
use crate::partition::NewAppend;
use crate::produce::{check_replicas, landing};
use crate::{Acks, CreateTopic};

/// The name of a topic's dead letters, unless a document names another.
pub(super) fn topic_of(source: &TopicName) -> Result<TopicName, levada_model::NameError> {
    TopicName::new(&format!("{source}{}", dead_letter::SUFFIX))
}

/// Stores a letter in a topic that is created if it is not there. `place` stands in for the key of one that has none.
pub(super) async fn store(
    core: &Arc<Core>,
    name: &TopicName,
    letter: &Record,
    place: &str,
    transaction: Option<TransactionHandle>,
) -> Result<(), Halt> {
    let new = CreateTopic { name: name.clone(), partitions: 1, config: BTreeMap::new() };
    let topic = core.ensure_topic(new).await?;
    let state = topic.state_full();
    check_replicas(&state, Acks::All)?;
    if state.config.cleanup.compact && letter.key.is_none() {
        return Err(Halt::failed(format!("{name} is compacted and takes no dead letter without a key")));
    }
    let index = place_of(&topic, &state, letter, place);
    if let Some(transaction) = transaction {
        let at = TopicPartition { topic: topic.id(), partition: index };
        core.transactions.add_partitions(transaction, &[at]).await?;
    }
    let partition = state.partition(index).expect("letters are placed in active partitions");
    let answer = partition.push(append(core, &state, letter, transaction)).map_err(|fault| Halt::from(&fault))?;
    landing(answer).await.map(drop).map_err(|fault| Halt::from(&*fault))
}

fn place_of(topic: &Topic, state: &TopicState, letter: &Record, place: &str) -> PartitionIndex {
    let key = letter.key.as_deref().unwrap_or(place.as_bytes());
    topic.partitioner().partition(&[Some(key)], state.active_count)[0]
}

/// A letter as an append of its own. It may be larger than `max.message.bytes` by its headers of origin: a record that was
/// taken once is never too large to be set aside.
fn append(core: &Core, state: &TopicState, letter: &Record, transaction: Option<TransactionHandle>) -> NewAppend {
    let producer = transaction.map(|it| (it.producer_id, it.producer_epoch, Sequence(0)));
    let transactional = transaction.is_some();
    let new = NewBatch { compression: state.config.compression, producer, transactional, ..NewBatch::default() };
    let mut builder = BatchBuilder::new(new, letter.size_bytes());
    builder.push(core.directory.now(), letter);
    let batch = builder.finish().expect("compressing into memory does not fail");
    let check = if transactional { SequenceCheck::Assigned } else { SequenceCheck::Producer };
    NewAppend { batches: vec![batch], check, expected_offset: None, keyless: letter.key.is_none() }
}
