//! One segment: a log file with its index, both opened when first needed and closed again when others are needed more.

mod transactions;

use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use levada_model::{Offset, Timestamp};
use parking_lot::{Mutex, RwLock};

use super::aborted::AbortedIndex;
use super::index::{AppendSpan, Index};
use super::listing::Kind;
use super::state::State;
use super::walk::{Place, Step, Walk};
use crate::{Batch, BatchHeader, File, HEADER_BYTES, StorageError};

/// Bytes that a walk over a whole segment reads at a time.
pub(super) const WALK_WINDOW_BYTES: usize = 1 << 20;
/// How many entries an index may be wrong about at its end before all of it is built anew.
const STEPS_BACK_MAX: usize = 16;

/// A segment; shared by the writer and all readers.
pub(super) struct Segment {
    base_offset: Offset,
    log_path: PathBuf,
    index_path: PathBuf,
    extent: RwLock<Extent>,
    file: Mutex<Option<Arc<dyn File>>>,
    index: Mutex<Option<Index>>,
    /// Locked while those of earlier segments may be, never of later ones.
    aborted: Mutex<Option<AbortedIndex>>,
    facts: OnceLock<Facts>,
    hold: AtomicU8,
}

/// Its files have its names: they may be closed, and opened when they are needed.
const FREE: u8 = 0;
/// Its files are about to get its names: they stay open.
const PINNED: u8 = 1;
/// Its names are another segment's: what is open is read on, and nothing is opened any more.
const REPLACED: u8 = 2;

/// How far a segment reaches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Valid bytes; none until the length of a sealed file was asked for.
    pub(super) bytes: Option<u64>,
    /// The offset after its last.
    pub(super) next_offset: Offset,
}

/// What retention asks of a sealed segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// None if no batch of it can be read.
    pub(super) largest_timestamp: Option<Timestamp>,
    pub(super) last_append: Timestamp,
}

impl Facts {
    /// When the newest record came, by its own time or the broker's, whichever is later. A timestamp from the future
    /// says nothing of age.
    pub(super) fn newest(&self, now: Timestamp) -> Timestamp {
        let largest = self.largest_timestamp.filter(|largest| *largest <= now);
        largest.map_or(self.last_append, |largest| largest.max(self.last_append))
    }
}

impl Segment {
    pub(super) fn new(dir: &Path, base_offset: Offset, extent: Extent) -> Self {
        Self {
            base_offset,
            log_path: Kind::Log.path(dir, base_offset),
            index_path: Kind::Index.path(dir, base_offset),
            extent: RwLock::new(extent),
            file: Mutex::new(None),
            index: Mutex::new(None),
            aborted: Mutex::new(None),
            facts: OnceLock::new(),
            hold: AtomicU8::new(FREE),
        }
    }

    /// A segment whose files lie under other names for now; they stay open until [`unpin`](Self::unpin).
    pub(super) fn pinned(
        state: &State,
        base_offset: Offset,
        extent: Extent,
        log_path: &Path,
        index_path: &Path,
    ) -> Result<Self, StorageError> {
        let segment = Self::new(&state.dir, base_offset, extent);
        let file = state.storage.open_existing(log_path).map_err(StorageError::at("open", log_path))?;
        segment.keep(file);
        let mut index = segment.index.lock();
        let mut read = segment.read_index_at(state, index_path)?;
        *segment.aborted.lock() = Some(segment.complete_aborted(state, read.take_aborted())?);
        *index = Some(segment.build_index(state, read)?);
        drop(index);
        segment.hold.store(PINNED, Ordering::Release);
        Ok(segment)
    }

    /// Its files have their names now.
    pub(super) fn unpin(&self) {
        self.hold.store(FREE, Ordering::Release);
    }

    /// Its names are about to be another segment's. Who reads it goes on with the file that is open, or turns to the
    /// newer segments.
    pub(super) fn retire(&self) {
        let _opening = self.file.lock();
        self.hold.store(REPLACED, Ordering::Release);
    }

    pub(super) fn base_offset(&self) -> Offset {
        self.base_offset
    }

    pub(super) fn next_offset(&self) -> Offset {
        self.extent.read().next_offset
    }

    pub(super) fn log_path(&self) -> &Path {
        &self.log_path
    }

