//! What a log does when the disk refuses: nothing is tried again, reads go on.

use std::path::Path;
use std::sync::Arc;

use levada_log::{Append, AppendError, CrashPlan, LogOptions, PartitionLog, SequenceCheck, SimStorage};
use levada_model::{LeaderEpoch, ManualClock, Offset, Timestamp};

use super::{append, batch_at, batch_of, options, read_all, stage};

fn sim() -> (SimStorage, PartitionLog) {
    let disk = SimStorage::new(Arc::new(ManualClock::at(Timestamp(0))));
    let log = reopen(&disk);
    (disk, log)
}

fn reopen(disk: &SimStorage) -> PartitionLog {
    let settings = LogOptions { write_ahead_zeros: true, ..options() };
    PartitionLog::open(Arc::new(disk.clone()), Path::new("/p"), settings.clone(), Timestamp(0), false).expect("opens").0
}

fn is_poisoned(log: &mut PartitionLog) -> bool {
    let append = Append { batch: batch_at(0, &["x"]), check: SequenceCheck::Producer, expected_offset: None };
    let staged = log.stage(append, LeaderEpoch(0), Timestamp(0));
    matches!(staged, Err(AppendError::Poisoned(_)))
        && log.write(Timestamp(0)).is_err()
        && log.sync().is_err()
        && log.maintain(Timestamp(0), Offset(0)).is_err()
        && log.truncate_front(Offset(1)).is_err()
}

#[test]
fn a_failed_sync_is_never_tried_again_and_what_was_synced_is_still_read() {
    let (disk, mut log) = sim();
    let first = append(&mut log, batch_at(0, &["synced"]), 0);
    stage(&mut log, batch_at(1, &["written"]), 1);
    log.write(Timestamp(1)).expect("writes");
    disk.fail_sync(true);
    log.sync().expect_err("fails");
    disk.fail_sync(false);
    let syncs = disk.file_syncs();
    assert!(is_poisoned(&mut log));
    assert_eq!(disk.file_syncs(), syncs, "no sync was tried");
    assert_eq!(log.marks().synced_end, Offset(1));
    assert_eq!(log.reader().read(Offset(0), 1 << 20, Offset(1)).expect("reads").batches, [first]);
    log.close().expect_err("a poisoned log is not closed cleanly");
    // The process starts again: what the failed sync left in the page cache is on the disk before it counts.
    let again = disk.restart();
    let log = reopen(&again);
    assert_eq!(log.marks().synced_end, Offset(2));
    drop(log);
    assert_eq!(reopen(&again.crash(&CrashPlan::all_lost())).marks().log_end, Offset(2));
}

#[test]
fn a_failed_write_leaves_the_end_where_it_was() {
    let (disk, mut log) = sim();
    append(&mut log, batch_at(0, &["synced"]), 0);
    log.prepare_ahead();
    stage(&mut log, batch_at(1, &["refused"]), 1);
    disk.fail_after(0);
    log.write(Timestamp(1)).expect_err("fails");
    assert_eq!(log.marks().log_end, Offset(1));
    assert!(is_poisoned(&mut log));
    assert_eq!(read_all(&log, 0, 100).len(), 1);
}

#[test]
fn a_full_disk_ends_the_zeros_written_ahead_and_nothing_else() {
    let (disk, mut log) = sim();
    append(&mut log, batch_at(0, &["synced"]), 0);
    disk.set_free_bytes(5_000);
    log.prepare_ahead();
    for n in 1..10 {
        append(&mut log, batch_at(n, &["still fits"]), n);
        log.prepare_ahead();
    }
    disk.heal();
    let synced = disk.crash(&CrashPlan::all_lost());
    let log = reopen(&synced);
    assert_eq!(log.marks().log_end, Offset(10));
    assert_eq!(read_all(&log, 0, 100).len(), 10);
}

#[test]
fn zeros_written_ahead_spare_the_file_its_growth_and_are_cut_off_at_the_end() {
    let (disk, mut log) = sim();
    let path = "/p/00000000000000000000.log";
    append(&mut log, batch_at(0, &["one"]), 0);
    let valid = disk.contents(path).len();
    log.prepare_ahead();
    let len = disk.contents(path).len();
    assert_eq!(len - valid, 16 << 10);
    for n in 1..20 {
        append(&mut log, batch_at(n, &["two"]), n);
        log.prepare_ahead();
    }
    assert_eq!(disk.contents(path).len(), len, "they fitted in");
    assert!(log.reader().size_bytes() < 4_000, "zeros do not count");
    log.close().expect("closes");
    let synced = disk.crash(&CrashPlan::all_lost());
    assert_eq!(synced.contents(path).len() as u64, reopen(&synced).reader().size_bytes());
    assert_ne!(synced.contents(path).last(), None);
}

#[test]
fn a_large_group_gets_no_zeros() {
    let (disk, mut log) = sim();
    let large = "x".repeat(100_000);
    append(&mut log, batch_at(0, &[&large]), 0);
    let len = disk.contents("/p/00000000000000000000.log").len();
    log.prepare_ahead();
    assert_eq!(disk.contents("/p/00000000000000000000.log").len(), len);
}

#[test]
fn a_read_error_fails_the_read_and_no_more() {
    let (disk, mut log) = sim();
    append(&mut log, batch_at(0, &["one"]), 0);
    disk.fail_reads(true);
    log.reader().read(Offset(0), 100, Offset(1)).expect_err("fails");
    assert_eq!(log.reader().damage(), [], "a failing disk is not a damaged record");
    disk.fail_reads(false);
    assert_eq!(read_all(&log, 0, 100).len(), 1);
}

