//! Walks the batches of one segment file, around damage or up to it.
//!
//! This is the one place that decides which bytes of a file are a batch of the log: the CRC must match, and since the
//! CRC covers neither base offset nor leader epoch, both must also be what the neighbours and the epochs say.

use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use levada_model::{LeaderEpoch, Offset};

use super::epochs::Epochs;
use super::terms::Damage;
use crate::{Batch, BatchHeader, File, HEADER_BYTES};

const MAGIC: u8 = 2;
const MAGIC_AT: usize = 16;
const LENGTH_AT: usize = 8;
/// Bytes of a batch that its length does not count: base offset and the length itself.
const UNCOUNTED_BYTES: usize = 12;

/// A batch boundary in a segment file: the batch at `position` begins with `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) position: u64,
    pub(super) offset: Offset,
}

/// What a walk met.
#[derive(Debug)]
pub(super) enum Step {
    /// A batch and where it lies.
    Batch(u64, Batch),
    /// Offsets that are lost.
    Gap(Damage),
}

/// A walk through a file from a proven place on.
pub(super) struct Walk {
    file: Arc<dyn File>,
    /// Nothing at or behind this position is looked at.
    limit: u64,
    /// Offsets at or beyond this lie in the next segment, or are not there yet.
    end: Offset,
    at: Place,
    /// Whether no batch was found behind the last damage.
    stranded: bool,
    epochs: Epochs,
    window: Bytes,
    window_position: u64,
    window_bytes: usize,
}

impl Walk {
    /// A walk of `file` from `at`, over the bytes below `limit` and the offsets below `end`. It reads `window_bytes`
    /// at a time (more for a larger batch).
    pub(super) fn new(file: Arc<dyn File>, at: Place, limit: u64, end: Offset, window_bytes: usize) -> Self {
        Self {
            file,
            limit,
            end,
            at,
            stranded: false,
            epochs: Epochs::default(),
            window: Bytes::new(),
            window_position: 0,
            window_bytes: window_bytes.max(HEADER_BYTES),
        }
    }

    /// Takes a batch whose leader epoch contradicts `epochs` for damaged.
    pub(super) fn with_epochs(mut self, epochs: Epochs) -> Self {
        self.epochs = epochs;
        self
    }

    /// Ends the walk at `end` if that is earlier.
    pub(super) fn until(mut self, end: Offset) -> Self {
        self.end = self.end.min(end);
        self
    }

    /// Reads so many bytes at a time from now on (more for a larger batch).
    pub(super) fn set_window_bytes(&mut self, window_bytes: usize) {
        self.window_bytes = window_bytes.max(HEADER_BYTES);
    }

    /// How large the next batch says that it is, if there is a head; nothing of it is checked.
    pub(super) fn next_size_bytes(&mut self) -> io::Result<Option<usize>> {
        Ok(self.header_at(self.at.position)?.map(|header| header.size_bytes))
    }

    /// Where the walk stands: everything before it was met.
    pub(super) fn place(&self) -> Place {
        self.at
    }

    /// Whether the last damage reaches to the end of the file, so that no batch can follow in it.
    pub(super) fn is_stranded(&self) -> bool {
        self.stranded
    }

    /// The next batch or gap below the end; none at the end. Every offset below the end is in one of them.
    pub(super) fn next(&mut self) -> io::Result<Option<Step>> {
        let Place { position, offset: expected } = self.at;
        if expected >= self.end {
            return Ok(None);
        }
        let found = self.batch_at(position)?;
        if let Some(batch) = found.as_ref().filter(|batch| self.belongs(batch.header(), expected)) {
            self.step_over(batch);
            return Ok(found.map(|batch| Step::Batch(position, batch)));
        }
        let resume = match &found {
            Some(batch) => Some(self.behind_wrong_head(batch.header())?),
            None => self.behind_damage()?,
        };
        self.stranded = resume.is_none();
        let resume = resume.unwrap_or(Place { position, offset: self.end });
        self.at = Place { offset: resume.offset.min(self.end), ..resume };
        Ok(Some(Step::Gap(Damage { from: expected, to: self.at.offset })))
    }

    /// The next batch if it goes on exactly where the walk stands, in an epoch that may be; none at the first byte that
    /// does not. The walk's end does not matter.
    pub(super) fn next_contiguous(
        &mut self,
        may_be: impl FnOnce(LeaderEpoch) -> bool,
    ) -> io::Result<Option<(u64, Batch)>> {
        let Place { position, offset: expected } = self.at;
        let found = self.batch_at(position)?;
        let found = found.filter(|b| b.header().base_offset == expected && may_be(b.header().leader_epoch));
        Ok(found.map(|batch| {
            self.step_over(&batch);
            (position, batch)
        }))
    }

    /// Whether the bytes at the walk's place are a head of nothing but zeros.
    #[cfg(feature = "sim")]
    pub(super) fn is_at_zeros(&mut self) -> io::Result<bool> {
        Ok(self
            .bytes_at(self.at.position, HEADER_BYTES)?
            .is_some_and(|bytes| bytes[..HEADER_BYTES] == [0; HEADER_BYTES]))
    }

    /// Goes on at another place.
    #[cfg(feature = "sim")]
    pub(super) fn jump(&mut self, to: Place) {
        self.at = to;
    }

