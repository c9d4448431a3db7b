//! Compaction with transactions: what was aborted goes and makes nothing else go, and a marker stays for as long as it is
//! needed (KIP-534).

use levada_log::Batch;

use super::*;

/// Offset, kind and number of records of all that a plain reader gets.
fn layout(log: &PartitionLog) -> Vec<(u64, &'static str, u32)> {
    let chunk = log.reader().read(Offset(0), 1 << 20, log.marks().log_end).expect("reads");
    assert_eq!(chunk.gaps, []);
    let kind = |batch: &Batch| if batch.header().is_control() { "marker" } else { "data" };
    chunk.batches.iter().map(|b| (b.header().base_offset.0, kind(b), b.header().record_count)).collect()
}

#[test]
fn what_was_aborted_goes_and_is_never_the_newest_of_a_key() {
    let disk = disk();
    let mut log = open(&disk);
    put(&mut log, plain(&["a"]), 0).expect("taken");
    put(&mut log, data(1, 0, 0, &["a", "b"]), 0).expect("taken");
    put(&mut log, end(1, 1, ABORT, 0), 0).expect("taken");
    put(&mut log, plain(&["c"]), 0).expect("taken");
    let pass = compact(&mut log, 0);
    assert_eq!((pass.before_records, pass.after_records), (4, 2));
    for log in [&log, &open(&disk.restart())] {
        assert_eq!(layout(log), [(0, "data", 1), (3, "marker", 1), (4, "data", 1)]);
    }
}

#[test]
fn nothing_is_cleaned_at_or_beyond_the_last_stable_offset() {
    let disk = disk();
    let mut log = open(&disk);
    put(&mut log, plain(&["a"]), 0).expect("taken");
    put(&mut log, plain(&["a"]), 0).expect("taken");
    roll(&mut log);
    put(&mut log, data(1, 0, 0, &["a"]), 0).expect("taken");
    put(&mut log, plain(&["a"]), 0).expect("taken");
    roll(&mut log);
    put(&mut log, plain(&["a"]), 0).expect("taken");
    let pass = compact(&mut log, 0);
    assert_eq!(pass.next_dirty, Offset(2));
    assert_eq!(layout(&log), [(1, "data", 1), (2, "data", 1), (3, "data", 1), (4, "data", 1)]);
    // The caller's bound is not what counts.
    let state = log.reader().compaction_state(Timestamp(0), log.marks().log_end).expect("reads").expect("is compacted");
    assert_eq!(state.uncompacted[0].reason, levada_log::UncompactedReason::Bound);
    put(&mut log, end(1, 1, COMMIT, 0), 0).expect("taken");
    let pass = compact(&mut log, 0);
    assert_eq!(pass.next_dirty, Offset(6));
    assert_eq!(layout(&log), [(4, "data", 1), (5, "marker", 1)]);
}

#[test]
fn a_marker_in_a_later_segment_decides_what_goes_in_an_earlier_one() {
    for (how, left) in [(ABORT, vec![0, 3]), (COMMIT, vec![1, 3])] {
        let disk = disk();
        let mut log = open(&disk);
        put(&mut log, plain(&["a"]), 0).expect("taken");
        put(&mut log, data(1, 0, 0, &["a"]), 0).expect("taken");
        roll(&mut log);
        // The marker is in the active segment, which no pass takes.
        put(&mut log, end(1, 1, how, 0), 0).expect("taken");
        put(&mut log, plain(&["b"]), 0).expect("taken");
        let plan = log.plan_compaction(Timestamp(0), Offset(4), false).expect("plans").expect("is due");
        let compacted = plan.run(&AtomicBool::new(false)).expect("runs");
        log.install_compacted(compacted).expect("installs").expect("is current");
        for log in [&log, &open(&disk.restart())] {
            let data: Vec<u64> = layout(log).iter().filter(|(_, kind, _)| *kind == "data").map(|of| of.0).collect();
            assert_eq!(data, left);
        }
    }
}