#[test]
fn an_old_segment_that_cannot_be_read_is_no_reason_to_refuse_new_records() {
    let (disk, mut log) = sim();
    append(&mut log, batch_at(0, &["one"]), 0);
    log.set_options(LogOptions { segment_ms: 0, ..options() });
    log.maintain(Timestamp(2), Offset(1)).expect("rolls");
    drop(log);
    let mut log = reopen(&disk);
    log.set_options(LogOptions { retention_ms: Some(1), ..options() });
    disk.fail_reads(true);
    log.maintain(Timestamp(99), Offset(1)).expect("keeps house");
    disk.fail_reads(false);
    append(&mut log, batch_at(1, &["two"]), 99);
    assert_eq!(log.maintain(Timestamp(99), Offset(1)).expect("keeps house").segments, 1);
}

#[test]
fn a_checkpoint_of_a_newer_program_is_left_alone() {
    let (disk, mut log) = sim();
    append(&mut log, batch_at(0, &["one"]), 0);
    drop(log);
    let mut bytes = disk.contents("/p/checkpoint");
    for slot in [0, 4096] {
        bytes[slot + 5] = 9;
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[slot..slot + 508]);
        bytes[slot + 508..slot + 512].copy_from_slice(&u32::try_from(crc).expect("32 bits").to_be_bytes());
    }
    disk.overwrite("/p/checkpoint", &bytes);
    let storage = Arc::new(disk.clone());
    let Err(error) = PartitionLog::open(storage, Path::new("/p"), options(), Timestamp(0), true) else {
        panic!("opened")
    };
    assert!(error.to_string().contains("version 9"), "{error}");
    assert_eq!(disk.contents("/p/checkpoint"), bytes);
}

/// What a log holds that has so many files to spare when it wants to append, with small segments; whether it was ready.
fn append_with_files_to_spare(first: usize, files: usize) -> bool {
    let disk = SimStorage::new(Arc::new(ManualClock::at(Timestamp(0))));
    let settings = LogOptions { segment_bytes: 200, ..options() };
    let open = |disk: &SimStorage| {
        PartitionLog::open(Arc::new(disk.clone()), Path::new("/p"), settings.clone(), Timestamp(0), false)
            .expect("opens")
            .0
    };
    let mut log = open(&disk);
    for n in 0..first {
        // A producer, so that a roll has a snapshot to write.
        append(&mut log, batch_of(7, 0, i32::try_from(n).expect("few"), &["kept"]), 0);
    }
    disk.set_open_files_max(disk.open_files() + files);
    let sizes: u64 = (0..5).map(|n| batch_at(n, &["a group of several segments"]).header().size_bytes as u64).sum();
    let ready = log.ready(sizes, 5, LeaderEpoch(0));
    if let Err(error) = &ready {
        assert!(error.is_out_of_files(), "{error}");
        disk.heal();
        log.ready(sizes, 5, LeaderEpoch(0)).expect("there are files again");
    }
    for n in 0..5 {
        stage(&mut log, batch_at(n, &["a group of several segments"]), 0);
    }
    log.write(Timestamp(0)).expect("writes");
    log.sync().expect("syncs");
    drop(log);
    disk.heal();
    let log = open(&disk.crash(&CrashPlan::all_lost()));
    assert_eq!(log.marks().log_end, Offset(first as u64 + 5));
    assert_eq!(read_all(&log, 0, 1 << 20).len(), first + 5);
    ready.is_ok()
}

#[test]
fn a_log_that_is_ready_lacks_no_files_and_one_that_is_not_is_as_it_was() {
    for first in [0, 1, 2, 9] {
        let ready: Vec<bool> = (0..16).map(|files| append_with_files_to_spare(first, files)).collect();
        assert!(!ready[0] && ready[15] && ready.is_sorted(), "{ready:?}");
    }
}

#[test]
fn housekeeping_without_files_is_put_off() {
    let (disk, mut log) = sim();
    append(&mut log, batch_at(0, &["one"]), 0);
    log.set_options(LogOptions { segment_ms: 0, retention_ms: Some(1), ..options() });
    disk.set_open_files_max(disk.open_files());
    assert!(log.maintain(Timestamp(9), Offset(1)).expect_err("it cannot roll").is_out_of_files());
    assert!(log.truncate_front(Offset(1)).expect_err("nor remove").is_out_of_files());
    assert_eq!(log.marks().log_start, Offset(0));
    disk.heal();
    assert_eq!(log.maintain(Timestamp(9), Offset(1)).expect("there are files again").segments, 1);
}

#[test]
fn the_files_of_a_quiet_log_are_closed_and_opened_again_when_they_are_wanted() {
    let (disk, mut log) = sim();
    append(&mut log, batch_at(0, &["one"]), 0);
    log.prepare_ahead();
    let open = disk.open_files();
    log.maintain(Timestamp(1), Offset(1)).expect("keeps house");
    assert_eq!(disk.open_files(), open, "it was written to since");
    log.maintain(Timestamp(2), Offset(1)).expect("keeps house");
    assert_eq!((open, disk.open_files()), (2, 0));
    assert_eq!(read_all(&log, 0, 1 << 20).len(), 1);
    append(&mut log, batch_at(1, &["two"]), 3);
    assert_eq!(read_all(&log, 0, 1 << 20).len(), 2);
}
