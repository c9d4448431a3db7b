//! Reads of a partition's log, by offset and by time.

use std::ops::Range;
use std::sync::Arc;

use levada_model::{LeaderEpoch, Offset, Timestamp};

use super::aborted::Found;
use super::errors::ReadError;
use super::segment::Segment;
use super::state::State;
use super::terms::{AbortedTransaction, Damage, ReadChunk};
use super::walk::Step;
use crate::{Batch, BatchHeader, StorageError};

/// Least and most bytes that a read asks the file for at once.
const READ_WINDOW_BYTES: std::ops::RangeInclusive<usize> = (4 << 10)..=(8 << 20);

/// A reader of one partition's log; cheap to clone. Calls read files and so may block.
#[derive(Clone)]
pub struct LogReader {
    state: Arc<State>,
}

impl LogReader {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Reads whole batches from the one that holds `from`, at least one if there is one below `bound`, else at most
    /// `max_bytes` of stored bytes. A batch's CRC is checked; damage is skipped and reported, never served. What
    /// compaction has emptied is skipped too, and where it took records a batch holds fewer than its offsets say, perhaps
    /// none from `from` on.
    ///
    /// # Errors
    /// When `from` is below the log start or beyond `bound`, or the file system fails.
    pub fn read(&self, from: Offset, max_bytes: usize, bound: Offset) -> Result<ReadChunk, ReadError> {
        self.read_batches(from, max_bytes, bound, |header| header.record_count > 0)
    }

