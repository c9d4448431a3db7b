//! Reading a whole topic: a position in every partition, taken in turn. What cursors, SSE and subscriptions are made of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levada_model::{Offset, PartitionIndex, Principal, TopicId, TopicName};
use tokio::sync::Notify;

use crate::Engine;
use crate::catalog::Topic;
use crate::fetch::{Deadline, FetchError, Fetched, From, Isolation, Reading};
use crate::partition_set::PartitionSet;

/// A position in every partition of a topic: what a cursor holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions {
    /// Which topic.
    pub topic_id: TopicId,
    /// Next offset to read, by partition.
    pub next: Vec<(PartitionIndex, Offset)>,
}

/// Where a reader of a whole topic begins.
#[derive(Clone, Debug)]
pub enum TopicStart {
    /// The same place in every partition.
    From(From),
    /// Where an earlier reader stopped; partitions that are new since begin at their start, and those that were dropped
    /// are left out.
    Positions(Positions),
}

/// What a step of a topic reader gave: reads of those partitions that had something.
#[derive(Clone, Debug, Default)]
pub struct TopicChunk {
    /// One read a partition, none of them empty of both records and gaps.
    pub parts: Vec<Fetched>,
}

/// Reads a whole topic, partition by partition in turn; sees partitions that are added.
pub struct TopicReader {
    topic: Arc<Topic>,
    set: PartitionSet,
    woken: Arc<Notify>,
}

impl Engine {
    /// A reader of all partitions.
    ///
    /// # Errors
    /// See [`FetchError`]; also when a position is beyond its partition's end. One below the log start is no error:
    /// the reader reports the gap and goes on behind it.
    pub async fn topic_reader(
        &self,
        who: &Principal,
        topic: &TopicName,
        start: TopicStart,
        isolation: Isolation,
    ) -> Result<TopicReader, FetchError> {
        let topic = self.readable(who, topic)?;
        let state = topic.state_full();
        let mut next = BTreeMap::new();
        match start {
            TopicStart::From(from) => {
                for partition in state.partitions() {
                    let reading = Reading { core: &self.core, topic: &topic, partition, isolation };
                    next.insert(partition.index(), reading.resolve(from).await?);
                }
            }
            TopicStart::Positions(positions) if positions.topic_id != topic.id() => {
                return Err(FetchError::OtherTopic { topic: topic.name().clone() });
            }
            TopicStart::Positions(positions) => next.extend(positions.next),
        }
        let mut set = PartitionSet::new(self.core.clone(), isolation);
        set.add_topic(&topic);
        for (partition, requested) in next {
            let high_watermark = state.partition(partition).map(|partition| partition.high_watermark());
            if let Some(high_watermark) = high_watermark.filter(|end| requested > *end) {
                return Err(FetchError::BeyondEnd { partition, requested, high_watermark });
            }
            set.put((topic.id(), partition), requested);
        }
        let mut reader = TopicReader { topic, set, woken: Arc::default() };
        reader.follow_partitions();
        Ok(reader)
    }
}

impl TopicReader {
    /// Reads on; waits at most `wait` for something (then the chunk is empty). Positions move over what is returned.
    /// A position below a log start that moved meanwhile is reported as a gap and moves up.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn next(
        &mut self,
        max_records: usize,
        max_bytes: usize,
        wait: Duration,
    ) -> Result<TopicChunk, FetchError> {
        let deadline = Deadline::new(wait);
        loop {
            self.follow_partitions();
            let round = self.set.read_round(max_records.max(1), max_bytes.max(1)).await;
            let parts: Vec<_> = round.map_err(|(_, error)| error)?.into_iter().map(|(_, part)| part).collect();
            if !parts.is_empty() {
                return Ok(TopicChunk { parts });
            }
            let _waiters = self.set.register(&self.woken);
            if !self.set.has_news() && !deadline.wait(&self.woken).await {
                return Ok(TopicChunk::default());
            }
        }
    }

    /// Where it stands, behind everything that was returned.
    #[must_use]
    pub fn positions(&self) -> Positions {
        let next = self.set.positions().map(|((_, partition), offset)| (partition, offset)).collect();
        Positions { topic_id: self.topic.id(), next }
    }

    /// Begins new partitions at their start and forgets those that were dropped.
    fn follow_partitions(&mut self) {
        self.set.refresh();
        for partition in self.topic.state().partitions() {
            let place = (self.topic.id(), partition.index());
            if self.set.position(place).is_none() {
                self.set.put(place, partition.log_start());
            }
        }
    }
}
