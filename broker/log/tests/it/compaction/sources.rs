//! What may happen to a pass and its segments meanwhile: damage, a stop, a full disk, retention, readers in their middle.

use std::sync::atomic::{AtomicU64, Ordering};

use levada_log::{DiskStorage, SegmentScan, Stretch, segment_files};

use super::*;

/// A log of several segments, ten keys updated ten times.
fn updated(disk: &SimStorage) -> PartitionLog {
    let mut log = open(disk, options());
    for update in 0..10 {
        for key in 0..10 {
            // Older by its own time than by the broker's.
            let update = batch(NewBatch::default(), 0, &[(&format!("key-{key}"), Some(&format!("update {update}")))]);
            append(&mut log, update, 10);
        }
    }
    log
}

fn files(disk: &SimStorage, part: &str) -> Vec<String> {
    disk.paths().into_iter().filter(|path| path.contains(part)).collect()
}

#[test]
fn a_flipped_bit_in_a_source_stops_the_pass_and_changes_nothing_until_it_is_mended() {
    let disk = disk();
    let mut log = updated(&disk);
    let path = files(&disk, ".log")[1].clone();
    disk.corrupt(&path, 70, 1);
    let before: Vec<Vec<u8>> = files(&disk, ".log").iter().map(|path| disk.contents(path)).collect();
    let error = run(&mut log, 10).err().expect("is found");
    assert!(matches!(error, CompactionError::Damaged(damage) if damage.to.0 - damage.from.0 == 1), "{error}");
    assert_eq!(log.reader().damage_count(), 1, "it is shown");
    let segments = before.len();
    let after: Vec<Vec<u8>> = files(&disk, ".log").iter().take(segments).map(|path| disk.contents(path)).collect();
    assert_eq!(after, before);
    assert_eq!(files(&disk, "cleaned"), [""; 0]);
    // Writing goes on, and the next attempt is not in the way of the last.
    put(&mut log, "key-0", Some("more"), 10);
    run(&mut log, 10).err().expect("is still there");
    disk.corrupt(&path, 70, 1);
    compact(&mut log, 10);
    assert_eq!(offsets(&log, 0), (91..=100).collect::<Vec<_>>());
}

#[test]
fn a_pass_that_is_told_to_stop_leaves_nothing_behind() {
    let disk = disk();
    let mut log = updated(&disk);
    let plan = log.plan_compaction(Timestamp(10), Offset(100), true).expect("plans").expect("there is something");
    let stop = AtomicBool::new(false);
    stop.store(true, Ordering::Relaxed);
    assert!(matches!(plan.run(&stop), Err(CompactionError::Cancelled)));
    assert_eq!(files(&disk, "cleaned"), [""; 0]);
    assert_eq!(offsets(&log, 0).len(), 100);
    compact(&mut log, 10);
}

#[test]
fn a_full_disk_and_a_failed_sync_end_the_pass_and_not_the_log() {
    let disk = disk();
    let mut log = updated(&disk);
    let plan = log.plan_compaction(Timestamp(10), Offset(100), true).expect("plans").expect("there is something");
    disk.set_free_bytes(0);
    assert!(matches!(plan.run(&AtomicBool::new(false)), Err(CompactionError::Storage(_))));
    disk.heal();
    let plan = log.plan_compaction(Timestamp(10), Offset(100), true).expect("plans").expect("there is something");
    disk.fail_sync(true);
    assert!(matches!(plan.run(&AtomicBool::new(false)), Err(CompactionError::Storage(_))));
    disk.heal();
    assert_eq!(files(&disk, "cleaned"), [""; 0]);
    put(&mut log, "key-0", Some("more"), 10);
    compact(&mut log, 10);
    assert_eq!(offsets(&log, 0).len(), 10);
}

#[test]
fn what_was_written_from_segments_that_are_gone_is_thrown_away() {
    let disk = disk();
    let mut log = updated(&disk);
    let compacted = run(&mut log, 10).expect("runs");
    log.truncate_front(Offset(50)).expect("truncates");
    assert_eq!(log.install_compacted(compacted).expect("installs"), None);
    assert_eq!(files(&disk, "cleaned"), [""; 0]);
    assert_eq!(offsets(&log, 50).len(), 50);
    compact(&mut log, 10);
    assert_eq!(offsets(&log, 50).len(), 10);
}

#[test]
fn appends_and_truncations_may_come_between_the_segments_of_a_pass() {
    for truncates in [false, true] {
        let disk = disk();
        let mut log = updated(&disk);
        // Something goes from each segment, and several are left.
        for n in 0..40 {
            put(&mut log, &format!("other-{n}"), Some("value"), 10);
            put(&mut log, "churn", Some("value"), 10);
        }
        let mut compacted = run(&mut log, 10).expect("runs");
        let mut turns = 1;
        while log.install_next(&mut compacted).expect("installs") {
            put(&mut log, "key-0", Some("in between"), 10);
            turns += 1;
            if truncates && turns == 2 {
                log.truncate_front(Offset(125)).expect("truncates");
            }
        }
        assert!(turns > 2 || truncates, "one segment: {disk:?}");
        let pass = log.install_compacted(compacted).expect("installs");
        assert_eq!(pass.is_none(), truncates);
        let log_start = log.marks().log_start.0;
        let kept: Vec<u64> = offsets(&log, log_start).into_iter().filter(|offset| offset % 2 == 0).collect();
        let others = (100..180).step_by(2).filter(|offset| *offset >= log_start);
        assert!(others.clone().all(|offset| kept.contains(&offset)), "{kept:?}");
        assert_eq!(offsets(&open(&disk.restart(), options()), log_start), offsets(&log, log_start));
        assert_eq!(files(&disk, "cleaned"), [""; 0]);
    }
}