    /// As [`read`](Self::read), with the aborted transactions of what was read. The bound must not be beyond the last
    /// stable offset. Records of aborted transactions are in the chunk: leave them out, or hand out the list with it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_committed(&self, from: Offset, max_bytes: usize, bound: Offset) -> Result<ReadChunk, ReadError> {
        self.unless_removed(from, |segments| {
            let mut chunk = self.read_segments(segments, from, max_bytes, bound, |header| header.record_count > 0)?;
            // Of the same segments: a compaction may take away what was aborted together with the word of it.
            if chunk.batches.iter().any(|batch| batch.header().is_transactional()) {
                chunk.aborted = aborted_in(&self.state, segments, from, chunk.next_offset)?.aborted;
            }
            Ok(chunk)
        })
    }

    /// All aborted transactions with offsets from `from` on and below `to`, by their first offsets; their markers count
    /// among their offsets. Complete below the last stable offset; what is open beyond it is not aborted yet.
    ///
    /// # Errors
    /// When `from` is below the log start, or the file system fails.
    pub fn aborted(&self, from: Offset, to: Offset) -> Result<Vec<AbortedTransaction>, ReadError> {
        self.unless_removed(from, |segments| Ok(aborted_in(&self.state, segments, from, to)?.aborted))
    }

    /// Reads the batches that are wanted, by their heads, and goes on behind the others.
    fn read_batches(
        &self,
        from: Offset,
        max_bytes: usize,
        bound: Offset,
        is_wanted: fn(&BatchHeader) -> bool,
    ) -> Result<ReadChunk, ReadError> {
        self.unless_removed(from, |segments| self.read_segments(segments, from, max_bytes, bound, is_wanted))
    }

    fn read_segments(
        &self,
        segments: &[Arc<Segment>],
        from: Offset,
        max_bytes: usize,
        bound: Offset,
        is_wanted: fn(&BatchHeader) -> bool,
    ) -> Result<ReadChunk, ReadError> {
        let end = bound.min(self.state.log_end());
        if from > end {
            return Err(ReadError::BeyondEnd { requested: from, end });
        }
        let mut gathering = Gathering { chunk: ReadChunk::from(from), bytes: 0, max_bytes, end, is_wanted };
        for (segment, first) in from_offset(segments, from) {
            if gathering.chunk.next_offset < first {
                gathering.skip(&self.state, Damage { from: gathering.chunk.next_offset, to: first });
            }
            if !self.gather(segment, &mut gathering)? {
                break;
            }
        }
        Ok(gathering.chunk)
    }

    /// Offset and timestamp of the first record below `bound` whose timestamp is `time` or later (Kafka's
    /// `offsetsForTimes`); none if there is none. Markers are no records.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn offset_for_time(&self, time: Timestamp, bound: Offset) -> Result<Option<(Offset, Timestamp)>, ReadError> {
        self.first_record_since(time, bound, |_, _| Ok(true))
    }

    /// As [`offset_for_time`](Self::offset_for_time), of records that were not aborted. The bound must not be beyond the
    /// last stable offset.
    ///
    /// # Errors
    /// As [`offset_for_time`](Self::offset_for_time).
    pub fn committed_offset_for_time(
        &self,
        time: Timestamp,
        bound: Offset,
    ) -> Result<Option<(Offset, Timestamp)>, ReadError> {
        self.first_record_since(time, bound, |segments, header| {
            if !header.is_transactional() {
                return Ok(true);
            }
            let found = aborted_in(&self.state, segments, header.base_offset, header.next_offset())?;
            Ok(!found.aborted.iter().any(|aborted| aborted.holds(header)))
        })
    }

    fn first_record_since(
        &self,
        time: Timestamp,
        bound: Offset,
        counts: impl Fn(&[Arc<Segment>], &BatchHeader) -> Result<bool, StorageError>,
    ) -> Result<Option<(Offset, Timestamp)>, ReadError> {
        let start = self.state.log_start();
        let end = bound.min(self.state.log_end());
        self.unless_removed(start, |segments| {
            let counts = |header: &BatchHeader| Ok(!header.is_control() && counts(segments, header)?);
            for (segment, _) in from_offset(segments, start) {
                if segment.base_offset() >= end {
                    break;
                }
                if let Some(found) = self.first_at(segment, time, start..end, &counts)? {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        })
    }

    /// First readable offset now.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        self.state.log_start()
    }

    /// Syncs the bytes of the newest segment beside the writer, so that the writer's own sync finds little left to do and
    /// holds up nobody. No promise: what is written meanwhile may not be in it.
    ///
    /// # Errors
    /// When the file system fails: as with the writer's sync, nothing more may be written then.
    pub fn sync_ahead(&self) -> Result<(), StorageError> {
        let segments = self.state.segments();
        let newest = segments.last().expect("a log has a segment");
        newest.file(&self.state)?.sync_data().map_err(StorageError::at("sync", newest.log_path()))
    }

    /// Bytes of all log segments (valid bytes, without zeros written ahead or indexes). A file that cannot be measured
    /// counts nothing.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.state.segments().iter().map(|segment| segment.bytes(&self.state).unwrap_or(0)).sum()
    }

    /// The leader epoch in force at `offset`, or none before the first (KIP-101).
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        // What is not kept is in the log itself, at its end in the last batch.
        self.state.epochs().at(offset).or_else(|| {
            let last = Offset(self.state.log_end().0.saturating_sub(1));
            let at = offset.max(self.state.log_start()).min(last);
            let chunk = self.read_batches(at, 1, at.advance(1), |_| true).ok()?;
            let batch = chunk.batches.first().filter(|batch| batch.header().base_offset <= offset)?;
            Some(batch.header().leader_epoch)
        })
    }

    /// How many stretches of damage are known so far.
    #[must_use]
    pub fn damage_count(&self) -> usize {
        self.state.damage_count()
    }

    /// Damage known so far.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        self.state.damage()
    }

    /// Runs `read` over the segments; again if retention took one away meanwhile.
    fn unless_removed<T>(
        &self,
        from: Offset,
        mut read: impl FnMut(&[Arc<Segment>]) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        loop {
            // The log start moves before segments go, so what it does not say of these is not gone from them.
            let segments = self.state.segments();
            let log_start = self.state.log_start();
            if from < log_start {
                return Err(ReadError::BelowStart { requested: from, log_start });
            }
            match read(&segments) {
                Err(ReadError::Storage(_)) if !Arc::ptr_eq(&segments, &self.state.segments()) => (),
                done => return done,
            }
        }
    }

    /// Adds what one segment gives; false once the chunk is complete.
    fn gather(&self, segment: &Arc<Segment>, gathering: &mut Gathering) -> Result<bool, ReadError> {
        if gathering.is_complete() {
            return Ok(false);
        }
        let place = segment.locate(&self.state, gathering.chunk.next_offset)?;
        self.state.warmed(segment);
        let interval = usize::try_from(self.state.index_interval_bytes()).unwrap_or(usize::MAX);
        let mut walk = segment.walk(&self.state, place, window(gathering.bytes_left().saturating_add(interval)))?;
        let fail = || StorageError::at("read", segment.log_path());
        loop {
            // A batch that has no room is not fetched.
            if !gathering.chunk.batches.is_empty() {
                walk.set_window_bytes(window(gathering.bytes_left()));
                if walk.next_size_bytes().map_err(fail())?.is_some_and(|size| size > gathering.bytes_left()) {
                    return Ok(false);
                }
            }
            let Some(step) = walk.next().map_err(fail())? else { return Ok(true) };
            match step {
                Step::Gap(damage) => gathering.skip(&self.state, damage),
                Step::Batch(_, batch) => {
                    if !gathering.take(batch) {
                        return Ok(false);
                    }
                }
            }
            if gathering.is_complete() {
                return Ok(false);
            }
        }
    }

    /// The first record of one segment with a timestamp of `time` or later, within some offsets and in a batch that
    /// counts.
    fn first_at(
        &self,
        segment: &Arc<Segment>,
        time: Timestamp,
        within: Range<Offset>,
        counts: &impl Fn(&BatchHeader) -> Result<bool, StorageError>,
    ) -> Result<Option<(Offset, Timestamp)>, ReadError> {
        let Range { start, end } = within;
        let mut from = start;
        let mut is_rebuilt = false;
        loop {
            let stretch = segment.stretch_reaching(&self.state, time, from)?;
            self.state.warmed(segment);
            let Some((place, stretch_end)) = stretch else { return Ok(None) };
            let mut walk = segment.walk(&self.state, place, *READ_WINDOW_BYTES.start())?;
            let mut is_reached = false;
            while walk.place().offset < stretch_end.min(end) {
                match walk.next().map_err(StorageError::at("read", segment.log_path()))? {
                    None => break,
                    Some(Step::Gap(damage)) => self.state.report(damage),
                    Some(Step::Batch(_, batch)) if batch.header().max_timestamp < time => (),
                    Some(Step::Batch(_, batch)) => {
                        is_reached = true;
                        if counts(batch.header())?
                            && let Some(found) = first_record_at(&batch, time, start)
                        {
                            return Ok(Some(found).filter(|(offset, _)| *offset < end));
                        }
                    }
                }
            }
            if is_reached || is_rebuilt || walk.place().offset >= end {
                from = stretch_end;
            } else {
                // The index claimed a timestamp that the log does not have.
                segment.rebuild_index(&self.state)?;
                is_rebuilt = true;
            }
        }
    }
}