    /// What is wrong at `place`, where no batch of the log begins.
    pub(super) fn fault_at(&mut self, place: Place) -> io::Result<String> {
        let Place { position, offset: expected } = place;
        let left = usize::try_from(self.limit.saturating_sub(position)).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok("the file ends".to_owned());
        }
        let bytes = self.bytes_at(position, left.min(HEADER_BYTES))?.unwrap_or_default();
        let header = match BatchHeader::parse(&bytes) {
            Ok(header) => header,
            Err(error) => return Ok(error.to_string()),
        };
        let Some(mut bytes) = self.bytes_at(position, header.size_bytes)? else {
            return Ok(format!("cut off: {left} of {} bytes", header.size_bytes));
        };
        if let Err(error) = Batch::parse(&mut bytes) {
            return Ok(error.to_string());
        }
        if header.base_offset != expected {
            return Ok(format!("a batch of offset {} where offset {expected} is next", header.base_offset));
        }
        Ok(format!("a batch of leader epoch {}, which is not the one in force there", header.leader_epoch.0))
    }

    fn step_over(&mut self, batch: &Batch) {
        let header = batch.header();
        let position = self.at.position + header.size_bytes as u64;
        self.at = Place { position, offset: header.next_offset() };
    }

    fn belongs(&self, header: &BatchHeader, expected: Offset) -> bool {
        header.base_offset == expected && self.epochs.at(expected).is_none_or(|epoch| epoch == header.leader_epoch)
    }

    /// The batch's bytes are right, yet its head is not what should be here. Either a bit of base offset or epoch has
    /// flipped, then the batch is lost; or offsets before it are lost, then it is the place to go on.
    fn behind_wrong_head(&mut self, header: &BatchHeader) -> io::Result<Place> {
        let Place { position, offset: expected } = self.at;
        let behind = position + header.size_bytes as u64;
        let follower = self.header_at(behind)?.map(|follower| follower.base_offset);
        if header.base_offset > expected && header.base_offset <= self.end && follower == Some(header.next_offset()) {
            return Ok(Place { position, offset: header.base_offset });
        }
        Ok(Place { position: behind, offset: expected.advance(u64::from(header.last_offset_delta) + 1) })
    }

    /// The first batch behind damage at the walk's place: where the damaged head says that it ends, or else the first
    /// bytes that are a batch and are followed by another one or the end of the file.
    fn behind_damage(&mut self) -> io::Result<Option<Place>> {
        let here = self.at.position;
        if let Some(header) = self.header_at(here)?
            && let Some(place) = self.resumes_at(here + header.size_bytes as u64)?
        {
            return Ok(Some(place));
        }
        let mut position = here + 1;
        while position + HEADER_BYTES as u64 <= self.limit {
            let Some(bytes) = self.bytes_at(position, HEADER_BYTES)? else { break };
            let candidates = bytes.len() - HEADER_BYTES + 1;
            match (0..candidates).find(|start| self.may_begin(&bytes[*start..], position + *start as u64)) {
                None => position += candidates as u64,
                Some(start) => {
                    position += start as u64;
                    if let Some(place) = self.resumes_at(position)?
                        && self.is_followed(place)?
                    {
                        return Ok(Some(place));
                    }
                    position += 1;
                }
            }
        }
        Ok(None)
    }

    /// The cheap part of [`resumes_at`](Self::resumes_at).
    fn may_begin(&self, bytes: &[u8], position: u64) -> bool {
        if bytes[MAGIC_AT] != MAGIC {
            return false;
        }
        let base_offset = (&bytes[..LENGTH_AT]).get_u64();
        let length = (&bytes[LENGTH_AT..UNCOUNTED_BYTES]).get_i32();
        (self.at.offset.0 + 1..=self.end.0).contains(&base_offset)
            && u64::try_from(length).is_ok_and(|length| position + UNCOUNTED_BYTES as u64 + length <= self.limit)
    }

    /// The place at `position` if a whole batch of a later offset is there.
    fn resumes_at(&mut self, position: u64) -> io::Result<Option<Place>> {
        let Some(batch) = self.batch_at(position)? else { return Ok(None) };
        let offset = batch.header().base_offset;
        Ok((offset > self.at.offset && offset <= self.end).then_some(Place { position, offset }))
    }

    /// Whether the batch at `place` ends where another one begins, or where the file ends.
    fn is_followed(&mut self, place: Place) -> io::Result<bool> {
        let Some(header) = self.header_at(place.position)? else { return Ok(false) };
        let behind = place.position + header.size_bytes as u64;
        if behind >= self.limit || header.next_offset() >= self.end {
            return Ok(true);
        }
        Ok(self.header_at(behind)?.is_some_and(|follower| follower.base_offset == header.next_offset()))
    }

    fn header_at(&mut self, position: u64) -> io::Result<Option<BatchHeader>> {
        Ok(self.bytes_at(position, HEADER_BYTES)?.and_then(|bytes| BatchHeader::parse(&bytes).ok()))
    }

    /// The batch at `position` if its CRC matches.
    fn batch_at(&mut self, position: u64) -> io::Result<Option<Batch>> {
        let Some(header) = self.header_at(position)? else { return Ok(None) };
        let bytes = self.bytes_at(position, header.size_bytes)?;
        Ok(bytes.and_then(|mut bytes| Batch::parse(&mut bytes).ok()))
    }

    /// At least `need` bytes from `position` on; none if the file ends before. Takes no more memory than the file has.
    fn bytes_at(&mut self, position: u64, need: usize) -> io::Result<Option<Bytes>> {
        let left = usize::try_from(self.limit.saturating_sub(position)).unwrap_or(usize::MAX);
        if left < need {
            return Ok(None);
        }
        let window_end = self.window_position + self.window.len() as u64;
        if position < self.window_position || position + need as u64 > window_end {
            let mut buf = BytesMut::zeroed(left.min(self.window_bytes.max(need)));
            let have = self.file.read_at(&mut buf, position)?;
            buf.truncate(have);
            self.window = buf.freeze();
            self.window_position = position;
        }
        let start = usize::try_from(position - self.window_position).expect("within the window");
        Ok(self.window.get(start..start + need).is_some().then(|| self.window.slice(start..)))
    }
}
