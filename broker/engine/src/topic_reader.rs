//! Reading whole topics: a position in every partition, taken in turn. What cursors, SSE and subscriptions are made of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levada_model::{Offset, PartitionIndex, Principal, TopicId, TopicName};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::catalog::Topic;
use crate::fetch::{Deadline, FetchError, Fetched, From, Isolation, PAUSE_MAX, PAUSE_MIN};
use crate::partition_set::PartitionSet;
use crate::{Engine, RecordFilter};

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

/// Where a reader of several topics begins.
#[derive(Clone, Debug)]
pub enum TopicsStart {
    /// The same place in every partition.
    From(From),
    /// Where an earlier reader stopped. Topics without positions begin at their start; positions of other topics are
    /// refused.
    Positions(Vec<Positions>),
    /// These offsets; partitions that are not named begin at their start.
    Places(Vec<(TopicName, PartitionIndex, Offset)>),
}

/// A read of one partition of several topics.
#[derive(Clone, Debug)]
pub struct TopicPart {
    /// The topic, by its place among those that were named.
    pub topic: usize,
    /// The read, not empty of both records and gaps.
    pub fetched: Fetched,
}

/// Reads a whole topic, partition by partition in turn; sees partitions that are added.
pub struct TopicReader(TopicsReader);

/// Reads several whole topics, as [`TopicReader`] reads one.
pub struct TopicsReader {
    /// In the order in which they were named.
    topics: Vec<Arc<Topic>>,
    set: PartitionSet,
    woken: Arc<Notify>,
    is_patient: bool,
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
        let mut reader = TopicsReader::new(self, isolation);
        reader.add(topic, start).await?;
        Ok(TopicReader(reader))
    }

    /// A reader of all partitions of several topics, each named once.
    ///
    /// # Errors
    /// As [`topic_reader`](Self::topic_reader); also when a place names a partition that is not there.
    pub async fn topics_reader(
        &self,
        who: &Principal,
        topics: &[TopicName],
        start: TopicsStart,
        isolation: Isolation,
    ) -> Result<TopicsReader, FetchError> {
        let mut reader = TopicsReader::new(self, isolation);
        let mut left = start;
        for name in topics {
            let topic = self.readable(who, name)?;
            let start = left.of(&topic)?;
            reader.add(topic, start).await?;
        }
        match (left, reader.topics.first()) {
            (TopicsStart::Positions(left), Some(topic)) if !left.is_empty() => {
                Err(FetchError::OtherTopic { topic: topic.name().clone() })
            }
            _ => Ok(reader),
        }
    }
}

impl TopicsStart {
    /// Takes out where one of the topics begins.
    fn of(&mut self, topic: &Topic) -> Result<TopicStart, FetchError> {
        Ok(match self {
            Self::From(from) => TopicStart::From(*from),
            Self::Positions(left) => match left.iter().position(|positions| positions.topic_id == topic.id()) {
                Some(at) => TopicStart::Positions(left.swap_remove(at)),
                None => TopicStart::From(From::Earliest),
            },
            Self::Places(places) => {
                let state = topic.state_full();
                let named = places.iter().filter(|(name, ..)| name == topic.name());
                let next: Vec<_> = named.map(|(_, partition, offset)| (*partition, *offset)).collect();
                if let Some((partition, _)) = next.iter().find(|(partition, _)| state.partition(*partition).is_none()) {
                    return Err(FetchError::NoPartition { topic: topic.name().clone(), partition: *partition });
                }
                TopicStart::Positions(Positions { topic_id: topic.id(), next })
            }
        })
    }
}

impl TopicReader {
    /// The same, of what passes a filter: positions move on over what does not.
    #[must_use]
    pub fn filtered(self, by: RecordFilter) -> Self {
        Self(self.0.filtered(by))
    }

    /// The same for a stream, which has nobody to refuse: where the filter has no room it comes back after a while without
    /// anything, and tries again the next time.
    #[must_use]
    pub fn patient(self) -> Self {
        Self(self.0.patient())
    }

    /// Reads on, and waits at most `wait` for something: one read a partition that has something, none of them empty of
    /// both records and gaps. Positions move over what is returned. A position below a log start that moved meanwhile is
    /// reported as a gap and moves up.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn next(
        &mut self,
        max_records: usize,
        max_bytes: usize,
        wait: Duration,
    ) -> Result<Vec<Fetched>, FetchError> {
        let parts = self.0.next(max_records, max_bytes, wait).await?;
        Ok(parts.into_iter().map(|part| part.fetched).collect())
    }

    /// Where it stands, behind everything that was returned.
    #[must_use]
    pub fn positions(&self) -> Positions {
        self.0.positions().pop().expect("it has one topic")
    }
}

