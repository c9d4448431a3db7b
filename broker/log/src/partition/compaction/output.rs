//! The segment that a pass writes: what is left of one or several neighbours, dense as they were.
//!
//! Not here: what is kept (`rewrite`), and how it gets its place (`swap`).

use std::collections::HashSet;
use std::io::{self, ErrorKind, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;

use levada_model::{LeaderEpoch, Offset};

use super::swap;
use crate::batch::cover;
use crate::partition::aborted::AbortedIndex;
use crate::partition::index::{AppendSpan, Index};
use crate::partition::segment::Segment;
use crate::partition::state::State;
use crate::partition::terms::AbortedTransaction;
use crate::partition::walk::Place;
use crate::{Batch, BatchHeader, File, StorageError};

/// Bytes that are gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;
/// Most bytes of a segment: an index has 32 bits for a position.
const POSITION_MAX: u64 = u32::MAX as u64;

/// A segment that is being written, beside the log.
pub(super) struct Output {
    state: Arc<State>,
    base: Offset,
    sources: Vec<Arc<Segment>>,
    /// What the sources know of transactions, and the markers of theirs that are left out.
    aborted: Vec<AbortedIndex>,
    dropped_markers: HashSet<Offset>,
    source_bytes: u64,
    span: Option<AppendSpan>,
    path: PathBuf,
    file: Arc<dyn File>,
    /// Bytes written, and those that are gathered.
    written: u64,
    gathered: Vec<u8>,
    index: Index,
    hole: Option<Hole>,
    is_changed: bool,
    is_finished: bool,
}

/// Offsets one after another that no batch stands for any more, all of one leader epoch.
#[derive(Clone, Copy, Debug)]
struct Hole {
    from: Offset,
    to: Offset,
    leader_epoch: LeaderEpoch,
}

/// A segment that is written and synced, waiting to take the place of its sources. Dropped, its files are removed if
/// they are still there.
pub(in crate::partition) struct Written {
    state: Arc<State>,
    pub(in crate::partition) base: Offset,
    pub(in crate::partition) next: Offset,
    pub(in crate::partition) bytes: u64,
    pub(in crate::partition) sources: Vec<Arc<Segment>>,
}

impl Output {
    /// Begins a segment that starts where `first` does.
    pub(super) fn begin(state: &Arc<State>, first: &Segment) -> Result<Self, StorageError> {
        let base = first.base_offset();
        let path = swap::cleaned_path(&state.dir, base);
        swap::remove_cleaned(state, base)?;
        let file = state.storage.open(&path).map_err(StorageError::at("create", &path))?;
        Ok(Self {
            state: state.clone(),
            base,
            sources: Vec::new(),
            aborted: Vec::new(),
            dropped_markers: HashSet::new(),
            source_bytes: 0,
            span: None,
            path,
            file,
            written: 0,
            gathered: Vec::new(),
            index: Index::default(),
            hole: None,
            is_changed: false,
            is_finished: false,
        })
    }

    /// Bytes of the segments that went in.
    pub(super) fn source_bytes(&self) -> u64 {
        self.source_bytes
    }

    /// Whether what is left of one more segment fits in for sure.
    pub(super) fn has_room_for(&self, source: &Segment, segment_bytes: u64) -> Result<bool, StorageError> {
        let offsets = source.next_offset().0 - self.base.0;
        let bytes = self.position() + source.bytes(&self.state)?;
        Ok(bytes <= segment_bytes && offsets <= u64::from(u32::MAX))
    }

    /// The next batches are of this segment.
    pub(super) fn add_source(&mut self, source: &Arc<Segment>) -> Result<(), StorageError> {
        let last = source.facts(&self.state)?.last_append;
        self.aborted.push(source.with_aborted(&self.state, AbortedIndex::clone)?);
        let span = source.span(&self.state)?.unwrap_or(AppendSpan { first: last, last });
        self.state.warmed(source);
        self.span =
            Some(self.span.map_or(span, |known| AppendSpan {
                first: known.first.min(span.first),
                last: known.last.max(span.last),
            }));
        self.source_bytes += source.bytes(&self.state)?;
        self.sources.push(source.clone());
        Ok(())
    }

    /// Takes a batch as it is.
    pub(super) fn keep(&mut self, batch: &Batch) -> Result<(), StorageError> {
        self.cover_hole()?;
        self.push(batch)
    }

    /// Takes a batch that stands in for the one that was read.
    pub(super) fn replace(&mut self, batch: &Batch) -> Result<(), StorageError> {
        self.is_changed = true;
        self.keep(batch)
    }

    /// Leaves a batch out: its offsets are covered together with its neighbours'.
    pub(super) fn drop_batch(&mut self, header: &BatchHeader) -> Result<(), StorageError> {
        self.is_changed |= header.record_count > 0 || header.producer_id.is_some();
        if header.is_control() {
            self.dropped_markers.insert(header.base_offset);
        }
        let (from, to, leader_epoch) = (header.base_offset, header.next_offset(), header.leader_epoch);
        match &mut self.hole {
            Some(hole) if hole.leader_epoch == leader_epoch && to.0 - hole.from.0 <= 1 << 31 => hole.to = to,
            _ => {
                self.cover_hole()?;
                self.hole = Some(Hole { from, to, leader_epoch });
            }
        }
        Ok(())
    }

    /// Writes the rest and syncs it. None if it is its only source over again; nothing is left of it then.
    pub(super) fn finish(mut self) -> Result<Option<Written>, StorageError> {
        self.cover_hole()?;
        let bytes = self.position();
        if !self.is_changed && self.sources.len() == 1 && bytes == self.source_bytes {
            return Ok(None);
        }
        self.flush()?;
        self.file.sync_data().map_err(StorageError::at("sync", &self.path))?;
        let index_path = swap::cleaned_index_path(&self.state.dir, self.base);
        let index_file = self.state.storage.open(&index_path).map_err(StorageError::at("create", &index_path))?;
        let span = self.span.expect("it has a source");
        let sources = std::mem::take(&mut self.sources);
        let next = sources.last().expect("it has a source").next_offset();
        let end = Place { position: bytes, offset: next };
        let is_kept = |aborted: &AbortedTransaction| !self.dropped_markers.contains(&aborted.last_offset);
        let mut aborted = AbortedIndex::of_sources(self.base, end, std::mem::take(&mut self.aborted), is_kept);
        self.index
            .append_chunk(&*index_file, self.base, span, &mut aborted)
            .map_err(StorageError::at("write", &index_path))?;
        index_file.sync_data().map_err(StorageError::at("sync", &index_path))?;
        self.is_finished = true;
        Ok(Some(Written { state: self.state.clone(), base: self.base, next, bytes, sources }))
    }

    fn position(&self) -> u64 {
        self.written + self.gathered.len() as u64
    }

    fn cover_hole(&mut self) -> Result<(), StorageError> {
        let Some(Hole { from, to, leader_epoch }) = self.hole.take() else { return Ok(()) };
        let last_offset_delta = u32::try_from(to.0 - from.0 - 1).expect("a hole has at most 2^31 offsets");
        self.push(&cover(from, last_offset_delta, leader_epoch))
    }

    fn push(&mut self, batch: &Batch) -> Result<(), StorageError> {
        let position = self.position();
        if position + batch.bytes().len() as u64 > POSITION_MAX {
            let too_large = io::Error::from(ErrorKind::FileTooLarge);
            return Err(StorageError::at("write", &self.path)(too_large));
        }
        self.index.note(position, batch.header(), self.state.index_interval_bytes());
        self.gathered.extend_from_slice(batch.bytes());
        if self.gathered.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        if !self.gathered.is_empty() {
            let part = [IoSlice::new(&self.gathered)];
            self.file.write_at(&part, self.written).map_err(StorageError::at("write", &self.path))?;
            self.written = self.position();
            self.gathered.clear();
        }
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.is_finished {
            discard(&self.state, self.base);
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        discard(&self.state, self.base);
    }
}

/// Removes what a pass wrote. What cannot be removed is removed at the next pass or opening.
fn discard(state: &State, base: Offset) {
    if let Err(error) = swap::remove_cleaned(state, base) {
        tracing::warn!(dir = %state.dir.display(), %error, "what a compaction wrote stays for now");
    }
}
