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
