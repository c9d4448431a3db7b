//! Opening a log: what lies in its directory, and where it truly ends.
//!
//! Below the recovery point nothing is ever cut: damage is reported, and the log goes on behind it. At and beyond it
//! the first byte that is not the next batch ends the log. Every step can be repeated after a crash in its middle.
//! Reasons: `broker/docs/formats/log-directory.md`.

use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;
use std::sync::Arc;

use levada_model::{Offset, Timestamp};

use super::active::Active;
use super::checkpoint::{Checkpoint, CheckpointFile, SnapshotAt};
use super::compaction;
use super::errors::OpenError;
use super::listing::{Kind, Listing};
use super::segment::{Extent, Segment, WALK_WINDOW_BYTES};
use super::snapshot;
use super::state::State;
use super::terms::{Damage, Recovery};
use super::walk::{Place, Step, Walk};
use crate::producers::{AppendTimes, Producers};
use crate::{Batch, Storage, StorageError};

/// What the writer goes on with.
pub(super) struct Found {
    pub(super) active: Active,
    pub(super) producers: Producers,
    pub(super) checkpoint: CheckpointFile,
    pub(super) snapshot: SnapshotAt,
    pub(super) snapshot_files: Vec<Offset>,
    /// Whether there is a first segment and a checkpoint.
    pub(super) is_on_disk: bool,
    /// Whether the directory is as a clean close leaves it.
    pub(super) is_clean: bool,
}

/// Opens what is in the state's directory, which is created if it is not there.
pub(super) fn open(
    state: &Arc<State>,
    now: Timestamp,
    trust_clean_marker: bool,
) -> Result<(Found, Recovery), OpenError> {
    let listing = list_or_create(state)?;
    let (file, checkpoint) = if listing.has_checkpoint {
        CheckpointFile::open(&*state.storage, &state.dir)?
    } else {
        (CheckpointFile::new(&state.dir), None)
    };
    if let Some(checkpoint) = &checkpoint {
        state.with_compaction(|progress| {
            progress.first_dirty = checkpoint.first_dirty;
            progress.latest_horizon = checkpoint.latest_horizon;
        });
    }
    if listing.segments.is_empty() && listing.swaps.is_empty() && checkpoint.is_none() {
        return Ok((fresh(state, file, now), Recovery { clean: trust_clean_marker, ..Recovery::default() }));
    }
    let mut opening = Opening { state, listing, checkpoint: checkpoint.clone(), now, recovery: Recovery::default() };
    opening.remove_leftovers()?;
    if let Some(checkpoint) = checkpoint.filter(|checkpoint| trust_clean_marker && checkpoint.clean)
        && let Some((active, producers)) = opening.open_clean(&checkpoint)?
    {
        opening.recovery.clean = true;
        let found = Found {
            active,
            producers,
            checkpoint: file,
            snapshot: checkpoint.snapshot,
            snapshot_files: opening.listing.snapshots,
            is_on_disk: true,
            is_clean: true,
        };
        return Ok((found, opening.recovery));
    }
    let found = opening.recover(file)?;
    let damage = &opening.recovery.damage;
    damage.iter().for_each(|damage| state.report(*damage));
    Ok((found, opening.recovery))
}

/// Removes a file; one that is not there is fine, since a crash may have come between removal and its record.
pub(super) fn remove(storage: &dyn Storage, path: &Path) -> Result<(), StorageError> {
    match storage.remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other.map_err(StorageError::at("remove", path)),
    }
}

fn list_or_create(state: &State) -> Result<Listing, StorageError> {
    match state.storage.list(&state.dir) {
        Ok(names) => Ok(Listing::of(names)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            state.storage.create_dir(&state.dir).map_err(StorageError::at("create", &state.dir))?;
            if let Some(parent) = state.dir.parent() {
                state.storage.sync_dir(parent).map_err(StorageError::at("sync", parent))?;
            }
            Ok(Listing::default())
        }
        Err(error) => Err(StorageError::at("list", &state.dir)(error)),
    }
}

