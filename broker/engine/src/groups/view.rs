//! What one partition of `__consumer_offsets` says: the newest commit of each group, topic and partition. Derived from
//! the log; read from its start once, then kept current by the commits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use levada_log::{ReadError, RecordRef, StorageError};
use levada_model::{GroupName, Offset, PartitionIndex, TopicId};
use parking_lot::Mutex;

use super::key::OffsetKey;
use super::value::OffsetValue;
use crate::partition::Partition;

/// Stored bytes that are read at once while loading.
const READ_BYTES: usize = 1 << 20;

/// A commit, or (none) its removal, with the place of its record.
struct Entry {
    at: Offset,
    value: Option<OffsetValue>,
}

/// A group's commits.
type Offsets = BTreeMap<(TopicId, PartitionIndex), Entry>;

/// The newest commits of the groups of one partition.
#[derive(Default)]
pub(super) struct View(Mutex<HashMap<GroupName, Offsets>>);

impl View {
    /// Reads the partition from its start to its end.
    pub(super) async fn load(partition: &Arc<Partition>) -> Result<Self, StorageError> {
        let view = Self::default();
        let end = partition.high_watermark();
        let mut from = partition.log_start();
        while from < end {
            let chunk = partition.read(from, READ_BYTES, end).await.map_err(|error| match error {
                ReadError::Storage(error) => error,
                other => unreachable!("the bounds are the partition's own: {other}"),
            })?;
            for gap in &chunk.gaps {
                tracing::warn!(?gap, partition = %partition.index(), "committed offsets were lost to damage");
            }
            for batch in &chunk.batches {
                match batch.records() {
                    Ok(records) => records.for_each(|record| view.take(record, partition)),
                    Err(error) => tracing::warn!(%error, partition = %partition.index(), "commits cannot be read"),
                }
            }
            from = chunk.next_offset;
        }
        Ok(view)
    }

    fn take(&self, record: Result<RecordRef, levada_log::RecordsError>, partition: &Partition) {
        let entry = record.map_err(|error| error.to_string()).and_then(|record| {
            let key = OffsetKey::decode(record.record.key.as_deref().unwrap_or_default())?;
            let value = record.record.value.as_deref().map(OffsetValue::decode).transpose()?;
            Ok((record.offset, key, value))
        });
        match entry {
            Ok((at, key, value)) => self.put(at, key, value),
            Err(error) => tracing::warn!(%error, partition = %partition.index(), "a commit cannot be read"),
        }
    }

    /// Puts a commit in, unless a newer one is there: commits may come here in another order than into the log.
    pub(super) fn put(&self, at: Offset, key: OffsetKey, value: Option<OffsetValue>) {
        let mut groups = self.0.lock();
        let offsets = groups.entry(key.group).or_default();
        let place = (key.topic, key.partition);
        if offsets.get(&place).is_none_or(|old| old.at < at) {
            offsets.insert(place, Entry { at, value });
        }
    }

    /// All that a group has committed; none if it is unknown.
    pub(super) fn group(&self, group: &GroupName) -> Option<Vec<(TopicId, PartitionIndex, OffsetValue)>> {
        let groups = self.0.lock();
        let offsets: Vec<_> = groups
            .get(group)?
            .iter()
            .filter_map(|((topic, partition), entry)| Some((*topic, *partition, entry.value.clone()?)))
            .collect();
        (!offsets.is_empty()).then_some(offsets)
    }
}

#[cfg(test)]
mod tests {
    use levada_model::{LeaderEpoch, Timestamp};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_commit_that_is_later_in_the_log_holds_whatever_the_order_of_arrival() {
        let group = GroupName::new("g").expect("within the rule");
        let key = OffsetKey { group: group.clone(), topic: TopicId(Uuid::nil()), partition: PartitionIndex(0) };
        let value = |offset| OffsetValue {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(0),
            committed_at: Timestamp(0),
            metadata: String::new(),
        };
        let view = View::default();
        view.put(Offset(7), key.clone(), Some(value(70)));
        view.put(Offset(6), key.clone(), Some(value(60)));
        assert_eq!(view.group(&group).expect("it has committed")[0].2.offset, Offset(70));
        view.put(Offset(8), key, None);
        assert!(view.group(&group).is_none(), "its only commit was removed");
    }
}
