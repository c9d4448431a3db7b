//! The writer's side of the active segment: where the next batch goes, and the zeros written ahead of it.

use std::io::IoSlice;
use std::sync::Arc;

use levada_model::Timestamp;

use super::index::AppendSpan;
use super::segment::{Segment, write_batches};
use super::state::State;
use super::walk::Place;
use crate::{Batch, File, StorageError};

/// Zeros are written ahead in steps between these, as large as the segment is already.
const AHEAD_BYTES_MIN: u64 = 16 << 10;
const AHEAD_BYTES_MAX: u64 = 1 << 20;
/// Above this a group is large: zeros would double its bytes and spare little.
const AHEAD_GROUP_BYTES_MAX: u64 = 64 << 10;

/// The segment that is written to.
pub(super) struct Active {
    pub(super) segment: Arc<Segment>,
    /// Where the next batch goes.
    pub(super) end: Place,
    /// Length of the file; what lies behind `end` is zeros.
    file_bytes: u64,
    /// None while it is empty.
    pub(super) first_append: Option<Timestamp>,
    pub(super) last_append: Timestamp,
    last_group_bytes: u64,
    is_ahead_off: bool,
}

impl Active {
    /// The segment, whose file has `end.position` bytes and no more.
    pub(super) fn new(segment: Arc<Segment>, end: Place, first_append: Option<Timestamp>, last: Timestamp) -> Self {
        Self {
            segment,
            end,
            file_bytes: end.position,
            first_append,
            last_append: last,
            last_group_bytes: 0,
            is_ahead_off: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.end.position == 0
    }

    /// Writes batches behind the end with one call, and shows them to readers that look beyond the log end.
    pub(super) fn append(&mut self, state: &State, batches: &[Batch], now: Timestamp) -> Result<(), StorageError> {
        let Some(last) = batches.last() else { return Ok(()) };
        self.segment.load_index(state)?;
        let file = self.segment.file(state)?;
        let written = write_batches(&*file, self.segment.log_path(), self.end.position, batches)?;
        self.segment.extend(self.end.position, batches, state.index_interval_bytes());
        self.end = Place { position: self.end.position + written, offset: last.header().next_offset() };
        self.file_bytes = self.file_bytes.max(self.end.position);
        self.first_append.get_or_insert(now);
        self.last_append = now;
        self.last_group_bytes = written;
        Ok(())
    }

    pub(super) fn sync(&self, state: &State) -> Result<(), StorageError> {
        let file = self.segment.file(state)?;
        file.sync_data().map_err(StorageError::at("sync", self.segment.log_path()))
    }

    /// Cuts the zeros, so that the file is exactly its batches; true if there were some, and a sync is due.
    pub(super) fn trim(&mut self, state: &State) -> Result<bool, StorageError> {
        if self.file_bytes == self.end.position {
            return Ok(false);
        }
        let file = self.segment.file(state)?;
        file.set_len(self.end.position).map_err(StorageError::at("cut", self.segment.log_path()))?;
        self.file_bytes = self.end.position;
        Ok(true)
    }

    /// Appends to the index file what it lacks.
    pub(super) fn write_index(&self, state: &State, sync: bool) -> Result<(), StorageError> {
        match self.first_append {
            Some(first) => self.segment.write_index(state, AppendSpan { first, last: self.last_append }, sync),
            None => Ok(()),
        }
    }

    /// Writes zeros ahead and syncs them, if the last group was small and little room is left. A refused write (a full
    /// disk) ends this for the segment and is no error; a failed sync is one.
    pub(super) fn write_ahead(&mut self, state: &State, segment_bytes: u64) -> Result<(), StorageError> {
        let Some((from, to)) = self.room_wanted(segment_bytes) else { return Ok(()) };
        // Closed for want of use or of file descriptors: the next group opens it.
        if !self.segment.is_open() {
            return Ok(());
        }
        let file = self.segment.file(state)?;
        let zeros = vec![0; usize::try_from(to - from).expect("at most AHEAD_BYTES_MAX")];
        // Even a write that failed may have made the file longer.
        self.file_bytes = to;
        if let Err(error) = write_zeros(&*file, &zeros, from) {
            tracing::warn!(path = %self.segment.log_path().display(), %error, "no zeros are written ahead any more");
            self.is_ahead_off = true;
            return Ok(());
        }
        file.sync_data().map_err(StorageError::at("sync", self.segment.log_path()))
    }

    /// From where to where zeros should be written now.
    fn room_wanted(&self, segment_bytes: u64) -> Option<(u64, u64)> {
        if self.is_ahead_off || self.last_group_bytes == 0 || self.last_group_bytes > AHEAD_GROUP_BYTES_MAX {
            return None;
        }
        let step = self.end.position.next_power_of_two().clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
        let room = self.file_bytes - self.end.position;
        let to = (self.file_bytes + step).min(segment_bytes);
        let is_short = room < (step / 4).max(2 * self.last_group_bytes);
        (is_short && to > self.file_bytes).then_some((self.file_bytes, to))
    }
}

fn write_zeros(file: &dyn File, zeros: &[u8], position: u64) -> std::io::Result<()> {
    file.write_at(&[IoSlice::new(zeros)], position)
}
