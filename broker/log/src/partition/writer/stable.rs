//! How far the log is stable: what its marks say, and which transactions keep the last stable offset back.

use levada_model::{Offset, ProducerId, Timestamp};

use super::PartitionLog;
use crate::partition::terms::{Marks, OpenTransaction};
use crate::producers::Judging;

impl PartitionLog {
    /// The marks now.
    #[must_use]
    pub fn marks(&self) -> Marks {
        let log_end = self.state.log_end();
        let synced_end = self.synced_end.min(log_end);
        Marks {
            log_start: self.state.log_start(),
            log_end,
            synced_end,
            // In the middle of a write that failed they may be ahead.
            last_stable: self.state.last_stable().min(log_end),
            synced_stable: self.state.synced_stable().min(synced_end),
        }
    }

    /// The transactions that are open here, by their first offsets: also those whose coordinator may have forgotten them.
    #[must_use]
    pub fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.producers.open()
    }

    /// First offset of the transaction that a producer has open here, as what was staged leaves it.
    #[must_use]
    pub fn open_since(&self, producer_id: ProducerId) -> Option<Offset> {
        self.producers.open_since(producer_id)
    }

    /// Moves the last stable offset, when all that was staged is written: a marker ends nothing before it is.
    pub(super) fn note_stable(&self) {
        self.state.raise_last_stable(self.stable_at(self.active.end.offset));
    }

    /// The last stable offset of a log that ends at `end`, where the last batch that was staged does.
    pub(super) fn stable_at(&self, end: Offset) -> Offset {
        self.producers.first_open().map_or(end, |first| first.min(end)).max(self.state.log_start())
    }

    pub(super) fn judging(&self, now: Timestamp) -> Judging {
        let expiration_ms = self.options.producer_expiration_ms;
        Judging { now, expiration_ms, ignore_epoch: self.state.plants.ignore_epoch }
    }
}
