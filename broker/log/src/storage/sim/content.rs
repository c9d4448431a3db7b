//! One file's bytes: what was written, beside what was synced.

use std::collections::BTreeSet;
use std::ops::Range;

use levada_model::Timestamp;

use super::plan::Fate;

/// The bytes of a file. Blocks are numbered from 0.
#[derive(Clone, Debug)]
pub(super) struct Content {
    block_bytes: usize,
    written: Vec<u8>,
    synced: Vec<u8>,
    /// Blocks written since the last sync.
    dirty: BTreeSet<usize>,
    /// Blocks whose sync failed. Linux marks such pages clean, so a second sync answers Ok and writes none of them.
    abandoned: BTreeSet<usize>,
    /// The shortest that the file was since the last sync.
    shortest: usize,
    modified: Timestamp,
    /// The time that a power cut leaves: fdatasync need not write the time of a change that it does not carry.
    synced_modified: Timestamp,
}

impl Content {
    pub(super) fn new(block_bytes: usize, now: Timestamp) -> Self {
        Self::durable(block_bytes, Vec::new(), now)
    }

    /// A file that is on the disk as it is.
    pub(super) fn durable(block_bytes: usize, bytes: Vec<u8>, modified: Timestamp) -> Self {
        Self {
            block_bytes,
            shortest: bytes.len(),
            synced: bytes.clone(),
            written: bytes,
            dirty: BTreeSet::new(),
            abandoned: BTreeSet::new(),
            modified,
            synced_modified: modified,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.written
    }

    pub(super) fn modified(&self) -> Timestamp {
        self.modified
    }

    pub(super) fn write(&mut self, position: usize, bytes: &[u8], now: Timestamp) {
        if bytes.is_empty() {
            return;
        }
        self.modified = now;
        let range = position..position + bytes.len();
        if range.end > self.written.len() {
            self.extend(range.end);
        }
        self.written[range.clone()].copy_from_slice(bytes);
        self.mark(range);
    }

    pub(super) fn set_len(&mut self, len: usize, now: Timestamp) {
        self.modified = now;
        if len > self.written.len() {
            self.extend(len);
        } else {
            self.written.truncate(len);
            self.shortest = self.shortest.min(len);
        }
    }

    pub(super) fn sync(&mut self) {
        // The length first: blocks are copied within it.
        self.synced.resize(self.written.len(), 0);
        for block in std::mem::take(&mut self.dirty) {
            let range = self.range(block, self.written.len());
            self.synced[range.clone()].copy_from_slice(&self.written[range]);
        }
        self.shortest = self.written.len();
        self.synced_modified = self.modified;
    }

    pub(super) fn fail_sync(&mut self) {
        self.abandoned.append(&mut self.dirty);
    }

    /// Changes a byte where it lies, as a failing disk does: no sync brings it back.
    pub(super) fn corrupt(&mut self, position: usize, xor_mask: u8) {
        for bytes in [&mut self.written, &mut self.synced] {
            if let Some(byte) = bytes.get_mut(position) {
                *byte ^= xor_mask;
            }
        }
    }

    pub(super) fn length_pends(&self) -> bool {
        self.written.len() != self.synced.len() || self.shortest != self.synced.len()
    }

    pub(super) fn pending_blocks(&self) -> Vec<usize> {
        self.dirty.union(&self.abandoned).copied().collect()
    }

    /// What a power cut leaves. `length` is the length's fate, `blocks` those of the pending blocks in order.
    pub(super) fn crash(&self, length: Fate, blocks: &[Fate]) -> Self {
        let longest = self.written.len().max(self.synced.len());
        let surviving = match length {
            Fate::Lost => self.synced.len(),
            Fate::Kept => self.written.len(),
            Fate::Torn { bytes } => self.shortest.saturating_add(bytes).min(longest),
        };
        let mut bytes = self.synced.clone();
        bytes.resize(longest, 0);
        for (block, fate) in self.pending_blocks().into_iter().zip(blocks) {
            let mut range = self.range(block, self.written.len());
            range.end = match fate {
                Fate::Lost => range.start,
                Fate::Kept => range.end,
                Fate::Torn { bytes } => range.end.min(range.start.saturating_add(*bytes)),
            };
            bytes[range.clone()].copy_from_slice(&self.written[range]);
        }
        bytes.truncate(surviving);
        Self::durable(self.block_bytes, bytes, self.synced_modified)
    }

    fn extend(&mut self, len: usize) {
        let zeros = self.written.len()..len.min(self.synced.len());
        self.written.resize(len, 0);
        // These bytes were cut off and are zeros now; until that is synced the disk may still have the old ones.
        self.mark(zeros);
    }

    fn mark(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        for block in range.start / self.block_bytes..=(range.end - 1) / self.block_bytes {
            self.dirty.insert(block);
            self.abandoned.remove(&block);
        }
    }

    /// Where a block lies in a file of `len` bytes; empty beyond its end.
    fn range(&self, block: usize, len: usize) -> Range<usize> {
        let start = block * self.block_bytes;
        start.min(len)..(start + self.block_bytes).min(len)
    }
}
