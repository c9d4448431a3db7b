//! Partitions that are read together, in turn: a position in each. What readers of whole topics and fetches of group
//! members are made of.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use levada_log::Damage;
use levada_model::{Offset, PartitionIndex, TopicId};
use tokio::sync::Notify;

use crate::RecordFilter;
use crate::catalog::{Topic, TopicState};
use crate::engine::Core;
use crate::fetch::{FetchError, Fetched, From, Isolation, Reading, Room, bound_of, filter};
use crate::partition::{Bound, Partition, Waiter};

/// A partition of a topic.
pub(crate) type Place = (TopicId, PartitionIndex);

/// Why a round was given up, and where.
pub(crate) type RoundError = (Place, FetchError);

/// Partitions, of any topics, with a position in each.
pub(crate) struct PartitionSet {
    core: Arc<Core>,
    isolation: Isolation,
    topics: BTreeMap<TopicId, Seen>,
    next: BTreeMap<Place, Offset>,
    /// The partition behind which a round begins.
    turn: Option<Place>,
    /// Whether a batch that is larger than a round may be is cut to the records that fit.
    cuts: bool,
    /// What passes.
    filter: Option<RecordFilter>,
    /// How much to read for a filter, after rounds of which nothing passed.
    asked: Option<Room>,
}

/// A topic as it was at the last look.
struct Seen {
    topic: Arc<Topic>,
    state: Arc<TopicState>,
}

impl PartitionSet {
    pub(crate) fn new(core: Arc<Core>, isolation: Isolation) -> Self {
        let (topics, next) = (BTreeMap::new(), BTreeMap::new());
        Self { core, isolation, topics, next, turn: None, cuts: false, filter: None, asked: None }
    }

    /// Cuts a batch that is larger than a round may be to the records that fit, one at least. It is unpacked for that, and
    /// again for the next round: for answers of one request, not for streams, which take a batch whole and write it bit by
    /// bit.
    pub(crate) fn cutting_batches(mut self) -> Self {
        self.cuts = true;
        self
    }

    /// Reads only what passes a filter.
    pub(crate) fn filter(&mut self, by: RecordFilter) {
        self.filter = Some(by);
    }

    /// Whether a filter looks at all that is read.
    pub(crate) fn filters(&self) -> bool {
        self.filter.is_some()
    }

    /// The offset of a place in a partition of any topic.
    pub(crate) async fn resolve(
        &self,
        topic: &Topic,
        partition: &Arc<Partition>,
        from: From,
    ) -> Result<Offset, FetchError> {
        Reading { core: &self.core, topic, partition, isolation: self.isolation }.resolve(from).await
    }

    /// Lets a topic's partitions be put in.
    pub(crate) fn add_topic(&mut self, topic: &Arc<Topic>) {
        if let Entry::Vacant(vacant) = self.topics.entry(topic.id()) {
            vacant.insert(Seen { topic: topic.clone(), state: topic.state_full() });
        }
    }

    /// Puts a partition of a topic that was added, or another position of it.
    pub(crate) fn put(&mut self, place: Place, next: Offset) {
        self.next.insert(place, next);
    }

    /// Where a partition is read next, if it is in.
    pub(crate) fn position(&self, place: Place) -> Option<Offset> {
        self.next.get(&place).copied()
    }

    /// The log start of a partition that is in.
    pub(crate) fn log_start(&self, place: Place) -> Option<Offset> {
        self.partition(place).map(|partition| partition.log_start())
    }