/// A log without a file: the first write makes them, so that an idle partition costs nothing.
fn fresh(state: &Arc<State>, checkpoint: CheckpointFile, now: Timestamp) -> Found {
    Found {
        active: begin(state, Offset(0), now),
        producers: Producers::default(),
        checkpoint,
        snapshot: SnapshotAt::Empty(Offset(0)),
        snapshot_files: Vec::new(),
        is_on_disk: false,
        is_clean: true,
    }
}

/// The first segment of a log that has none, only in memory yet.
pub(super) fn begin(state: &State, offset: Offset, now: Timestamp) -> Active {
    let segment = new_segment(state, offset);
    state.set_segments(vec![segment.clone()]);
    Active::new(segment, Place { position: 0, offset }, None, now)
}

fn new_segment(state: &State, base_offset: Offset) -> Arc<Segment> {
    Arc::new(Segment::new(&state.dir, base_offset, Extent { bytes: Some(0), next_offset: base_offset }))
}

struct Opening<'a> {
    state: &'a Arc<State>,
    listing: Listing,
    checkpoint: Option<Checkpoint>,
    now: Timestamp,
    recovery: Recovery,
}

/// Where the newest segment's scan ended.
struct Tail {
    end: Place,
    /// Damage reaches to the end of the file: what follows must go into another one.
    is_stranded: bool,
    /// Beyond the recovery point something was found, or something was cut: a sync is due.
    is_changed: bool,
}