/// How much to ask the file for when so much is wanted.
fn window(want_bytes: usize) -> usize {
    want_bytes.clamp(*READ_WINDOW_BYTES.start(), *READ_WINDOW_BYTES.end())
}

/// A chunk while it is being gathered.
struct Gathering {
    chunk: ReadChunk,
    bytes: usize,
    max_bytes: usize,
    end: Offset,
    is_wanted: fn(&BatchHeader) -> bool,
}

impl Gathering {
    fn is_complete(&self) -> bool {
        self.chunk.next_offset >= self.end
    }

    fn bytes_left(&self) -> usize {
        self.max_bytes.saturating_sub(self.bytes)
    }

    /// Takes a batch unless it lies before what is wanted; false if the chunk has no room for it.
    fn take(&mut self, batch: Batch) -> bool {
        let header = batch.header();
        if header.next_offset() <= self.chunk.next_offset {
            return true;
        }
        if !(self.is_wanted)(header) {
            self.chunk.next_offset = header.next_offset();
            return true;
        }
        if !self.chunk.batches.is_empty() && header.size_bytes > self.bytes_left() {
            return false;
        }
        self.bytes += header.size_bytes;
        self.chunk.next_offset = header.next_offset();
        self.chunk.batches.push(batch);
        true
    }

    /// Goes on behind damage.
    fn skip(&mut self, state: &State, damage: Damage) {
        state.report(damage);
        let lost = Damage { from: damage.from.max(self.chunk.next_offset), to: damage.to.min(self.end) };
        if lost.from < lost.to {
            self.chunk.next_offset = lost.to;
            self.chunk.gaps.push(lost);
        }
    }
}

impl ReadChunk {
    fn from(next_offset: Offset) -> Self {
        Self { batches: Vec::new(), gaps: Vec::new(), next_offset, aborted: Vec::new() }
    }
}

/// All aborted transactions with offsets from `from` on and below `to`, by their first offsets.
pub(super) fn aborted_in(
    state: &State,
    segments: &[Arc<Segment>],
    from: Offset,
    to: Offset,
) -> Result<Found, StorageError> {
    let mut found = Found::default();
    if from >= to {
        return Ok(found);
    }
    let stable = state.last_stable();
    let mut undecided = Vec::new();
    for (segment, _) in from_offset(segments, from) {
        let is_all = segment.with_aborted(state, |aborted| {
            undecided = if to <= stable { aborted.open().below(to).collect() } else { Vec::new() };
            aborted.gather(from, to, segment.next_offset(), &mut found)
        })?;
        state.warmed(segment);
        if is_all {
            undecided.clear();
            break;
        }
    }
    // Below the last stable offset nothing is open, so these markers are lost. Nobody can tell what they said.
    let last_offset = Offset(to.0 - 1);
    for (first_offset, producer_id) in undecided {
        found.push(AbortedTransaction { first_offset, last_offset, producer_id }, true);
    }
    found.aborted.sort_unstable();
    Ok(found)
}

/// The segments from the one that holds `from` on, each with its first offset that counts.
fn from_offset(segments: &[Arc<Segment>], from: Offset) -> impl Iterator<Item = (&Arc<Segment>, Offset)> {
    let behind = segments.partition_point(|segment| segment.base_offset() <= from);
    let relevant = &segments[behind.saturating_sub(1)..];
    relevant.iter().map(move |segment| (segment, segment.base_offset().max(from)))
}

/// The first record from `start` on with a timestamp of `time` or later.
fn first_record_at(batch: &Batch, time: Timestamp, start: Offset) -> Option<(Offset, Timestamp)> {
    let records = match batch.records() {
        Ok(records) => records,
        Err(error) => {
            tracing::warn!(base_offset = %batch.header().base_offset, %error, "records cannot be unpacked");
            return None;
        }
    };
    records
        .map_while(Result::ok)
        .find(|record| record.timestamp >= time && record.offset >= start)
        .map(|record| (record.offset, record.timestamp))
}
