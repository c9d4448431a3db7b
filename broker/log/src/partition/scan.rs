//! Segment files read offline, without a log that is open: what the log would serve, what it would skip, and why.
//!
//! Only reads, so that it may run beside a broker. Not here: the judgement itself, which is the walk's.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levada_model::Offset;

use super::checkpoint::{self, CHECKPOINT};
use super::epochs::Epochs;
use super::listing::{Kind, Listing};
use super::segment::WALK_WINDOW_BYTES;
use super::walk::{Place, Step, Walk};
use crate::storage::open_for_reading;
use crate::{Batch, BatchHeader, DiskStorage, File, HEADER_BYTES, Storage};

/// A segment file and the offsets that belong into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its first offset, by its name; none where its name tells none.
    pub base_offset: Option<Offset>,
    /// The first offset of the next segment; none if it is the newest, and so may end in zeros written ahead.
    pub end: Option<Offset>,
}

/// A stretch of a segment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// A batch of the log.
    Batch {
        /// Where it lies.
        position: u64,
        /// The batch; its CRC is right, its records are not checked.
        batch: Batch,
    },
    /// Bytes that are no batch of the log, or offsets that are not there.
    Damage {
        /// Where it begins.
        position: u64,
        /// How long it is; nothing where only offsets are missing.
        size_bytes: u64,
        /// First offset lost; none where nothing before tells it.
        from: Option<Offset>,
        /// The offset after the last one lost; none where nothing behind tells it.
        to: Option<Offset>,
        /// What is wrong, in words.
        detail: String,
    },
    /// Zeros up to the end of the file, behind all offsets that are known to be in it.
    Zeros {
        /// Where they begin.
        position: u64,
        /// How many there are.
        size_bytes: u64,
    },
}

/// The segment files of a partition's directory, by offset; none in another directory.
///
/// # Errors
/// When it cannot be listed.
pub fn segment_files(dir: &Path) -> io::Result<Vec<SegmentFile>> {
    let mut listing = Listing::of(DiskStorage.list(dir)?);
    let swaps = std::mem::take(&mut listing.swaps);
    swaps.iter().for_each(|swap| listing.put(*swap));
    let bases = &listing.segments;
    let path = |base: Offset| match swaps.iter().find(|swap| swap.base == base) {
        Some(swap) => swap.path(dir),
        None => Kind::Log.path(dir, base),
    };
    let ends = bases.iter().skip(1).copied().map(Some).chain([None]);
    let file = |(base, end): (&Offset, _)| SegmentFile { path: path(*base), base_offset: Some(*base), end };
    Ok(bases.iter().zip(ends).map(file).collect())
}

/// A scan of one segment file, from its start to its end.
pub struct SegmentScan {
    file: Arc<dyn File>,
    walk: Walk,
    /// Bytes that the file had when it was opened.
    length: u64,
    end: Option<Offset>,
    /// Whether it is not known which offset comes first.
    is_lost: bool,
    is_over: bool,
}

impl SegmentScan {
    /// Opens a segment file. The checkpoint beside it, if it can be read, tells the leader epochs.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn open(segment: &SegmentFile) -> io::Result<Self> {
        let file = open_for_reading(&segment.path)?;
        let length = file.len()?;
        let base = match segment.base_offset {
            Some(base) => Some(base),
            None => first_offset(&*file)?,
        };
        let start = Place { position: 0, offset: base.unwrap_or_default() };
        let end = segment.end.unwrap_or(Offset(u64::MAX));
        let walk = Walk::new(file.clone(), start, length, end, WALK_WINDOW_BYTES).with_epochs(epochs(&segment.path));
        Ok(Self { file, walk, length, end: segment.end, is_lost: base.is_none(), is_over: false })
    }

    /// The next stretch; none at the end. Every byte of the file is in one of them.
    ///
    /// # Errors
    /// When the file cannot be read.
    #[expect(clippy::should_implement_trait, reason = "a result of an option reads better than the other way round")]
    pub fn next(&mut self) -> io::Result<Option<Stretch>> {
        let from = self.walk.place();
        if self.is_over || (self.end.is_none() && from.position >= self.length) {
            return Ok(None);
        }
        match self.walk.next()? {
            Some(Step::Batch(position, batch)) => {
                self.is_lost = false;
                Ok(Some(Stretch::Batch { position, batch }))
            }
            Some(Step::Gap(_)) => self.damage(from).map(Some),
            None => self.rest(from),
        }
    }

    /// What the walk went over.
    fn damage(&mut self, from: Place) -> io::Result<Stretch> {
        self.is_over = self.walk.is_stranded();
        let is_lost = std::mem::take(&mut self.is_lost);
        let to = self.walk.place();
        let behind = if self.is_over { self.length } else { to.position };
        let size_bytes = behind - from.position;
        let is_zeros = self.is_over && size_bytes > 0 && self.is_zero(from.position)?;
        if is_zeros && self.end.is_none() {
            return Ok(Stretch::Zeros { position: from.position, size_bytes });
        }
        let detail = if is_zeros { "zeros up to the end".to_owned() } else { self.walk.fault_at(from)? };
        Ok(Stretch::Damage {
            position: from.position,
            size_bytes,
            from: (!is_lost).then_some(from.offset),
            to: if self.is_over { self.end } else { Some(to.offset) },
            detail,
        })
    }

    /// What lies behind the last offset.
    fn rest(&mut self, from: Place) -> io::Result<Option<Stretch>> {
        self.is_over = true;
        let (position, size_bytes) = (from.position, self.length.saturating_sub(from.position));
        if size_bytes == 0 {
            return Ok(None);
        }
        if self.is_zero(position)? {
            return Ok(Some(Stretch::Zeros { position, size_bytes }));
        }
        let detail = "bytes behind the last offset of a sealed segment".to_owned();
        Ok(Some(Stretch::Damage { position, size_bytes, from: Some(from.offset), to: Some(from.offset), detail }))
    }

    fn is_zero(&self, mut position: u64) -> io::Result<bool> {
        let mut window = vec![0; WALK_WINDOW_BYTES];
        while position < self.length {
            let have = self.file.read_at(&mut window, position)?;
            if window[..have].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            if have == 0 {
                break;
            }
            position += have as u64;
        }
        Ok(true)
    }
}

/// The offset that a file begins with, where its name does not tell it.
fn first_offset(file: &dyn File) -> io::Result<Option<Offset>> {
    let mut head = [0; HEADER_BYTES];
    let have = file.read_at(&mut head, 0)?;
    Ok(BatchHeader::parse(&head[..have]).ok().map(|header| header.base_offset))
}

fn epochs(segment: &Path) -> Epochs {
    let path = segment.with_file_name(CHECKPOINT);
    open_for_reading(&path).and_then(|file| checkpoint::epochs_in(&*file, &path)).unwrap_or_default()
}
