//! Producer ids: taken from the metadata in blocks and given out one by one, never twice.

use std::ops::Range;

use levada_model::ProducerId;
use parking_lot::Mutex;

use crate::metadata::{Applied, Command, Metadata, MetadataError};

/// Ids taken at once: each block costs a write of the metadata, and what is left of it at a stop is never used.
const BLOCK: u32 = 1_000;

/// Gives out producer ids.
pub(crate) struct ProducerIds(Mutex<Range<i64>>);

impl ProducerIds {
    /// `next` is the first id that no block holds yet.
    pub(crate) fn new(next: ProducerId) -> Self {
        Self(Mutex::new(next.0..next.0))
    }

    /// Gives out an id; may block for the disk.
    ///
    /// # Errors
    /// When the metadata takes no changes.
    pub(crate) fn give(&self, metadata: &dyn Metadata) -> Result<ProducerId, MetadataError> {
        let mut block = self.0.lock();
        if block.is_empty() {
            let Applied::ProducerIds(first) = metadata.propose(&Command::TakeProducerIds { count: BLOCK })? else {
                unreachable!("taking ids answers with ids");
            };
            *block = first.0..first.0 + i64::from(BLOCK);
        }
        Ok(ProducerId(block.next().expect("a block is not empty")))
    }

    /// Whether the id may have been given out, in this run or an earlier one.
    pub(crate) fn was_given(&self, id: ProducerId) -> bool {
        (0..self.0.lock().start).contains(&id.0)
    }
}
