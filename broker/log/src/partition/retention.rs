//! Which segments retention lets go: whole ones, oldest first, never the active one.
//!
//! Not here: the removal, which the writer does once the log start that it takes is durable.

use std::sync::Arc;

use levada_model::{Offset, Timestamp};

use super::segment::Segment;
use super::state::State;
use super::terms::LogOptions;
use crate::StorageError;

/// How far retention moves the log start, if at all.
pub(super) fn start(
    state: &State,
    options: &LogOptions,
    now: Timestamp,
    removable_end: Offset,
) -> Result<Option<Offset>, StorageError> {
    if !options.retains {
        return Ok(None);
    }
    let segments = state.segments();
    let sealed = &segments[..segments.len() - 1];
    let mut total = match options.retention_bytes {
        Some(_) if !sealed.is_empty() => segments.iter().map(|segment| segment.bytes(state)).sum::<Result<u64, _>>()?,
        _ => 0,
    };
    let mut start = None;
    for segment in sealed.iter().take_while(|segment| segment.next_offset() <= removable_end) {
        let is_too_much = options.retention_bytes.is_some_and(|most| total > most);
        if !is_too_much && !is_too_old(state, segment, now, options.retention_ms)? {
            break;
        }
        total = total.saturating_sub(segment.bytes(state)?);
        start = Some(segment.next_offset());
    }
    Ok(start)
}

/// Whether both a sealed segment's largest timestamp and its last append are older than `retention_ms`.
fn is_too_old(
    state: &State,
    segment: &Arc<Segment>,
    now: Timestamp,
    retention_ms: Option<i64>,
) -> Result<bool, StorageError> {
    let Some(retention_ms) = retention_ms else { return Ok(false) };
    let facts = segment.facts(state)?;
    state.warmed(segment);
    Ok(now.0.saturating_sub(facts.newest(now).0) > retention_ms)
}
