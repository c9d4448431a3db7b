//! Which transactions of one segment were aborted, and which are open where it ends.
//!
//! Like the index, in whose file it lies, it is derived from the log. A segment alone does not tell it: a transaction may
//! have begun in an earlier one. So it is built from what is open where the segment begins, which the one before knows.
//! Not here: who walks the log for it (`segment`). Format: `broker/docs/formats/log-directory.md`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut};
use crc_fast::crc32_iscsi;
use levada_model::{Offset, ProducerEpoch, ProducerId};

use super::terms::AbortedTransaction;
use super::walk::Place;
use crate::{Batch, TransactionEnd};

/// What the chunks of this kind begin with.
pub(super) const MAGIC: u32 = u32::from_be_bytes(*b"LVTX");
const VERSION: u16 = 1;
/// Bytes of a chunk before its entries: magic, version, flags, segment, from, to, position, counts.
const CHUNK_HEAD_BYTES: usize = 4 + 2 + 2 + 8 + 8 + 8 + 4 + 4 + 4;
const ENTRY_BYTES: usize = 8 + 8 + 8 + 8 + 1;
const OPEN_BYTES: usize = 8 + 2 + 8;
const CRC_BYTES: usize = 4;

/// The aborted transactions whose markers lie in one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AbortedIndex {
    /// In the order of their markers.
    entries: Vec<Entry>,
    /// What is open at the end.
    open: OpenSet,
    /// All batches before this are noted.
    end: Place,
    /// How many entries are in the file, and up to which offset it speaks.
    written: usize,
    written_to: Offset,
    /// Whether the file has a chunk of this kind.
    is_in_file: bool,
}

/// Transactions that are open at one place of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OpenSet {
    by_producer: BTreeMap<ProducerId, (ProducerEpoch, Offset)>,
    by_offset: BTreeSet<(Offset, ProducerId)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    aborted: AbortedTransaction,
    /// The last stable offset behind its marker: what is aborted later begins there or behind it.
    last_stable: Offset,
    /// Whether its marker is lost, so that it may as well have been committed.
    is_lost: bool,
}

/// Aborted transactions of a range of offsets.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) aborted: Vec<AbortedTransaction>,
    /// One of them, if there is one, whose marker is lost.
    pub(super) lost: Option<AbortedTransaction>,
}

/// A chunk of the index file.
pub(super) struct Chunk {
    from: Offset,
    to: Place,
    entries: Vec<Entry>,
    open: OpenSet,
}

impl AbortedIndex {
    /// Nothing of the segment is noted yet that begins at `base_offset`, where `open` is open.
    pub(super) fn begin(base_offset: Offset, open: OpenSet) -> Self {
        Self {
            entries: Vec::new(),
            open,
            end: Place { position: 0, offset: base_offset },
            written: 0,
            written_to: base_offset,
            is_in_file: false,
        }
    }

    /// The end of a segment that was put together of others: what these had, of which `is_kept` stays.
    pub(super) fn of_sources(
        base_offset: Offset,
        end: Place,
        sources: Vec<Self>,
        is_kept: impl Fn(&AbortedTransaction) -> bool,
    ) -> Self {
        let open = sources.last().map(|last| last.open.clone()).unwrap_or_default();
        let all = sources.into_iter().flat_map(|source| source.entries);
        let entries = all.filter(|entry| is_kept(&entry.aborted)).collect();
        Self { entries, end, ..Self::begin(base_offset, open) }
    }

    /// All batches before this are noted.
    pub(super) fn end(&self) -> Place {
        self.end
    }

    /// What is open at the end.
    pub(super) fn open(&self) -> &OpenSet {
        &self.open
    }

