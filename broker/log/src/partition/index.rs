//! The sparse index of one segment: where stretches of batches begin, and their largest timestamps.
//!
//! One table has both columns, for lookups by offset and by time. Its file also holds what is known of transactions
//! (`aborted`). It is derived from the log and never trusted: who
//! uses an entry proves it in the log first (see `segment`). Format: `broker/docs/formats/log-directory.md`.

use std::io::IoSlice;

use bytes::{Buf, BufMut};
use crc_fast::crc32_iscsi;
use levada_model::{Offset, Timestamp};

use super::aborted::{self, AbortedIndex, OpenSet};
use super::walk::Place;
use crate::{BatchHeader, File};

const MAGIC: u32 = u32::from_be_bytes(*b"LVIX");
const VERSION: u16 = 1;
/// Bytes of a chunk before its entries: magic, version, flags, segment, first and last append, count.
const CHUNK_HEAD_BYTES: usize = 4 + 2 + 2 + 8 + 8 + 8 + 4;
const ENTRY_BYTES: usize = 16;
const CRC_BYTES: usize = 4;

/// Consecutive batches of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    /// Where its first batch lies.
    start: Place,
    /// Largest timestamp of its batches.
    max_timestamp: Timestamp,
}

/// When a segment was appended to first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AppendSpan {
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

/// All stretches of one segment in order.
#[derive(Debug, Default)]
pub(super) struct Index {
    stretches: Vec<Stretch>,
    /// How many of the stretches are in the file; these are never extended.
    written: usize,
    /// Bytes of the file's valid chunks.
    file_bytes: u64,
    /// From the file's last chunk.
    span: Option<AppendSpan>,
    /// What the file says of transactions; none where it has no chunk.
    aborted: Option<AbortedIndex>,
}

