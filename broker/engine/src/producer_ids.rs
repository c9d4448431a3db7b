//! Producer ids: taken from the metadata in blocks and given out one by one, never twice.

use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};

use levada_model::ProducerId;
use parking_lot::Mutex;

use crate::metadata::{Applied, Command, Metadata, MetadataError};

/// Ids taken at once: each block costs a write of the metadata, and what is left of it at a stop is never used.
const BLOCK: u32 = 1_000;

/// Gives out producer ids.
pub(crate) struct ProducerIds {
    /// What is left of the block; held while a new one is written.
    block: Mutex<Range<i64>>,
    /// All ids below this may have been given out.
    given_end: AtomicI64,
}

impl ProducerIds {
    /// `next` is the first id that no block holds yet.
    pub(crate) fn new(next: ProducerId) -> Self {
        Self { block: Mutex::new(next.0..next.0), given_end: AtomicI64::new(next.0) }
    }

    /// Gives out an id; may block for the disk.
    ///
    /// # Errors
    /// When the metadata takes no changes.
    pub(crate) fn give(&self, metadata: &dyn Metadata) -> Result<ProducerId, MetadataError> {
        let mut block = self.block.lock();
        if block.is_empty() {
            let Applied::ProducerIds(first) = metadata.propose(&Command::TakeProducerIds { count: BLOCK })? else {
                unreachable!("taking ids answers with ids");
            };
            *block = first.0..first.0 + i64::from(BLOCK);
        }
        let id = block.next().expect("a block is not empty");
        self.given_end.store(id + 1, Ordering::Release);
        Ok(ProducerId(id))
    }

    /// Whether the id may have been given out, in this run or an earlier one.
    pub(crate) fn was_given(&self, id: ProducerId) -> bool {
        (0..self.given_end.load(Ordering::Acquire)).contains(&id.0)
    }
}
