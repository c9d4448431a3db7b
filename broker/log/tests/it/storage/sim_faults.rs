//! Faults that the simulated disk injects, and the lies that it can be made to tell.

use std::io::{ErrorKind, IoSlice};
use std::path::Path;
use std::sync::Arc;

use levada_log::{CrashPlan, File, SimStorage, Storage};
use levada_model::{ManualClock, Timestamp};

const EIO: Option<i32> = Some(5);

fn disk() -> (SimStorage, Arc<dyn File>) {
    let disk = SimStorage::new(Arc::new(ManualClock::at(Timestamp(1))));
    let file = disk.open(Path::new("f")).expect("created");
    (disk, file)
}

fn write(file: &dyn File, bytes: &[u8], position: u64) -> std::io::Result<()> {
    file.write_at(&[IoSlice::new(bytes)], position)
}

#[test]
fn after_so_many_changes_every_change_fails_and_reads_go_on() {
    let (disk, file) = disk();
    disk.fail_after(2);
    write(&*file, b"a", 0).expect("the first");
    file.sync_data().expect("the second");
    assert_eq!(write(&*file, b"b", 0).expect_err("the third").raw_os_error(), EIO);
    assert_eq!(disk.rename(Path::new("f"), Path::new("g")).expect_err("the fourth").raw_os_error(), EIO);
    assert_eq!(disk.contents("f"), b"a");
    assert_eq!(file.read_at(&mut [0], 0).expect("readable"), 1);
    disk.heal();
    write(&*file, b"b", 0).expect("healed");
}

#[test]
fn a_full_disk_takes_what_fits_and_says_so_until_space_is_given_back() {
    let (disk, file) = disk();
    write(&*file, b"aaaa", 0).expect("unbounded");
    disk.set_free_bytes(3);
    write(&*file, b"AAAA", 0).expect("needs no space");
    assert_eq!(write(&*file, b"bbbb", 4).expect_err("full").kind(), ErrorKind::StorageFull);
    assert_eq!(disk.contents("f"), b"AAAAbbb");
    file.set_len(5).expect("cut");
    write(&*file, b"cc", 5).expect("fits again");
    disk.remove_file(Path::new("f")).expect("removed");
    let other = disk.open(Path::new("g")).expect("created");
    write(&*other, b"1234567", 0).expect("the removed file's space");
    assert_eq!(write(&*other, b"8", 7).expect_err("full").kind(), ErrorKind::StorageFull);
}

#[test]
fn a_sync_that_is_tried_again_after_a_failure_answers_ok_and_loses_the_bytes() {
    let (disk, file) = disk();
    disk.sync_dir(Path::new("/")).expect("synced");
    write(&*file, b"bytes", 0).expect("written");
    disk.fail_sync(true);
    assert_eq!(file.sync_data().expect_err("failing").raw_os_error(), EIO);
    disk.fail_sync(false);
    file.sync_data().expect("answers Ok");
    assert_eq!(disk.contents("f"), b"bytes");
    assert_eq!(disk.crash(&CrashPlan::all_lost()).contents("f"), [0; 5]);
    write(&*file, b"again", 0).expect("written");
    file.sync_data().expect("synced");
    assert_eq!(disk.crash(&CrashPlan::all_lost()).contents("f"), b"again");
}

#[test]
fn reads_fail_when_told_to() {
    let (disk, file) = disk();
    disk.fail_reads(true);
    assert_eq!(file.read_at(&mut [0], 0).expect_err("failing").raw_os_error(), EIO);
    disk.heal();
    assert_eq!(file.read_at(&mut [0], 0).expect("healed"), 0);
}

#[test]
fn a_planted_lie_answers_ok_does_nothing_and_outlives_healing_and_the_crash() {
    let (disk, file) = disk();
    disk.ignore_sync_dir(true);
    disk.heal();
    disk.sync_dir(Path::new("/")).expect("a lie");
    assert_eq!(disk.crash(&CrashPlan::all_lost()).paths(), [""; 0]);
    disk.ignore_sync_dir(false);
    disk.sync_dir(Path::new("/")).expect("synced");
    write(&*file, b"x", 0).expect("written");
    disk.ignore_sync_data(true);
    file.sync_data().expect("a lie");
    let crashed = disk.crash(&CrashPlan::all_lost());
    assert_eq!(crashed.contents("f"), b"");
    let file = crashed.open(Path::new("f")).expect("there");
    write(&*file, b"x", 0).expect("written");
    file.sync_data().expect("still a lie");
    assert_eq!(crashed.crash(&CrashPlan::all_lost()).contents("f"), b"");
}

#[test]
fn syncs_are_counted() {
    let (disk, file) = disk();
    file.sync_data().expect("synced");
    file.sync_data().expect("synced");
    disk.sync_dir(Path::new("/")).expect("synced");
    assert_eq!((disk.file_syncs(), disk.dir_syncs()), (2, 1));
}

#[test]
fn damage_to_the_disk_itself_is_not_undone_by_a_crash() {
    let (disk, file) = disk();
    write(&*file, b"abc", 0).expect("written");
    file.sync_data().expect("synced");
    disk.sync_dir(Path::new("/")).expect("synced");
    disk.corrupt("f", 1, 0x20);
    assert_eq!(disk.crash(&CrashPlan::all_lost()).contents("f"), b"aBc");
    disk.overwrite("f", b"other");
    assert_eq!(disk.crash(&CrashPlan::all_lost()).contents("f"), b"other");
    assert_eq!(file.len().expect("a length"), 5, "open files see it");
    disk.remove("f");
    disk.open(Path::new("pending")).expect("created");
    disk.remove("pending");
    assert_eq!(disk.crash(&CrashPlan::all_kept()).paths(), [""; 0]);
}
