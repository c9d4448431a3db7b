//! What is committed, and what transactions would commit.

use std::collections::BTreeMap;

use levada_coordinator::{Outcome, Refusal};
use levada_extension::TopicPartition;
use levada_model::MemberId;

use super::{Model, Offset};
use crate::kit::OPTIONS;

/// An offset in a transaction.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) producer: i64,
    pub(super) at: u64,
    pub(super) partition: TopicPartition,
    pub(super) offset: u64,
    pub(super) wall: i64,
}

impl Model {
    /// Those that would count if their transaction committed now.
    pub(super) fn standing(&self) -> impl Iterator<Item = &Pending> {
        let since = |partition| self.counts_since.get(partition).copied().unwrap_or_default();
        self.pending.iter().filter(move |pending| pending.at > since(&pending.partition))
    }

    pub(crate) fn has_pending(&self) -> bool {
        self.standing().next().is_some()
    }

    /// Whether a transaction that is open could still move the offset of a partition.
    pub(crate) fn is_undecided(&self, partition: &TopicPartition) -> bool {
        self.standing().any(|pending| pending.partition == *partition)
    }

    /// Partitions that are held and undecided, with their holders.
    pub(crate) fn undecided(&self) -> BTreeMap<TopicPartition, MemberId> {
        let undecided = self.hold.iter().filter(|(partition, _)| self.is_undecided(partition));
        undecided.map(|(partition, (holder, _))| (*partition, holder.clone())).collect()
    }

    pub(crate) fn commit(
        &mut self,
        member: &MemberId,
        partition: TopicPartition,
        offset: u64,
        epoch: Option<u32>,
    ) -> Result<u64, Refusal> {
        self.alive(member, false);
        let (_, held) = self.hold.get(&partition).filter(|(holder, _)| holder == member).ok_or(Refusal::NotHeld)?;
        if epoch.is_some_and(|epoch| epoch != *held) {
            return Err(Refusal::LostSince);
        }
        match self.offsets.get(&partition) {
            Some(Offset::Committed { offset: stands, .. }) if epoch.is_some() && *stands >= offset => Ok(*stands),
            _ => {
                self.write(partition);
                self.offsets.insert(partition, Offset::Committed { offset, wall: self.wall });
                Ok(offset)
            }
        }
    }

    pub(crate) fn commit_standalone(&mut self, partition: TopicPartition, offset: u64) {
        self.write(partition);
        self.offsets.insert(partition, Offset::Committed { offset, wall: self.wall });
        self.expiry_at = Some(self.tick + OPTIONS.offsets_retention_ms);
    }

    /// Something of a partition is written that counts at once.
    pub(super) fn write(&mut self, partition: TopicPartition) {
        self.written += 1;
        self.counts_since.insert(partition, self.written);
    }

    pub(crate) fn add(&mut self, producer: i64, partition: TopicPartition, offset: u64) {
        self.written += 1;
        self.pending.push(Pending { producer, at: self.written, partition, offset, wall: self.wall });
        if self.members.is_empty() {
            self.expiry_at = Some(self.tick + OPTIONS.offsets_retention_ms);
        }
    }

    pub(crate) fn end(&mut self, producer: i64, outcome: Outcome) {
        let (of, others) = std::mem::take(&mut self.pending).into_iter().partition(|p| p.producer == producer);
        self.pending = others;
        let of: Vec<Pending> = of;
        for Pending { at, partition, offset, wall, .. } in of.into_iter().filter(|_| outcome == Outcome::Commit) {
            let since = self.counts_since.entry(partition).or_default();
            if *since < at {
                *since = at;
                self.offsets.insert(partition, Offset::Committed { offset, wall });
            }
        }
    }
}