#[test]
fn a_marker_stays_while_data_of_its_transaction_does_then_for_its_horizon_then_goes() {
    for how in [COMMIT, ABORT] {
        let disk = disk();
        let mut log = open(&disk);
        put(&mut log, data(1, 0, 0, &["a"]), 0).expect("taken");
        put(&mut log, data(2, 0, 0, &["b"]), 0).expect("taken");
        put(&mut log, end(1, 1, how, 0), 0).expect("taken");
        put(&mut log, end(2, 1, COMMIT, 0), 0).expect("taken");
        compact(&mut log, 0);
        compact(&mut log, 5_000);
        if how == COMMIT {
            let all = [(0, "data", 1), (1, "data", 1), (2, "marker", 1), (3, "marker", 1)];
            assert_eq!(layout(&log), all, "as long as their data");
            put(&mut log, plain(&["a"]), 5_000).expect("taken");
            compact(&mut log, 5_000);
        }
        assert_eq!(layout(&log)[..2], [(1, "data", 1), (2, "marker", 1)], "{how:?}: not before its horizon");
        // It is the last that producer 1 is known by, and so it stays until the producer is forgotten or goes on.
        compact(&mut log, 7_000);
        assert!(layout(&log).contains(&(2, "marker", 1)));
        assert_eq!(word(&put(&mut log, data(1, 0, 1, &["late"]), 7_000)), "ProducerFenced");
        put(&mut log, data(1, 1, 0, &["d"]), 7_000).expect("taken");
        put(&mut log, end(1, 2, COMMIT, 0), 7_000).expect("taken");
        compact(&mut log, 7_000);
        assert!(!layout(&log).contains(&(2, "marker", 1)), "{how:?}: {:?}", layout(&log));
        assert!(layout(&log).contains(&(3, "marker", 1)), "of producer 2, whose data is there");
        let disk = disk.restart();
        lose(&disk, ".snapshot");
        lose(&disk, ".index");
        let mut log = open(&disk);
        assert_eq!(log.marks().last_stable, log.marks().log_end);
        assert_eq!(word(&put(&mut log, data(1, 1, 1, &["late"]), 7_000)), "ProducerFenced");
    }
}

#[test]
fn a_marker_that_stays_for_its_producer_makes_no_pass_due() {
    let disk = disk();
    let mut log = open(&disk);
    put(&mut log, data(1, 0, 0, &["a"]), 0).expect("taken");
    put(&mut log, end(1, 1, ABORT, 0), 0).expect("taken");
    compact(&mut log, 0);
    let due =
        |log: &mut PartitionLog, now| log.plan_compaction(Timestamp(now), Offset(2), false).expect("plans").is_some();
    assert!(!due(&mut log, 999));
    assert!(due(&mut log, 1_000), "its horizon is over");
    compact(&mut log, 1_000);
    assert!(!due(&mut log, 1_000), "again and again for nothing");
}

#[test]
fn markers_are_no_versions_of_each_other() {
    let disk = disk();
    let mut log = open(&disk);
    for (id, key) in [(1, "a"), (2, "b"), (3, "c")] {
        put(&mut log, data(id, 0, 0, &[key]), 0).expect("taken");
        put(&mut log, end(id, 1, COMMIT, 0), 0).expect("taken");
    }
    let before = layout(&log);
    compact(&mut log, 0);
    compact(&mut log, 10_000);
    assert_eq!(layout(&log), before);
}

#[test]
fn a_marker_with_a_horizon_says_what_it_said() {
    let mut log = open(&disk());
    put(&mut log, data(1, 0, 0, &["a"]), 0).expect("taken");
    put(&mut log, end(1, 1, ABORT, 9), 0).expect("taken");
    compact(&mut log, 500);
    let chunk = log.reader().read_committed(Offset(0), 1 << 20, Offset(2)).expect("reads");
    let batch = chunk.batches.last().expect("the marker");
    assert_eq!(batch.header().delete_horizon(), Some(Timestamp(1_500)));
    let marker = batch.control().expect("a marker");
    assert_eq!((marker.end, marker.coordinator_epoch), (ABORT, CoordinatorEpoch(9)));
    assert_eq!((batch.header().producer_id, batch.header().producer_epoch), (Some(ProducerId(1)), ProducerEpoch(1)));
    // Who has the aborted batch still in a cache is told what became of it.
    assert_eq!(chunk.aborted.len(), 1);
}
