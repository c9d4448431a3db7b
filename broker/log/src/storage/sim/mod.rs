//! A file system in memory that keeps apart what was written and what was synced, so that a test can cut the power.
//!
//! Only for tests (feature `sim`). What pends is kept per block, per length and per name; [`SimStorage::crash`] decides
//! what of it survives. Faults can be injected, and two can be planted that no honest disk has.

mod content;
mod plan;
mod tree;

use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use levada_model::{Clock, Timestamp};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use self::content::Content;
use self::tree::{FileNode, Tree};
use super::{File, Storage};

pub use plan::{CrashPlan, Fate, Pending};

/// Linux's number for a failing device.
const EIO: i32 = 5;
/// Linux's number for a process that has all the files open that it may.
const EMFILE: i32 = 24;

/// A simulated disk. A clone is another handle of the same disk; [`crash`](Self::crash) and
/// [`restart`](Self::restart) give another disk, which nobody who still writes to this one can reach.
#[derive(Clone)]
pub struct SimStorage(Arc<Shared>);

struct Shared {
    clock: Arc<dyn Clock>,
    block_bytes: usize,
    /// Held for reading by every change and for writing by a power cut, which so falls between two changes. Taken
    /// before any other lock; then the tree, then a file's content, then the state.
    power: RwLock<()>,
    tree: Mutex<Tree>,
    state: Mutex<State>,
    open_files: AtomicUsize,
}

/// Faults in force, and what was counted.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    changes_left: Option<u64>,
    free_bytes: Option<u64>,
    fail_sync: bool,
    fail_reads: bool,
    open_files_max: Option<usize>,
    planted: Planted,
    file_syncs: u64,
    dir_syncs: u64,
}

/// Lies of a disk, to show that a test would notice.
#[derive(Clone, Copy, Debug, Default)]
struct Planted {
    ignore_sync_data: bool,
    ignore_sync_dir: bool,
}

struct SimFile {
    shared: Arc<Shared>,
    node: Arc<FileNode>,
}

impl fmt::Debug for SimStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimStorage").field("paths", &self.paths()).finish_non_exhaustive()
    }
}

