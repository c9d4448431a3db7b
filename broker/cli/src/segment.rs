//! Walks a segment file offline, batch by batch, and over damage to the next whole batch. Only reads. What the bytes
//! mean is `levada-log`'s knowledge; what is printed, `log.rs`'s.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use levada_log::{Batch, BatchHeader, HEADER_BYTES};

/// Bytes that are looked at together while the next batch is sought.
const WINDOW_BYTES: usize = 1 << 20;
/// Where the format's version stands in a batch.
const MAGIC_AT: usize = 16;

/// A stretch of a segment file.
#[derive(Debug)]
pub(crate) enum Stretch {
    /// A whole batch whose CRC is right.
    Batch { position: u64, batch: Batch },
    /// Bytes that are no batch.
    Damage { position: u64, length: u64, detail: String },
    /// Zeros up to the end of the file.
    Zeros { position: u64, length: u64 },
}

/// A segment file.
#[derive(Debug)]
pub(crate) struct Segment {
    file: File,
    length: u64,
    position: u64,
}

impl Segment {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { file, length, position: 0 })
    }

    /// The next stretch; none at the end of the file.
    pub(crate) fn next(&mut self) -> io::Result<Option<Stretch>> {
        let position = self.position;
        if position >= self.length {
            return Ok(None);
        }
        let detail = match self.batch_at(position)? {
            Ok(batch) => {
                self.position += size(&batch);
                return Ok(Some(Stretch::Batch { position, batch }));
            }
            Err(detail) => detail,
        };
        let next = self.next_batch_after(position)?;
        self.position = next.unwrap_or(self.length);
        let length = self.position - position;
        if next.is_none() && self.is_zero(position)? {
            return Ok(Some(Stretch::Zeros { position, length }));
        }
        Ok(Some(Stretch::Damage { position, length, detail }))
    }

    /// The batch at a position, or why there is none. Reads no more than the file has, whatever the head declares.
    fn batch_at(&self, position: u64) -> io::Result<Result<Batch, String>> {
        let head = self.read(position, HEADER_BYTES)?;
        let header = match BatchHeader::parse(&head) {
            Ok(header) => header,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let left = self.length - position;
        if header.size_bytes as u64 > left {
            return Ok(Err(format!("cut off: {left} of {} bytes", header.size_bytes)));
        }
        let mut bytes = self.read(position, header.size_bytes)?;
        Ok(Batch::parse(&mut bytes).map_err(|error| error.to_string()))
    }

    /// Where the next whole batch begins. First where the broken one says that it ends, since a record's value may hold
    /// a batch of its own; then anywhere.
    fn next_batch_after(&self, position: u64) -> io::Result<Option<u64>> {
        if let Ok(header) = BatchHeader::parse(&self.read(position, HEADER_BYTES)?) {
            let end = position + header.size_bytes as u64;
            if end < self.length && self.batch_at(end)?.is_ok() {
                return Ok(Some(end));
            }
        }
        let mut window_at = position + 1;
        while window_at + (HEADER_BYTES as u64) < self.length {
            let window = self.read(window_at, WINDOW_BYTES + HEADER_BYTES)?;
            for at in 0..window.len().saturating_sub(HEADER_BYTES).min(WINDOW_BYTES) {
                let candidate = window_at + at as u64;
                let is_head = window[at + MAGIC_AT] == 2 && BatchHeader::parse(&window[at..at + HEADER_BYTES]).is_ok();
                if is_head && self.batch_at(candidate)?.is_ok() {
                    return Ok(Some(candidate));
                }
            }
            window_at += WINDOW_BYTES as u64;
        }
        Ok(None)
    }

    fn is_zero(&self, mut position: u64) -> io::Result<bool> {
        while position < self.length {
            let window = self.read(position, WINDOW_BYTES)?;
            if window.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            position += window.len() as u64;
        }
        Ok(true)
    }

    /// At most so many bytes, fewer at the end.
    fn read(&self, position: u64, length: usize) -> io::Result<Bytes> {
        let left = usize::try_from(self.length.saturating_sub(position)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(left)];
        self.file.read_exact_at(&mut bytes, position)?;
        Ok(bytes.into())
    }
}

fn size(batch: &Batch) -> u64 {
    batch.header().size_bytes as u64
}

/// A segment file with its place in its directory.
#[derive(Debug)]
pub(crate) struct SegmentPath {
    pub(crate) path: PathBuf,
    /// The offset in its name.
    pub(crate) base_offset: Option<u64>,
    /// Whether it is the newest of its directory, and so may end in zeros written ahead.
    pub(crate) is_active: bool,
    /// Whether it follows upon the one before in the list.
    pub(crate) follows: bool,
}

/// The segments at a path: the file itself, or all below a directory, in order of directory and offset.
pub(crate) fn segments_at(path: &Path) -> io::Result<Vec<SegmentPath>> {
    if fs::metadata(path)?.is_dir() {
        let mut found = Vec::new();
        collect(path, &mut found)?;
        return Ok(found);
    }
    let siblings = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => log_files(parent)?,
        _ => log_files(Path::new("."))?,
    };
    let is_active = siblings.last().is_none_or(|last| last.file_name() == path.file_name());
    Ok(vec![SegmentPath { path: path.to_owned(), base_offset: base_offset(path), is_active, follows: false }])
}

fn collect(dir: &Path, found: &mut Vec<SegmentPath>) -> io::Result<()> {
    let files = log_files(dir)?;
    let count = files.len();
    for (index, path) in files.into_iter().enumerate() {
        let base_offset = base_offset(&path);
        found.push(SegmentPath { path, base_offset, is_active: index + 1 == count, follows: index > 0 });
    }
    let mut dirs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            dirs.push(entry.path());
        }
    }
    dirs.sort();
    dirs.iter().try_for_each(|dir| collect(dir, found))
}

/// The segment files of one directory, by offset.
fn log_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if base_offset(&path).is_some() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A segment's name is its first offset in 20 digits.
fn base_offset(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_suffix(".log")?;
    (digits.len() == 20).then(|| digits.parse().ok()).flatten()
}
