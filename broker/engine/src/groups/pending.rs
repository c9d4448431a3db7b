//! Offsets of groups inside transactions: what members and others commit with one, and the ends of transactions.
//!
//! The coordinator of transactions knows of a group before the group's log does, so that every transaction gets its marker
//! there; the marker goes through the group's coordinator, as everything that is written to its log.

use std::collections::BTreeSet;
use std::sync::Arc;

use levada_coordinator::{
    Committed, MarkerError, OffsetsMarker, Outcome, PendingError, Producer, Refusal, StandaloneError,
};
use levada_extension::TopicPartition;
use levada_model::{GroupName, Operation, Principal, ProducerEpoch, ProducerId, Resource};
use thiserror::Error;

use super::kind::{GroupCoordinator, GroupKind, Groups};
use super::members::member_error;
use super::own::refuse_internal;
use super::terms::{GroupCommitted, GroupError};
use crate::coordinators::CoordinatorFault;
use crate::engine::Core;
use crate::{TransactionError, TransactionOffset, TransactionOffsets};

/// Why the end of a transaction did not get to a group; to be told again.
#[derive(Debug, Error)]
pub(crate) enum EndOffsetsError {
    /// The group's coordinator has not answered.
    #[error(transparent)]
    Coordinator(#[from] CoordinatorFault),
    /// It refuses the marker.
    #[error(transparent)]
    Marker(#[from] MarkerError),
}

/// Offsets that may be taken into a transaction, as far as topics and partitions go.
pub(crate) struct PendingOffsets {
    coordinator: GroupCoordinator,
    offsets: TransactionOffsets,
    commits: Vec<(TopicPartition, Committed)>,
}

impl PendingOffsets {
    /// Whose they are.
    pub(crate) fn group(&self) -> &GroupName {
        &self.offsets.group
    }
}

impl Groups {
    /// Tells a group how a transaction ended. Whatever of it comes later is refused there, also where nothing came before.
    /// The same end again, and the late end of an earlier transaction, change nothing.
    ///
    /// # Errors
    /// When it did not get there, or perhaps did not.
    pub(crate) async fn end_transaction(
        self: &Arc<Self>,
        group: &GroupName,
        producer_id: ProducerId,
        marker_epoch: ProducerEpoch,
        coordinator_epoch: i32,
        outcome: Outcome,
    ) -> Result<(), EndOffsetsError> {
        // The topic comes before the first word about any group in a transaction. So without it nothing can be under way.
        let Some(coordinator) = self.coordinator(group) else { return Ok(()) };
        let producer = Producer { id: producer_id, epoch: marker_epoch };
        let marker = OffsetsMarker { producer, coordinator_epoch, outcome };
        Ok(coordinator.step(|machine, now, _| machine.end_transaction(now, marker)).await??)
    }
}

impl Core {
    /// Judges offsets that are to be committed with a transaction, and who commits them; nothing is changed. The
    /// coordinator of transactions is to be told of the group then, and only after that they are
    /// [added](Self::add_pending).
    ///
    /// # Errors
    /// See [`GroupError`].
    pub(crate) async fn judge_pending(
        self: &Arc<Self>,
        who: &Principal,
        offsets: TransactionOffsets,
    ) -> Result<PendingOffsets, GroupError> {
        let TransactionOffsets { group, member_id, offsets: list } = &offsets;
        let operation = if member_id.is_some() { Operation::Read } else { Operation::Write };
        self.authorize(who, operation, Resource::Group(group))?;
        refuse_internal(group)?;
        for offset in list {
            self.authorize(who, Operation::Read, Resource::Topic(&offset.topic))?;
        }
        let mut named = BTreeSet::new();
        let mut commits = Vec::with_capacity(list.len());
        let mut faults = Vec::new();
        for (place, offset) in list.iter().enumerate() {
            match self.judge_offset(offset) {
                Ok((partition, _)) if !named.insert(partition) => {
                    faults.push((place, "the partition is named twice".to_owned()));
                }
                Ok(commit) => commits.push(commit),
                Err(fault) => faults.push((place, fault)),
            }
        }
        if !faults.is_empty() {
            // Whoever is no member learns of that first.
            if let Some(member) = member_id {
                self.holdings(group, member).await?;
            }
            return Err(GroupError::Offsets(faults));
        }
        let topic = self.ensure_coordinators::<GroupKind>().await?;
        let coordinator = self.groups.coordinator_in(&topic, group);
        Ok(PendingOffsets { coordinator, offsets, commits })
    }

    /// Offsets of one of the broker's own groups that are to be committed with a transaction, as after
    /// [`judge_pending`](Self::judge_pending).
    pub(crate) async fn own_pending(
        self: &Arc<Self>,
        group: &GroupName,
        commits: Vec<(TopicPartition, Committed)>,
    ) -> Result<PendingOffsets, GroupError> {
        let topic = self.ensure_coordinators::<GroupKind>().await?;
        let coordinator = self.groups.coordinator_in(&topic, group);
        let offsets = TransactionOffsets { group: group.clone(), member_id: None, offsets: Vec::new() };
        Ok(PendingOffsets { coordinator, offsets, commits })
    }

    /// Takes offsets into a transaction that its coordinator knows to have some of this group.
    ///
    /// # Errors
    /// See [`TransactionError`]; [`ProducerFenced`](TransactionError::ProducerFenced) also where it has ended meanwhile.
    pub(crate) async fn add_pending(
        self: &Arc<Self>,
        transaction: Producer,
        pending: PendingOffsets,
    ) -> Result<(), TransactionError> {
        let PendingOffsets { coordinator, offsets: TransactionOffsets { group, member_id, offsets }, commits } =
            pending;
        let step = coordinator.step(|machine, now, _| {
            machine.add_transaction_offsets(now, &group, member_id.as_ref(), transaction, commits)
        });
        match step.await.map_err(GroupError::from)? {
            Ok(()) => Ok(()),
            Err(PendingError::ProducerFenced) => Err(TransactionError::ProducerFenced),
            Err(PendingError::TransactionOpen(_)) => Err(TransactionError::ConcurrentTransactions),
            Err(PendingError::Member(error)) => Err(member_error(error).into()),
            Err(PendingError::Standalone(StandaloneError::Active(members))) => Err(GroupError::Active(members).into()),
            Err(PendingError::NotHeld(places)) => Err(not_held(&offsets, &places).into()),
            Err(PendingError::TooManyTransactions { limit }) => {
                Err(GroupError::TooManyPending { limit, of: "transactions with offsets" }.into())
            }
            Err(PendingError::TooManyOffsets { limit }) => {
                Err(GroupError::TooManyPending { limit, of: "offsets of transactions" }.into())
            }
        }
    }

    /// What an offset means, if its partition is there and has got so far.
    fn judge_offset(&self, offset: &TransactionOffset) -> Result<(TopicPartition, Committed), String> {
        let TransactionOffset { topic, partition: index, offset } = offset;
        let there = self.catalog.get(topic).ok_or_else(|| format!("there is no topic {topic}"))?;
        let partition = there.state().partition(*index).cloned();
        let partition = partition.ok_or_else(|| format!("topic {topic} has no partition {index}"))?;
        let end = partition.high_watermark();
        if *offset > end {
            return Err(format!("offset {offset} is beyond the end {end}"));
        }
        let committed = Committed {
            offset: *offset,
            leader_epoch: partition.leader_epoch(),
            committed_at: self.directory.now(),
            metadata: String::new(),
        };
        Ok((TopicPartition { topic: there.id(), partition: *index }, committed))
    }
}

/// The refusal of offsets some of which belong to partitions that the member does not hold.
fn not_held(offsets: &[TransactionOffset], places: &[usize]) -> GroupError {
    let refused = |place: &usize| {
        let TransactionOffset { topic, partition, .. } = offsets[*place].clone();
        (topic, partition, Refusal::NotHeld.to_string())
    };
    GroupError::IllegalGeneration(GroupCommitted {
        refused: places.iter().map(refused).collect(),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use levada_coordinator::TransactionHandle;
    use levada_log::{SimStorage, Storage};
    use levada_model::{ManualClock, Offset, PartitionIndex, Timestamp, TopicName, TransactionalId};

    use super::*;
    use crate::coordinators::Kind;
    use crate::partition::blocking;
    use crate::{CreateTopic, Engine, From, OffsetCommit, ProduceRecord, ProduceRequest, testing};

    struct Bench {
        clock: Arc<ManualClock>,
        storage: Arc<dyn Storage>,
    }

    impl Bench {
        fn open(&self) -> Engine {
            testing::open_on(self.storage.clone(), self.clock.clone())
        }
    }

    fn topic() -> TopicName {
        TopicName::new("t").expect("a name")
    }

    fn group() -> GroupName {
        GroupName::new("g").expect("a name")
    }

    async fn producer(engine: &Engine, id: &str) -> Producer {
        let id = TransactionalId::new(id).expect("an id");
        engine.init_transactional_producer(&Principal::anonymous(), &id, 60_000).await.expect("it starts")
    }

    async fn begin(engine: &Engine, producer: Producer) -> TransactionHandle {
        engine.begin_transaction(&Principal::anonymous(), producer.id, producer.epoch).await.expect("it begins")
    }

    async fn add(engine: &Engine, transaction: TransactionHandle, offsets: &[(u32, u64)]) {
        let offset = |(partition, offset): &(u32, u64)| TransactionOffset {
            topic: topic(),
            partition: PartitionIndex(*partition),
            offset: Offset(*offset),
        };
        let offsets = offsets.iter().map(offset).collect();
        let offsets = TransactionOffsets { group: group(), member_id: None, offsets };
        engine.add_transaction_offsets(&Principal::anonymous(), transaction, offsets).await.expect("they are taken");
    }

    async fn end(engine: &Engine, transaction: TransactionHandle, outcome: Outcome) -> Producer {
        engine.end_transaction(&Principal::anonymous(), transaction, outcome).await.expect("it ends")
    }

    async fn plain(engine: &Engine, offset: u64) {
        let offset = From::Offset(Offset(offset));
        let commit = OffsetCommit { topic: topic(), partition: PartitionIndex(0), offset };
        let committed = engine.commit_group_offsets(&Principal::anonymous(), &group(), vec![commit], false).await;
        committed.expect("committed");
    }

    async fn stand(engine: &Engine) -> Vec<(u32, u64)> {
        let offsets = engine.group_offsets(&Principal::anonymous(), &group()).await.expect("offsets");
        offsets.into_iter().map(|offset| (offset.partition.0, offset.committed.0)).collect()
    }

    /// Compacts the group's partition of `__consumer_offsets`, so many times at a distance after which tombstones and
    /// markers go; answers how many records went.
    async fn compact(bench: &Bench, engine: &Engine, passes: usize) -> u64 {
        let topic = engine.core.catalog.get(&GroupKind::topic()).expect("it is there");
        let state = topic.state();
        let written = state.partitions().max_by_key(|partition| partition.high_watermark());
        let written = written.expect("there are some").clone();
        let mut gone = 0;
        for pass in 0..passes {
            if pass > 0 {
                bench.clock.advance(25 * 60 * 60 * 1_000);
            }
            let partition = written.clone();
            let pass = blocking(move || partition.clean(true)).await.expect("it can be compacted");
            gone += pass.map_or(0, |pass| pass.before_records - pass.after_records);
        }
        gone
    }

    #[tokio::test]
    async fn a_compaction_of_the_log_leaves_a_group_its_offsets() {
        let clock = Arc::new(ManualClock::at(Timestamp(1)));
        let bench = Bench { clock: clock.clone(), storage: Arc::new(SimStorage::new(clock)) };
        let engine = bench.open();
        let new = CreateTopic { name: topic(), partitions: 2, config: Default::default() };
        engine.create_topic(&Principal::anonymous(), new).await.expect("created");
        let record = |n: u32| ProduceRecord {
            record: levada_model::Record::default(),
            timestamp: None,
            partition: Some(PartitionIndex(n % 2)),
        };
        let request = ProduceRequest { records: (0..20).map(record).collect(), ..ProduceRequest::default() };
        engine.produce(&Principal::anonymous(), &topic(), request).await.expect("produced");
        let (mut one, mut two) = (producer(&engine, "one").await, producer(&engine, "two").await);
        for round in 0..6 {
            let (of_one, of_two) = (begin(&engine, one).await, begin(&engine, two).await);
            add(&engine, of_one, &[(0, round), (1, round)]).await;
            add(&engine, of_two, &[(0, round + 1)]).await;
            let outcomes = [Outcome::Commit, Outcome::Abort];
            one = end(&engine, of_one, outcomes[round as usize % 2]).await;
            two = end(&engine, of_two, outcomes[(round as usize + 1) % 2]).await;
        }
        let of_one = begin(&engine, one).await;
        add(&engine, of_one, &[(0, 8)]).await;
        plain(&engine, 3).await;
        end(&engine, of_one, Outcome::Commit).await;
        // Compaction ends with the last segment that is decided, so the one that stays open begins in the next.
        let gone = compact(&bench, &engine, 3).await;
        assert!(gone >= 12, "{gone} of 20 offsets and 13 markers are gone");
        let of_two = begin(&engine, two).await;
        add(&engine, of_two, &[(0, 9), (1, 9)]).await;
        compact(&bench, &engine, 1).await;
        let stable = vec![(0, 3), (1, 4)];
        assert_eq!(stand(&engine).await, stable);
        drop(engine);
        let engine = bench.open();
        assert_eq!(stand(&engine).await, stable, "with the last transaction open");
        end(&engine, of_two, Outcome::Commit).await;
        assert_eq!(stand(&engine).await, [(0, 9), (1, 9)]);
        compact(&bench, &engine, 3).await;
        drop(engine);
        assert_eq!(stand(&bench.open()).await, [(0, 9), (1, 9)]);
    }
}
