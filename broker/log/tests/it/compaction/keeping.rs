//! What stays and what goes, by the cases that others got wrong.

use levada_log::{NewBatch, UncompactedReason};
use levada_model::{Offset, Timestamp};

use super::*;

/// Rolls, so that all before can be compacted.
fn roll(log: &mut PartitionLog) {
    log.set_options(LogOptions { segment_ms: i64::MIN, ..options() });
    log.maintain(Timestamp(0), Offset(0)).expect("keeps house");
    log.set_options(options());
}

#[test]
fn pc_34_the_first_survivor_is_what_a_reader_in_a_hole_gets_next() {
    let disk = disk();
    let mut log = open(&disk, options());
    for key in ["a", "b", "c", "d", "a", "b", "c", "a", "b", "c"] {
        put(&mut log, key, Some("value"), 0);
    }
    roll(&mut log);
    put(&mut log, "e", Some("value"), 0);
    // Not forced: the active segment stays as it is.
    let plan = log.plan_compaction(Timestamp(0), Offset(11), false).expect("plans").expect("is due");
    let compacted = plan.run(&AtomicBool::new(false)).expect("runs");
    let pass = log.install_compacted(compacted).expect("installs").expect("is current");
    assert_eq!((pass.before_records, pass.after_records, pass.next_dirty, pass.is_done), (10, 4, Offset(10), true));
    assert!(pass.after_bytes < pass.before_bytes);
    for log in [&log, &open(&disk.restart(), options())] {
        assert_eq!(offsets(log, 0), [3, 7, 8, 9, 10]);
        for from in 4..=7 {
            assert_eq!(offsets(log, from), [7, 8, 9, 10], "from {from}");
            let chunk = log.reader().read(Offset(from), 1, Offset(11)).expect("reads");
            assert_eq!(chunk.next_offset, Offset(8), "from {from}");
        }
        assert_eq!(log.reader().read(Offset(4), 1, Offset(7)).expect("reads").next_offset, Offset(7));
        assert_eq!(log.marks().log_end, Offset(11));
    }
}

#[test]
fn a_segment_that_is_emptied_and_a_hole_at_its_end_are_read_over() {
    let disk = disk();
    let mut log = open(&disk, options());
    for (key, value) in [("a", "1"), ("b", "1"), ("b", "2")] {
        put(&mut log, key, Some(value), 0);
    }
    roll(&mut log);
    for _ in 0..2 {
        put(&mut log, "c", Some("old"), 0);
    }
    roll(&mut log);
    for (key, value) in [("b", "3"), ("c", "new"), ("d", "1")] {
        put(&mut log, key, Some(value), 0);
    }
    log.plan_compaction(Timestamp(0), Offset(8), false).expect("plans").expect("is due");
    compact(&mut log, 0);
    for log in [&log, &open(&disk.restart(), options())] {
        assert_eq!(offsets(log, 0), [0, 5, 6, 7]);
        for from in 1..=5 {
            assert_eq!(offsets(log, from), [5, 6, 7], "from {from}");
        }
        assert_eq!(log.reader().damage(), []);
    }
    // The three segments are one now.
    assert_eq!(disk.paths().iter().filter(|path| path.ends_with(".log")).count(), 2, "{disk:?}");
}

#[test]
fn pc_35_a_tombstone_stays_for_its_time_and_what_it_deleted_never_comes_back() {
    let disk = disk();
    let mut log = open(&disk, options());
    put(&mut log, "k", Some("1"), 0);
    put(&mut log, "k", None, 0);
    compact(&mut log, 100);
    assert_eq!(table(&log), BTreeMap::from([("k".to_owned(), None)]));
    // Its own time is as it was, though the batch now says when it may go.
    assert_eq!(records(&log, 0)[0].timestamp, Timestamp(0));
    assert_eq!(batches(&log, 0, 1)[0].header().delete_horizon(), Some(Timestamp(1100)));
    compact(&mut log, 1099);
    assert_eq!(offsets(&log, 0), [1]);
    // In a quiet topic, too, a pass is due once it may go.
    let mut log = open(&disk.restart(), options());
    assert!(log.plan_compaction(Timestamp(1099), Offset(2), false).expect("plans").is_none());
    let plan = log.plan_compaction(Timestamp(1100), Offset(2), false).expect("plans").expect("is due");
    let compacted = plan.run(&AtomicBool::new(false)).expect("runs");
    log.install_compacted(compacted).expect("installs").expect("is current");
    assert_eq!(offsets(&log, 0), [0; 0]);
    assert!(log.plan_compaction(Timestamp(9999), Offset(2), false).expect("plans").is_none());
    put(&mut log, "k", Some("2"), 2000);
    assert_eq!(offsets(&log, 0), [2]);
}

