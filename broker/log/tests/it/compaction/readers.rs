//! A reader that is in the middle of a read when the segments are replaced, at exactly that moment.

use std::io;

use levada_log::{File, Storage};
use parking_lot::Mutex;

use super::*;

type Interruption = Box<dyn FnOnce() + Send>;

/// A disk that does something else in the middle of the next read.
#[derive(Clone)]
struct Interrupted {
    disk: SimStorage,
    next: Arc<Mutex<Option<Interruption>>>,
}

struct InterruptedFile {
    file: Arc<dyn File>,
    next: Arc<Mutex<Option<Interruption>>>,
}

impl Interrupted {
    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(InterruptedFile { file, next: self.next.clone() })
    }
}

impl Storage for Interrupted {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.disk.open(path).map(|file| self.file(file))
    }

    fn open_existing(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.disk.open_existing(path).map(|file| self.file(file))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn modified(&self, path: &Path) -> io::Result<Timestamp> {
        self.disk.modified(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
}

impl File for InterruptedFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        // Large reads are those of batches; the small ones look into an index, under its lock.
        let next = if buf.len() >= 300 { self.next.lock().take() } else { None };
        if let Some(interrupt) = next {
            interrupt();
        }
        self.file.read_at(buf, position)
    }

    fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<()> {
        self.file.write_at(parts, position)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[test]
fn a_read_over_the_moment_of_a_swap_gets_old_records_or_new_ones_and_no_gap() {
    let segments = [false, true].map(interrupted_read);
    assert!(segments[0] > 4 && segments[1] > 1, "{segments:?}");
}

/// Reads a log while its segments are replaced, one by one or joined; answers how many there are then.
fn interrupted_read(joins: bool) -> usize {
    let storage = Interrupted { disk: disk(), next: Arc::default() };
    let opened = PartitionLog::open(Arc::new(storage.clone()), Path::new(DIR), options(), Timestamp(0), false);
    let mut log = opened.expect("opens").0;
    // Something goes from each segment.
    for n in 0..60 {
        put(&mut log, &format!("key-{n}"), Some("a value that takes some room in its segment"), 0);
        for _ in 0..if joins { 9 } else { usize::from(n % 5 == 0) } {
            put(&mut log, "churn", Some("value"), 0);
        }
    }
    if joins {
        // What one pass has made small the next one joins.
        compact(&mut log, 0);
    }
    let compacted = run(&mut log, 0).expect("runs");
    let segments = |disk: &SimStorage| disk.paths().iter().filter(|path| path.ends_with(".log")).count();
    let segments_before = segments(&storage.disk);
    // No file of a sealed segment is open: a reader must open them by their names.
    let (reader, end, before) = (log.reader(), log.marks().log_end, records(&log, 0).len());
    for _ in 0..2 {
        log.maintain(Timestamp(0), Offset(0)).expect("keeps house");
    }
    let is_swapped = Arc::new(AtomicBool::new(false));
    let swapped = is_swapped.clone();
    *storage.next.lock() = Some(Box::new(move || {
        log.install_compacted(compacted).expect("installs").expect("is current");
        swapped.store(true, std::sync::atomic::Ordering::Release);
    }));
    let (mut at, mut found) = (Offset(0), Vec::new());
    while at < end {
        let chunk = reader.read(at, 1 << 20, end).expect("reads");
        assert_eq!(chunk.gaps, []);
        found.extend(chunk.batches.iter().flat_map(|batch| batch.records().expect("unpacks")));
        at = chunk.next_offset;
    }
    assert!(is_swapped.load(std::sync::atomic::Ordering::Acquire), "nothing happened in the middle");
    assert_eq!(reader.damage(), []);
    let keys: Vec<Bytes> = found.into_iter().map(|r| r.expect("is whole").record.key.expect("a key")).collect();
    let others = keys.iter().filter(|key| key[..] != b"churn"[..]).count();
    assert_eq!((others, keys.len() <= before), (60, true));
    let segments_after = segments(&storage.disk);
    assert_eq!(segments_after < segments_before, joins, "{segments_after} of {segments_before}");
    segments_after
}