impl Index {
    /// What the file's valid chunks say of the segment that begins at `base_offset`, whose log has `log_bytes`.
    /// Everything behind the first chunk that is not valid is ignored.
    pub(super) fn read(file: &dyn File, base_offset: Offset, log_bytes: u64) -> std::io::Result<Self> {
        let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(0)];
        let have = file.read_at(&mut bytes, 0)?;
        let mut left = &bytes[..have];
        let mut index = Self::default();
        while let Some(rest) = index.take_any_chunk(left, base_offset, log_bytes) {
            index.file_bytes += (left.len() - rest.len()) as u64;
            left = rest;
        }
        index.written = index.stretches.len();
        Ok(index)
    }

    /// Notes a batch that lies behind all that was noted before; a new stretch begins every `interval_bytes`.
    pub(super) fn note(&mut self, position: u64, header: &BatchHeader, interval_bytes: u64) {
        let open = self.stretches.len() > self.written;
        match self.stretches.last_mut() {
            Some(last) if open && position - last.start.position < interval_bytes => {
                last.max_timestamp = last.max_timestamp.max(header.max_timestamp);
            }
            _ => self.stretches.push(Stretch {
                start: Place { position, offset: header.base_offset },
                max_timestamp: header.max_timestamp,
            }),
        }
    }

    /// The start of the stretch that holds `offset`, or none if it lies before the first.
    pub(super) fn holding(&self, offset: Offset) -> Option<Place> {
        let behind = self.stretches.partition_point(|stretch| stretch.start.offset <= offset);
        behind.checked_sub(1).map(|index| self.stretches[index].start)
    }

    /// The first stretch that ends behind `from` and claims a timestamp of `time` or later: its start, and the offset
    /// after its last, given that the segment ends at `segment_end`.
    pub(super) fn reaching(&self, time: Timestamp, from: Offset, segment_end: Offset) -> Option<(Place, Offset)> {
        let ends = self.stretches.iter().skip(1).map(|next| next.start.offset).chain([segment_end]);
        let mut stretches = self.stretches.iter().zip(ends);
        let (stretch, end) = stretches.find(|(stretch, end)| *end > from && stretch.max_timestamp >= time)?;
        Some((stretch.start, end))
    }

    /// The start of the last stretch that the file gave; it is taken away, so that its batches can be noted anew.
    pub(super) fn pop(&mut self) -> Option<Place> {
        let last = self.stretches.pop()?;
        self.written = self.written.min(self.stretches.len());
        Some(last.start)
    }

    /// Largest timestamp of the segment.
    pub(super) fn largest_timestamp(&self) -> Option<Timestamp> {
        self.stretches.iter().map(|stretch| stretch.max_timestamp).max()
    }

    /// Takes what the file said of transactions.
    pub(super) fn take_aborted(&mut self) -> Option<AbortedIndex> {
        self.aborted.take()
    }

    /// What the file said of the appends.
    pub(super) fn span(&self) -> Option<AppendSpan> {
        self.span
    }

    /// Appends the stretches that are not in the file yet as one chunk, and in front of it what is new of transactions.
    pub(super) fn append_chunk(
        &mut self,
        file: &dyn File,
        base_offset: Offset,
        span: AppendSpan,
        aborted: &mut AbortedIndex,
    ) -> std::io::Result<()> {
        let new = &self.stretches[self.written..];
        if new.is_empty() {
            return Ok(());
        }
        // What lies behind the valid chunks would otherwise come to light when this chunk is shorter than it.
        if file.len()? > self.file_bytes {
            file.set_len(self.file_bytes)?;
        }
        let ahead = aborted.chunk(base_offset);
        let chunk = encode_chunk(new, base_offset, span);
        let parts = [IoSlice::new(ahead.as_deref().unwrap_or_default()), IoSlice::new(&chunk)];
        file.write_at(&parts[usize::from(ahead.is_none())..], self.file_bytes)?;
        self.file_bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        if ahead.is_some() {
            aborted.wrote_chunk();
        }
        self.written = self.stretches.len();
        self.span = Some(span);
        Ok(())
    }

    /// Takes the chunk at the front of `bytes`, of either kind, and answers what is behind it; none if it is not valid.
    fn take_any_chunk<'a>(&mut self, bytes: &'a [u8], base_offset: Offset, log_bytes: u64) -> Option<&'a [u8]> {
        let begin = || AbortedIndex::begin(base_offset, OpenSet::default());
        if bytes.starts_with(&aborted::MAGIC.to_be_bytes()) {
            let (chunk, rest) = aborted::Chunk::parse(bytes, base_offset, log_bytes)?;
            return self.aborted.get_or_insert_with(begin).take_chunk(chunk).then_some(rest);
        }
        let rest = self.take_chunk(bytes, base_offset, log_bytes)?;
        let last = self.stretches.last().expect("a chunk has a stretch").start;
        self.aborted.get_or_insert_with(begin).reach(last);
        Some(rest)
    }

    /// Takes the entries of the chunk at the front of `bytes` and answers what is behind it; none if it is not valid.
    fn take_chunk<'a>(&mut self, bytes: &'a [u8], base_offset: Offset, log_bytes: u64) -> Option<&'a [u8]> {
        let mut head = bytes.get(..CHUNK_HEAD_BYTES)?;
        let (magic, version, _flags) = (head.get_u32(), head.get_u16(), head.get_u16());
        let segment = Offset(head.get_u64());
        let span = AppendSpan { first: Timestamp(head.get_i64()), last: Timestamp(head.get_i64()) };
        let count = head.get_u32() as usize;
        if (magic, version, segment) != (MAGIC, VERSION, base_offset) {
            return None;
        }
        let body_bytes = CHUNK_HEAD_BYTES.checked_add(count.checked_mul(ENTRY_BYTES)?)?;
        let body = bytes.get(..body_bytes)?;
        let mut stored = bytes.get(body_bytes..body_bytes + CRC_BYTES)?;
        if stored.get_u32() != crc32_iscsi(body) {
            return None;
        }
        let mut entries = &body[CHUNK_HEAD_BYTES..];
        let mut stretches: Vec<Stretch> = Vec::with_capacity(count);
        while entries.has_remaining() {
            let offset = base_offset.advance(u64::from(entries.get_u32()));
            let position = u64::from(entries.get_u32());
            let max_timestamp = Timestamp(entries.get_i64());
            let rises =
                stretches.last().is_none_or(|last| last.start.position < position && last.start.offset < offset);
            if !rises || position >= log_bytes {
                return None;
            }
            stretches.push(Stretch { start: Place { position, offset }, max_timestamp });
        }
        // A chunk goes on behind the last stretch, or takes the place of what is known from its first stretch on: the
        // writer begins anew at an older one after a restart.
        let first = stretches.first()?.start;
        match self.stretches.iter().position(|known| known.start == first) {
            Some(place) => self.stretches.truncate(place),
            None => {
                let last = self.stretches.last().map(|last| last.start);
                if last.is_some_and(|last| last.position >= first.position || last.offset >= first.offset) {
                    return None;
                }
            }
        }
        self.stretches.append(&mut stretches);
        self.span = Some(span);
        Some(&bytes[body_bytes + CRC_BYTES..])
    }
}

fn encode_chunk(stretches: &[Stretch], base_offset: Offset, span: AppendSpan) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CHUNK_HEAD_BYTES + stretches.len() * ENTRY_BYTES + CRC_BYTES);
    bytes.put_u32(MAGIC);
    bytes.put_u16(VERSION);
    bytes.put_u16(0);
    bytes.put_u64(base_offset.0);
    bytes.put_i64(span.first.0);
    bytes.put_i64(span.last.0);
    bytes.put_u32(u32::try_from(stretches.len()).expect("fewer stretches than bytes of a segment"));
    for stretch in stretches {
        let delta = stretch.start.offset.0 - base_offset.0;
        bytes.put_u32(u32::try_from(delta).expect("a roll keeps deltas below 2^32"));
        bytes.put_u32(u32::try_from(stretch.start.position).expect("a roll keeps positions below 2^32"));
        bytes.put_i64(stretch.max_timestamp.0);
    }
    bytes.put_u32(crc32_iscsi(&bytes));
    bytes
}
