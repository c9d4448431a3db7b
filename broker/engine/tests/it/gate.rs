//! A storage whose syncs and reads of log files and swaps of segments can be held back, so that tests stand in the middle
//! of one; and that knows which threads have synced anything, and how often log files were read.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use levada_log::{File, Storage};
use levada_model::Timestamp;
use parking_lot::{Condvar, Mutex};

use crate::support::LONG;

/// Holds syncs, reads or swaps of segments while it is shut for them, and panics in their writes once it is broken.
#[derive(Clone)]
pub(crate) struct Gate {
    inner: Arc<dyn Storage>,
    door: Arc<Door>,
}

#[derive(Default)]
struct Door {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    shut: bool,
    /// Of which folder alone, if so.
    shut_within: Option<String>,
    shut_for_copies: bool,
    shut_for_swaps: bool,
    shut_for_reads: bool,
    /// Swaps that go on though it is shut for them.
    swaps_let: usize,
    waiting: usize,
    broken: bool,
    sync_threads: BTreeSet<String>,
    log_reads: usize,
}

struct GatedFile {
    inner: Arc<dyn File>,
    door: Arc<Door>,
    path: String,
    is_log: bool,
    /// What a compaction writes.
    is_copy: bool,
    /// Whether more than zeros was written since the last sync: what a log prepares ahead of its records is not held.
    has_news: AtomicBool,
}

impl Door {
    /// Waits while it is held; then does what is to be done in the same moment.
    fn pass(&self, is_held: impl Fn(&State) -> bool, then: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        if is_held(&state) {
            state.waiting += 1;
            self.changed.notify_all();
            // A test that fails leaves the gate shut; it shall not hang as well.
            let give_up = std::time::Instant::now() + LONG;
            while is_held(&state) && !self.changed.wait_until(&mut state, give_up).timed_out() {}
            state.waiting -= 1;
        }
        then(&mut state);
        self.changed.notify_all();
    }

    fn note_sync(&self) {
        let thread = std::thread::current();
        self.state.lock().sync_threads.insert(thread.name().unwrap_or_default().to_owned());
    }
}

impl Gate {
    pub(crate) fn before(inner: impl Storage) -> Self {
        Self { inner: Arc::new(inner), door: Arc::default() }
    }

    /// From now on syncs of records wait.
    pub(crate) fn shut(&self) {
        self.door.state.lock().shut = true;
    }

    /// From now on syncs of records wait in logs of which the path has a folder of this name, and in no others.
    pub(crate) fn shut_within(&self, folder: &str) {
        let mut state = self.door.state.lock();
        (state.shut, state.shut_within) = (true, Some(folder.to_owned()));
        self.door.changed.notify_all();
    }

    /// From now on syncs of what a compaction writes wait.
    pub(crate) fn shut_for_copies(&self) {
        self.door.state.lock().shut_for_copies = true;
    }

    /// From now on it waits with each segment that a compaction puts in place.
    pub(crate) fn shut_for_swaps(&self) {
        self.door.state.lock().shut_for_swaps = true;
    }

    /// From now on reads of log files wait.
    pub(crate) fn shut_for_reads(&self) {
        self.door.state.lock().shut_for_reads = true;
    }

    /// How often log files were read since this was last asked.
    pub(crate) fn take_log_reads(&self) -> usize {
        std::mem::take(&mut self.door.state.lock().log_reads)
    }

    /// Lets one segment be put in place, and comes back when that has begun.
    pub(crate) async fn let_one_swap_go(&self) {
        self.until_waiting(1).await;
        self.door.state.lock().swaps_let = 1;
        self.door.changed.notify_all();
        self.until("no swap came", |state| state.swaps_let == 0).await;
    }

    /// Lets all go on.
    pub(crate) fn open(&self) {
        let mut state = self.door.state.lock();
        (state.shut, state.shut_for_copies) = (false, false);
        state.shut_within = None;
        (state.shut_for_swaps, state.shut_for_reads) = (false, false);
        drop(state);
        self.door.changed.notify_all();
    }

    /// From now on writes of segments panic, as only a bug of our own does.
    pub(crate) fn break_writes(&self) {
        self.door.state.lock().broken = true;
    }

    /// Names of the threads that have synced files or directories since this was last asked.
    pub(crate) fn take_sync_threads(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.door.state.lock().sync_threads)
    }

    /// Comes back when so many syncs, reads or swaps wait.
    pub(crate) async fn until_waiting(&self, count: usize) {
        self.until("nothing came to wait", move |state| state.waiting >= count).await;
    }

    async fn until(&self, or: &'static str, holds: impl Fn(&State) -> bool + Send + 'static) {
        let door = self.door.clone();
        let waited = tokio::task::spawn_blocking(move || {
            let mut state = door.state.lock();
            while !holds(&state) {
                assert!(!door.changed.wait_for(&mut state, LONG).timed_out(), "{or}");
            }
        });
        waited.await.expect("it comes");
    }
}

impl Storage for Gate {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.gated(path, self.inner.open(path)?))
    }
    fn open_existing(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(self.gated(path, self.inner.open_existing(path)?))
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }
    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        self.inner.modified(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        // `<offset>.swap-<offset>`, whose index follows it.
        let kind = to.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
        if kind.starts_with("swap-") && kind != "swap-index" {
            let is_held = |state: &State| state.shut_for_swaps && state.swaps_let == 0;
            self.door.pass(is_held, |state| state.swaps_let = state.swaps_let.saturating_sub(1));
        }
        self.inner.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir_all(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.door.note_sync();
        self.inner.sync_dir(dir)
    }
}

impl Gate {
    fn gated(&self, path: &Path, inner: Arc<dyn File>) -> Arc<dyn File> {
        let is = |what: &str| path.extension().is_some_and(|extension| extension == what);
        let has_news = AtomicBool::new(false);
        let path = path.to_string_lossy().into_owned();
        Arc::new(GatedFile {
            inner,
            door: self.door.clone(),
            path,
            is_log: is("log"),
            is_copy: is("cleaned"),
            has_news,
        })
    }
}

impl File for GatedFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        if self.is_log {
            self.door.pass(|state| state.shut_for_reads, |state| state.log_reads += 1);
        }
        self.inner.read_at(buf, position)
    }
    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        let broken = self.door.state.lock().broken;
        assert!(!(broken && self.is_log), "a planted bug");
        if parts.iter().any(|part| part.iter().any(|byte| *byte != 0)) {
            self.has_news.store(true, Ordering::Release);
        }
        self.inner.write_at(parts, position)
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.door.note_sync();
        let is_record = self.is_log && self.has_news.swap(false, Ordering::AcqRel);
        let is_within = |folder: &String| self.path.split('/').any(|part| part == folder);
        let is_shut = |state: &State| state.shut && state.shut_within.as_ref().is_none_or(is_within);
        let is_held = |state: &State| (is_record && is_shut(state)) || (self.is_copy && state.shut_for_copies);
        self.door.pass(is_held, |_| ());
        self.inner.sync_data()
    }
}
