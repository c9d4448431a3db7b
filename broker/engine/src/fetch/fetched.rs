//! What a read gave: stored batches or what a filter left of them, and the records that count.
//!
//! Not here: which records count (`counting`), and what a filter leaves (`filtering`).

use std::vec;

use levada_log::{AbortedTransaction, Batch, Damage, RecordRef, Records, RecordsError};
use levada_model::{LeaderEpoch, Offset, PartitionIndex};

use super::counting;
use super::filtering::Piece;
use crate::heavy::{Work, compute};

/// What a read gave, with the marks of the same moment.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The partition.
    pub partition: PartitionIndex,
    /// Stored batches that hold the records; the first may begin before `from`. Those of aborted transactions are left
    /// out where only what is committed is wanted; control batches are here, and their records never count. None where a
    /// filter was asked for.
    pub batches: Vec<Batch>,
    /// What a filter left, in the place of the batches; none where none was asked for.
    pub filtered: Option<Filtered>,
    /// The aborted transactions with offsets in what was read, by their first offsets, as Kafka's fetch tells them to
    /// clients that filter by themselves; none where everything is wanted.
    pub aborted: Vec<AbortedTransaction>,
    /// First offset that counts.
    pub from: Offset,
    /// Most records that count.
    pub max_records: usize,
    /// Offsets lost to damage on the way.
    pub gaps: Vec<Damage>,
    /// Where to go on after all records that count.
    pub next_offset: Offset,
    /// The high watermark.
    pub high_watermark: Offset,
    /// The last stable offset.
    pub last_stable_offset: Offset,
    /// The log start.
    pub log_start_offset: Offset,
    /// The leader's term.
    pub leader_epoch: LeaderEpoch,
}

/// The records that passed a filter or took the place of others; [`Fetched::take_records`] gives them.
#[derive(Clone, Debug)]
pub struct Filtered(pub(super) Vec<Piece>);

impl Fetched {
    /// Takes the batches out, as the records that count: from `from` on, at most `max_records`, without control records.
    /// What else was read stays.
    pub fn take_records(&mut self) -> FetchedRecords {
        let pieces: Vec<_> = match &mut self.filtered {
            Some(Filtered(pieces)) => std::mem::take(pieces),
            None => std::mem::take(&mut self.batches).into_iter().map(Piece::Batch).collect(),
        };
        FetchedRecords {
            pieces: pieces.into_iter(),
            given: Vec::new().into_iter(),
            unpacked: None,
            from: self.from,
            // What a filter left was counted.
            left: if self.filtered.is_some() { usize::MAX } else { self.max_records },
        }
    }

    /// How many records count, and their bytes (of stored batches as they are stored), for whoever has room for so many.
    pub(crate) fn size(&self) -> (usize, usize) {
        let of_batch = |batch: &Batch| (batch.header().record_count as usize, batch.bytes().len());
        let of_piece = |piece: &Piece| match piece {
            Piece::Batch(batch) => of_batch(batch),
            Piece::Records(records) => (records.len(), records.iter().map(|record| record.record.size_bytes()).sum()),
        };
        let data = self.batches.iter().filter(|batch| !batch.header().is_control()).map(of_batch);
        let sizes = data.chain(self.filtered.iter().flat_map(|Filtered(pieces)| pieces).map(of_piece));
        sizes.fold((0, 0), |(records, bytes), (more, of)| (records.saturating_add(more), bytes + of))
    }

    /// As [`take_records`](Self::take_records), and the batches stay.
    #[must_use]
    pub fn records(&self) -> FetchedRecords {
        self.clone().take_records()
    }

    /// Cuts a single batch that is larger than `max_bytes` down to the records of it that fit, one at least.
    pub(crate) async fn keep_bytes(self, max_bytes: usize) -> Self {
        match self.batches.first() {
            Some(first) if first.bytes().len() > max_bytes => {
                compute(Work::Unpack, counting::unpacking_bytes(first), move || self.cut(max_bytes)).await
            }
            _ => self,
        }
    }

    fn cut(mut self, max_bytes: usize) -> Self {
        let mut left = max_bytes;
        for (kept, record) in self.records().enumerate() {
            // What cannot be read is told in its place, when its turn comes.
            let Ok(record) = record else { break };
            let size_bytes = record.record.size_bytes();
            if kept > 0 && size_bytes > left {
                self.max_records = kept;
                self.next_offset = record.offset;
                self.gaps.retain(|gap| gap.from < record.offset);
                break;
            }
            left = left.saturating_sub(size_bytes);
        }
        self
    }

    /// Whether it brings neither a record nor word of a gap. Batches without a record that counts are not kept, but for
    /// control batches, whose records never count.
    pub(crate) fn is_empty(&self) -> bool {
        let has_pieces = self.filtered.as_ref().is_some_and(|Filtered(pieces)| !pieces.is_empty());
        self.gaps.is_empty() && !has_pieces && self.batches.iter().all(|batch| batch.header().is_control())
    }
}

/// The records of a read in order. Each batch is unpacked when its turn comes and let go behind its last record; one that
/// cannot be unpacked, or a record that is malformed, is an error in its place.
#[derive(Debug)]
pub struct FetchedRecords {
    pieces: vec::IntoIter<Piece>,
    /// Records of the piece whose turn it is.
    given: vec::IntoIter<RecordRef>,
    unpacked: Option<Records>,
    from: Offset,
    left: usize,
}

impl FetchedRecords {
    /// The next record that counts, of the batch whose turn it is.
    fn next_unpacked(&mut self) -> Option<Result<RecordRef, RecordsError>> {
        let from = self.from;
        self.unpacked.as_mut()?.find(|record| record.as_ref().map_or(true, |record| record.offset >= from))
    }
}

impl Iterator for FetchedRecords {
    type Item = Result<RecordRef, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        loop {
            if let Some(record) = self.next_unpacked() {
                return Some(record);
            }
            if let Some(record) = self.given.next() {
                return Some(Ok(record));
            }
            let batch = match self.pieces.next()? {
                Piece::Records(records) => {
                    self.given = records.into_iter();
                    continue;
                }
                Piece::Batch(batch) if batch.header().is_control() => continue,
                Piece::Batch(batch) => batch,
            };
            match batch.records() {
                Ok(records) => self.unpacked = Some(records),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
