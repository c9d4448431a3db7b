//! What every `Storage` promises, run by the disk and by the simulation.

use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use levada_log::{DiskStorage, File, SimStorage, Storage};
use levada_model::{Clock, ManualClock, SystemClock, Timestamp};
use tempfile::TempDir;

/// Runs a test of the trait with a directory that exists, on each implementation.
fn each(test: impl Fn(&dyn Storage, &Path)) {
    let dir = TempDir::new().expect("a directory");
    test(&DiskStorage, dir.path());

    let sim = SimStorage::new(Arc::new(ManualClock::at(Timestamp(1))));
    let dir = PathBuf::from("/data");
    sim.create_dir(&dir).expect("below the root");
    test(&sim, &dir);
}

fn write(file: &dyn File, bytes: &[u8], position: u64) {
    file.write_at(&[IoSlice::new(bytes)], position).expect("written");
}

fn contents(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().expect("a length") as usize + 10];
    let read = file.read_at(&mut bytes, 0).expect("readable");
    bytes.truncate(read);
    bytes
}

fn names(storage: &dyn Storage, dir: &Path) -> Vec<String> {
    let mut names = storage.list(dir).expect("a directory");
    names.sort();
    names
}

#[test]
fn a_file_holds_what_was_written_wherever_it_was_written() {
    each(|storage, dir| {
        let file = storage.open(&dir.join("f")).expect("created");
        write(&*file, b"hello", 0);
        write(&*file, b"LO", 3);
        write(&*file, b"!", 7);
        assert_eq!(contents(&*file), b"helLO\0\0!");
        file.sync_data().expect("synced");
        storage.sync_dir(dir).expect("synced");
        assert_eq!(contents(&*storage.open_existing(&dir.join("f")).expect("there")), b"helLO\0\0!");
    });
}

#[test]
fn many_parts_are_written_one_after_another() {
    each(|storage, dir| {
        let file = storage.open(&dir.join("f")).expect("created");
        let parts: Vec<Vec<u8>> = (0..3000_usize).map(|n| vec![n as u8; n % 5]).collect();
        let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        file.write_at(&slices, 2).expect("written");
        assert_eq!(contents(&*file)[2..], parts.concat());
        file.write_at(&[], 0).expect("nothing to do");
        file.write_at(&[IoSlice::new(b""), IoSlice::new(b"")], 100_000).expect("nothing to do");
        assert_eq!(file.len().expect("a length"), 2 + parts.concat().len() as u64);
    });
}

#[test]
fn a_read_stops_at_the_end_of_the_file() {
    each(|storage, dir| {
        let file = storage.open(&dir.join("f")).expect("created");
        write(&*file, b"abcdef", 0);
        let mut buf = [b'x'; 4];
        assert_eq!(file.read_at(&mut buf, 4).expect("readable"), 2);
        assert_eq!(&buf, b"efxx");
        assert_eq!(file.read_at(&mut buf, 6).expect("readable"), 0);
        assert_eq!(file.read_at(&mut buf, 1000).expect("readable"), 0);
    });
}

#[test]
fn a_changed_length_cuts_or_adds_zeros() {
    each(|storage, dir| {
        let file = storage.open(&dir.join("f")).expect("created");
        write(&*file, b"abcdef", 0);
        file.set_len(3).expect("cut");
        file.set_len(5).expect("extended");
        assert_eq!(contents(&*file), b"abc\0\0");
    });
}

#[test]
fn a_file_is_created_only_by_open_and_only_once() {
    each(|storage, dir| {
        let path = dir.join("f");
        let missing = |result: std::io::Result<Arc<dyn File>>| result.err().map(|error| error.kind());
        assert_eq!(missing(storage.open_existing(&path)), Some(ErrorKind::NotFound));
        assert_eq!(missing(storage.open(&dir.join("none").join("f"))), Some(ErrorKind::NotFound));
        write(&*storage.open(&path).expect("created"), b"kept", 0);
        assert_eq!(contents(&*storage.open(&path).expect("opened")), b"kept");
        assert_eq!(names(storage, dir), ["f"]);
    });
}

#[test]
fn a_rename_replaces_its_target() {
    each(|storage, dir| {
        let (old, new) = (dir.join("old"), dir.join("new"));
        let file = storage.open(&new).expect("created");
        write(&*file, b"new", 0);
        write(&*storage.open(&old).expect("created"), b"old", 0);
        storage.rename(&new, &old).expect("renamed");
        assert_eq!(names(storage, dir), ["old"]);
        write(&*file, b"N", 0);
        assert_eq!(contents(&*storage.open_existing(&old).expect("there")), b"New");
        assert_eq!(storage.rename(&new, &old).expect_err("gone").kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_removed_file_is_still_readable_by_who_has_it_open() {
    each(|storage, dir| {
        let path = dir.join("f");
        let file = storage.open(&path).expect("created");
        write(&*file, b"bytes", 0);
        storage.remove_file(&path).expect("removed");
        assert_eq!(contents(&*file), b"bytes");
        assert_eq!(contents(&*storage.open(&path).expect("another file")), b"");
        storage.remove_file(&path).expect("removed");
        assert_eq!(storage.remove_file(&path).expect_err("gone").kind(), ErrorKind::NotFound);
    });
}

#[test]
fn directories_are_created_below_one_another_and_removed_with_all_in_them() {
    each(|storage, dir| {
        let outer = dir.join("outer");
        let inner = outer.join("inner");
        assert_eq!(storage.create_dir(&inner).expect_err("no parent").kind(), ErrorKind::NotFound);
        storage.create_dir(&outer).expect("created");
        storage.create_dir(&inner).expect("created");
        storage.create_dir(&inner).expect("there already");
        storage.open(&inner.join("f")).expect("created");
        assert_eq!(names(storage, &outer), ["inner"]);
        storage.remove_dir_all(&outer).expect("removed");
        assert_eq!(names(storage, dir), [""; 0]);
        assert_eq!(storage.list(&outer).expect_err("gone").kind(), ErrorKind::NotFound);
        assert_eq!(storage.sync_dir(&outer).expect_err("gone").kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_file_is_not_taken_for_a_directory_nor_the_other_way_round() {
    each(|storage, dir| {
        let path = dir.join("f");
        storage.open(&path).expect("created");
        assert_eq!(storage.create_dir(&path).expect_err("a file").kind(), ErrorKind::AlreadyExists);
        assert_eq!(storage.list(&path).expect_err("a file").kind(), ErrorKind::NotADirectory);
        let opened = storage.open(dir).err().map(|error| error.kind());
        assert_eq!(opened, Some(ErrorKind::IsADirectory));
    });
}

#[test]
fn the_time_of_a_change_is_the_clocks() {
    let clock = Arc::new(ManualClock::at(Timestamp(5)));
    let sim = SimStorage::new(Arc::clone(&clock) as Arc<dyn Clock>);
    let path = Path::new("f");
    let file = sim.open(path).expect("created");
    clock.advance(2);
    assert_eq!(sim.modified(path).expect("there"), Timestamp(5));
    write(&*file, b"x", 0);
    assert_eq!(sim.modified(path).expect("there"), Timestamp(7));

    let dir = TempDir::new().expect("a directory");
    // A file system may keep time more coarsely than the clock tells it.
    let coarse_ms = 2000;
    let before = Timestamp(SystemClock.now().0 - coarse_ms);
    DiskStorage.open(&dir.path().join("f")).expect("created");
    let modified = DiskStorage.modified(&dir.path().join("f")).expect("there");
    assert!((before..=SystemClock.now()).contains(&modified), "{modified}");
}
