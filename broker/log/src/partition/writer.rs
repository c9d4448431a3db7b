//! The writer of a partition's log: stage, write, sync, roll, housekeeping. Not here: snapshots and checkpoints
//! (`settle`), compaction (`compact`), which files are open (`files`), a log's first state (`opening`), what is stable
//! (`stable`).
//!
//! Order is what makes it safe. Data is synced before anything says that it is (recovery point, snapshot, a newer
//! segment's name); a log start that has moved is durable before the segments below it go; a leader epoch is durable
//! before its first batch.

mod compact;
mod files;
mod opening;
mod settle;
mod stable;

use std::path::Path;
use std::sync::Arc;

use levada_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, limits};

use self::files::Spares;
use super::active::Active;
use super::checkpoint::{CheckpointFile, SnapshotAt};
use super::errors::{AppendError, OpenError};
use super::reader::LogReader;
use super::recovery;
use super::retention;
use super::segment::{Extent, Segment};
use super::state::State;
use super::terms::{Append, Appended, LogOptions, PlantedFaults, Recovery, Retained};
use super::walk::Place;
use crate::producers::{AppendTimes, Producers, Verdict, is_derived};
use crate::{Batch, SequenceCheck, Storage, StorageError};

/// The writer of one partition's log.
pub struct PartitionLog {
    state: Arc<State>,
    options: LogOptions,
    active: Active,
    producers: Producers,
    checkpoint: CheckpointFile,
    synced_end: Offset,
    staged: Vec<Group>,
    /// Where the next batch that is staged will lie, and the segment's first offset.
    staged_end: Place,
    staged_base: Offset,
    snapshot: SnapshotAt,
    /// Offsets of the snapshot files, oldest first.
    snapshot_files: Vec<Offset>,
    /// Bytes appended since the last snapshot, and when the first of them were.
    unsnapshotted_bytes: u64,
    unsnapshotted_since: Option<Timestamp>,
    /// Whether the directory has its first segment and checkpoint.
    is_on_disk: bool,
    /// Whether the checkpoint must be saved before the next write, since a leader epoch began.
    is_epoch_new: bool,
    /// Whether anything changed since the clean checkpoint.
    is_dirty: bool,
    poison: Option<Arc<StorageError>>,
    spares: Spares,
    /// The end when housekeeping last looked.
    maintained_end: Offset,
}

/// Staged batches of one segment.
#[derive(Default)]
struct Group {
    /// Begin a new segment with this group.
    roll: Option<Roll>,
    batches: Vec<Batch>,
}

/// The begin of a segment, and what is true of all before it.
struct Roll {
    offset: Offset,
    snapshot: Option<Vec<u8>>,
    last_stable: Offset,
}

