//! From `cleanup.policy=delete` to one that compacts: refused while the topic holds a record without a key, since such
//! a record could never be compacted.
//!
//! The most is looked through before anything is held up. Then the partitions take no records without a key any more
//! (those that come are told to try again), what was stored meanwhile is looked through, and the change is made or
//! refused. Records with keys are taken all the while. A topic is looked through by one change at a time; others wait for
//! their turn without holding a thread.

use std::collections::HashMap;
use std::sync::Arc;

use levada_log::ReadError;
use levada_model::{Offset, PartitionIndex, TopicConfig, TopicId, TopicName};
use tokio::sync::OwnedMutexGuard;

use super::{AlterTopic, TopicError, changed};
use crate::catalog::Topic;
use crate::engine::Core;
use crate::partition::Partition;

/// Offsets that are looked through between two looks at whether the engine is closing.
const STRETCH_OFFSETS: u64 = 100_000;
/// With no more than this left in a partition the switch is made.
const REST_OFFSETS: u64 = 10_000;
/// A topic that is written to faster than it is read is switched all the same.
const ROUNDS_MAX: usize = 5;

/// Up to where all records of the partitions of a topic are known to have keys.
#[derive(Default)]
pub(super) struct LookedThrough {
    topic: Option<TopicId>,
    ends: HashMap<PartitionIndex, Offset>,
}

/// Partitions that take no records without a key; they take them again when this is dropped without
/// [`keep`](Self::keep).
pub(super) struct Switch(Vec<Arc<Partition>>);

impl Switch {
    /// The change holds.
    pub(super) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        for partition in &self.0 {
            partition.require_keys(false);
        }
    }
}

impl Core {
    /// Waits for the turn to look through the topic, if the change asks for that. The turn lasts as long as this is kept.
    pub(super) async fn switch_turn(&self, name: &TopicName, change: &AlterTopic) -> Option<OwnedMutexGuard<()>> {
        let topic = self.catalog.get(name)?;
        if !to_be_looked_through(&topic, change).unwrap_or(false) {
            return None;
        }
        Some(topic.switching().clone().lock_owned().await)
    }

    /// Looks through the topic for records without a key, if the change would have it compacted and it is not. Nothing
    /// waits for this. Blocks for as long as it takes to read the topic.
    pub(super) fn look_for_keys(&self, name: &TopicName, change: &AlterTopic) -> Result<LookedThrough, TopicError> {
        let mut looked_through = LookedThrough::default();
        let topic = self.catalog.get(name).ok_or_else(|| TopicError::NotFound(name.clone()))?;
        if !to_be_looked_through(&topic, change)? {
            return Ok(looked_through);
        }
        let state = topic.state_full();
        looked_through.topic = Some(topic.id());
        for _ in 0..ROUNDS_MAX {
            let mut left = 0;
            for partition in state.partitions() {
                let from = looked_through.ends.get(&partition.index()).copied().unwrap_or_default();
                let end = partition.high_watermark();
                self.keys_within(&topic, partition, from, end)?;
                looked_through.ends.insert(partition.index(), end);
                left = left.max(partition.high_watermark().0 - end.0);
            }
            if left <= REST_OFFSETS {
                break;
            }
        }
        Ok(looked_through)
    }

    /// Has the partitions refuse records without a key, if the topic is to be compacted and is not yet, and looks through
    /// what was stored until then. The caller holds `changes`.
    pub(super) fn require_keys(
        &self,
        topic: &Topic,
        config: &TopicConfig,
        looked_through: &LookedThrough,
    ) -> Result<Switch, TopicError> {
        let state = topic.state_full();
        let mut switch = Switch(Vec::new());
        if !config.cleanup.compact || state.config.cleanup.compact {
            return Ok(switch);
        }
        let is_same = looked_through.topic == Some(topic.id());
        for partition in state.partitions() {
            let end = partition.require_keys(true);
            switch.0.push(partition.clone());
            let from = looked_through.ends.get(&partition.index()).copied().filter(|_| is_same).unwrap_or_default();
            self.keys_within(topic, partition, from, end)?;
        }
        Ok(switch)
    }

    /// Checks that all records of a partition from one offset to another have keys.
    fn keys_within(&self, topic: &Topic, partition: &Partition, from: Offset, end: Offset) -> Result<(), TopicError> {
        let mut from = from.max(partition.log_start());
        while from < end {
            if self.is_closing() {
                return Err(TopicError::Closing);
            }
            if topic.is_deleted() {
                return Err(TopicError::NotFound(topic.name().clone()));
            }
            let to = end.min(from.advance(STRETCH_OFFSETS));
            match partition.reader().first_keyless(from, to) {
                Ok(None) => from = to,
                Ok(Some(offset)) => {
                    return Err(TopicError::Keyless {
                        topic: topic.name().clone(),
                        partition: partition.index(),
                        offset,
                    });
                }
                // What retention removes meanwhile needs no keys.
                Err(ReadError::BelowStart { log_start, .. }) => from = log_start,
                Err(ReadError::BeyondEnd { .. }) => return Ok(()),
                Err(ReadError::Storage(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Whether the change would have the topic compacted, and it is not; false where it is to another version than this.
fn to_be_looked_through(topic: &Topic, change: &AlterTopic) -> Result<bool, TopicError> {
    let state = topic.state();
    let is_current = change.if_version.is_none_or(|version| version == state.image.version);
    Ok(is_current && !state.config.cleanup.compact && changed(&state, change)?.cleanup.compact)
}
