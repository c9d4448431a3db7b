//! Where a member stands during one fetch: a position in every partition that it holds, begun and followed by the rules
//! of cursors.
//!
//! The cursor's position counts while the holding is the one in which it was delivered; else what is committed, else the
//! start that the member asked for. A partition that is to be given up is read no more, and keeps its place in the
//! cursor until it is given up.
//!
//! Where a transaction that is open has offsets of the partition, somebody may have processed what is behind the committed
//! offset, and its outputs may count. So whoever takes the partition up begins it only when that is decided (KIP-447), and
//! till then it has no place in the cursor.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_coordinator::{AssignmentEpoch, Holding, MemberView, Start};
use levada_extension::murmur2;
use levada_log::StorageError;
use levada_model::{GroupName, Offset, TopicName};
use tokio::sync::Notify;

use super::terms::{GroupCursor, GroupError, GroupPart, GroupPosition, OffsetReset, ResetCause};
use crate::catalog::Topic;
use crate::engine::Core;
use crate::fetch::{FetchError, Reading};
use crate::partition::{Partition, Waiter};
use crate::partition_set::{PartitionSet, Place};
use crate::{From, Isolation};

/// Where a member stands.
pub(super) struct Standing {
    core: Arc<Core>,
    /// What is read.
    set: PartitionSet,
    /// All that is held.
    held: BTreeMap<Place, Held>,
    /// Positions that were delivered before this fetch, and those at which partitions were left.
    cursor: BTreeMap<Place, (AssignmentEpoch, Offset)>,
    resets: Vec<OffsetReset>,
}

struct Held {
    topic: TopicName,
    epoch: AssignmentEpoch,
}

impl Standing {
    pub(super) fn new(core: Arc<Core>, cursor: Option<GroupCursor>) -> Self {
        let positions = cursor.into_iter().flat_map(|cursor| cursor.positions);
        let cursor = positions.map(|p| ((p.topic, p.partition), (p.epoch, p.next))).collect();
        let set = PartitionSet::new(core.clone(), Isolation::ReadCommitted).cutting_batches();
        Self { core, set, held: BTreeMap::new(), cursor, resets: Vec::new() }
    }

    /// Takes up what is new to the member, and leaves what it lost or has to give up.
    pub(super) async fn follow(&mut self, view: &MemberView) -> Result<(), GroupError> {
        let mut held = BTreeMap::new();
        let mut read = Vec::new();
        for holding in &view.holdings {
            let place = (holding.partition.topic, holding.partition.partition);
            let is_known = self.held.get(&place).is_some_and(|known| known.epoch == holding.epoch);
            if holding.revoked {
                if let Some(left) = self.set.position(place).filter(|_| is_known) {
                    self.cursor.insert(place, (holding.epoch, left));
                }
            } else if (is_known && self.set.position(place).is_some()) || self.begin(place, holding, view.start).await?
            {
                read.push(place);
            }
            held.insert(place, Held { topic: holding.topic.clone(), epoch: holding.epoch });
        }
        read.sort_unstable();
        self.set.retain(|place| read.binary_search(&place).is_ok());
        self.held = held;
        Ok(())
    }

    /// Reads on, fairly: where a round begins depends on the positions alone, so the same cursor gives the same.
    pub(super) async fn read(&mut self, max_records: usize, max_bytes: usize) -> Result<Vec<GroupPart>, GroupError> {
        loop {
            self.set.refresh();
            self.set.retain(|_| true);
            self.note_passed();
            self.set.set_turn(turn(&self.set));
            match self.set.read_round(max_records, max_bytes).await {
                Ok(parts) => {
                    let part = |(place, fetched): (Place, _)| {
                        let topic = self.held[&place].topic.clone();
                        GroupPart { topic, topic_id: place.0, fetched }
                    };
                    return Ok(parts.into_iter().map(part).collect());
                }
                // The coordinator will hear of it, too.
                Err(((topic, _), FetchError::NotFound(_))) => self.set.retain(|place| place.0 != topic),
                Err((_, error)) => return Err(unreadable(error)),
            }
        }
    }

    pub(super) fn register(&self, reader: &Arc<Notify>) -> Vec<Waiter> {
        self.set.register(reader)
    }

    pub(super) fn has_news(&self) -> bool {
        self.set.has_news()
    }