impl PartitionLog {
    /// Opens the log in `dir`, or creates it there; recovers as DESIGN.md §2 says. `trust_clean_marker` is whether the
    /// directory as a whole was shut down cleanly (the engine consumes that marker before it opens any log).
    ///
    /// # Errors
    /// When the file system fails, or what lies there needs a person.
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: &Path,
        options: LogOptions,
        now: Timestamp,
        trust_clean_marker: bool,
    ) -> Result<(Self, Recovery), OpenError> {
        Self::open_planted(storage, dir, options, now, trust_clean_marker, PlantedFaults::default())
    }

    /// As [`open`](Self::open), with mistakes that a test must find.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[cfg(feature = "sim")]
    pub fn open_with_faults(
        storage: Arc<dyn Storage>,
        dir: &Path,
        options: LogOptions,
        now: Timestamp,
        trust_clean_marker: bool,
        faults: PlantedFaults,
    ) -> Result<(Self, Recovery), OpenError> {
        Self::open_planted(storage, dir, options, now, trust_clean_marker, faults)
    }

    /// Lets a log that was never written begin at `start`, behind what an earlier log of the same partition held. A log
    /// that was written stays as it is. Nothing is on the disk before the first write, so this must be said at each
    /// opening.
    pub fn begin_at(&mut self, start: Offset) {
        if self.is_on_disk || !self.staged.is_empty() {
            return;
        }
        self.active = recovery::begin(&self.state, start, self.active.last_append);
        self.state.set_log_start(start);
        self.state.set_log_end(start);
        self.synced_end = start;
        self.note_stable();
        self.state.raise_synced_stable(start);
        self.staged_end = self.active.end;
        self.staged_base = start;
        self.snapshot = SnapshotAt::Empty(start);
    }

    /// A reader that shares the segments.
    #[must_use]
    pub fn reader(&self) -> LogReader {
        LogReader::new(self.state.clone())
    }

    /// What an idempotency key, as a derived producer id, stands for here: the digest, and the offset of its append. A batch
    /// of it with another digest would be [`AppendError::KeyReused`], here and, for a topic's owner, in the topic's other
    /// partitions; one with this digest is stored already.
    #[must_use]
    pub fn keyed_append(&self, id: ProducerId, now: Timestamp) -> Option<((ProducerEpoch, Sequence), Offset)> {
        let append = self.producers.keyed_append(id, now, self.options.producer_expiration_ms)?;
        Some((append.digest, append.base_offset))
    }

    /// Changes what may change.
    pub fn set_options(&mut self, options: LogOptions) {
        self.state.set_segment_bytes(options.segment_bytes);
        self.state.with_compaction(|progress| progress.options = options.compaction);
        self.options = options;
    }

    /// Judges a batch (producer, expected offset), gives it its place and keeps it for the next [`write`](Self::write).
    /// Batches staged later see it. A leader epoch below that of an earlier batch is raised to it.
    ///
    /// # Errors
    /// When it is refused; the log is as it was.
    ///
    /// # Panics
    /// When a [`SequenceCheck::Key`] comes without a derived id, a derived id in a transaction,
    /// [`SequenceCheck::Assigned`] outside of one, a control batch that is not a marker or comes under another check than
    /// [`SequenceCheck::Marker`], or a batch that
    /// [`BatchBuf::check_records`](crate::BatchBuf::check_records) refuses by its head: without a record for each offset,
    /// or with a delete horizon.
    pub fn stage(
        &mut self,
        mut append: Append,
        leader_epoch: LeaderEpoch,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        if let Some(poison) = &self.poison {
            return Err(AppendError::Poisoned(poison.clone()));
        }
        if append.check == SequenceCheck::Assigned {
            assert!(append.batch.header().is_transactional(), "sequences are given to transactions' batches");
            append.batch.set_base_sequence(self.producers.next_sequence(append.batch.header(), self.judging(now)));
        }
        let header = *append.batch.header();
        let is_dense = header.record_count == header.last_offset_delta + 1 && header.delete_horizon().is_none();
        assert!(is_dense, "what only compaction makes is refused when a batch is checked");
        let is_keyed = header.producer_id.is_some_and(is_derived);
        assert!(append.check != SequenceCheck::Key || is_keyed, "an idempotency key comes as a derived producer id");
        assert!(!(is_keyed && header.is_transactional()), "a transaction's producer has an id that was given out");
        let marker = append.batch.control();
        let is_marker = append.check == SequenceCheck::Marker;
        assert!(is_marker == header.is_control() && is_marker == marker.is_some(), "control batches are markers");
        // A repeat of a conditional append is a repeat, though its offset is not the next one any more.
        let verdict = self.producers.check(&header, marker, self.judging(now))?;
        if let Verdict::Duplicate { base_offset, timestamp } = verdict {
            return Ok(Appended::Duplicate { base_offset, timestamp });
        }
        let next_offset = self.staged_end.offset;
        if append.expected_offset.is_some_and(|expected| expected != next_offset) {
            return Err(AppendError::OffsetMismatch { next_offset });
        }
        if header.size_bytes > limits::BATCH_BYTES_MAX {
            let limit_bytes = limits::BATCH_BYTES_MAX;
            return Err(AppendError::TooLarge { size_bytes: header.size_bytes, limit_bytes });
        }
        let leader_epoch = self.begin_epoch(leader_epoch, next_offset);
        if self.has_no_room_for(header.size_bytes as u64, header.last_offset_delta) {
            self.stage_roll();
        }
        let batch = append.batch.stamp(next_offset, leader_epoch);
        self.producers.record(&header, marker, next_offset, AppendTimes { answered: now, counted: now });
        let position = self.staged_end.position + header.size_bytes as u64;
        self.staged_end = Place { position, offset: batch.header().next_offset() };
        if self.staged.is_empty() {
            self.staged.push(Group::default());
        }
        let group = self.staged.last_mut().expect("pushed above");
        group.batches.push(batch.clone());
        Ok(Appended::Stored(batch))
    }

    /// Writes all that was staged with as few calls as there are segments, rolling where needed. Afterwards
    /// `log_end` includes it and readers with that bound may see it.
    ///
    /// # Errors
    /// When the file system fails: the log then takes no more writes, and `log_end` stays.
    pub fn write(&mut self, now: Timestamp) -> Result<(), Arc<StorageError>> {
        self.unless_poisoned(|log| log.write_staged(now))
    }

    /// Makes all that was written durable; `synced_end` becomes `log_end` and the recovery point is noted.
    ///
    /// # Errors
    /// When the file system fails: never retried, the log takes no more writes, `synced_end` stays.
    pub fn sync(&mut self) -> Result<(), Arc<StorageError>> {
        self.unless_poisoned(|log| {
            if log.synced_end == log.active.end.offset {
                return Ok(());
            }
            log.sync_active()?;
            // Without a sync: it comes after the data's, so it can be stale and never ahead.
            let checkpoint = log.checkpoint_now(false);
            log.checkpoint.note(&*log.state.storage, &checkpoint)
        })
    }

    /// Whether to store batches of so many bytes and offsets in all may sync on the way: at the first write, at a new
    /// leader epoch, and where a segment is full. Who must not wait for the disk asks this before it stages them.
    #[must_use]
    pub fn may_sync(&self, size_bytes: u64, offsets: u64, leader_epoch: LeaderEpoch) -> bool {
        let is_epoch_new = || self.state.epochs().latest().is_none_or(|latest| latest < leader_epoch);
        !self.is_on_disk || self.is_epoch_new || self.is_beyond_segment(size_bytes, offsets) || is_epoch_new()
    }

    /// Writes zeros ahead of the end if the last groups were small and little is left. Call after the acks went out.
    /// A full disk is not an error here; a failed sync is found by the next call.
    pub fn prepare_ahead(&mut self) {
        if self.options.write_ahead_zeros {
            let segment_bytes = self.options.segment_bytes;
            // The poison stays and answers the next call.
            let _ = self.unless_poisoned(|log| log.active.write_ahead(&log.state, segment_bytes));
        }
    }

    /// Housekeeping, called every now and then: rolls an old active segment, removes what retention lets go (never the
    /// active segment, never at or beyond `removable_end`), forgets expired producers, and after enough appends writes
    /// a producer snapshot and moves the recovery point, so that a scan after a crash stays short.
    ///
    /// # Errors
    /// When the file system fails; the log then takes no more writes. When no file descriptor is free
    /// ([`StorageError::is_out_of_files`]), the log goes on and the next call does what this one left.
    pub fn maintain(&mut self, now: Timestamp, removable_end: Offset) -> Result<Retained, Arc<StorageError>> {
        let is_old = |first: Timestamp| now.0.saturating_sub(first.0) > self.options.segment_ms;
        let is_roll_due = self.active.first_append.is_some_and(is_old);
        if is_roll_due || self.is_snapshot_due(now) || !self.staged.is_empty() {
            self.ready_to_roll()?;
        }
        self.unless_poisoned(|log| {
            log.write_staged(now)?;
            log.producers.expire(now, log.options.producer_expiration_ms);
            if is_roll_due {
                log.roll_here()?;
            }
            if log.is_snapshot_due(now) {
                log.settle_here()?;
            }
            Ok(())
        })?;
        let retained = match retention::start(&self.state, &self.options, now, removable_end) {
            Ok(Some(start)) => {
                self.ready_to_roll()?;
                self.unless_poisoned(|log| log.move_start(start))?
            }
            Ok(None) => Retained::default(),
            // An old file that cannot be read is no reason to refuse new records.
            Err(error) => {
                tracing::warn!(dir = %self.state.dir.display(), %error, "retention cannot judge a segment");
                Retained::default()
            }
        };
        self.close_quiet_files();
        Ok(retained)
    }

    /// Moves the log start up to `before` (at most `log_end`), durably, and removes whole segments below it. Answers
    /// the log start.
    ///
    /// # Errors
    /// When the file system fails. When no file descriptor is free ([`StorageError::is_out_of_files`]), nothing was
    /// changed and the log goes on.
    pub fn truncate_front(&mut self, before: Offset) -> Result<Offset, Arc<StorageError>> {
        if before.min(self.state.log_end()) > self.state.log_start() {
            self.ready_to_roll()?;
        }
        self.unless_poisoned(|log| {
            let now = log.active.last_append;
            log.write_staged(now)?;
            let start = before.min(log.state.log_end());
            if start <= log.state.log_start() {
                return Ok(log.state.log_start());
            }
            // A log start beyond what a power cut leaves would be a hole.
            if start > log.synced_end {
                log.sync_active()?;
            }
            // All of it goes, so its bytes may too.
            if start == log.active.end.offset && !log.active.is_empty() {
                log.roll_here()?;
            }
            log.move_start(start)?;
            Ok(start)
        })
    }

    /// Syncs everything, cuts zeros written ahead, writes index, snapshot and checkpoint. The next
    /// [`open`](Self::open) with the clean marker scans nothing.
    ///
    /// # Errors
    /// When the file system fails; the next open then recovers.
    pub fn close(mut self) -> Result<(), Arc<StorageError>> {
        self.unless_poisoned(|log| {
            log.write_staged(log.active.last_append)?;
            if !log.is_dirty {
                return Ok(());
            }
            log.sync_exactly()?;
            log.active.write_index(&log.state, false)?;
            log.write_snapshot()?;
            log.save_checkpoint(true)
        })
    }

    /// Runs one operation of the writer. Its first failure is the last: nothing is ever tried again, since the kernel
    /// may have dropped what it could not write and call it clean.
    fn unless_poisoned<T>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<T, StorageError>,
    ) -> Result<T, Arc<StorageError>> {
        if let Some(poison) = &self.poison {
            return Err(poison.clone());
        }
        run(self).map_err(|error| {
            tracing::error!(dir = %self.state.dir.display(), %error, "the log takes no more writes");
            let poison = Arc::new(error);
            self.poison = Some(poison.clone());
            poison
        })
    }

    /// Notes the epoch of a batch at `offset` and answers the one to stamp: epochs never fall, whatever a damaged batch
    /// at the end of the log has left behind.
    fn begin_epoch(&mut self, epoch: LeaderEpoch, offset: Offset) -> LeaderEpoch {
        self.state.with_epochs(|epochs| {
            self.is_epoch_new |= epochs.note(epoch, offset);
            epochs.latest().map_or(epoch, |latest| latest.max(epoch))
        })
    }

    fn has_no_room_for(&self, size_bytes: u64, last_offset_delta: u32) -> bool {
        // An empty segment takes a batch of any size.
        self.staged_end.position > 0 && self.is_beyond_segment(size_bytes, last_offset_delta.into())
    }

    fn is_beyond_segment(&self, size_bytes: u64, offsets: u64) -> bool {
        let Place { position, offset } = self.staged_end;
        let last_delta = offset.0 - self.staged_base.0 + offsets;
        position + size_bytes > self.options.segment_bytes || last_delta > u64::from(u32::MAX)
    }

    /// The batches from here on go into a new segment. The snapshot is taken now, before they change the producers.
    fn stage_roll(&mut self) {
        let offset = self.staged_end.offset;
        let (snapshot, last_stable) = (self.encode_snapshot(offset), self.stable_at(offset));
        self.staged.push(Group { roll: Some(Roll { offset, snapshot, last_stable }), batches: Vec::new() });
        self.staged_end.position = 0;
        self.staged_base = offset;
    }

    fn write_staged(&mut self, now: Timestamp) -> Result<(), StorageError> {
        if self.staged.is_empty() {
            return Ok(());
        }
        self.is_dirty = true;
        if !self.is_on_disk {
            self.create_files()?;
        } else if self.is_epoch_new {
            self.save_checkpoint(false)?;
        }
        self.is_epoch_new = false;
        for group in std::mem::take(&mut self.staged) {
            if let Some(roll) = group.roll {
                assert!(roll.offset == self.active.end.offset, "a roll comes where it was staged");
                self.state.raise_last_stable(roll.last_stable);
                self.roll(roll.snapshot)?;
            }
            self.active.append(&self.state, &group.batches, now)?;
            self.unsnapshotted_bytes += group.batches.iter().map(|b| b.header().size_bytes as u64).sum::<u64>();
            self.unsnapshotted_since.get_or_insert(now);
        }
        self.spares.clear();
        self.state.set_log_end(self.active.end.offset);
        self.note_stable();
        if self.state.plants.recovery_point_ahead {
            self.synced_end = self.active.end.offset;
            self.state.raise_synced_stable(self.state.last_stable());
            self.save_checkpoint(false)?;
        }
        Ok(())
    }

    fn sync_active(&mut self) -> Result<(), StorageError> {
        if !self.state.plants.skip_sync {
            self.active.sync(&self.state)?;
        }
        self.synced_end = self.active.end.offset;
        self.state.raise_synced_stable(self.state.last_stable().min(self.synced_end));
        Ok(())
    }

    /// Syncs the active segment without the zeros behind it, if either is not done already.
    fn sync_exactly(&mut self) -> Result<(), StorageError> {
        let is_cut = self.active.trim(&self.state)?;
        if is_cut || self.synced_end != self.active.end.offset { self.sync_active() } else { Ok(()) }
    }

    /// Begins a new segment at the end of what is written. What was staged must be written before.
    fn roll_here(&mut self) -> Result<(), StorageError> {
        assert!(self.staged.is_empty(), "a roll now would overtake what is staged");
        let snapshot = self.encode_snapshot(self.active.end.offset);
        self.roll(snapshot)?;
        self.staged_end = self.active.end;
        self.staged_base = self.active.end.offset;
        Ok(())
    }

    /// Seals the active segment and begins the next. The old one is synced before the new one's name is: that a
    /// segment exists proves all before it.
    fn roll(&mut self, snapshot: Option<Vec<u8>>) -> Result<(), StorageError> {
        let offset = self.active.end.offset;
        self.spares.clear();
        self.sync_exactly()?;
        self.active.write_index(&self.state, true)?;
        self.store_snapshot(offset, snapshot)?;
        let next = Arc::new(Segment::new(&self.state.dir, offset, Extent { bytes: Some(0), next_offset: offset }));
        let file = self.state.storage.open(next.log_path()).map_err(StorageError::at("create", next.log_path()))?;
        file.set_len(0).map_err(StorageError::at("cut", next.log_path()))?;
        self.sync_dir()?;
        next.keep(file);
        next.follow(&self.state, &self.active.segment)?;
        let end = Place { position: 0, offset };
        let active = Active::new(next.clone(), end, None, self.active.last_append);
        let old = std::mem::replace(&mut self.active, active);
        self.state.push_segment(next);
        self.state.warmed(&old.segment);
        self.save_checkpoint(false)?;
        self.remove_old_snapshots()
    }

    /// Moves the log start durably and removes the segments below it.
    fn move_start(&mut self, start: Offset) -> Result<Retained, StorageError> {
        self.spares.clear();
        self.state.set_log_start(start.max(self.state.log_start()));
        self.state.raise_last_stable(self.state.log_start());
        self.state.raise_synced_stable(self.state.log_start());
        self.save_checkpoint(false)?;
        let mut retained = Retained::default();
        for segment in self.state.take_segments_below(start) {
            retained.segments += 1;
            retained.bytes += segment.bytes(&self.state).unwrap_or(0);
            recovery::remove(&*self.state.storage, segment.index_path())?;
            recovery::remove(&*self.state.storage, segment.log_path())?;
        }
        if retained.segments > 0 {
            self.sync_dir()?;
        }
        Ok(retained)
    }
}
