//! What the log needs of a file system, as a trait: the disk, and (feature `sim`) a simulated one for tests.

mod disk;
#[cfg(feature = "sim")]
mod sim;

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use levada_model::Timestamp;
use rustix::io::Errno;
use thiserror::Error;

pub use disk::DiskStorage;
pub(crate) use disk::open_for_reading;
#[cfg(feature = "sim")]
pub use sim::{CrashPlan, Fate, Pending, SimStorage};

/// A failed call of the file system, with what was attempted on which file.
#[derive(Debug, Error)]
#[error("{operation} {path}: {source}")]
pub struct StorageError {
    /// What was attempted.
    pub operation: &'static str,
    /// On which path.
    pub path: String,
    /// What the system said.
    pub source: io::Error,
}

impl StorageError {
    /// Names the operation and the path of a failed call; made for `map_err`.
    pub fn at(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { operation, path: path.display().to_string(), source }
    }

    /// Whether no file descriptor was free (EMFILE, ENFILE): nothing is wrong with the disk, and it may pass.
    #[must_use]
    pub fn is_out_of_files(&self) -> bool {
        let code = self.source.raw_os_error();
        [Errno::MFILE, Errno::NFILE].iter().any(|errno| code == Some(errno.raw_os_error()))
    }
}

/// A directory tree of files.
///
/// Duties of an implementation: a created, renamed or removed name is durable only after [`sync_dir`](Self::sync_dir)
/// of its directory; written bytes and a changed length only after [`File::sync_data`]. A rename replaces atomically.
pub trait Storage: Send + Sync + 'static {
    /// Creates a directory; one that exists is fine. Its parent must exist.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Creates the file if there is none, and opens it for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Opens a file that exists, for reading and writing.
    fn open_existing(&self, path: &Path) -> io::Result<Arc<dyn File>>;
    /// Names in a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// When the file was last written.
    fn modified(&self, path: &Path) -> io::Result<Timestamp>;
    /// Renames a file within its file system, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and all in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// An open file; shared by a writer and many readers. All calls take a position, none moves a cursor.
#[expect(clippy::len_without_is_empty, reason = "nobody asks a file whether it is empty")]
pub trait File: Send + Sync + 'static {
    /// Fills `buf` from `position` on; fewer bytes only where the file ends.
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize>;
    /// Writes all of `parts` one after another from `position` on.
    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()>;
    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;
    /// Cuts or extends (with zeros) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes all written bytes and the length durable (fdatasync).
    fn sync_data(&self) -> io::Result<()>;
}
