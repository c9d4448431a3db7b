//! The writer's part in a compaction: what a pass takes, and the place of what it wrote.
//!
//! Not here: the pass itself, which runs beside the writer (`compaction`).

use std::sync::Arc;

use levada_model::{Offset, Timestamp};

use super::PartitionLog;
use crate::StorageError;
use crate::partition::compaction::{self, Cleanable, Compacted, CompactionPass, CompactionPlan, Permit, Written};
use crate::partition::listing::{Kind, Swap};
use crate::partition::segment::{Extent, Segment};

impl PartitionLog {
    /// Plans the next pass over sealed segments that end at or below `bound` and the last stable offset; none if nothing
    /// is due ([`LogReader::compaction_state`](crate::LogReader::compaction_state) tells why), if the log is not to be
    /// compacted, or while an earlier pass is still there. Rolls the active segment when its first record is older than
    /// `max_compaction_lag_ms`. `forced` rolls it anyway, and cleans whatever may be cleaned, also what is clean; only
    /// `min_compaction_lag_ms` and `bound` hold.
    ///
    /// # Errors
    /// When the file system fails; the log then takes no more writes. When no file descriptor is free
    /// ([`StorageError::is_out_of_files`]), nothing was changed and the log goes on.
    pub fn plan_compaction(
        &mut self,
        now: Timestamp,
        bound: Offset,
        forced: bool,
    ) -> Result<Option<CompactionPlan>, Arc<StorageError>> {
        let Some(options) = self.options.compaction else { return Ok(None) };
        // Nothing is written beside a log that takes no writes.
        self.unless_poisoned(|_| Ok(()))?;
        let is_due = |first: Timestamp| forced || now.0.saturating_sub(first.0) > options.max_compaction_lag_ms;
        if self.active.first_append.is_some_and(is_due) || (forced && !self.staged.is_empty()) {
            self.ready_to_roll()?;
            self.unless_poisoned(|log| {
                log.write_staged(now)?;
                log.roll_here()
            })?;
        }
        let bound = bound.min(self.state.synced_stable());
        let cleanable = match Cleanable::now(&self.state, &options, now, bound) {
            Ok(cleanable) => cleanable,
            // An old file that cannot be read is no reason to refuse new records.
            Err(error) => {
                tracing::warn!(dir = %self.state.dir.display(), %error, "compaction cannot judge a segment");
                return Ok(None);
            }
        };
        if !cleanable.is_planned(forced) {
            return Ok(None);
        }
        let Some(permit) = Permit::take(&self.state) else { return Ok(None) };
        Ok(Some(CompactionPlan {
            state: self.state.clone(),
            sources: cleanable.segments,
            first_dirty: cleanable.first_dirty,
            options,
            segment_bytes: self.options.segment_bytes,
            now,
            remembered: self.producers.remembered(),
            _permit: permit,
        }))
    }

    /// Puts the oldest segment that a pass wrote in place of its sources, durably; true while others wait. A large log
    /// has many, and each costs some syncs: call this until it is false, let appends have their turn in between, and
    /// then [`install_compacted`](Self::install_compacted).
    ///
    /// # Errors
    /// As [`install_compacted`](Self::install_compacted).
    pub fn install_next(&mut self, compacted: &mut Compacted) -> Result<bool, Arc<StorageError>> {
        if compacted.outcome.written.is_empty() || !compacted.is_current() {
            return Ok(false);
        }
        self.ready_to_roll()?;
        let written = compacted.outcome.written.remove(0);
        self.unless_poisoned(|log| {
            log.spares.clear();
            log.install(&written)
        })?;
        Ok(!compacted.outcome.written.is_empty())
    }

    /// Puts what a pass wrote in place of its sources, durably, or what is left of that. None if these have changed
    /// meanwhile (retention, truncation): what was written is then removed.
    ///
    /// # Errors
    /// When the file system fails; the log then takes no more writes, and the next open finishes what was begun. When
    /// no file descriptor is free ([`StorageError::is_out_of_files`]), nothing was changed and the log goes on.
    pub fn install_compacted(&mut self, compacted: Compacted) -> Result<Option<CompactionPass>, Arc<StorageError>> {
        if !compacted.is_current() {
            return Ok(None);
        }
        self.ready_to_roll()?;
        self.unless_poisoned(|log| {
            log.spares.clear();
            // One after another from the oldest on: a tombstone must not go before what it deletes.
            for written in &compacted.outcome.written {
                log.install(written)?;
            }
            log.state.with_compaction(|progress| {
                progress.first_dirty = compacted.next_dirty;
                progress.latest_horizon = compacted.outcome.latest_horizon;
                progress.is_unfinished = !compacted.pass().is_done;
            });
            log.save_checkpoint(false)
        })?;
        Ok(Some(compacted.pass()))
    }

    fn install(&mut self, written: &Written) -> Result<(), StorageError> {
        let (storage, dir) = (&*self.state.storage, &self.state.dir);
        let swap = Swap { base: written.base, next: written.next };
        let extent = Extent { bytes: Some(written.bytes), next_offset: written.next };
        let (log, index) = (Kind::Cleaned.path(dir, written.base), Kind::CleanedIndex.path(dir, written.base));
        let new = Arc::new(Segment::pinned(&self.state, written.base, extent, &log, &index)?);
        compaction::commit(storage, dir, swap)?;
        // Readers turn to the new segment before any file of an old one goes.
        self.state.replace_segments(&written.sources, new.clone());
        written.sources.iter().for_each(|source| source.retire());
        compaction::finish(storage, dir, swap, written.sources.iter().map(|source| source.base_offset()))?;
        new.unpin();
        self.state.warmed(&new);
        Ok(())
    }
}
