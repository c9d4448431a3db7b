//! Markers on their way: to the owners of a transaction's partitions, and to the coordinators of its groups.
//!
//! Not here: when they are sent, and sent again (the coordinator's).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use levada_coordinator::{MarkerError, Participants, WriteMarkers};
use levada_extension::TopicPartition;
use levada_log::{AppendError, CoordinatorEpoch, Marker, SequenceCheck};
use levada_model::{GroupName, ProducerId, limits};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::AppendFault;
use crate::catalog::Catalog;
use crate::coordinators::end_of;
use crate::directory::Directory;
use crate::groups::{EndOffsetsError, Groups};
use crate::partition::{Landings, NewAppend, Partition};
use crate::produce::landing;

/// Markers of one transaction that are with their owners at once.
const AT_ONCE_MAX: usize = 256;

/// Carries the markers of a transaction to its participants, wherever these are. It may do so more than once and in any
/// order; of each participant it says at most once what came of it.
pub(crate) trait MarkerSender: Send + Sync + 'static {
    /// Sends markers. What it answers keeps no engine alive for longer than the disk takes.
    fn send(&self, markers: WriteMarkers) -> Pin<Box<dyn Future<Output = Sent> + Send>>;
}

/// What became of markers.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// Who has them, as durably as the topic promises, or needs none any more.
    pub(crate) written: Participants,
    /// Who could not be given them now.
    pub(crate) failed: Participants,
}

/// Sends markers to the partitions and groups of this node.
#[derive(Clone)]
pub(crate) struct LocalMarkers {
    catalog: Arc<Catalog>,
    groups: Arc<Groups>,
    directory: Arc<Directory>,
    /// Room for those that are with their owners, of all transactions together.
    room: Arc<Semaphore>,
}

impl LocalMarkers {
    pub(crate) fn new(catalog: Arc<Catalog>, groups: Arc<Groups>, directory: Arc<Directory>) -> Self {
        let room = Arc::new(Semaphore::new(limits::MARKERS_IN_FLIGHT_MAX));
        Self { catalog, groups, directory, room }
    }
}

impl MarkerSender for LocalMarkers {
    fn send(&self, markers: WriteMarkers) -> Pin<Box<dyn Future<Output = Sent> + Send>> {
        let this = self.clone();
        Box::pin(async move {
            let mut groups = this.to_groups(&markers);
            let mut sent = this.to_partitions(&markers).await;
            while let Some(ended) = groups.join_next().await {
                // One that panicked is not heard of, and comes again.
                let Ok((group, is_written)) = ended else { continue };
                let participants = if is_written { &mut sent.written } else { &mut sent.failed };
                participants.groups.insert(group);
            }
            sent
        })
    }
}

impl LocalMarkers {
    async fn to_partitions(&self, markers: &WriteMarkers) -> Sent {
        let mut sent = Sent::default();
        let partitions: Vec<_> = markers.participants.partitions.iter().copied().collect();
        for some in partitions.chunks(AT_ONCE_MAX) {
            let count = u32::try_from(some.len()).expect("a few");
            let _room = self.room.acquire_many(count).await.expect("it is never closed");
            let answers: Vec<_> = some.iter().map(|at| (*at, self.push(*at, markers))).collect();
            for (at, answer) in answers {
                let result = match answer {
                    Ok(Some(answer)) => landing(answer).await.map(drop),
                    Ok(None) => Ok(()),
                    Err(fault) => Err(Arc::new(fault)),
                };
                let participants = if is_written(at, &result) { &mut sent.written } else { &mut sent.failed };
                participants.partitions.insert(at);
            }
        }
        sent
    }

    /// Hands a marker to the partition's owner; nothing if the partition is gone.
    fn push(
        &self,
        at: TopicPartition,
        markers: &WriteMarkers,
    ) -> Result<Option<oneshot::Receiver<Landings>>, AppendFault> {
        let topic = self.catalog.topics().by_id(at.topic).cloned();
        let Some(partition) = topic.and_then(|topic| topic.state().partition(at.partition).cloned()) else {
            return Ok(None);
        };
        self.append(&partition, markers).map(Some)
    }

    fn append(
        &self,
        partition: &Arc<Partition>,
        markers: &WriteMarkers,
    ) -> Result<oneshot::Receiver<Landings>, AppendFault> {
        let marker =
            Marker { end: end_of(markers.outcome), coordinator_epoch: CoordinatorEpoch(markers.coordinator_epoch) };
        let producer_id = markers.transaction.producer_id;
        let batch = marker.batch(producer_id, markers.producer_epoch, self.directory.now());
        let append =
            NewAppend { batches: vec![batch], check: SequenceCheck::Marker, expected_offset: None, keyless: false };
        partition.push(append)
    }

