//! What one segment knows of transactions: read from its index file, completed by a walk, or built anew from what is open
//! where it begins.

use std::io::ErrorKind;

use super::{Segment, WALK_WINDOW_BYTES};
use crate::StorageError;
use crate::partition::aborted::{AbortedIndex, OpenSet};
use crate::partition::state::State;
use crate::partition::walk::{Place, Step};

impl Segment {
    /// Lets an empty segment go on behind the one before.
    pub(in crate::partition) fn follow(&self, state: &State, before: &Self) -> Result<(), StorageError> {
        let open = before.with_aborted(state, |aborted| aborted.open().clone())?;
        *self.aborted.lock() = Some(AbortedIndex::begin(self.base_offset, open));
        Ok(())
    }

    /// Looks at what is known of aborted transactions; it is read, completed or built anew where it is not at hand.
    pub(in crate::partition) fn with_aborted<T>(
        &self,
        state: &State,
        look: impl FnOnce(&AbortedIndex) -> T,
    ) -> Result<T, StorageError> {
        let mut aborted = self.aborted.lock();
        if aborted.is_none() {
            let from_file = self.read_index(state)?.take_aborted();
            *aborted = Some(self.complete_aborted(state, from_file)?);
        }
        Ok(look(aborted.as_ref().expect("loaded above")))
    }

    /// Completes what the index file says of transactions by a walk from where it ends, or from the start of the segment
    /// and what is open there.
    pub(super) fn complete_aborted(
        &self,
        state: &State,
        from_file: Option<AbortedIndex>,
    ) -> Result<AbortedIndex, StorageError> {
        let mut aborted = match from_file {
            Some(known) if self.is_boundary(state, known.end())? => known,
            _ => AbortedIndex::begin(self.base_offset, self.open_before(state)?),
        };
        let mut walk = self.walk(state, aborted.end(), WALK_WINDOW_BYTES)?;
        while let Some(step) = walk.next().map_err(StorageError::at("read", &self.log_path))? {
            match step {
                Step::Batch(position, batch) => aborted.note(position, &batch),
                Step::Gap(damage) => {
                    state.report(damage);
                    aborted.skip_to(walk.place());
                }
            }
        }
        if state.plants.forget_aborted {
            aborted.forget();
        }
        Ok(aborted)
    }

    /// The transactions that are open where the segment begins, as the segments before it know.
    fn open_before(&self, state: &State) -> Result<OpenSet, StorageError> {
        let segments = state.segments();
        let earlier = &segments[..segments.partition_point(|segment| segment.base_offset < self.base_offset)];
        let Some(before) = earlier.last() else { return Ok(OpenSet::default()) };
        if before.next_offset() != self.base_offset {
            // A compaction has put another one in place of both.
            return Err(StorageError::at("open", &self.log_path)(ErrorKind::NotFound.into()));
        }
        // From the last one that needs no other on, so that however many lost their index, they do not wait for each
        // other in a chain.
        let mut from = earlier.len();
        while from > 0 {
            from -= 1;
            if earlier[from].knows_aborted(state)? {
                break;
            }
        }
        let mut open = OpenSet::default();
        for segment in &earlier[from..] {
            open = segment.with_aborted(state, |aborted| aborted.open().clone())?;
            state.warmed(segment);
        }
        Ok(open)
    }

    /// Whether what it knows of transactions needs no earlier segment.
    fn knows_aborted(&self, state: &State) -> Result<bool, StorageError> {
        if self.aborted.lock().is_some() {
            return Ok(true);
        }
        match self.read_index(state)?.take_aborted() {
            Some(known) => self.is_boundary(state, known.end()),
            None => Ok(false),
        }
    }

    /// Whether the log has a batch with that offset there, or ends there.
    fn is_boundary(&self, state: &State, place: Place) -> Result<bool, StorageError> {
        let is_end = place.offset == self.next_offset() && place.position == self.bytes(state)?;
        Ok(is_end || self.is_proven(state, place)?)
    }
}