    /// All partitions with their positions, in order.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (Place, Offset)> {
        self.next.iter().map(|(place, next)| (*place, *next))
    }

    /// Offsets between the positions and the ends that readers may read to.
    pub(crate) fn lag(&self) -> u64 {
        let behind = |(place, next): (&Place, &Offset)| {
            self.partition(*place).map_or(0, |partition| partition.bound(self.isolation).0.saturating_sub(next.0))
        };
        self.next.iter().map(behind).sum()
    }

    /// Whether no position is below its log start.
    pub(crate) fn is_whole(&self) -> bool {
        self.next.iter().all(|(place, next)| self.log_start(*place).is_none_or(|start| start <= *next))
    }

    /// Takes out what is not wanted.
    pub(crate) fn retain(&mut self, keep: impl Fn(Place) -> bool) {
        self.next.retain(|place, _| keep(*place));
        let next = &self.next;
        let is_used =
            |id: &TopicId| next.range((*id, PartitionIndex(0))..=(*id, PartitionIndex(u32::MAX))).next().is_some();
        self.topics.retain(|id, _| is_used(id));
    }

    /// Begins the next round behind this partition.
    pub(crate) fn set_turn(&mut self, turn: Option<Place>) {
        self.turn = turn;
    }

    /// Looks at the topics anew, and forgets partitions that were dropped.
    pub(crate) fn refresh(&mut self) {
        for seen in self.topics.values_mut() {
            seen.state = seen.topic.state_full();
        }
        let topics = &self.topics;
        self.next.retain(|place, _| topics.get(&place.0).is_some_and(|seen| seen.state.partition(place.1).is_some()));
    }

    /// One turn over all partitions: reads of those that have something, none of them empty of both records and gaps.
    /// Positions move over what was read, also where nothing of it counts.
    ///
    /// # Errors
    /// See [`FetchError`]; nothing has moved then.
    pub(crate) async fn read_round(
        &mut self,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<(Place, Fetched)>, RoundError> {
        let room = Room { records: max_records, bytes: max_bytes };
        let asked = self.asked.unwrap_or(if self.filters() { room.within_a_call() } else { room });
        let reads = match &self.filter {
            Some(by) => self.read_filtered(by, asked, room).await?,
            None => self.read_in_turn(asked).await?,
        };
        let moved: Vec<_> = reads.iter().map(|(place, fetched)| (*place, fetched.next_offset)).collect();
        let parts: Vec<_> = reads.into_iter().filter(|(_, fetched)| !fetched.is_empty()).collect();
        // Where little passes, more is looked at in one call.
        self.asked = (self.filters() && parts.is_empty() && !moved.is_empty()).then(|| asked.doubled());
        // A filter may be at work on one for long without anything to show for it: then it is another one's turn.
        let first = parts.first().map(|(place, _)| *place);
        self.turn = if self.filters() { moved.last().map(|(place, _)| *place) } else { first }.or(self.turn);
        // Only now, so that a round that is given up half-way skips nothing.
        self.next.extend(moved);
        Ok(parts)
    }

    /// The partitions, from the one on whose turn it is.
    fn in_turn(&self) -> Vec<Place> {
        let turn = self.turn;
        let (mut order, behind): (Vec<_>, Vec<_>) = self.next.keys().copied().partition(|place| Some(*place) > turn);
        order.extend(behind);
        order
    }

    /// What the partitions have, each in its turn, until there is enough.
    async fn read_in_turn(&self, asked: Room) -> Result<Vec<(Place, Fetched)>, RoundError> {
        let mut left = asked;
        let mut reads = Vec::new();
        for place in self.in_turn() {
            if left.is_used_up() {
                break;
            }
            let Some(fetched) = self.read_one(place, left).await.map_err(|error| (place, error))? else { continue };
            left.take(&fetched);
            reads.push((place, fetched));
        }
        Ok(reads)
    }

    /// What passes the filter, as far as there is room for it. What is read for it is shared between all partitions that
    /// have something, so that it is not at work on one alone while others wait.
    async fn read_filtered(
        &self,
        by: &RecordFilter,
        asked: Room,
        room: Room,
    ) -> Result<Vec<(Place, Fetched)>, RoundError> {
        let mut order = self.in_turn();
        order.retain(|place| self.has_something(*place) || self.topics[&place.0].topic.is_deleted());
        let Some(first) = order.first().copied() else { return self.read_in_turn(asked).await };
        let turn = by.turn().await.map_err(|error| (first, error))?;
        let (mut left, mut reads) = (asked, Vec::new());
        for (read, place) in order.iter().enumerate() {
            if left.is_used_up() {
                break;
            }
            let share = left.share(order.len() - read);
            let Some(fetched) = self.read_one(*place, share).await.map_err(|error| (*place, error))? else { continue };
            left.take(&fetched);
            reads.push((*place, fetched));
        }
        let places: Vec<_> = reads.iter().map(|(place, _)| *place).collect();
        let name = |topic| self.topics[&topic].topic.name().clone();
        let named = reads.into_iter().map(|((topic, _), fetched)| (name(topic), fetched)).collect();
        let passed = filter(by, named, room, turn).await.map_err(|error| (first, error))?;
        Ok(places.into_iter().zip(passed).collect())
    }

    /// Has `reader` notified of whatever may give the next round something. To be followed by a look at
    /// [`has_news`](Self::has_news).
    pub(crate) fn register(&self, reader: &Arc<Notify>) -> Vec<Waiter> {
        let bound = bound_of(self.isolation);
        let partitions = self.next.iter().filter_map(|(place, next)| Some((self.partition(*place)?, *next)));
        let mut waiters: Vec<_> =
            partitions.map(|(partition, next)| partition.waiters().register(bound, next, reader)).collect();
        let topics = self.topics.values();
        waiters.extend(topics.map(|seen| seen.topic.watchers().register(Bound::HighWatermark, Offset(0), reader)));
        waiters
    }

    /// Whether there is something to do since the last round.
    pub(crate) fn has_news(&self) -> bool {
        let changed = |seen: &Seen| seen.topic.is_deleted() || !Arc::ptr_eq(&seen.state, &*seen.topic.state());
        self.core.is_closing()
            || self.topics.values().any(changed)
            || self.next.keys().any(|place| self.has_something(*place))
    }

    /// Whether a partition has something behind its position, or nothing there any more.
    fn has_something(&self, place: Place) -> bool {
        let next = self.next[&place];
        let partition = self.partition(place);
        partition.is_some_and(|partition| partition.bound(self.isolation) > next || partition.log_start() > next)
    }

    /// What one partition has behind the position, if anything. A position below the log start is reported as a gap.
    async fn read_one(&self, place: Place, room: Room) -> Result<Option<Fetched>, FetchError> {
        let Some(partition) = self.partition(place) else { return Ok(None) };
        let topic = &self.topics[&place.0].topic;
        let reading = Reading { core: &self.core, topic, partition, isolation: self.isolation };
        let position = self.next[&place];
        let mut from = position;
        loop {
            if from == partition.bound(self.isolation) && from == position && from >= partition.log_start() {
                return reading.gone().map_or(Ok(None), Err);
            }
            match reading.read(from, room.records, room.bytes).await {
                Err(FetchError::BelowStart { log_start_offset, .. }) => from = log_start_offset,
                Err(error) => return Err(error),
                Ok(mut fetched) => {
                    if position < from {
                        fetched.gaps.insert(0, Damage { from: position, to: from });
                    }
                    return Ok(Some(if self.cuts { fetched.keep_bytes(room.bytes).await } else { fetched }));
                }
            }
        }
    }

    fn partition(&self, place: Place) -> Option<&Arc<Partition>> {
        self.topics.get(&place.0)?.state.partition(place.1)
    }
}
