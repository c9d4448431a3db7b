//! What a pass knows of transactions: whose records do not count, and which markers still end something.
//!
//! Not here: what is kept of the records that count (`rewrite`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use levada_model::ProducerId;

use super::CompactionError;
use crate::BatchHeader;
use crate::partition::reader::aborted_in;
use crate::partition::segment::Segment;
use crate::partition::state::State;
use crate::partition::terms::{AbortedTransaction, Damage};

/// The aborted transactions with records in one segment, of each producer by their first offsets.
#[derive(Default)]
pub(super) struct Aborted(HashMap<ProducerId, Vec<AbortedTransaction>>);

/// Whose transactions have a batch left below, behind their last marker.
#[derive(Default)]
pub(super) struct Remaining(HashSet<ProducerId>);

impl Aborted {
    /// Those of a segment that ends at or below the last stable offset, wherever their markers are. One whose marker is
    /// lost ends the pass: it may have been a commit.
    pub(super) fn of(state: &State, segment: &Arc<Segment>) -> Result<Self, CompactionError> {
        let found = aborted_in(state, &state.segments(), segment.base_offset(), segment.next_offset())?;
        if let Some(AbortedTransaction { first_offset, last_offset, .. }) = found.lost {
            return Err(CompactionError::Damaged(Damage { from: first_offset, to: last_offset.advance(1) }));
        }
        let mut this = Self::default();
        for aborted in found.aborted {
            this.0.entry(aborted.producer_id).or_default().push(aborted);
        }
        Ok(this)
    }

    /// Whether a batch is of one of them.
    pub(super) fn holds(&self, header: &BatchHeader) -> bool {
        let Some(all) = header.producer_id.and_then(|id| self.0.get(&id)) else { return false };
        // Those of one producer lie one behind the other.
        let behind = all.partition_point(|aborted| aborted.first_offset <= header.base_offset);
        behind > 0 && all[behind - 1].holds(header)
    }
}

impl Remaining {
    /// Notes that a batch stays, if only its head.
    pub(super) fn note(&mut self, header: &BatchHeader) {
        if header.is_transactional() {
            self.0.extend(header.producer_id);
        }
    }

    /// Whether the transaction that a marker ends has a batch left.
    pub(super) fn end(&mut self, producer_id: ProducerId) -> bool {
        self.0.remove(&producer_id)
    }
}
