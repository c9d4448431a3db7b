//! Which segments a pass takes, and why the others are not taken.

use std::sync::Arc;

use levada_model::{Offset, Timestamp};

use super::{CompactionOptions, CompactionState, Uncompacted, UncompactedReason};
use crate::StorageError;
use crate::partition::segment::Segment;
use crate::partition::state::State;

/// What could be cleaned now.
pub(in crate::partition) struct Cleanable {
    /// Sealed segments from the first on, without gaps.
    pub(in crate::partition) segments: Vec<Arc<Segment>>,
    pub(in crate::partition) first_dirty: Offset,
    clean_bytes: u64,
    dirty_bytes: u64,
    /// Why the sealed segments behind these are not taken.
    behind: UncompactedReason,
    /// Whether the ratio or the age says that a pass is due.
    is_due: bool,
}

/// Whether a pass runs, and how far earlier ones came; shared by the writer and the readers.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::partition) struct Progress {
    pub(in crate::partition) options: Option<CompactionOptions>,
    /// All below is clean.
    pub(in crate::partition) first_dirty: Offset,
    /// When the last of the tombstones that the last pass kept may go.
    pub(in crate::partition) latest_horizon: Option<Timestamp>,
    pub(in crate::partition) is_planned: bool,
    /// Whether the last pass left some of what it might have cleaned, for want of memory.
    pub(in crate::partition) is_unfinished: bool,
}

impl Cleanable {
    /// What could be cleaned of the log, below `bound`.
    pub(in crate::partition) fn now(
        state: &State,
        options: &CompactionOptions,
        now: Timestamp,
        bound: Offset,
    ) -> Result<Self, StorageError> {
        let segments = state.segments();
        let progress = state.compaction();
        let mut this = Self {
            segments: Vec::new(),
            first_dirty: progress.first_dirty.max(segments[0].base_offset()),
            clean_bytes: 0,
            dirty_bytes: 0,
            behind: UncompactedReason::Bound,
            is_due: false,
        };
        for segment in &segments[..segments.len() - 1] {
            if segment.next_offset() > bound {
                break;
            }
            let is_dirty = segment.next_offset() > this.first_dirty;
            if is_dirty && is_young(state, segment, now, options.min_compaction_lag_ms)? {
                this.behind = UncompactedReason::Lag;
                break;
            }
            let bytes = segment.bytes(state)?;
            *(if is_dirty { &mut this.dirty_bytes } else { &mut this.clean_bytes }) += bytes;
            this.segments.push(segment.clone());
        }
        this.is_due = this.is_due(state, options, now, &progress)?;
        Ok(this)
    }

    /// Whether a pass should be made.
    pub(in crate::partition) fn is_planned(&self, forced: bool) -> bool {
        !self.segments.is_empty() && (forced || self.is_due)
    }

    /// The offset behind all that could be cleaned.
    pub(super) fn end(&self) -> Option<Offset> {
        self.segments.last().map(|segment| segment.next_offset())
    }

    /// The same as it is told to others.
    pub(super) fn told(&self, state: &State) -> CompactionState {
        let segments = state.segments();
        let active = segments.last().expect("a log has a segment").base_offset();
        let dirty_reason = if self.is_due { UncompactedReason::Due } else { UncompactedReason::Ratio };
        let end = self.end().unwrap_or(segments[0].base_offset());
        let bounds = [(end, dirty_reason), (active, self.behind), (state.log_end(), UncompactedReason::Active)];
        let mut from = self.first_dirty.max(state.log_start());
        let mut uncompacted = Vec::new();
        for (to, reason) in bounds {
            if to > from {
                uncompacted.push(Uncompacted { from, to, reason });
                from = to;
            }
        }
        CompactionState {
            first_dirty: self.first_dirty,
            clean_bytes: self.clean_bytes,
            dirty_bytes: self.dirty_bytes,
            dirty_ratio: self.dirty_ratio(),
            uncompacted,
        }
    }

    fn is_due(
        &self,
        state: &State,
        options: &CompactionOptions,
        now: Timestamp,
        progress: &Progress,
    ) -> Result<bool, StorageError> {
        if progress.latest_horizon.is_some_and(|horizon| horizon <= now) {
            return Ok(true);
        }
        if self.dirty_bytes == 0 {
            return Ok(false);
        }
        Ok(progress.is_unfinished
            || self.dirty_ratio() > options.min_cleanable_dirty_ratio
            || self.is_overdue(state, now, options.max_compaction_lag_ms)?)
    }

    /// Whether the oldest dirty record was appended longer ago than `max_lag_ms`.
    fn is_overdue(&self, state: &State, now: Timestamp, max_lag_ms: i64) -> Result<bool, StorageError> {
        if max_lag_ms == i64::MAX {
            return Ok(false);
        }
        let Some(dirty) = self.segments.iter().find(|segment| segment.next_offset() > self.first_dirty) else {
            return Ok(false);
        };
        let first = match dirty.span(state)? {
            Some(span) => span.first,
            None => dirty.facts(state)?.last_append,
        };
        state.warmed(dirty);
        Ok(now.0.saturating_sub(first.0) > max_lag_ms)
    }

    #[expect(clippy::cast_precision_loss, reason = "a part of a whole, for a comparison with a setting")]
    fn dirty_ratio(&self) -> f64 {
        match self.clean_bytes + self.dirty_bytes {
            0 => 0.0,
            all => self.dirty_bytes as f64 / all as f64,
        }
    }
}

/// Whether the newest record of a sealed segment is younger than `min_lag_ms`.
fn is_young(state: &State, segment: &Arc<Segment>, now: Timestamp, min_lag_ms: i64) -> Result<bool, StorageError> {
    if min_lag_ms <= 0 {
        return Ok(false);
    }
    let newest = segment.facts(state)?.newest(now);
    state.warmed(segment);
    Ok(now.0.saturating_sub(newest.0) < min_lag_ms)
}
