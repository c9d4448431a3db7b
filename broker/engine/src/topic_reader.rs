//! Reading a whole topic: a position in every partition, taken in turn. What cursors, SSE and subscriptions are made of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levada_log::Damage;
use levada_model::{Offset, PartitionIndex, Principal, TopicId, TopicName};
use tokio::sync::Notify;

use crate::Engine;
use crate::catalog::{Topic, TopicState};
use crate::engine::Core;
use crate::fetch::{Deadline, FetchError, Fetched, From, Isolation, Reading, bound_of};
use crate::partition::{Bound, Partition, Waiter};

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
    core: Arc<Core>,
    topic: Arc<Topic>,
    isolation: Isolation,
    next: BTreeMap<PartitionIndex, Offset>,
    /// The partition that was read first the last time; the one behind it is first now.
    turn: Option<PartitionIndex>,
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
        for (partition, requested) in &next {
            let high_watermark = state.partition(*partition).map(|partition| partition.high_watermark());
            if let Some(high_watermark) = high_watermark.filter(|end| requested > end) {
                return Err(FetchError::BeyondEnd { partition: *partition, requested: *requested, high_watermark });
            }
        }
        let woken = Arc::new(Notify::new());
        let mut reader = TopicReader { core: self.core.clone(), topic, isolation, next, turn: None, woken };
        reader.follow_partitions(&state);
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
            let state = self.topic.state_full();
            self.follow_partitions(&state);
            let parts = self.read_round(&state, max_records.max(1), max_bytes.max(1)).await?;
            if !parts.is_empty() {
                return Ok(TopicChunk { parts });
            }
            let _waiters = self.register(&state);
            if !self.has_news(&state) && !deadline.wait(&self.woken).await {
                return Ok(TopicChunk::default());
            }
        }
    }

    /// Where it stands, behind everything that was returned.
    #[must_use]
    pub fn positions(&self) -> Positions {
        let next = self.next.iter().map(|(partition, offset)| (*partition, *offset)).collect();
        Positions { topic_id: self.topic.id(), next }
    }

    /// The name of what it reads.
    #[must_use]
    pub fn topic(&self) -> &TopicName {
        self.topic.name()
    }

    /// Offsets between the positions and the ends, of all partitions together.
    #[must_use]
    pub fn lag(&self) -> u64 {
        let state = self.topic.state();
        let behind = |(partition, next): (&PartitionIndex, &Offset)| {
            state.partition(*partition).map_or(0, |partition| partition.bound(self.isolation).0.saturating_sub(next.0))
        };
        self.next.iter().map(behind).sum()
    }

    /// Whether nothing behind the positions is gone yet.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let state = self.topic.state();
        let mut positions = self.next.iter();
        positions.all(|(partition, next)| state.partition(*partition).is_none_or(|it| it.log_start() <= *next))
    }

    /// Begins new partitions at their start and forgets those that were dropped.
    fn follow_partitions(&mut self, state: &TopicState) {
        self.next.retain(|partition, _| state.partition(*partition).is_some());
        for partition in state.partitions() {
            self.next.entry(partition.index()).or_insert_with(|| partition.log_start());
        }
    }

    /// One turn over all partitions, from the one behind that which came first the last time.
    async fn read_round(
        &mut self,
        state: &TopicState,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<Fetched>, FetchError> {
        let turn = self.turn;
        let (mut order, behind): (Vec<_>, Vec<_>) = state.partitions().partition(|p| Some(p.index()) > turn);
        order.extend(behind);
        let (mut records_left, mut bytes_left) = (max_records, max_bytes);
        let mut parts: Vec<Fetched> = Vec::new();
        let mut moved = Vec::new();
        for partition in order {
            if records_left == 0 || bytes_left == 0 {
                break;
            }
            let Some(fetched) = self.read_one(partition, records_left, bytes_left).await? else { continue };
            moved.push((partition.index(), fetched.next_offset));
            if fetched.is_empty() {
                continue;
            }
            let count: u64 = fetched.batches.iter().map(|batch| u64::from(batch.header().record_count)).sum();
            records_left = records_left.saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
            bytes_left = bytes_left.saturating_sub(fetched.batches.iter().map(|batch| batch.bytes().len()).sum());
            parts.push(fetched);
        }
        // Only now, so that a step that is given up half-way skips nothing.
        self.next.extend(moved);
        if let Some(first) = parts.first() {
            self.turn = Some(first.partition);
        }
        Ok(parts)
    }

    /// What one partition has behind the position, if anything.
    async fn read_one(
        &self,
        partition: &Arc<Partition>,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Option<Fetched>, FetchError> {
        let reading = Reading { core: &self.core, topic: &self.topic, partition, isolation: self.isolation };
        let position = self.next[&partition.index()];
        let mut from = position;
        loop {
            if from == partition.bound(self.isolation) && from == position && from >= partition.log_start() {
                return reading.gone().map_or(Ok(None), Err);
            }
            match reading.read(from, max_records, max_bytes).await {
                Err(FetchError::BelowStart { log_start_offset, .. }) => from = log_start_offset,
                Err(error) => return Err(error),
                Ok(mut fetched) => {
                    if position < from {
                        fetched.gaps.insert(0, Damage { from: position, to: from });
                    }
                    return Ok(Some(fetched));
                }
            }
        }
    }

    fn register(&self, state: &TopicState) -> Vec<Waiter> {
        let bound = bound_of(self.isolation);
        let partitions = state.partitions();
        let mut waiters: Vec<_> = partitions
            .map(|partition| partition.waiters().register(bound, self.next[&partition.index()], &self.woken))
            .collect();
        waiters.push(self.topic.watchers().register(Bound::HighWatermark, Offset(0), &self.woken));
        waiters
    }

    /// Whether there is something to do since the round; looked at after registering.
    fn has_news(&self, state: &Arc<TopicState>) -> bool {
        let moved = |partition: &Arc<Partition>| {
            let position = self.next[&partition.index()];
            partition.bound(self.isolation) > position || partition.log_start() > position
        };
        self.topic.is_deleted()
            || self.core.is_closing()
            || !Arc::ptr_eq(state, &*self.topic.state())
            || state.partitions().any(moved)
    }
}