impl SimStorage {
    /// An empty disk with blocks of 4 KiB. Times of changes come from `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_block_bytes(clock, 4096)
    }

    /// An empty disk with blocks of that size: small ones make many pending things out of few bytes.
    #[must_use]
    pub fn with_block_bytes(clock: Arc<dyn Clock>, block_bytes: usize) -> Self {
        assert!(block_bytes > 0, "a block has bytes");
        Self(Arc::new(Shared::new(clock, block_bytes, Tree::new(), State::default())))
    }

    /// All that is not yet durable, in an order that stays while nothing is written.
    #[must_use]
    pub fn pending(&self) -> Vec<Pending> {
        let _still = self.0.power.write();
        self.0.tree.lock().pending()
    }

    /// How many things are not yet durable.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.pending().len()
    }

    /// The disk after a power cut. Faults end; what was planted stays.
    #[must_use]
    pub fn crash(&self, plan: &CrashPlan) -> Self {
        let _still = self.0.power.write();
        let tree = self.0.tree.lock();
        let fates = plan.decide(tree.pending().len(), self.0.block_bytes);
        self.with_tree(tree.crash(&fates))
    }

    /// The disk as the next process finds it after a kill -9: all that was written is there, and what was not synced
    /// still is not. Faults end; what was planted stays.
    #[must_use]
    pub fn restart(&self) -> Self {
        let _still = self.0.power.write();
        self.with_tree(self.0.tree.lock().copy())
    }

    /// After so many more changes (writes, lengths, names, syncs) every change fails with EIO.
    pub fn fail_after(&self, changes: u64) {
        self.0.state.lock().changes_left = Some(changes);
    }

    /// Lets files grow by so many bytes in all; then a write puts down what fits and fails with ENOSPC.
    pub fn set_free_bytes(&self, bytes: u64) {
        self.0.state.lock().free_bytes = Some(bytes);
    }

    /// Whether `sync_data` fails with EIO. As on Linux, what such a sync should have written is not written by a later
    /// one either.
    pub fn fail_sync(&self, fail: bool) {
        self.0.state.lock().fail_sync = fail;
    }

    /// Whether reads fail with EIO.
    pub fn fail_reads(&self, fail: bool) {
        self.0.state.lock().fail_reads = fail;
    }

    /// How many files may be open at a time; to list or sync a directory takes one for that moment. Beyond it EMFILE.
    pub fn set_open_files_max(&self, max: usize) {
        self.0.state.lock().open_files_max = Some(max);
    }

    /// Files that are open now.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.0.open_files.load(Ordering::Relaxed)
    }

    /// Ends all injected faults; what was planted stays.
    pub fn heal(&self) {
        let state = &mut *self.0.state.lock();
        *state = State {
            planted: state.planted,
            file_syncs: state.file_syncs,
            dir_syncs: state.dir_syncs,
            ..State::default()
        };
    }

    /// Plants a lie: `sync_data` answers Ok and does nothing.
    pub fn ignore_sync_data(&self, ignore: bool) {
        self.0.state.lock().planted.ignore_sync_data = ignore;
    }

    /// Plants a lie: `sync_dir` answers Ok and does nothing.
    pub fn ignore_sync_dir(&self, ignore: bool) {
        self.0.state.lock().planted.ignore_sync_dir = ignore;
    }

    /// Calls of `sync_data` so far.
    #[must_use]
    pub fn file_syncs(&self) -> u64 {
        self.0.state.lock().file_syncs
    }

    /// Calls of `sync_dir` so far.
    #[must_use]
    pub fn dir_syncs(&self) -> u64 {
        self.0.state.lock().dir_syncs
    }

    /// Paths of all files, in order.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        self.0.tree.lock().paths()
    }

    /// A file's bytes as they were written.
    ///
    /// # Panics
    /// When there is no such file: a test knows its files. So do the calls below.
    #[must_use]
    pub fn contents(&self, path: impl AsRef<Path>) -> Vec<u8> {
        self.file(path.as_ref()).content.lock().bytes().to_vec()
    }

    /// Flips bits of one byte on the disk itself, so that no sync brings them back.
    pub fn corrupt(&self, path: impl AsRef<Path>, position: u64, xor_mask: u8) {
        let position = as_usize(position).expect("a position in memory");
        self.file(path.as_ref()).content.lock().corrupt(position, xor_mask);
    }

    /// Replaces a file's bytes on the disk itself.
    pub fn overwrite(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let file = self.file(path.as_ref());
        let mut content = file.content.lock();
        *content = Content::durable(self.0.block_bytes, bytes.to_vec(), content.modified());
    }

    /// Removes a file from the disk itself, as if a sync had made that durable.
    pub fn remove(&self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        self.0.tree.lock().lose(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn file(&self, path: &Path) -> Arc<FileNode> {
        self.0.tree.lock().file(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn with_tree(&self, tree: Tree) -> Self {
        let state = State { planted: self.0.state.lock().planted, ..State::default() };
        Self(Arc::new(Shared::new(Arc::clone(&self.0.clock), self.0.block_bytes, tree, state)))
    }

    fn handle(&self, node: Arc<FileNode>) -> Arc<dyn File> {
        self.0.open_files.fetch_add(1, Ordering::Relaxed);
        Arc::new(SimFile { shared: Arc::clone(&self.0), node })
    }
}

impl Shared {
    fn new(clock: Arc<dyn Clock>, block_bytes: usize, tree: Tree, state: State) -> Self {
        let open_files = AtomicUsize::new(0);
        Self {
            clock,
            block_bytes,
            power: RwLock::new(()),
            tree: Mutex::new(tree),
            state: Mutex::new(state),
            open_files,
        }
    }

    /// Whether one more file may be open.
    fn check_descriptor(&self) -> io::Result<()> {
        match self.state.lock().open_files_max {
            Some(max) if self.open_files.load(Ordering::Relaxed) >= max => Err(io::Error::from_raw_os_error(EMFILE)),
            _ => Ok(()),
        }
    }

    /// Counts a change, which no power cut falls into while the answer is held.
    fn change(&self) -> io::Result<RwLockReadGuard<'_, ()>> {
        let power = self.power.read();
        self.count_change()?;
        Ok(power)
    }

    fn count_change(&self) -> io::Result<()> {
        match &mut self.state.lock().changes_left {
            None => Ok(()),
            Some(0) => Err(io::Error::from_raw_os_error(EIO)),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    /// Takes free space, and says how many bytes are missing.
    fn take(&self, bytes: usize) -> usize {
        let Some(free) = &mut self.state.lock().free_bytes else { return 0 };
        let taken = (bytes as u64).min(*free);
        *free -= taken;
        bytes - taken as usize
    }

    fn give_back(&self, bytes: usize) {
        if let Some(free) = &mut self.state.lock().free_bytes {
            *free += bytes as u64;
        }
    }
}

impl Storage for SimStorage {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let _power = self.0.change()?;
        self.0.tree.lock().create_dir(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.0.check_descriptor()?;
        let _power = self.0.power.read();
        let mut tree = self.0.tree.lock();
        let node = match tree.file(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.0.count_change()?;
                tree.create_file(path, Content::new(self.0.block_bytes, self.0.clock.now()))
            }
            other => other,
        };
        Ok(self.handle(node?))
    }

    fn open_existing(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.0.check_descriptor()?;
        Ok(self.handle(self.0.tree.lock().file(path)?))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.check_descriptor()?;
        self.0.tree.lock().list(dir)
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        Ok(self.0.tree.lock().file(path)?.content.lock().modified())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _power = self.0.change()?;
        self.0.tree.lock().rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let _power = self.0.change()?;
        let file = self.0.tree.lock().remove_file(path)?;
        self.0.give_back(file.content.lock().bytes().len());
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let _power = self.0.change()?;
        for file in self.0.tree.lock().remove_dir_all(path)? {
            self.0.give_back(file.content.lock().bytes().len());
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.check_descriptor()?;
        let _power = self.0.change()?;
        let mut tree = self.0.tree.lock();
        tree.list(dir)?;
        let planted = {
            let mut state = self.0.state.lock();
            state.dir_syncs += 1;
            state.planted
        };
        if planted.ignore_sync_dir { Ok(()) } else { tree.sync_dir(dir) }
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.shared.open_files.fetch_sub(1, Ordering::Relaxed);
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        if self.shared.state.lock().fail_reads {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let content = self.node.content.lock();
        let left = content.bytes().get(as_usize(position)?..).unwrap_or_default();
        let read = left.len().min(buf.len());
        buf[..read].copy_from_slice(&left[..read]);
        Ok(read)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let _power = self.shared.change()?;
        let now = self.shared.clock.now();
        let mut position = as_usize(position)?;
        let mut content = self.node.content.lock();
        for part in parts {
            let end = position + part.len();
            let missing = self.shared.take(end.saturating_sub(content.bytes().len()));
            content.write(position, &part[..part.len().saturating_sub(missing)], now);
            if missing > 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            position = end;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.node.content.lock().bytes().len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let _power = self.shared.change()?;
        let len = as_usize(len)?;
        let mut content = self.node.content.lock();
        let before = content.bytes().len();
        self.shared.give_back(before.saturating_sub(len));
        content.set_len(len, self.shared.clock.now());
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let _power = self.shared.change()?;
        let state = {
            let mut state = self.shared.state.lock();
            state.file_syncs += 1;
            *state
        };
        let mut content = self.node.content.lock();
        if state.fail_sync {
            content.fail_sync();
            return Err(io::Error::from_raw_os_error(EIO));
        }
        if !state.planted.ignore_sync_data {
            content.sync();
        }
        Ok(())
    }
}

fn as_usize(position: u64) -> io::Result<usize> {
    usize::try_from(position).map_err(|_| ErrorKind::FileTooLarge.into())
}