#[test]
fn ten_updates_of_ten_customers_leave_ten_records_and_a_deleted_one_is_gone() {
    let disk = disk();
    let mut log = open(&disk, options());
    for update in 0..10 {
        for customer in 0..10 {
            put(&mut log, &format!("customer-{customer}"), Some(&format!("update {update}")), 0);
        }
    }
    let before = log.reader().size_bytes();
    compact(&mut log, 0);
    assert_eq!(offsets(&log, 0), (90..100).collect::<Vec<_>>());
    assert!(log.reader().size_bytes() < before / 4);
    put(&mut log, "customer-3", None, 0);
    compact(&mut log, 0);
    compact(&mut log, 1000);
    assert_eq!(table(&log).len(), 9);
    assert!(!table(&log).contains_key("customer-3"));
}

#[test]
fn what_is_not_compacted_says_why() {
    let disk = disk();
    let mut log = open(&disk, options());
    let state = |log: &PartitionLog, now: i64, bound: u64| {
        log.reader().compaction_state(Timestamp(now), Offset(bound)).expect("reads").expect("is compacted")
    };
    let told = |log: &PartitionLog, now: i64, bound: u64| -> Vec<(u64, u64, UncompactedReason)> {
        state(log, now, bound).uncompacted.iter().map(|part| (part.from.0, part.to.0, part.reason)).collect()
    };
    for now in [10, 20, 30] {
        put(&mut log, "k", Some("value"), now);
        roll(&mut log);
    }
    put(&mut log, "k", Some("value"), 40);
    assert_eq!(told(&log, 40, 4), [(0, 3, UncompactedReason::Due), (3, 4, UncompactedReason::Active)]);
    assert_eq!(
        told(&log, 40, 2),
        [(0, 2, UncompactedReason::Due), (2, 3, UncompactedReason::Bound), (3, 4, UncompactedReason::Active)]
    );
    let lazy = CompactionOptions { min_compaction_lag_ms: 15, min_cleanable_dirty_ratio: 1.0, ..compaction() };
    log.set_options(LogOptions { compaction: Some(lazy), ..options() });
    assert_eq!(
        told(&log, 40, 4),
        [(0, 2, UncompactedReason::Ratio), (2, 3, UncompactedReason::Lag), (3, 4, UncompactedReason::Active)]
    );
    assert!(log.plan_compaction(Timestamp(40), Offset(4), false).expect("plans").is_none());
    // The oldest record of the active segment, too, has its time.
    let late = CompactionOptions { max_compaction_lag_ms: 100, min_cleanable_dirty_ratio: 1.0, ..compaction() };
    log.set_options(LogOptions { compaction: Some(late), ..options() });
    assert!(log.plan_compaction(Timestamp(110), Offset(4), false).expect("plans").is_none());
    let plan = log.plan_compaction(Timestamp(141), Offset(4), false).expect("plans").expect("is overdue");
    // One at a time.
    assert!(log.plan_compaction(Timestamp(141), Offset(4), true).expect("plans").is_none());
    let compacted = plan.run(&AtomicBool::new(false)).expect("runs");
    log.install_compacted(compacted).expect("installs").expect("is current");
    assert_eq!((offsets(&log, 0), told(&log, 141, 4)), (vec![3], vec![]));
    log.set_options(LogOptions { compaction: None, ..options() });
    assert_eq!(log.reader().compaction_state(Timestamp(141), Offset(4)).expect("reads"), None);
    assert!(log.plan_compaction(Timestamp(141), Offset(4), true).expect("plans").is_none());
}

#[test]
fn a_record_without_a_key_stays_and_is_found() {
    let disk = disk();
    let mut log = open(&disk, options());
    put(&mut log, "", Some("an empty key is a key"), 0);
    put(&mut log, "", Some("and has a newest record"), 0);
    let keyless = Record { value: Some(Bytes::from_static(b"value")), ..Record::default() };
    for _ in 0..2 {
        let mut builder = BatchBuilder::new(NewBatch::default(), 0);
        builder.push(Timestamp(0), &Record { key: Some(Bytes::from_static(b"k")), ..Record::default() });
        builder.push(Timestamp(0), &keyless);
        append(&mut log, builder.finish().expect("no codec"), 0);
    }
    assert_eq!(log.reader().first_keyless(Offset(0), Offset(6)).expect("reads"), Some(Offset(3)));
    assert_eq!(log.reader().first_keyless(Offset(0), Offset(3)).expect("reads"), None);
    compact(&mut log, 0);
    assert_eq!(offsets(&log, 0), [1, 3, 4, 5]);
    log.truncate_front(Offset(6)).expect("truncates");
    assert_eq!(log.reader().first_keyless(Offset(0), Offset(6)).expect("reads"), None);
}