    /// The cursor and the resets of this fetch.
    pub(super) fn finish(self, group: &GroupName) -> (GroupCursor, Vec<OffsetReset>) {
        let position = |(place, held): (&Place, &Held)| {
            let left = self.cursor.get(place).filter(|(epoch, _)| *epoch == held.epoch);
            let next = self.set.position(*place).or(left.map(|(_, next)| *next))?;
            Some(GroupPosition { topic: place.0, partition: place.1, epoch: held.epoch, next })
        };
        let positions = self.held.iter().filter_map(position).collect();
        (GroupCursor { group: group.clone(), positions }, self.resets)
    }

    /// Takes up a partition, if it is still there and where to begin is decided; whether it did.
    async fn begin(&mut self, place: Place, holding: &Holding, start: Start) -> Result<bool, GroupError> {
        let Some(topic) = self.core.catalog.topics().by_id(place.0).cloned() else { return Ok(false) };
        let Some(partition) = topic.state().partition(place.1).cloned() else { return Ok(false) };
        let delivered = self.cursor.get(&place).filter(|(epoch, _)| *epoch == holding.epoch).map(|(_, next)| *next);
        let end = partition.high_watermark();
        if holding.undecided && delivered.is_none_or(|next| next > end) {
            return Ok(false);
        }
        let stored = [delivered, holding.committed];
        // A page-cache topic that lost its tail may end before what was delivered, and not before what was committed.
        let next = match stored.into_iter().flatten().find(|next| *next <= end) {
            Some(next) => {
                if delivered.is_some_and(|delivered| delivered != next) {
                    self.note_reset(holding, next, ResetCause::BeyondEnd);
                }
                next
            }
            None => {
                let to = self.start(&topic, &partition, start).await?;
                let beyond = stored.into_iter().flatten().next().map(|_| ResetCause::BeyondEnd);
                if let Some(cause) = beyond.or(holding.expired.then_some(ResetCause::Expired)) {
                    self.note_reset(holding, to, cause);
                }
                to
            }
        };
        self.set.add_topic(&topic);
        self.set.put(place, next);
        Ok(true)
    }

    fn note_reset(&mut self, holding: &Holding, to: Offset, cause: ResetCause) {
        let (topic, partition) = (holding.topic.clone(), holding.partition.partition);
        self.resets.push(OffsetReset { topic, partition, to, cause });
    }

    async fn start(&self, topic: &Topic, partition: &Arc<Partition>, start: Start) -> Result<Offset, GroupError> {
        let reading = Reading { core: &self.core, topic, partition, isolation: Isolation::ReadCommitted };
        let from = match start {
            Start::Earliest => From::Earliest,
            Start::Latest => From::Latest,
            Start::Time(time) => From::Time(time),
        };
        reading.resolve(from).await.map_err(unreadable)
    }

    /// Notes positions that the log start has passed; the read that follows moves them there.
    fn note_passed(&mut self) {
        for (place, next) in self.set.positions() {
            let Some(to) = self.set.log_start(place).filter(|start| next < *start) else { continue };
            let (topic, partition) = (self.held[&place].topic.clone(), place.1);
            let is_noted = |reset: &OffsetReset| reset.topic == topic && reset.partition == partition && reset.to == to;
            if !self.resets.iter().any(is_noted) {
                self.resets.push(OffsetReset { topic, partition, to, cause: ResetCause::BelowStart });
            }
        }
    }
}

/// The partition behind which a round begins: drawn from the positions, so that each partition has its turn as they move.
fn turn(set: &PartitionSet) -> Option<Place> {
    let mut bytes = Vec::new();
    let mut count = 0;
    for ((topic, partition), next) in set.positions() {
        bytes.extend_from_slice(topic.0.as_bytes());
        bytes.extend_from_slice(&partition.0.to_be_bytes());
        bytes.extend_from_slice(&next.0.to_be_bytes());
        count += 1;
    }
    let first = (murmur2(&bytes) as usize).checked_rem(count)?.checked_sub(1)?;
    set.positions().nth(first).map(|(place, _)| place)
}

fn unreadable(error: FetchError) -> GroupError {
    match error {
        FetchError::Storage(error) => GroupError::Storage(error),
        FetchError::Closing => GroupError::Closing,
        FetchError::Denied(denied) => GroupError::Denied(denied),
        // A partition that is emptied or dropped while it is read: the next fetch finds it as it is then.
        error @ (FetchError::NotFound(_)
        | FetchError::NoPartition { .. }
        | FetchError::BelowStart { .. }
        | FetchError::BeyondEnd { .. }
        | FetchError::OtherTopic { .. }
        | FetchError::Filter { .. }) => GroupError::Storage(StorageError {
            operation: "read",
            path: Default::default(),
            source: std::io::Error::other(error),
        }),
    }
}