impl Opening<'_> {
    /// Finishes or removes what a crash left: swaps of a compaction, files being written, segments below the log start,
    /// indexes without a segment.
    fn remove_leftovers(&mut self) -> Result<(), StorageError> {
        let dir = &self.state.dir;
        let storage = &*self.state.storage;
        compaction::finish_all(storage, dir, &mut self.listing)?;
        for name in self.listing.unfinished.drain(..) {
            remove(storage, &dir.join(name))?;
        }
        let log_start = self.log_start();
        let below = self.listing.segments.windows(2).take_while(|pair| pair[1] <= log_start).count();
        for base in self.listing.segments.drain(..below) {
            remove(storage, &Kind::Log.path(dir, base))?;
        }
        for base in &self.listing.indexes {
            if self.listing.segments.binary_search(base).is_err() {
                remove(storage, &Kind::Index.path(dir, *base))?;
            }
        }
        Ok(())
    }

    /// Opens without a scan if the directory is as the clean checkpoint says.
    fn open_clean(&mut self, checkpoint: &Checkpoint) -> Result<Option<(Active, Producers)>, StorageError> {
        let end = Place { position: checkpoint.active_bytes, offset: checkpoint.recovery_point };
        if self.listing.segments.last() != Some(&checkpoint.active_base) {
            return Ok(None);
        }
        let producers = match checkpoint.snapshot {
            SnapshotAt::Empty(offset) if offset == end.offset => Producers::default(),
            SnapshotAt::File(offset) if offset == end.offset => {
                match snapshot::read(&*self.state.storage, &self.state.dir, offset)? {
                    Some(producers) => producers,
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        let segments = self.segments(Extent { bytes: Some(end.position), next_offset: end.offset });
        let active = segments.last().expect("the listing has the active one").clone();
        let measure = StorageError::at("measure", active.log_path());
        if active.file(self.state)?.len().map_err(measure)? != end.position {
            return Ok(None);
        }
        // Idle partitions hold no file open.
        active.cool();
        self.state.set_segments(segments);
        self.state.set_log_start(checkpoint.log_start);
        self.state.with_epochs(|epochs| *epochs = checkpoint.epochs.clone());
        Ok(Some((Active::new(active, end, checkpoint.first_append, checkpoint.last_append), producers)))
    }

    fn recover(&mut self, file: CheckpointFile) -> Result<Found, OpenError> {
        let log_start = self.log_start();
        let (producers_from, producers, snapshot) = self.newest_snapshot()?;
        let recovery_point = self.recovery_point(producers_from.filter(|_| producers.is_some()));
        let replay_from = producers_from.unwrap_or(Offset(0));
        let mut replay = Replay { producers: producers.unwrap_or_default(), from: replay_from, now: self.now };

        let noted = self.checkpoint.as_ref().map(|checkpoint| checkpoint.epochs.clone()).unwrap_or_default();
        self.state.with_epochs(|epochs| *epochs = noted);
        let segments = self.segments(Extent { bytes: None, next_offset: Offset(u64::MAX) });
        if let Some(first) = segments.first().map(|segment| segment.base_offset()).filter(|first| *first > log_start) {
            self.recovery.damage.push(Damage { from: log_start, to: first });
        }
        let scan_from = replay_from.min(recovery_point);
        let holding = segments.partition_point(|segment| segment.base_offset() <= scan_from).saturating_sub(1);
        for segment in &segments[holding.min(segments.len())..segments.len().saturating_sub(1)] {
            let mut walk = self.walk_from(segment, scan_from)?;
            self.scan_below(segment, &mut walk, &mut replay)?;
        }
        let end_least = recovery_point.max(log_start);
        let tail = match segments.last() {
            Some(newest) => self.scan_newest(newest, scan_from, recovery_point, &mut replay)?,
            None => {
                if log_start < end_least {
                    self.recovery.damage.push(Damage { from: log_start, to: end_least });
                }
                Tail { end: Place { position: 0, offset: end_least }, is_stranded: true, is_changed: false }
            }
        };
        self.state.with_epochs(|epochs| epochs.cut(tail.end.offset.max(end_least)));
        self.state.set_log_start(log_start);
        self.finish(file, segments, tail, end_least, replay.producers, snapshot)
    }

    /// Makes what was found the state, and durable.
    fn finish(
        &mut self,
        file: CheckpointFile,
        mut segments: Vec<Arc<Segment>>,
        tail: Tail,
        end_least: Offset,
        producers: Producers,
        snapshot: SnapshotAt,
    ) -> Result<Found, OpenError> {
        let end = if tail.end.offset < end_least || tail.is_stranded {
            // Nothing is written behind damage in the same file: its end is not known, and it may be worth a look.
            Place { position: 0, offset: tail.end.offset.max(end_least) }
        } else {
            tail.end
        };
        let is_new = end.position == 0 && segments.last().is_none_or(|newest| newest.base_offset() != end.offset);
        if is_new {
            let segment = new_segment(self.state, end.offset);
            let create = StorageError::at("create", segment.log_path());
            self.state.storage.open(segment.log_path()).map_err(create)?;
            segments.push(segment);
            self.state.storage.sync_dir(&self.state.dir).map_err(StorageError::at("sync", &self.state.dir))?;
        }
        let segments: Vec<Arc<Segment>> = self.with_extents(&segments, end);
        let segment = segments.last().expect("there is one, or one was made").clone();
        self.state.set_segments(segments);
        let (first_append, last_append) = self.append_times(&segment, end)?;
        let mut found = Found {
            active: Active::new(segment, end, first_append, last_append),
            producers,
            checkpoint: file,
            snapshot,
            snapshot_files: std::mem::take(&mut self.listing.snapshots),
            is_on_disk: true,
            is_clean: false,
        };
        let checkpoint = Checkpoint {
            recovery_point: end.offset,
            log_start: self.state.log_start(),
            clean: false,
            active_base: found.active.segment.base_offset(),
            active_bytes: end.position,
            first_append,
            last_append,
            snapshot,
            epochs: self.state.epochs(),
            first_dirty: self.state.compaction().first_dirty,
            latest_horizon: self.state.compaction().latest_horizon,
        };
        if is_new || self.checkpoint.is_none() || found.checkpoint.is_start_unsure() {
            found.checkpoint.save(&*self.state.storage, &checkpoint)?;
            self.state.storage.sync_dir(&self.state.dir).map_err(StorageError::at("sync", &self.state.dir))?;
        } else if tail.is_changed {
            found.checkpoint.note(&*self.state.storage, &checkpoint)?;
        }
        Ok(found)
    }

    /// First readable offset: what the checkpoint says, or else what there is.
    fn log_start(&self) -> Offset {
        match &self.checkpoint {
            Some(checkpoint) => checkpoint.log_start,
            None => self.listing.segments.first().copied().unwrap_or_default(),
        }
    }

    /// All below is synced: by the checkpoint, by the name of the newest segment (its predecessor was synced before),
    /// and by a snapshot (so was what it speaks of).
    fn recovery_point(&self, snapshot: Option<Offset>) -> Offset {
        let noted = self.checkpoint.as_ref().map(|checkpoint| checkpoint.recovery_point);
        let named = self.listing.segments.last().copied();
        [noted, named, snapshot].into_iter().flatten().max().unwrap_or_default()
    }

    /// The newest state of the producers that can be read, and where it ends.
    fn newest_snapshot(&self) -> Result<(Option<Offset>, Option<Producers>, SnapshotAt), StorageError> {
        let noted = match self.checkpoint.as_ref().map(|checkpoint| checkpoint.snapshot) {
            Some(SnapshotAt::Empty(offset)) => Some(offset),
            _ => None,
        };
        for offset in self.listing.snapshots.iter().rev().filter(|offset| noted.is_none_or(|noted| **offset >= noted)) {
            if let Some(producers) = snapshot::read(&*self.state.storage, &self.state.dir, *offset)? {
                return Ok((Some(*offset), Some(producers), SnapshotAt::File(*offset)));
            }
        }
        Ok((noted, None, noted.map_or(SnapshotAt::Unknown, SnapshotAt::Empty)))
    }

    /// The listed segments; each ends where the next begins, the last as `newest` says.
    fn segments(&self, newest: Extent) -> Vec<Arc<Segment>> {
        let bases = &self.listing.segments;
        let ends = bases.iter().skip(1).map(|next| Extent { bytes: None, next_offset: *next }).chain([newest]);
        bases.iter().zip(ends).map(|(base, end)| Arc::new(Segment::new(&self.state.dir, *base, end))).collect()
    }

    /// The same segments with what is known now: each ends where the next begins, the last at `end`.
    fn with_extents(&self, segments: &[Arc<Segment>], end: Place) -> Vec<Arc<Segment>> {
        let newest = Extent { bytes: Some(end.position), next_offset: end.offset };
        let next = segments.iter().skip(1);
        let ends = next.map(|next| Extent { bytes: None, next_offset: next.base_offset() }).chain([newest]);
        segments
            .iter()
            .zip(ends)
            .map(|(s, end)| Arc::new(Segment::new(&self.state.dir, s.base_offset(), end)))
            .collect()
    }

    fn walk_from(&self, segment: &Segment, scan_from: Offset) -> Result<Walk, StorageError> {
        let place = segment.start_near(self.state, scan_from)?;
        segment.walk(self.state, place, WALK_WINDOW_BYTES)
    }

    /// Scans up to the walk's end, around damage.
    fn scan_below(&mut self, segment: &Segment, walk: &mut Walk, replay: &mut Replay) -> Result<(), StorageError> {
        let from = walk.place().position;
        while let Some(step) = walk.next().map_err(StorageError::at("read", segment.log_path()))? {
            match step {
                Step::Batch(_, batch) => replay.apply(&batch),
                Step::Gap(damage) => self.recovery.damage.push(damage),
            }
        }
        self.recovery.scanned_bytes += walk.place().position - from;
        Ok(())
    }

    /// Scans the newest segment: below the recovery point around damage, beyond it up to the first byte that is not
    /// the next batch. The rest is cut off.
    fn scan_newest(
        &mut self,
        segment: &Segment,
        scan_from: Offset,
        recovery_point: Offset,
        replay: &mut Replay,
    ) -> Result<Tail, StorageError> {
        let mut walk = self.walk_from(segment, scan_from)?.until(recovery_point);
        self.scan_below(segment, &mut walk, replay)?;
        let from = walk.place();
        if walk.is_stranded() {
            return Ok(Tail { end: from, is_stranded: true, is_changed: false });
        }
        let file = segment.file(self.state)?;
        let fail = || StorageError::at("recover", segment.log_path());
        while let Some((position, batch)) = self.next_beyond(&mut walk).map_err(fail())? {
            replay.apply(&batch);
            self.state.with_epochs(|epochs| epochs.note(batch.header().leader_epoch, batch.header().base_offset));
            // A kernel that failed to write these bytes may call its copy clean: written anew, they are synced for sure.
            file.write_at(&[IoSlice::new(batch.bytes())], position).map_err(fail())?;
        }
        let end = walk.place();
        self.recovery.scanned_bytes += end.position - from.position;
        let len = segment.bytes(self.state)?;
        if len > end.position {
            self.recovery.cut_bytes += bytes_without_zeros(&*file, end.position, len).map_err(fail())?;
            file.set_len(end.position).map_err(fail())?;
        }
        let is_changed = len > end.position || end != from;
        if is_changed {
            file.sync_data().map_err(fail())?;
        }
        Ok(Tail { end, is_stranded: false, is_changed })
    }

    /// The next batch beyond the recovery point; none at the end.
    fn next_beyond(&self, walk: &mut Walk) -> io::Result<Option<(u64, Batch)>> {
        #[cfg(feature = "sim")]
        if self.state.plants.zeros_are_a_batch {
            while walk.is_at_zeros()? {
                let Place { position, offset } = walk.place();
                walk.jump(Place { position: position + crate::HEADER_BYTES as u64, offset: offset.advance(1) });
            }
        }
        let (epochs, offset) = (self.state.epochs(), walk.place().offset);
        walk.next_contiguous(|epoch| epochs.may_be(offset, epoch))
    }

    /// First and last append to the active segment, as far as something remembers them.
    fn append_times(&self, segment: &Segment, end: Place) -> Result<(Option<Timestamp>, Timestamp), StorageError> {
        if end.position == 0 {
            return Ok((None, self.now));
        }
        let noted = self.checkpoint.as_ref().filter(|checkpoint| checkpoint.active_base == segment.base_offset());
        let first = match noted.and_then(|checkpoint| checkpoint.first_append) {
            Some(first) => first,
            None => segment.span(self.state)?.map_or(self.now, |span| span.first),
        };
        Ok((Some(first), self.now))
    }
}

/// The producers' state while the log beyond its snapshot is read.
struct Replay {
    producers: Producers,
    from: Offset,
    now: Timestamp,
}

impl Replay {
    fn apply(&mut self, batch: &Batch) {
        let header = batch.header();
        if header.base_offset >= self.from {
            // When it was appended is not known. Counting from now forgets no one too early.
            let times = AppendTimes { answered: header.max_timestamp, counted: self.now };
            self.producers.record(header, batch.control(), header.base_offset, times);
        }
    }
}

/// Bytes between the positions without the zeros at their end.
fn bytes_without_zeros(file: &dyn crate::File, from: u64, to: u64) -> io::Result<u64> {
    let mut window = vec![0; WALK_WINDOW_BYTES];
    let mut position = from;
    let mut last = from;
    while position < to {
        let want = usize::try_from(to - position).map_or(window.len(), |left| left.min(window.len()));
        let have = file.read_at(&mut window[..want], position)?;
        if have == 0 {
            break;
        }
        if let Some(index) = window[..have].iter().rposition(|byte| *byte != 0) {
            last = position + index as u64 + 1;
        }
        position += have as u64;
    }
    Ok(last - from)
}