    pub(super) fn index_path(&self) -> &Path {
        &self.index_path
    }

    /// The log file.
    pub(super) fn file(&self, state: &State) -> Result<Arc<dyn File>, StorageError> {
        let mut open = self.file.lock();
        if let Some(file) = &*open {
            return Ok(file.clone());
        }
        let file = self.open_file(state)?;
        Ok(open.insert(file).clone())
    }

    /// Keeps the log file open that was just made.
    pub(super) fn keep(&self, file: Arc<dyn File>) {
        *self.file.lock() = Some(file);
    }

    /// Whether the log file is open.
    pub(super) fn is_open(&self) -> bool {
        self.file.lock().is_some()
    }

    /// Bytes of the log file that may hold batches.
    pub(super) fn bytes(&self, state: &State) -> Result<u64, StorageError> {
        if let Some(bytes) = self.extent.read().bytes {
            return Ok(bytes);
        }
        let open = self.file.lock();
        // Asked for all segments at once, a file is not kept open for this.
        let file = match &*open {
            Some(file) => file.clone(),
            None => self.open_file(state)?,
        };
        drop(open);
        let bytes = file.len().map_err(StorageError::at("measure", &self.log_path))?;
        self.extent.write().bytes = Some(bytes);
        Ok(bytes)
    }

    /// Lets go of the open file and the index. Who still holds the file reads on.
    pub(super) fn cool(&self) {
        if self.hold.load(Ordering::Acquire) != PINNED {
            *self.file.lock() = None;
            *self.index.lock() = None;
            // Who holds it may be waiting for a segment whose holder is here.
            if let Some(mut aborted) = self.aborted.try_lock() {
                *aborted = None;
            }
        }
    }

    /// A walk from `place` to the segment's end.
    pub(super) fn walk(&self, state: &State, place: Place, window_bytes: usize) -> Result<Walk, StorageError> {
        // The bytes first: what is appended meanwhile is then beyond the walk's limit and its end.
        let file = self.file(state)?;
        self.bytes(state)?;
        let extent = *self.extent.read();
        let limit = extent.bytes.expect("measured above");
        Ok(Walk::new(file, place, limit, extent.next_offset, window_bytes).with_epochs(state.epochs()))
    }

    /// A batch boundary at or before `offset`, proven in the log. An index that is wrong is built anew.
    pub(super) fn locate(&self, state: &State, offset: Offset) -> Result<Place, StorageError> {
        let start = Place { position: 0, offset: self.base_offset };
        let holding = || self.with_index(state, |index| index.holding(offset));
        let Some(place) = holding()? else { return Ok(start) };
        if state.plants.trust_index || self.is_proven(state, place)? {
            return Ok(place);
        }
        tracing::warn!(path = %self.index_path.display(), %offset, "the index is wrong and is built anew");
        self.rebuild_index(state)?;
        Ok(holding()?.unwrap_or(start))
    }

    /// The first stretch that ends behind `from` and claims a timestamp of `time` or later: its start, proven in the
    /// log, and the offset after its last.
    pub(super) fn stretch_reaching(
        &self,
        state: &State,
        time: Timestamp,
        from: Offset,
    ) -> Result<Option<(Place, Offset)>, StorageError> {
        let reaching = || self.with_index(state, |index| index.reaching(time, from, self.next_offset()));
        match reaching()? {
            Some((start, _)) if !state.plants.trust_index && !self.is_proven(state, start)? => {
                self.rebuild_index(state)?;
                reaching()
            }
            found => Ok(found),
        }
    }

    /// Builds the index anew from the log, since something in it was found to be wrong.
    pub(super) fn rebuild_index(&self, state: &State) -> Result<(), StorageError> {
        // The long walk goes without the lock, for which the writer would wait; then only what was appended meanwhile is
        // left to note.
        let built = self.build_index(state, Index::default())?;
        let mut index = self.index.lock();
        *index = Some(self.build_index(state, built)?);
        Ok(())
    }

    /// What retention asks; of a sealed segment only.
    pub(super) fn facts(&self, state: &State) -> Result<Facts, StorageError> {
        if let Some(facts) = self.facts.get() {
            return Ok(*facts);
        }
        let (largest_timestamp, span) = self.with_index(state, |index| (index.largest_timestamp(), index.span()))?;
        let last_append = match span {
            Some(span) => span.last,
            None => state.storage.modified(&self.log_path).map_err(StorageError::at("measure", &self.log_path))?,
        };
        Ok(*self.facts.get_or_init(|| Facts { largest_timestamp, last_append }))
    }

