//! A writer at its beginning: what recovery found, as the state that the first append meets. Not here: recovery itself.

use std::path::Path;
use std::sync::Arc;

use levada_model::Timestamp;

use super::PartitionLog;
use super::files::Spares;
use crate::Storage;
use crate::partition::errors::OpenError;
use crate::partition::recovery::{self, Found};
use crate::partition::state::State;
use crate::partition::terms::{LogOptions, PlantedFaults, Recovery};

impl PartitionLog {
    pub(super) fn open_planted(
        storage: Arc<dyn Storage>,
        dir: &Path,
        options: LogOptions,
        now: Timestamp,
        trust_clean_marker: bool,
        plants: PlantedFaults,
    ) -> Result<(Self, Recovery), OpenError> {
        let state = State::new(storage, dir.to_owned(), plants);
        state.set_segment_bytes(options.segment_bytes);
        state.with_compaction(|progress| progress.options = options.compaction);
        let state = Arc::new(state);
        let (found, recovery) = recovery::open(&state, now, trust_clean_marker)?;
        let mut log = Self::assemble(state, options, found);
        // It counts towards the next snapshot by its bytes alone: after a crash, a thousand idle partitions write none.
        log.unsnapshotted_bytes = recovery.scanned_bytes;
        Ok((log, recovery))
    }

    fn assemble(state: Arc<State>, options: LogOptions, found: Found) -> Self {
        let end = found.active.end;
        state.set_log_end(end.offset);
        let log = Self {
            staged_base: found.active.segment.base_offset(),
            state,
            options,
            active: found.active,
            producers: found.producers,
            checkpoint: found.checkpoint,
            synced_end: end.offset,
            staged: Vec::new(),
            staged_end: end,
            snapshot: found.snapshot,
            snapshot_files: found.snapshot_files,
            unsnapshotted_bytes: 0,
            unsnapshotted_since: None,
            is_on_disk: found.is_on_disk,
            is_epoch_new: false,
            is_dirty: !found.is_clean,
            poison: None,
            spares: Spares::default(),
            maintained_end: end.offset,
        };
        log.note_stable();
        log.state.raise_synced_stable(log.state.last_stable());
        log
    }
}