#[test]
fn running_out_of_files_at_the_swap_costs_the_pass_alone() {
    let disk = disk();
    let mut log = updated(&disk);
    let compacted = run(&mut log, 10).expect("runs");
    disk.set_open_files_max(disk.open_files() + 3);
    let error = log.install_compacted(compacted).expect_err("fails");
    assert!(error.is_out_of_files(), "{error}");
    disk.heal();
    put(&mut log, "key-0", Some("more"), 10);
    assert_eq!(offsets(&log, 0).len(), 101);
    compact(&mut log, 10);
    assert_eq!(offsets(&log, 0).len(), 10);
}

#[test]
fn retention_removes_whole_segments_only_where_it_holds_and_by_the_time_of_their_sources() {
    for retains in [false, true] {
        let disk = disk();
        let mut log = updated(&disk);
        compact(&mut log, 5_000);
        let cleaned = files(&disk, ".log")[0].clone();
        let settings = LogOptions { retention_ms: Some(100), retains, ..options() };
        log.set_options(settings.clone());
        // The sources' last append was at 10.
        log.maintain(Timestamp(110), Offset(100)).expect("keeps house");
        assert!(files(&disk, ".log").contains(&cleaned));
        let mut log = open(&disk.restart(), settings);
        log.maintain(Timestamp(110), Offset(100)).expect("keeps house");
        assert_eq!(offsets(&log, log.marks().log_start.0).len(), 10);
        log.maintain(Timestamp(111), Offset(100)).expect("keeps house");
        assert_eq!(offsets(&log, log.marks().log_start.0).is_empty(), retains);
    }
}

#[test]
fn a_reader_in_the_middle_of_a_segment_goes_on_over_the_swap() {
    let dir = tempfile::tempdir().expect("a directory");
    let open =
        || PartitionLog::open(Arc::new(DiskStorage), dir.path(), options(), Timestamp(0), false).expect("opens").0;
    let mut log = open();
    let key = |n: u64| format!("key-{}", n % 25);
    let (is_done, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for max_bytes in [1, 400, 1 << 20] {
            let (reader, is_done, written) = (log.reader(), &is_done, &written);
            scope.spawn(move || {
                let mut is_last = false;
                while !is_last {
                    is_last = is_done.load(Ordering::Acquire);
                    let (mut at, end) = (Offset(0), Offset(written.load(Ordering::Acquire)));
                    while at < end {
                        let chunk = reader.read(at, max_bytes, end).expect("reads");
                        assert_eq!(chunk.gaps, []);
                        for record in chunk.batches.iter().flat_map(|batch| batch.records().expect("unpacks")) {
                            let record = record.expect("is whole");
                            assert_eq!(record.record.key.as_deref(), Some(key(record.offset.0).as_bytes()));
                        }
                        assert!(chunk.next_offset > at);
                        at = chunk.next_offset;
                    }
                }
            });
        }
        for n in 0..600 {
            put(&mut log, &key(n), Some("value"), 0);
            written.store(n + 1, Ordering::Release);
            if n % 50 == 49 {
                compact(&mut log, 0);
            }
        }
        is_done.store(true, Ordering::Release);
    });
    assert_eq!(offsets(&log, 0), (575..600).collect::<Vec<_>>());
    drop(log);
    assert_eq!(offsets(&open(), 0).len(), 25);
}

#[test]
fn a_scan_of_the_files_finds_a_compacted_log_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = LogOptions { segment_bytes: 1 << 20, ..options() };
    let (mut log, _) =
        PartitionLog::open(Arc::new(DiskStorage), dir.path(), settings, Timestamp(0), false).expect("opens");
    for n in 0..100 {
        let append = Append {
            batch: batch(NewBatch::default(), 0, &[(&format!("key-{}", n % 7), Some("value"))]),
            check: SequenceCheck::Producer,
            expected_offset: None,
        };
        log.stage(append, LeaderEpoch(n / 40), Timestamp(0)).expect("accepted");
        log.write(Timestamp(0)).expect("writes");
    }
    compact(&mut log, 0);
    put(&mut log, "key-0", Some("value"), 0);
    let mut next = Offset(0);
    let mut covers = Vec::new();
    for file in segment_files(dir.path()).expect("lists") {
        let mut scan = SegmentScan::open(&file).expect("opens");
        while let Some(stretch) = scan.next().expect("reads") {
            let Stretch::Batch { batch, .. } = stretch else { panic!("{stretch:?}") };
            assert_eq!(batch.header().base_offset, next, "every offset is in a batch");
            next = batch.header().next_offset();
            if batch.header().record_count == 0 {
                covers.push((batch.header().base_offset.0, next.0, batch.header().leader_epoch.0));
            }
            batch.records().expect("unpacks").for_each(|record| drop(record.expect("is whole")));
        }
    }
    assert_eq!(next, Offset(101));
    assert_eq!(covers, [(0, 40, 0), (40, 80, 1), (80, 93, 2)], "each within its leader epoch");
}