    /// Makes the index ready for [`extend`](Self::extend).
    pub(super) fn load_index(&self, state: &State) -> Result<(), StorageError> {
        self.with_aborted(state, |_| ())?;
        self.index(state).map(drop)
    }

    /// Notes batches that were written from `position` on; readers may see them from now on.
    pub(super) fn extend(&self, mut position: u64, batches: &[Batch], interval_bytes: u64) {
        let mut index = self.index.lock();
        let loaded = index.as_mut().expect("the writer loads the index first");
        let mut aborted = self.aborted.lock();
        let aborted = aborted.as_mut().expect("the writer loads it first");
        for batch in batches {
            loaded.note(position, batch.header(), interval_bytes);
            aborted.note(position, batch);
            position += batch.header().size_bytes as u64;
        }
        if let Some(last) = batches.last() {
            *self.extent.write() = Extent { bytes: Some(position), next_offset: last.header().next_offset() };
        }
    }

    /// Appends to the index file what is not in it yet.
    pub(super) fn write_index(&self, state: &State, span: AppendSpan, sync: bool) -> Result<(), StorageError> {
        self.load_index(state)?;
        let mut index = self.index(state)?;
        let loaded = index.as_mut().expect("loaded above");
        let mut aborted = self.aborted.lock();
        let aborted = aborted.as_mut().expect("the writer alone lets it go");
        let file = state.storage.open(&self.index_path).map_err(StorageError::at("open", &self.index_path))?;
        loaded
            .append_chunk(&*file, self.base_offset, span, aborted)
            .map_err(StorageError::at("write", &self.index_path))?;
        if sync {
            file.sync_data().map_err(StorageError::at("sync", &self.index_path))?;
        }
        Ok(())
    }

    /// When the segment was appended to, as far as its index file knows.
    pub(super) fn span(&self, state: &State) -> Result<Option<AppendSpan>, StorageError> {
        Ok(self.read_index(state)?.span())
    }

    /// A place at or before `offset` that the index file names and the log proves, without reading all of either.
    pub(super) fn start_near(&self, state: &State, offset: Offset) -> Result<Place, StorageError> {
        match self.read_index(state)?.holding(offset) {
            Some(place) if state.plants.trust_index || self.is_proven(state, place)? => Ok(place),
            _ => Ok(Place { position: 0, offset: self.base_offset }),
        }
    }

    /// Looks something up in the index, without a look at the log while the writer may want it.
    fn with_index<T>(&self, state: &State, look: impl FnOnce(&Index) -> T) -> Result<T, StorageError> {
        self.index(state).map(|index| look(index.as_ref().expect("it is loaded")))
    }

    fn index(&self, state: &State) -> Result<parking_lot::MutexGuard<'_, Option<Index>>, StorageError> {
        let mut index = self.index.lock();
        if index.is_none() {
            let read = self.read_index(state)?;
            *index = Some(self.build_index(state, read)?);
        }
        Ok(index)
    }

    fn read_index(&self, state: &State) -> Result<Index, StorageError> {
        if self.is_replaced() {
            return Ok(Index::default());
        }
        self.read_index_at(state, &self.index_path)
    }

    fn read_index_at(&self, state: &State, path: &Path) -> Result<Index, StorageError> {
        let file = match state.storage.open_existing(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Index::default()),
            other => other.map_err(StorageError::at("open", path))?,
        };
        let log_bytes = self.bytes(state)?;
        Index::read(&*file, self.base_offset, log_bytes).map_err(StorageError::at("read", path))
    }

    /// Opens the log file. Who holds the lock of [`file`](Self::file) knows that it is this segment's.
    fn open_file(&self, state: &State) -> Result<Arc<dyn File>, StorageError> {
        let open = || match self.is_replaced() {
            true => Err(ErrorKind::NotFound.into()),
            false => state.storage.open_existing(&self.log_path),
        };
        open().map_err(StorageError::at("open", &self.log_path))
    }

    fn is_replaced(&self) -> bool {
        self.hold.load(Ordering::Acquire) == REPLACED
    }

    /// Completes what the index file says by a walk from the last entry that the log proves.
    fn build_index(&self, state: &State, mut index: Index) -> Result<Index, StorageError> {
        let mut start = Place { position: 0, offset: self.base_offset };
        for step in 0.. {
            let Some(last) = index.pop() else { break };
            if state.plants.trust_index || self.is_proven(state, last)? {
                start = last;
                break;
            }
            if step == STEPS_BACK_MAX {
                index = Index::default();
                break;
            }
        }
        let mut walk = self.walk(state, start, WALK_WINDOW_BYTES)?;
        while let Some(step) = walk.next().map_err(StorageError::at("read", &self.log_path))? {
            match step {
                Step::Batch(position, batch) => index.note(position, batch.header(), state.index_interval_bytes()),
                Step::Gap(damage) => state.report(damage),
            }
        }
        Ok(index)
    }

    /// Whether the log has the head of a batch with that offset there.
    fn is_proven(&self, state: &State, place: Place) -> Result<bool, StorageError> {
        let file = self.file(state)?;
        let mut head = [0; HEADER_BYTES];
        let have = file.read_at(&mut head, place.position).map_err(StorageError::at("read", &self.log_path))?;
        Ok(BatchHeader::parse(&head[..have]).is_ok_and(|header| header.base_offset == place.offset))
    }
}

