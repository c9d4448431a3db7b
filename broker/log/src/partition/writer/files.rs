//! Which files the writer holds open, and that it never begins what it has no file descriptors for.
//!
//! To run out of descriptors says nothing of the disk and passes, but in the middle of a roll it would leave the log in a
//! state that only a restart mends. So what a step may need is opened before it begins, and refused while that is free.
//! Not here: how many files the process may have open.

use std::sync::Arc;

use levada_model::LeaderEpoch;

use super::PartitionLog;
use crate::partition::checkpoint::CheckpointFile;
use crate::partition::recovery;
use crate::partition::state::WARM_SEGMENTS_MAX;
use crate::{File, StorageError};

/// Files that a group which rolls may open: the segments that stay open, the new one, and for a moment a snapshot or an
/// index and the directory.
const ROLL_FILES: usize = WARM_SEGMENTS_MAX + 3;

/// Open files that only keep descriptors for those that a step opens on its way. They are let go when it begins, so
/// another thread can still be first; that takes what the process leaves free as a whole to be gone at that moment.
pub(super) type Spares = Vec<Arc<dyn File>>;

impl PartitionLog {
    /// Opens what the next batches of so many bytes and offsets in all may need. Call it before the first of them is
    /// staged; the files of a log that was never written are made here.
    ///
    /// # Errors
    /// When no file descriptor is free ([`StorageError::is_out_of_files`]): nothing was changed, and it may be tried
    /// again. When the file system fails otherwise; the log then takes no more writes.
    pub fn ready(&mut self, size_bytes: u64, offsets: u64, leader_epoch: LeaderEpoch) -> Result<(), Arc<StorageError>> {
        if !self.is_on_disk && self.staged.is_empty() {
            self.opening(|log| log.create_or_undo(leader_epoch))?;
        }
        if self.is_beyond_segment(size_bytes, offsets) { self.ready_to_roll() } else { self.opening(Self::warm) }
    }

    /// Opens what a roll, a snapshot or a new log start may need. Fails as [`ready`](Self::ready).
    pub(super) fn ready_to_roll(&mut self) -> Result<(), Arc<StorageError>> {
        self.opening(|log| {
            if !log.is_on_disk {
                return Ok(());
            }
            log.warm()?;
            let path = log.active.segment.log_path();
            while log.spares.len() < ROLL_FILES {
                let opened = log.state.storage.open_existing(path);
                log.spares.push(opened.map_err(StorageError::at("open", path))?);
            }
            Ok(())
        })
    }

    /// Closes the files of a log that got nothing since this was last asked. All that it has is synced.
    pub(super) fn close_quiet_files(&mut self) {
        self.spares.clear();
        let end = self.active.end.offset;
        let is_quiet = std::mem::replace(&mut self.maintained_end, end) == end;
        if is_quiet && self.synced_end == end && self.staged.is_empty() {
            self.active.segment.cool();
            self.state.cool_sealed();
            self.checkpoint.cool();
        }
    }

    fn warm(&mut self) -> Result<(), StorageError> {
        self.active.segment.file(&self.state)?;
        self.active.segment.load_index(&self.state)?;
        self.checkpoint.warm(&*self.state.storage)
    }

    /// Makes the first files. Where they cannot all be opened none stays, as if a crash had come first.
    fn create_or_undo(&mut self, leader_epoch: LeaderEpoch) -> Result<(), StorageError> {
        let was_dirty = self.is_dirty;
        self.begin_epoch(leader_epoch, self.staged_end.offset);
        let created = self.create_files();
        match &created {
            Ok(()) => self.is_epoch_new = false,
            Err(error) if error.is_out_of_files() => {
                self.active.segment.cool();
                self.checkpoint = CheckpointFile::new(&self.state.dir);
                recovery::remove(&*self.state.storage, self.active.segment.log_path())?;
                recovery::remove(&*self.state.storage, self.checkpoint.path())?;
                self.is_dirty = was_dirty;
            }
            Err(_) => (),
        }
        created
    }

    /// Runs what opens files only: that no descriptor is free has changed nothing, so it poisons nothing.
    fn opening(&mut self, open: impl FnOnce(&mut Self) -> Result<(), StorageError>) -> Result<(), Arc<StorageError>> {
        if self.poison.is_some() {
            return self.unless_poisoned(|_| Ok(()));
        }
        match open(self) {
            Err(error) if error.is_out_of_files() => {
                self.spares.clear();
                Err(Arc::new(error))
            }
            other => self.unless_poisoned(|_| other),
        }
    }

    /// The first segment and checkpoint of a log that was never written to.
    pub(super) fn create_files(&mut self) -> Result<(), StorageError> {
        let path = self.active.segment.log_path();
        let file = self.state.storage.open(path).map_err(StorageError::at("create", path))?;
        self.active.segment.keep(file);
        self.save_checkpoint(false)?;
        self.sync_dir()?;
        self.is_on_disk = true;
        Ok(())
    }

    pub(super) fn sync_dir(&self) -> Result<(), StorageError> {
        self.state.storage.sync_dir(&self.state.dir).map_err(StorageError::at("sync", &self.state.dir))
    }
}
