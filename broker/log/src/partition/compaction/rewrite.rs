//! The long work of a pass: reads the newest offset of each dirty key, then writes what stays of the segments.
//!
//! A record goes if a newer one of its key is known, a tombstone also once its horizon is over, and what was aborted at
//! once. Not here: which segments a pass takes (`plan`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use levada_model::{Offset, Timestamp};

use super::map::OffsetMap;
use super::output::{Output, Written};
use super::transactions::{Aborted, Remaining};
use super::{CompactionError, CompactionPlan};
use crate::batch::{StoredRecord, UnpackedBatch, emptied};
use crate::partition::segment::{Segment, WALK_WINDOW_BYTES};
use crate::partition::state::State;
use crate::partition::terms::Damage;
use crate::partition::walk::{Place, Step};
use crate::{Batch, BatchHeader, RecordsError, StorageError};

/// What a pass came to, before it is put in place.
#[derive(Default)]
pub(in crate::partition) struct Outcome {
    pub(in crate::partition) written: Vec<Written>,
    pub(super) before_bytes: u64,
    pub(super) after_bytes: u64,
    pub(super) before_records: u64,
    pub(super) after_records: u64,
    pub(in crate::partition) latest_horizon: Option<Timestamp>,
}

/// Maps the dirty keys; answers where the map ends, since not all keys may fit.
pub(super) fn map_dirty(plan: &CompactionPlan, stop: &AtomicBool) -> Result<(OffsetMap, Offset), CompactionError> {
    let mut map = OffsetMap::new(plan.options.memory_bytes);
    let mut covered = plan.end();
    for segment in plan.sources.iter().filter(|segment| segment.next_offset() > plan.first_dirty) {
        let aborted = Aborted::of(&plan.state, segment)?;
        each_batch(&plan.state, segment, stop, |batch| {
            let mut is_full = false;
            let header = batch.header();
            if header.next_offset() <= plan.first_dirty || !has_records(header) || aborted.holds(header) {
                return Ok(true);
            }
            let note = |record: StoredRecord<'_>| {
                let Some(key) = record.key.filter(|_| record.offset >= plan.first_dirty && !is_full) else { return };
                if !map.note(key, record.offset) {
                    is_full = true;
                    covered = record.offset;
                }
            };
            unpacked(&plan.state, batch, |records| records.each(note))?;
            Ok(!is_full)
        })?;
        if covered < plan.end() {
            break;
        }
    }
    Ok((map, covered))
}

/// Writes what stays of all segments up to the map's end.
pub(super) fn rewrite(
    plan: &CompactionPlan,
    map: &OffsetMap,
    covered: Offset,
    stop: &AtomicBool,
) -> Result<Outcome, CompactionError> {
    let (outcome, aborted, remaining) = (Outcome::default(), Aborted::default(), Remaining::default());
    let mut rewrite = Rewrite { plan, map, covered, outcome, aborted, remaining, kept: Vec::new() };
    let mut output: Option<Output> = None;
    let taken = plan.sources.partition_point(|segment| segment.base_offset() < covered);
    for source in &plan.sources[..taken] {
        let out = match output.take() {
            Some(out) if out.has_room_for(source, plan.segment_bytes)? => output.insert(out),
            full => {
                rewrite.finish(full)?;
                output.insert(Output::begin(&plan.state, source)?)
            }
        };
        out.add_source(source)?;
        rewrite.aborted = Aborted::of(&plan.state, source)?;
        each_batch(&plan.state, source, stop, |batch| rewrite.batch(batch, out).map(|()| true))?;
    }
    rewrite.finish(output)?;
    Ok(rewrite.outcome)
}

/// The first record of a batch in `range` that has no key.
pub(super) fn first_keyless(batch: &Batch, range: Range<Offset>) -> Option<Offset> {
    let mut first = None;
    let each = |record: StoredRecord<'_>| {
        if record.key.is_none() && range.contains(&record.offset) {
            first.get_or_insert(record.offset);
        }
    };
    if let Err(error) = UnpackedBatch::of(batch).and_then(|records| records.each(each)) {
        tracing::warn!(base_offset = %batch.header().base_offset, %error, "records cannot be unpacked");
    }
    first
}

struct Rewrite<'a> {
    plan: &'a CompactionPlan,
    map: &'a OffsetMap,
    covered: Offset,
    outcome: Outcome,
    /// Of the segment at hand.
    aborted: Aborted,
    remaining: Remaining,
    /// Which records of the batch at hand stay.
    kept: Vec<bool>,
}