    /// Tells each group, all at once.
    fn to_groups(&self, markers: &WriteMarkers) -> JoinSet<(GroupName, bool)> {
        let mut told = JoinSet::new();
        for group in markers.participants.groups.iter().cloned() {
            let (groups, outcome) = (self.groups.clone(), markers.outcome);
            let (producer_id, epoch) = (markers.transaction.producer_id, markers.producer_epoch);
            let coordinator_epoch = markers.coordinator_epoch;
            told.spawn(async move {
                let ended = groups.end_transaction(&group, producer_id, epoch, coordinator_epoch, outcome).await;
                let is_told = is_told(&group, producer_id, &ended);
                (group, is_told)
            });
        }
        told
    }
}

/// Whether a group knows how a transaction ended, or cannot be told.
fn is_told(group: &GroupName, producer_id: ProducerId, result: &Result<(), EndOffsetsError>) -> bool {
    match result {
        Ok(()) => true,
        Err(error @ EndOffsetsError::Marker(MarkerError::OtherOutcome)) => {
            tracing::error!(%group, %producer_id, %error, "a transaction has ended both ways");
            true
        }
        Err(error) => {
            tracing::warn!(%group, %producer_id, %error, "a group is told later how a transaction ended");
            false
        }
    }
}

/// Whether a partition has the marker, or needs it no more.
fn is_written(at: TopicPartition, result: &Result<(), Arc<AppendFault>>) -> bool {
    let Err(fault) = result else { return true };
    match &**fault {
        AppendFault::TopicDeleted | AppendFault::Refused(AppendError::ProducerFenced { .. }) => true,
        // No try will ever be answered otherwise.
        AppendFault::Refused(AppendError::TransactionEnded { .. }) => {
            tracing::error!(topic = %at.topic, partition = %at.partition, %fault, "a transaction has ended both ways");
            true
        }
        fault => {
            tracing::warn!(topic = %at.topic, partition = %at.partition, %fault, "a marker is written later");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use levada_coordinator::{Outcome, TransactionHandle};
    use levada_model::{Offset, PartitionIndex, Principal, ProducerEpoch, TopicName};

    use super::*;
    use crate::groups::GroupKind;
    use crate::{CreateTopic, Engine, testing};

    const MARKER_EPOCH: ProducerEpoch = ProducerEpoch(4);

    /// An engine with a topic, the sender to its partition, and the partition's name.
    async fn open() -> (Engine, LocalMarkers, TopicPartition) {
        let engine = testing::open();
        let name = TopicName::new("t").expect("a name");
        let new = CreateTopic { name: name.clone(), partitions: 1, config: Default::default() };
        engine.create_topic(&Principal::anonymous(), new).await.expect("created");
        let core = &engine.core;
        let sender = LocalMarkers::new(core.catalog.clone(), core.groups.clone(), core.directory.clone());
        let at = TopicPartition { topic: core.catalog.get(&name).expect("created").id(), partition: PartitionIndex(0) };
        (engine, sender, at)
    }

    fn markers(at: TopicPartition, group: &GroupName, outcome: Outcome) -> WriteMarkers {
        let transaction = TransactionHandle {
            coordinator: PartitionIndex(0),
            producer_id: ProducerId(7),
            producer_epoch: ProducerEpoch(MARKER_EPOCH.0 - 1),
        };
        let participants = Participants { partitions: [at].into(), groups: [group.clone()].into() };
        WriteMarkers { transaction, producer_epoch: MARKER_EPOCH, coordinator_epoch: 0, outcome, participants }
    }

    #[tokio::test]
    async fn a_marker_that_contradicts_one_that_is_there_is_not_tried_for_ever() {
        let (engine, sender, at) = open().await;
        let group = GroupName::new("g").expect("a name");
        engine.core.ensure_coordinators::<GroupKind>().await.expect("created");
        for outcome in [Outcome::Commit, Outcome::Commit, Outcome::Abort] {
            let sent = sender.send(markers(at, &group, outcome)).await;
            assert_eq!(sent.written, markers(at, &group, outcome).participants, "{outcome:?}");
            assert!(sent.failed.is_empty());
        }
        let described = engine.describe_topic(&Principal::anonymous(), &TopicName::new("t").expect("a name"));
        assert_eq!(described.expect("a topic").partitions[0].high_watermark, Offset(1), "the first stands");
    }

    #[tokio::test]
    async fn a_topic_that_is_deleted_when_its_partition_was_found_already_needs_no_marker() {
        let (engine, sender, at) = open().await;
        let (name, group) = (TopicName::new("t").expect("a name"), GroupName::new("g").expect("a name"));
        let topic = engine.core.catalog.get(&name).expect("created");
        let partition = topic.state().partition(at.partition).expect("there").clone();
        engine.delete_topic(&Principal::anonymous(), &name).await.expect("deleted");
        let answer = sender.append(&partition, &markers(at, &group, Outcome::Commit));
        let result = match answer {
            Ok(answer) => landing(answer).await.map(drop),
            Err(fault) => Err(Arc::new(fault)),
        };
        assert!(matches!(result.as_ref().map_err(|fault| &**fault), Err(AppendFault::TopicDeleted)), "{result:?}");
        assert!(is_written(at, &result));
        let sent = sender.send(markers(at, &group, Outcome::Commit)).await;
        assert_eq!(sent.written.partitions, [at].into(), "nor does one that is gone");
    }
}