/// Writes batches one after another from `position` on; answers how many bytes they are.
pub(super) fn write_batches(
    file: &dyn File,
    path: &Path,
    position: u64,
    batches: &[Batch],
) -> Result<u64, StorageError> {
    let parts: Vec<IoSlice<'_>> = batches.iter().map(|batch| IoSlice::new(batch.bytes())).collect();
    file.write_at(&parts, position).map_err(StorageError::at("write", path))?;
    Ok(parts.iter().map(|part| part.len() as u64).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::terms::PlantedFaults;
    use crate::{BatchBuilder, DiskStorage, NewBatch, Storage};

    /// A segment file of one batch, at some base offset.
    fn write(path: &Path, base_offset: Offset) -> u64 {
        let mut builder = BatchBuilder::new(NewBatch::default(), 0);
        builder.push(Timestamp(1), &levada_model::Record::default());
        let batch = builder.finish().expect("no codec").stamp(base_offset, levada_model::LeaderEpoch(0));
        let file = DiskStorage.open(path).expect("opens");
        write_batches(&*file, path, 0, &[batch]).expect("writes")
    }

    #[test]
    fn a_replaced_segment_is_read_by_who_has_it_open_and_by_nobody_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = State::new(Arc::new(DiskStorage), dir.path().to_owned(), PlantedFaults::default());
        let bytes = write(&Kind::Log.path(dir.path(), Offset(0)), Offset(0));
        let segment = || Segment::new(dir.path(), Offset(0), Extent { bytes: None, next_offset: Offset(1) });
        let (open, closed) = (segment(), segment());
        open.file(&state).expect("opens");
        [&open, &closed].iter().for_each(|segment| segment.retire());
        // Another segment gets the names.
        std::fs::remove_file(open.log_path()).expect("removes");
        write(open.log_path(), Offset(7));
        assert_eq!(open.locate(&state, Offset(0)).expect("reads").offset, Offset(0));
        assert_eq!(open.bytes(&state).expect("measures"), bytes);
        closed.file(&state).err().expect("is not its own any more");
        closed.bytes(&state).expect_err("is not its own any more");
        open.cool();
        open.file(&state).err().expect("is closed now");
    }

    #[test]
    fn a_pinned_segment_stays_open_until_its_files_have_their_names() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = State::new(Arc::new(DiskStorage), dir.path().to_owned(), PlantedFaults::default());
        let (other, no_index) = (dir.path().join("other"), dir.path().join("none"));
        let bytes = Some(write(&other, Offset(0)));
        let extent = Extent { bytes, next_offset: Offset(1) };
        let segment = Segment::pinned(&state, Offset(0), extent, &other, &no_index).expect("opens");
        segment.cool();
        segment.file(&state).expect("is still open");
        std::fs::rename(&other, segment.log_path()).expect("renames");
        segment.unpin();
        segment.cool();
        assert!(!segment.is_open());
        segment.file(&state).expect("opens by its name");
    }
}
