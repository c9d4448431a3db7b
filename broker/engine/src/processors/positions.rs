//! Where the tasks of a processor stand: committed offsets of its group, each with the stream time of its task as metadata.

use std::sync::Arc;

use levada_coordinator::Committed;
use levada_extension::TopicPartition;
use levada_model::{GroupName, Offset, Timestamp};

use crate::catalog::Topic;
use crate::engine::Core;
use crate::fetch::Reading;
use crate::partition::Partition;
use crate::{FetchError, From, GroupError, Isolation};

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// Next to process.
    pub(super) next: Offset,
    /// Highest time that it has seen.
    pub(super) stream_time: Option<Timestamp>,
}

impl Position {
    /// As it was committed.
    pub(super) fn of(committed: &Committed) -> Self {
        Self { next: committed.offset, stream_time: committed.metadata.parse().ok().map(Timestamp) }
    }

    /// As it is to be committed.
    pub(super) fn commit(self, core: &Core, topic: &Topic, partition: &Partition) -> (TopicPartition, Committed) {
        let committed = Committed {
            offset: self.next,
            leader_epoch: partition.leader_epoch(),
            committed_at: core.directory.now(),
            metadata: self.stream_time.map_or(String::new(), |time| time.0.to_string()),
        };
        (TopicPartition { topic: topic.id(), partition: partition.index() }, committed)
    }
}

/// Commits where each partition of a source begins of which nothing is committed. If that is all of them, the source is
/// new, and they begin where its document says; else they have come since, and begin at their start.
pub(super) async fn begin(
    core: &Arc<Core>,
    group: &GroupName,
    topic: &Arc<Topic>,
    start: From,
) -> Result<(), PositionError> {
    let committed = core.own_offsets(group).await?;
    let state = topic.state_full();
    let at = |partition: &Partition| TopicPartition { topic: topic.id(), partition: partition.index() };
    let is_new = !committed.keys().any(|at| at.topic == topic.id());
    let mut commits = Vec::new();
    for partition in state.partitions().filter(|partition| !committed.contains_key(&at(partition))) {
        let next = resolve(core, topic, partition, if is_new { start } else { From::Earliest }).await?;
        commits.push(Position { next, stream_time: None }.commit(core, topic, partition));
    }
    if commits.is_empty() {
        return Ok(());
    }
    Ok(core.commit_own(group, commits).await?)
}

/// The offset that a start means, within what there is.
pub(super) async fn resolve(
    core: &Core,
    topic: &Topic,
    partition: &Arc<Partition>,
    start: From,
) -> Result<Offset, FetchError> {
    let reading = Reading { core, topic, partition, isolation: Isolation::ReadCommitted };
    let offset = reading.resolve(start).await?;
    Ok(offset.min(partition.high_watermark()).max(partition.log_start()))
}

/// Why positions were not read or committed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PositionError {
    /// The group does not take them.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// A start cannot be looked up.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}