impl Rewrite<'_> {
    fn finish(&mut self, output: Option<Output>) -> Result<(), StorageError> {
        let Some(output) = output else { return Ok(()) };
        let source_bytes = output.source_bytes();
        let written = output.finish()?;
        self.outcome.before_bytes += source_bytes;
        self.outcome.after_bytes += written.as_ref().map_or(source_bytes, |written| written.bytes);
        self.outcome.written.extend(written);
        Ok(())
    }

    fn batch(&mut self, batch: &Batch, out: &mut Output) -> Result<(), CompactionError> {
        let header = batch.header();
        if header.is_control() {
            return self.marker(batch, out);
        }
        if header.record_count == 0 {
            if !self.is_remembered(header) {
                return Ok(out.drop_batch(header)?);
            }
            self.remaining.note(header);
            return Ok(out.keep(batch)?);
        }
        let records = unpacked(&self.plan.state, batch, Ok)?;
        let has_tombstones = self.judge(batch, &records)?;
        let kept = self.kept.iter().filter(|kept| **kept).count();
        self.outcome.before_records += self.kept.len() as u64;
        self.outcome.after_records += kept as u64;
        if kept == 0 && !self.is_remembered(header) {
            return Ok(out.drop_batch(header)?);
        }
        self.remaining.note(header);
        if kept == 0 {
            return Ok(out.replace(&emptied(header))?);
        }
        let horizon = self.new_horizon(header, has_tombstones);
        if has_tombstones {
            self.outcome.latest_horizon = self.outcome.latest_horizon.max(horizon.or(header.delete_horizon()));
        }
        if kept == self.kept.len() && horizon.is_none() {
            return Ok(out.keep(batch)?);
        }
        let retained =
            records.retain(&self.kept, horizon).map_err(|error| damaged(&self.plan.state, header, &error))?;
        Ok(out.replace(&retained)?)
    }

    /// A marker stays while a batch of its transaction is left below, then for the time of a tombstone (KIP-534), and
    /// while it is the last that its producer is known by.
    fn marker(&mut self, batch: &Batch, out: &mut Output) -> Result<(), CompactionError> {
        let (header, now) = (batch.header(), self.plan.now);
        let Some(id) = header.producer_id.filter(|_| batch.control().is_some()) else { return Ok(out.keep(batch)?) };
        if self.remaining.end(id) {
            return Ok(out.keep(batch)?);
        }
        match header.delete_horizon() {
            None => {
                let horizon = self.horizon_from_now();
                self.outcome.latest_horizon = self.outcome.latest_horizon.max(Some(horizon));
                let records = unpacked(&self.plan.state, batch, Ok)?;
                let marked = records.retain(&[true], Some(horizon));
                Ok(out.replace(&marked.map_err(|error| damaged(&self.plan.state, header, &error))?)?)
            }
            Some(horizon) if horizon <= now && !self.is_remembered(header) => Ok(out.drop_batch(header)?),
            Some(horizon) => {
                // One that stays for its producer's sake makes no pass due.
                self.outcome.latest_horizon = self.outcome.latest_horizon.max(Some(horizon).filter(|at| *at > now));
                Ok(out.keep(batch)?)
            }
        }
    }

    /// Decides which records stay; true if one of these is a tombstone.
    fn judge(&mut self, batch: &Batch, records: &UnpackedBatch<'_>) -> Result<bool, CompactionError> {
        let Self { plan, map, kept, aborted, .. } = self;
        let is_aborted = aborted.holds(batch.header());
        let is_over = batch.header().delete_horizon().is_some_and(|horizon| horizon <= plan.now);
        let mut has_tombstones = false;
        kept.clear();
        let each = |record: StoredRecord<'_>| {
            let stays = match record.key {
                _ if is_aborted => false,
                // A record without a key is nobody's older version.
                None => true,
                Some(key) => {
                    let is_newest = map.newest(key).is_none_or(|newest| newest <= record.offset);
                    is_newest && !(record.is_tombstone && is_over)
                }
            };
            has_tombstones |= stays && record.is_tombstone && record.key.is_some();
            kept.push(stays);
        };
        records.each(each).map_err(|error| damaged(&plan.state, batch.header(), &error))?;
        Ok(has_tombstones)
    }

    /// The horizon that a batch gets now. Only the map's end tells that all older records of a tombstone's key are gone.
    fn new_horizon(&self, header: &BatchHeader, has_tombstones: bool) -> Option<Timestamp> {
        let is_met = has_tombstones && header.delete_horizon().is_none() && header.next_offset() <= self.covered;
        is_met.then(|| self.horizon_from_now())
    }

    fn horizon_from_now(&self) -> Timestamp {
        Timestamp(self.plan.now.0.saturating_add(self.plan.options.delete_retention_ms))
    }

    fn is_remembered(&self, header: &BatchHeader) -> bool {
        header.producer_id.is_some() && self.plan.remembered.binary_search(&header.base_offset).is_ok()
    }
}

/// Shows all batches of a segment, until `each` says false. Damage ends it: it would be hidden.
fn each_batch(
    state: &State,
    segment: &Arc<Segment>,
    stop: &AtomicBool,
    mut each: impl FnMut(&Batch) -> Result<bool, CompactionError>,
) -> Result<(), CompactionError> {
    let start = Place { position: 0, offset: segment.base_offset() };
    let mut walk = segment.walk(state, start, WALK_WINDOW_BYTES)?;
    state.warmed(segment);
    while let Some(step) = walk.next().map_err(StorageError::at("read", segment.log_path()))? {
        if stop.load(Ordering::Relaxed) {
            return Err(CompactionError::Cancelled);
        }
        match step {
            Step::Batch(_, batch) => {
                if !each(&batch)? {
                    break;
                }
            }
            Step::Gap(damage) => {
                state.report(damage);
                return Err(CompactionError::Damaged(damage));
            }
        }
    }
    Ok(())
}

fn has_records(header: &BatchHeader) -> bool {
    header.record_count > 0 && !header.is_control()
}

/// Unpacks a batch and looks into it.
fn unpacked<'a, T>(
    state: &State,
    batch: &'a Batch,
    look: impl FnOnce(UnpackedBatch<'a>) -> Result<T, RecordsError>,
) -> Result<T, CompactionError> {
    UnpackedBatch::of(batch).and_then(look).map_err(|error| damaged(state, batch.header(), &error))
}

/// Records that were checked when they came and cannot be read now.
fn damaged(state: &State, header: &BatchHeader, error: &RecordsError) -> CompactionError {
    tracing::warn!(dir = %state.dir.display(), base_offset = %header.base_offset, %error, "a batch cannot be compacted");
    CompactionError::Damaged(Damage { from: header.base_offset, to: header.next_offset() })
}