    /// Notes the next batch; one that is noted already is not noted again.
    pub(super) fn note(&mut self, position: u64, batch: &Batch) {
        let header = batch.header();
        if header.base_offset < self.end.offset {
            return;
        }
        self.end = Place { position: position + header.size_bytes as u64, offset: header.next_offset() };
        let Some(id) = header.producer_id else { return };
        if header.is_control() {
            let Some(marker) = batch.control() else { return };
            if let Some((_, first_offset)) = self.open.take(id)
                && marker.end == TransactionEnd::Abort
            {
                let aborted = AbortedTransaction { first_offset, last_offset: header.base_offset, producer_id: id };
                self.push(aborted, header.next_offset(), false);
            }
            return;
        }
        // The marker between two epochs is lost. Nobody can tell what it said, so nobody sees what it ended.
        if let Some((_, first_offset)) = self.open.take_other(id, header.producer_epoch) {
            let last_offset = Offset(header.base_offset.0 - 1);
            let aborted = AbortedTransaction { first_offset, last_offset, producer_id: id };
            self.push(aborted, header.base_offset, true);
        }
        if header.is_transactional() {
            self.open.insert(id, header.producer_epoch, header.base_offset);
        }
    }

    /// Goes on at a place behind damage.
    pub(super) fn skip_to(&mut self, place: Place) {
        self.end = place;
    }

    /// Forgets what was aborted.
    pub(super) fn forget(&mut self) {
        self.entries.clear();
        self.written = 0;
    }

    /// Adds the transactions with offsets from `from` on and below `to`; true if nothing behind the segment, which ends
    /// at `segment_end`, can be among them.
    pub(super) fn gather(&self, from: Offset, to: Offset, segment_end: Offset, found: &mut Found) -> bool {
        let first = self.entries.partition_point(|entry| entry.aborted.last_offset < from);
        for entry in &self.entries[first..] {
            if entry.aborted.first_offset < to {
                found.push(entry.aborted, entry.is_lost);
            }
            if entry.last_stable >= to {
                return true;
            }
        }
        segment_end >= to && self.open.first().is_none_or(|first| first >= to)
    }

    /// What is to be written in front of the next chunk of the index; none if that says it all: nothing was aborted, and
    /// nothing is open.
    pub(super) fn chunk(&self, base_offset: Offset) -> Option<Vec<u8>> {
        let is_empty = self.entries.is_empty() && self.open.by_producer.is_empty();
        if is_empty && !self.is_in_file {
            return None;
        }
        let count = |count: usize| u32::try_from(count).expect("fewer than bytes of a segment");
        let new = &self.entries[self.written..];
        let open = &self.open.by_producer;
        let mut bytes =
            Vec::with_capacity(CHUNK_HEAD_BYTES + new.len() * ENTRY_BYTES + open.len() * OPEN_BYTES + CRC_BYTES);
        bytes.put_u32(MAGIC);
        bytes.put_u16(VERSION);
        bytes.put_u16(0);
        bytes.put_u64(base_offset.0);
        bytes.put_u64(self.written_to.0);
        bytes.put_u64(self.end.offset.0);
        bytes.put_u32(u32::try_from(self.end.position).expect("a roll keeps positions below 2^32"));
        bytes.put_u32(count(new.len()));
        bytes.put_u32(count(open.len()));
        for Entry { aborted, last_stable, is_lost } in new {
            bytes.put_i64(aborted.producer_id.0);
            bytes.put_u64(aborted.first_offset.0);
            bytes.put_u64(aborted.last_offset.0);
            bytes.put_u64(last_stable.0);
            bytes.put_u8((*is_lost).into());
        }
        for (id, (epoch, first_offset)) in open {
            bytes.put_i64(id.0);
            bytes.put_i16(epoch.0);
            bytes.put_u64(first_offset.0);
        }
        bytes.put_u32(crc32_iscsi(&bytes));
        Some(bytes)
    }

    /// Notes that the chunk is in the file.
    pub(super) fn wrote_chunk(&mut self) {
        self.written = self.entries.len();
        self.written_to = self.end.offset;
        self.is_in_file = true;
    }

    /// Takes what a chunk of the file says, which takes the place of what is known from its start on. False if it does
    /// not go on there.
    pub(super) fn take_chunk(&mut self, chunk: Chunk) -> bool {
        if chunk.from > self.end.offset {
            return false;
        }
        let kept = self.entries.partition_point(|entry| entry.aborted.last_offset < chunk.from);
        self.entries.truncate(kept);
        self.entries.extend(chunk.entries);
        self.open = chunk.open;
        self.end = chunk.to;
        self.wrote_chunk();
        true
    }

