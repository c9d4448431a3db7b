//! Producer ids: taken from the metadata in blocks and given out one by one, never twice.
//!
//! An id says by itself what it is for. One of a transactional id has a bit set, and is taken in its transactions alone: a
//! record outside of them could carry an epoch that fences the producer, or its repeat be stored twice. Ids that stand for
//! idempotency keys are the log's.

use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};

use levada_model::ProducerId;
use parking_lot::Mutex;

use crate::metadata::{Applied, Command, Metadata, MetadataError};

/// Ids taken at once: each block costs a write of the metadata, and what is left of it at a stop is never used.
const BLOCK: u32 = 1_000;
/// Set in ids of transactions. Ids count up from 0 and come nowhere near it, and with it they are still below 2^53, which
/// JSON holds.
const TRANSACTIONAL_BIT: i64 = 1 << 52;

/// Gives out producer ids.
pub(crate) struct ProducerIds {
    /// What is left of the block; held while a new one is written.
    block: Mutex<Range<i64>>,
    /// All numbers below this may have been given out.
    given_end: AtomicI64,
}

impl ProducerIds {
    /// `next` is the first id that no block holds yet.
    pub(crate) fn new(next: ProducerId) -> Self {
        Self { block: Mutex::new(next.0..next.0), given_end: AtomicI64::new(next.0) }
    }

    /// Gives out an id for a producer without transactions; may block for the disk.
    ///
    /// # Errors
    /// When the metadata takes no changes.
    pub(crate) fn give(&self, metadata: &dyn Metadata) -> Result<ProducerId, MetadataError> {
        self.next(metadata).map(ProducerId)
    }

    /// Gives out an id for the transactions of a transactional id; may block for the disk.
    ///
    /// # Errors
    /// When the metadata takes no changes.
    pub(crate) fn give_transactional(&self, metadata: &dyn Metadata) -> Result<ProducerId, MetadataError> {
        self.next(metadata).map(|number| ProducerId(number | TRANSACTIONAL_BIT))
    }

    fn next(&self, metadata: &dyn Metadata) -> Result<i64, MetadataError> {
        let mut block = self.block.lock();
        if block.is_empty() {
            let Applied::ProducerIds(first) = metadata.propose(&Command::TakeProducerIds { count: BLOCK })? else {
                unreachable!("taking ids answers with ids");
            };
            *block = first.0..first.0 + i64::from(BLOCK);
        }
        let number = block.next().expect("a block is not empty");
        assert!(number < TRANSACTIONAL_BIT, "{number} is told from no id of transactions");
        self.given_end.store(number + 1, Ordering::Release);
        Ok(number)
    }

    /// Whether the id may have been given out, in this run or an earlier one, to a producer without transactions.
    pub(crate) fn was_given(&self, id: ProducerId) -> bool {
        (0..self.given_end.load(Ordering::Acquire)).contains(&id.0)
    }
}
