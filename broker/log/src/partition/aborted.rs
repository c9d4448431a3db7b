//! Which transactions of one segment were aborted, and which are open where it ends.
//!
//! Like the index, in whose file it lies, it is derived from the log. A segment alone does not tell it: a transaction may
//! have begun in an earlier one. So it is built from what is open where the segment begins, which the one before knows.
//! Not here: who walks the log for it (`segment`). Format: `broker/docs/formats/log-directory.md`.

use std::collections::{BTreeMap, BTreeSet, btree_map};

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
        if let btree_map::Entry::Vacant(free) = self.by_producer.entry(id) {
            free.insert((epoch, first_offset));
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

#[cfg(test)]
mod tests {
    use levada_model::{LeaderEpoch, Record, Sequence, Timestamp};

    use super::*;
    use crate::{BatchBuilder, CoordinatorEpoch, Marker, NewBatch};

    fn data(id: i64, epoch: i16, offset: u64) -> Batch {
        let producer = Some((ProducerId(id), ProducerEpoch(epoch), Sequence(0)));
        let mut builder = BatchBuilder::new(NewBatch { producer, transactional: true, ..NewBatch::default() }, 0);
        builder.push(Timestamp(0), &Record::default());
        builder.finish().expect("no codec").stamp(Offset(offset), LeaderEpoch(0))
    }

    fn abort(id: i64, epoch: i16, offset: u64) -> Batch {
        let marker = Marker { end: TransactionEnd::Abort, coordinator_epoch: CoordinatorEpoch(0) };
        marker.batch(ProducerId(id), ProducerEpoch(epoch), Timestamp(0)).stamp(Offset(offset), LeaderEpoch(0))
    }

    fn note_all(index: &mut AbortedIndex, batches: &[Batch]) {
        batches.iter().for_each(|batch| index.note(index.end().position, batch));
    }

    /// The index that a file of these chunks gives.
    fn read(chunks: &[Vec<u8>]) -> AbortedIndex {
        let mut index = AbortedIndex::begin(Offset(0), OpenSet::default());
        for bytes in chunks {
            let (chunk, rest) = Chunk::parse(bytes, Offset(0), u64::MAX).expect("is valid");
            assert!(rest.is_empty() && index.take_chunk(chunk));
        }
        index
    }

    #[test]
    fn chunks_written_one_after_another_tell_what_was_noted() {
        let mut index = AbortedIndex::begin(Offset(0), OpenSet::default());
        assert_eq!(index.chunk(Offset(0)), None, "there is nothing to say");
        let mut chunks = Vec::new();
        for batches in [
            vec![data(1, 0, 0), data(2, 0, 1)],
            vec![abort(1, 1, 2), data(1, 1, 3), abort(2, 1, 4)],
            vec![abort(1, 2, 5)],
            vec![],
        ] {
            note_all(&mut index, &batches);
            chunks.push(index.chunk(Offset(0)).expect("there is something to say"));
            index.wrote_chunk();
            assert_eq!(read(&chunks), index);
        }
        let mut found = Found::default();
        assert!(index.gather(Offset(0), Offset(6), Offset(6), &mut found));
        let told: Vec<_> = found.aborted.iter().map(|a| (a.producer_id.0, a.first_offset.0, a.last_offset.0)).collect();
        assert_eq!((told, found.lost), (vec![(1, 0, 2), (2, 1, 4), (1, 3, 5)], None));
    }

    #[test]
    fn a_chunk_built_anew_takes_the_place_of_those_before() {
        let batches = [data(1, 0, 0), abort(1, 1, 1), data(1, 1, 2), abort(1, 2, 3)];
        let (mut first, mut anew) = (AbortedIndex::begin(Offset(0), OpenSet::default()), None);
        note_all(&mut first, &batches[..2]);
        let whole = anew.insert(first.clone());
        note_all(whole, &batches[2..]);
        let chunks = [first.chunk(Offset(0)), whole.chunk(Offset(0))].map(|chunk| chunk.expect("something"));
        whole.wrote_chunk();
        assert_eq!(&read(&chunks), whole);
    }

    #[test]
    fn a_chunk_that_does_not_go_on_or_is_of_another_segment_is_not_taken() {
        let mut index = AbortedIndex::begin(Offset(0), OpenSet::default());
        note_all(&mut index, &[data(1, 0, 0)]);
        index.wrote_chunk();
        note_all(&mut index, &[abort(1, 1, 1)]);
        let later = index.chunk(Offset(0)).expect("something");
        let (chunk, _) = Chunk::parse(&later, Offset(0), u64::MAX).expect("is valid");
        assert!(!AbortedIndex::begin(Offset(0), OpenSet::default()).take_chunk(chunk));
        assert!(Chunk::parse(&later, Offset(7), u64::MAX).is_none());
        assert!(Chunk::parse(&later, Offset(0), 10).is_none(), "it ends behind the log");
        assert!((0..later.len()).all(|length| Chunk::parse(&later[..length], Offset(0), u64::MAX).is_none()));
    }

    #[test]
    fn stretches_say_that_there_is_nothing_to_say_only_where_no_chunk_has_said_anything() {
        let place = Place { position: 900, offset: Offset(9) };
        let mut index = AbortedIndex::begin(Offset(0), OpenSet::default());
        index.reach(place);
        assert_eq!(index.end(), place);
        let mut index = AbortedIndex::begin(Offset(0), OpenSet::default());
        note_all(&mut index, &[data(1, 0, 0)]);
        let mut index = read(&[index.chunk(Offset(0)).expect("something")]);
        index.reach(place);
        assert_eq!(index.end().offset, Offset(1), "what is open may have ended since");
    }

    #[test]
    fn where_a_marker_is_missing_what_it_ended_counts_as_aborted_and_as_lost() {
        let mut index = AbortedIndex::begin(Offset(0), OpenSet::default());
        note_all(&mut index, &[data(1, 0, 0), data(2, 0, 1)]);
        index.skip_to(Place { position: 500, offset: Offset(5) });
        note_all(&mut index, &[data(1, 1, 5), abort(2, 1, 6)]);
        let mut found = Found::default();
        assert!(!index.gather(Offset(0), Offset(7), Offset(7), &mut found), "one is open");
        let lost = AbortedTransaction { first_offset: Offset(0), last_offset: Offset(4), producer_id: ProducerId(1) };
        assert_eq!((found.aborted[0], found.lost, found.aborted.len()), (lost, Some(lost), 2));
    }
}