impl TopicsReader {
    fn new(engine: &Engine, isolation: Isolation) -> Self {
        let set = PartitionSet::new(engine.core.clone(), isolation);
        Self { topics: Vec::new(), set, woken: Arc::default(), is_patient: false }
    }

    /// As [`TopicReader::filtered`].
    #[must_use]
    pub fn filtered(mut self, by: RecordFilter) -> Self {
        self.set.filter(by);
        self
    }

    /// As [`TopicReader::patient`].
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.is_patient = true;
        self
    }

    async fn add(&mut self, topic: Arc<Topic>, start: TopicStart) -> Result<(), FetchError> {
        let state = topic.state_full();
        let mut next = BTreeMap::new();
        match start {
            TopicStart::From(from) => {
                for partition in state.partitions() {
                    next.insert(partition.index(), self.set.resolve(&topic, partition, from).await?);
                }
            }
            TopicStart::Positions(positions) if positions.topic_id != topic.id() => {
                return Err(FetchError::OtherTopic { topic: topic.name().clone() });
            }
            TopicStart::Positions(positions) => next.extend(positions.next),
        }
        self.set.add_topic(&topic);
        for (partition, requested) in next {
            let high_watermark = state.partition(partition).map(|partition| partition.high_watermark());
            if let Some(high_watermark) = high_watermark.filter(|end| requested > *end) {
                return Err(FetchError::BeyondEnd { partition, requested, high_watermark });
            }
            self.set.put((topic.id(), partition), requested);
        }
        self.topics.push(topic);
        self.follow_partitions();
        Ok(())
    }

    /// As [`TopicReader::next`].
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn next(
        &mut self,
        max_records: usize,
        max_bytes: usize,
        wait: Duration,
    ) -> Result<Vec<TopicPart>, FetchError> {
        let mut deadline = Deadline::new(wait, self.set.filters());
        let mut pause = PAUSE_MIN;
        loop {
            self.follow_partitions();
            let parts = match self.set.read_round(max_records.max(1), max_bytes.max(1)).await {
                Ok(parts) => parts,
                Err((_, error)) if error.is_busy() && deadline.pause(&mut pause).await => continue,
                Err((_, error)) if error.is_busy() && self.is_patient => {
                    #[expect(clippy::disallowed_methods, reason = "nobody tells when a module has room")]
                    sleep(PAUSE_MAX).await;
                    return Ok(Vec::new());
                }
                Err((_, error)) => return Err(error),
            };
            if !parts.is_empty() {
                let topic = |id| self.topics.iter().position(|topic| topic.id() == id).expect("it reads no others");
                let part = |((id, _), fetched)| TopicPart { topic: topic(id), fetched };
                return Ok(parts.into_iter().map(part).collect());
            }
            let _waiters = self.set.register(&self.woken);
            let more = if self.set.has_news() { deadline.allows_another() } else { deadline.wait(&self.woken).await };
            if !more {
                return Ok(Vec::new());
            }
        }
    }

    /// Where it stands, topic by topic, behind everything that was returned.
    #[must_use]
    pub fn positions(&self) -> Vec<Positions> {
        let of = |topic: &Arc<Topic>| {
            let places = self.set.positions().filter(|((id, _), _)| *id == topic.id());
            Positions { topic_id: topic.id(), next: places.map(|((_, partition), next)| (partition, next)).collect() }
        };
        self.topics.iter().map(of).collect()
    }

    /// Moves over what was read beyond the positions: batches come whole where they are taken as they are.
    pub fn pass(&mut self, topic: usize, partition: PartitionIndex, next: Offset) {
        let place = (self.topics[topic].id(), partition);
        if self.set.position(place).is_some_and(|position| position < next) {
            self.set.put(place, next);
        }
    }

    /// Offsets between the positions and the ends, of all partitions together.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.set.lag()
    }

    /// Whether nothing behind the positions is gone yet.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.set.is_whole()
    }

    /// Begins new partitions at their start and forgets those that were dropped.
    fn follow_partitions(&mut self) {
        self.set.refresh();
        for topic in &self.topics {
            for partition in topic.state().partitions() {
                let place = (topic.id(), partition.index());
                if self.set.position(place).is_none() {
                    self.set.put(place, partition.log_start());
                }
            }
        }
    }
}