    /// Up to here the file has stretches of batches, and no chunk of this kind behind the last one: so nothing more was
    /// aborted, and what was open still is.
    pub(super) fn reach(&mut self, place: Place) {
        if place.offset > self.end.offset && !self.is_in_file {
            self.end = place;
        }
    }

    fn push(&mut self, aborted: AbortedTransaction, end: Offset, is_lost: bool) {
        let last_stable = self.open.first().unwrap_or(end);
        self.entries.push(Entry { aborted, last_stable, is_lost });
    }
}

impl Found {
    pub(super) fn push(&mut self, aborted: AbortedTransaction, is_lost: bool) {
        self.aborted.push(aborted);
        self.lost = self.lost.or(is_lost.then_some(aborted));
    }
}

impl OpenSet {
    /// First offset of the earliest one.
    pub(super) fn first(&self) -> Option<Offset> {
        self.by_offset.first().map(|(offset, _)| *offset)
    }

    /// Those that begin below `to`.
    pub(super) fn below(&self, to: Offset) -> impl Iterator<Item = (Offset, ProducerId)> {
        self.by_offset.iter().copied().take_while(move |(first, _)| *first < to)
    }

    fn insert(&mut self, id: ProducerId, epoch: ProducerEpoch, first_offset: Offset) {
        if !self.by_producer.contains_key(&id) {
            self.by_producer.insert(id, (epoch, first_offset));
            self.by_offset.insert((first_offset, id));
        }
    }

    fn take(&mut self, id: ProducerId) -> Option<(ProducerEpoch, Offset)> {
        let open = self.by_producer.remove(&id)?;
        self.by_offset.remove(&(open.1, id));
        Some(open)
    }

    /// Takes the one of this producer if it has another epoch.
    fn take_other(&mut self, id: ProducerId, epoch: ProducerEpoch) -> Option<(ProducerEpoch, Offset)> {
        if self.by_producer.get(&id)?.0 == epoch { None } else { self.take(id) }
    }
}

impl Chunk {
    /// The chunk at the front of `bytes`, of a segment that begins at `base_offset` and whose log has `log_bytes`, and
    /// what is behind it; none if it is not valid.
    pub(super) fn parse(bytes: &[u8], base_offset: Offset, log_bytes: u64) -> Option<(Self, &[u8])> {
        let mut head = bytes.get(..CHUNK_HEAD_BYTES)?;
        let (magic, version, _flags) = (head.get_u32(), head.get_u16(), head.get_u16());
        let segment = Offset(head.get_u64());
        let (from, to) = (Offset(head.get_u64()), Offset(head.get_u64()));
        let position = u64::from(head.get_u32());
        let (entry_count, open_count) = (head.get_u32() as usize, head.get_u32() as usize);
        if (magic, version, segment) != (MAGIC, VERSION, base_offset) || from > to || position > log_bytes {
            return None;
        }
        let entries_end = CHUNK_HEAD_BYTES.checked_add(entry_count.checked_mul(ENTRY_BYTES)?)?;
        let end = entries_end.checked_add(open_count.checked_mul(OPEN_BYTES)?)?;
        let mut stored = bytes.get(end..end.checked_add(CRC_BYTES)?)?;
        if stored.get_u32() != crc32_iscsi(&bytes[..end]) {
            return None;
        }
        let mut left = &bytes[CHUNK_HEAD_BYTES..entries_end];
        let entries = (0..entry_count).map(|_| {
            let producer_id = ProducerId(left.get_i64());
            let (first_offset, last_offset) = (Offset(left.get_u64()), Offset(left.get_u64()));
            let aborted = AbortedTransaction { first_offset, last_offset, producer_id };
            Entry { aborted, last_stable: Offset(left.get_u64()), is_lost: left.get_u8() != 0 }
        });
        let entries = entries.collect();
        let mut left = &bytes[entries_end..end];
        let mut open = OpenSet::default();
        for _ in 0..open_count {
            let (id, epoch) = (ProducerId(left.get_i64()), ProducerEpoch(left.get_i16()));
            open.insert(id, epoch, Offset(left.get_u64()));
        }
        let chunk = Self { from, to: Place { position, offset: to }, entries, open };
        Some((chunk, &bytes[end + CRC_BYTES..]))
    }
}
