//! The writer's snapshots and checkpoints: what keeps the scan after a crash short.
//!
//! Data is synced before anything here says that it is. Not here: the bytes of either file.

use std::sync::Arc;

use levada_model::{Offset, Timestamp};

use super::PartitionLog;
use crate::StorageError;
use crate::partition::checkpoint::{Checkpoint, SnapshotAt};
use crate::partition::listing::Kind;
use crate::partition::{recovery, snapshot};

/// After this part of a segment a snapshot is due, within the bounds below: what a recovery scans.
const SNAPSHOTS_PER_SEGMENT: u64 = 16;
const SNAPSHOT_BYTES_MIN: u64 = 4 << 20;
const SNAPSHOT_BYTES_MAX: u64 = 64 << 20;
/// After this long a snapshot of what was appended is due.
const SNAPSHOT_MS: i64 = 30_000;
/// Snapshot files that are kept: the newest, and one to fall back to.
const SNAPSHOTS_KEPT: usize = 2;

impl PartitionLog {
    /// Whether so much was appended since the last snapshot that [`settle`](Self::settle) should be called. Ask when
    /// the acks are out.
    #[must_use]
    pub fn is_settle_due(&self) -> bool {
        let due = (self.options.segment_bytes / SNAPSHOTS_PER_SEGMENT).clamp(SNAPSHOT_BYTES_MIN, SNAPSHOT_BYTES_MAX);
        self.unsnapshotted_bytes >= due
    }

    /// Moves the recovery point and the snapshot to the end, durably, so that a scan after a crash stays short.
    ///
    /// # Errors
    /// When the file system fails; the log then takes no more writes. When no file descriptor is free
    /// ([`StorageError::is_out_of_files`]), nothing was changed and the log goes on.
    pub fn settle(&mut self) -> Result<(), Arc<StorageError>> {
        self.ready_to_roll()?;
        self.unless_poisoned(|log| {
            log.write_staged(log.active.last_append)?;
            log.settle_here()
        })
    }

    pub(super) fn is_snapshot_due(&self, now: Timestamp) -> bool {
        let is_old = |since: Timestamp| now.0.saturating_sub(since.0) > SNAPSHOT_MS;
        self.is_settle_due() || self.unsnapshotted_since.is_some_and(is_old)
    }

    pub(super) fn settle_here(&mut self) -> Result<(), StorageError> {
        self.spares.clear();
        if self.synced_end != self.active.end.offset {
            self.sync_active()?;
        }
        self.active.write_index(&self.state, false)?;
        self.write_snapshot()?;
        self.save_checkpoint(false)?;
        self.remove_old_snapshots()
    }

    pub(super) fn encode_snapshot(&self, offset: Offset) -> Option<Vec<u8>> {
        (!self.producers.is_empty()).then(|| snapshot::encode(&self.producers, offset))
    }

    /// Takes a snapshot at the end, which must be synced, unless there is one.
    pub(super) fn write_snapshot(&mut self) -> Result<(), StorageError> {
        let offset = self.active.end.offset;
        assert!(self.synced_end == offset && self.staged.is_empty(), "a snapshot proves that all before it is synced");
        if matches!(self.snapshot, SnapshotAt::Empty(at) | SnapshotAt::File(at) if at == offset) {
            (self.unsnapshotted_bytes, self.unsnapshotted_since) = (0, None);
            return Ok(());
        }
        self.store_snapshot(offset, self.encode_snapshot(offset))
    }

    pub(super) fn store_snapshot(&mut self, offset: Offset, bytes: Option<Vec<u8>>) -> Result<(), StorageError> {
        (self.unsnapshotted_bytes, self.unsnapshotted_since) = (0, None);
        let Some(bytes) = bytes else {
            self.snapshot = SnapshotAt::Empty(offset);
            return Ok(());
        };
        snapshot::write(&*self.state.storage, &self.state.dir, offset, &bytes)?;
        self.snapshot = SnapshotAt::File(offset);
        self.snapshot_files.retain(|other| *other != offset);
        self.snapshot_files.push(offset);
        Ok(())
    }

    /// Removes snapshots that nothing falls back to. The checkpoint that names the newest must be saved before.
    pub(super) fn remove_old_snapshots(&mut self) -> Result<(), StorageError> {
        let kept = if matches!(self.snapshot, SnapshotAt::Empty(_)) { 0 } else { SNAPSHOTS_KEPT };
        let old = self.snapshot_files.len().saturating_sub(kept);
        for offset in self.snapshot_files.drain(..old) {
            let path = Kind::Snapshot.path(&self.state.dir, offset);
            recovery::remove(&*self.state.storage, &path)?;
        }
        Ok(())
    }

    pub(super) fn checkpoint_now(&self, clean: bool) -> Checkpoint {
        let compaction = self.state.compaction();
        Checkpoint {
            recovery_point: self.synced_end,
            log_start: self.state.log_start(),
            clean,
            active_base: self.active.segment.base_offset(),
            active_bytes: self.active.end.position,
            first_append: self.active.first_append,
            last_append: self.active.last_append,
            snapshot: self.snapshot,
            epochs: self.state.epochs(),
            first_dirty: compaction.first_dirty,
            latest_horizon: compaction.latest_horizon,
        }
    }

    pub(super) fn save_checkpoint(&mut self, clean: bool) -> Result<(), StorageError> {
        self.is_dirty = !clean;
        let checkpoint = self.checkpoint_now(clean);
        self.checkpoint.save(&*self.state.storage, &checkpoint)
    }
}
