//! What is taken and what is refused, and how far a reader of committed records comes, case by case.

use levada_log::{Batch, LogReader, ReadChunk};

use super::*;

/// What a reader of committed records gets, to the last stable offset.
fn committed(log: &PartitionLog, from: u64) -> ReadChunk {
    log.reader().read_committed(Offset(from), 1 << 20, log.marks().last_stable).expect("reads")
}

/// How many records of a chunk count.
fn counting(chunk: &ReadChunk) -> u32 {
    let is_aborted = |batch: &&Batch| chunk.aborted.iter().any(|aborted| aborted.holds(batch.header()));
    let data = chunk.batches.iter().filter(|batch| !batch.header().is_control());
    data.filter(|batch| !is_aborted(batch)).map(|batch| batch.header().record_count).sum()
}

fn is_stored(answer: &Result<Appended, AppendError>) -> bool {
    matches!(answer, Ok(Appended::Stored(_)))
}

#[test]
fn pc_37_a_position_moves_past_markers_and_past_what_was_aborted() {
    for (how, records) in [(COMMIT, 1), (ABORT, 0)] {
        let disk = disk();
        let mut log = open(&disk);
        put(&mut log, data(1, 0, 0, &["a"]), 0).expect("taken");
        assert_eq!((log.marks().log_end, log.marks().last_stable), (Offset(1), Offset(0)));
        assert_eq!(committed(&log, 0).next_offset, Offset(0));
        put(&mut log, end(1, 1, how, 0), 0).expect("taken");
        for log in [&log, &open(&disk.restart())] {
            let (marks, chunk) = (log.marks(), committed(log, 0));
            assert_eq!((marks.log_end, marks.last_stable, marks.synced_stable), (Offset(2), Offset(2), Offset(2)));
            assert_eq!((counting(&chunk), chunk.next_offset), (records, Offset(2)));
            let behind = committed(log, 1);
            assert_eq!((counting(&behind), behind.next_offset), (0, Offset(2)), "only the marker is left");
            assert_eq!(committed(log, 2).next_offset, Offset(2));
        }
    }
}

#[test]
fn pc_38_a_producer_that_was_idle_or_lost_its_records_goes_on_and_stores_nothing_twice() {
    let idempotent = |sequence, records| {
        let producer = Some((ProducerId(1), ProducerEpoch(0), Sequence(sequence)));
        let batch = batch(NewBatch { producer, ..NewBatch::default() }, &vec!["key"; records]);
        Append { batch, check: SequenceCheck::Producer, expected_offset: None }
    };
    let disk = disk();
    let mut log = open(&disk);
    log.set_options(LogOptions { producer_expiration_ms: 60_000, ..options() });
    assert!(is_stored(&put(&mut log, idempotent(0, 7), 0)));
    log.maintain(Timestamp(60_001), Offset(0)).expect("keeps house");
    assert!(is_stored(&put(&mut log, idempotent(7, 8), 60_001)));
    assert_eq!(word(&put(&mut log, idempotent(7, 8), 60_002)), "duplicate of 7");
    // All its records are deleted, and it goes on before it is forgotten.
    log.truncate_front(Offset(15)).expect("truncates");
    assert_eq!(word(&put(&mut log, idempotent(7, 8), 60_003)), "duplicate of 7");
    assert!(is_stored(&put(&mut log, idempotent(15, 1), 60_004)));
    drop(log);
    let mut log = open(&disk.restart());
    assert_eq!(word(&put(&mut log, idempotent(15, 1), 60_005)), "duplicate of 15");
    assert_eq!(log.marks().log_end, Offset(16));
}

#[test]
fn a_transaction_outlives_the_expiry_of_its_producer_and_every_restart() {
    let disk = disk();
    let mut log = open(&disk);
    put(&mut log, data(1, 0, 0, &["a"]), 0).expect("taken");
    let late = options().producer_expiration_ms * 3;
    log.maintain(Timestamp(late), Offset(0)).expect("keeps house");
    log.settle().expect("settles");
    drop(log);
    for lost in ["none", ".snapshot", ".index"] {
        let disk = disk.restart();
        lose(&disk, lost);
        let mut log = open(&disk);
        let open = log.open_transactions();
        assert_eq!((open.len(), open[0].producer_id, open[0].first_offset), (1, ProducerId(1), Offset(0)));
        assert_eq!(log.marks().last_stable, Offset(0));
        assert_eq!(word(&put(&mut log, data(1, 0, 0, &["a"]), late)), "duplicate of 0");
        assert!(is_stored(&put(&mut log, data(1, 0, 1, &["b"]), late)));
        assert!(is_stored(&put(&mut log, end(1, 1, COMMIT, 0), late)));
        assert_eq!(log.marks().last_stable, Offset(3));
    }
}

#[test]
fn a_marker_ends_nothing_before_it_is_written_and_nothing_for_good_before_it_is_synced() {
    let disk = disk();
    let mut log = open(&disk);
    put(&mut log, data(1, 0, 0, &["a"]), 0).expect("taken");
    let stable = |log: &PartitionLog| (log.marks().last_stable.0, log.marks().synced_stable.0);
    log.stage(end(1, 1, COMMIT, 0), LeaderEpoch(0), Timestamp(0)).expect("taken");
    assert_eq!(stable(&log), (0, 0));
    log.write(Timestamp(0)).expect("writes");
    assert_eq!(stable(&log), (2, 0));
    log.sync().expect("syncs");
    assert_eq!(stable(&log), (2, 2));
    log.stage(data(2, 0, 0, &["a"]), LeaderEpoch(0), Timestamp(0)).expect("taken");
    assert_eq!((stable(&log), log.open_transactions().len()), ((2, 2), 1));
}

#[test]
fn a_roll_in_the_middle_of_a_group_syncs_what_is_stable_there() {
    let long = "k".repeat(855);
    for is_open in [true, false] {
        let mut log = open(&disk());
        let first = if is_open { data(1, 0, 0, &["a"]) } else { plain(&["a"]) };
        for append in [first, plain(&["b"]), plain(&[&long]), end(1, 1, COMMIT, 0)] {
            log.stage(append, LeaderEpoch(0), Timestamp(0)).expect("taken");
        }
        log.write(Timestamp(0)).expect("writes");
        let marks = log.marks();
        assert_eq!((marks.synced_end, marks.last_stable), (Offset(2), Offset(4)));
        assert_eq!(marks.synced_stable, Offset(if is_open { 0 } else { 2 }));
    }
}

#[test]
fn a_fenced_epoch_stays_fenced_after_restarts_and_without_snapshots() {
    let disk = disk();
    let mut log = open(&disk);
    put(&mut log, data(1, 0, 0, &["a"]), 0).expect("taken");
    put(&mut log, end(1, 1, ABORT, 7), 0).expect("taken");
    log.settle().expect("settles");
    drop(log);
    for lost in ["none", ".snapshot"] {
        let disk = disk.restart();
        lose(&disk, lost);
        let mut log = open(&disk);
        assert_eq!(word(&put(&mut log, data(1, 0, 1, &["b"]), 0)), "ProducerFenced");
        assert_eq!(word(&put(&mut log, end(1, 2, COMMIT, 6), 0)), "CoordinatorFenced");
        assert_eq!(word(&put(&mut log, end(1, 1, ABORT, 7), 0)), "duplicate of 1");
        assert_eq!(word(&put(&mut log, end(1, 1, COMMIT, 7), 0)), "TransactionEnded");
        assert_eq!(word(&put(&mut log, data(1, 1, 1, &["b"]), 0)), "OutOfOrderSequence");
        assert_eq!(word(&put(&mut log, data(1, 1, 0, &["b"]), 0)), "stored at 2");
        assert_eq!(word(&put(&mut log, plain(&["c"]), 0)), "stored at 3");
        assert_eq!(log.marks().last_stable, Offset(2));
    }
}

#[test]
fn a_transaction_that_spans_segments_is_listed_wherever_one_looks() {
    let disk = disk();
    let mut log = open(&disk);
    let listed = |reader: &LogReader, from, to| {
        let found = reader.aborted(Offset(from), Offset(to)).expect("reads");
        found.iter().map(|a| (a.producer_id.0, a.first_offset.0, a.last_offset.0)).collect::<Vec<_>>()
    };
    put(&mut log, data(1, 0, 0, &["a"]), 0).expect("taken");
    for _ in 0..5 {
        roll(&mut log);
        put(&mut log, plain(&["x"]), 0).expect("taken");
    }
    put(&mut log, data(2, 0, 0, &["b"]), 0).expect("taken");
    put(&mut log, end(1, 1, ABORT, 0), 0).expect("taken");
    roll(&mut log);
    put(&mut log, end(2, 1, ABORT, 0), 0).expect("taken");
    let again = disk.restart();
    lose(&again, ".index");
    for log in [&log, &open(&disk.restart()), &open(&again)] {
        let reader = log.reader();
        for from in 0..=7 {
            assert_eq!(listed(&reader, from, from + 1)[0], (1, 0, 7), "from {from}");
        }
        assert_eq!(listed(&reader, 0, 6), [(1, 0, 7)]);
        assert_eq!(listed(&reader, 0, 9), [(1, 0, 7), (2, 6, 8)]);
        assert_eq!(listed(&reader, 8, 9), [(2, 6, 8)]);
        assert_eq!(listed(&reader, 3, 3), []);
    }
}

#[test]
fn a_list_is_read_from_where_the_range_lies_and_not_from_the_whole_log() {
    let disk = disk();
    let mut log = open(&disk);
    for round in 0..20 {
        put(&mut log, data(1, round, 0, &["a"]), 0).expect("taken");
        put(&mut log, end(1, round + 1, ABORT, 0), 0).expect("taken");
        roll(&mut log);
    }
    drop(log);
    let disk = disk.restart();
    let log = open(&disk);
    // Only the segments that the range needs are there.
    let needed = |path: &&String| ["00000.", "00004."].iter().any(|base| path.contains(base));
    let newest = format!("{:020}", 40);
    let paths = disk.paths();
    let others = paths.iter().filter(|path| !needed(path) && !path.contains(&newest));
    others.filter(|path| path.ends_with(".log")).for_each(|path| disk.remove(path));
    let found = log.reader().aborted(Offset(4), Offset(6)).expect("reads no more than it needs");
    assert_eq!(found.iter().map(|a| a.first_offset.0).collect::<Vec<_>>(), [4]);
    log.reader().aborted(Offset(4), Offset(7)).expect_err("this needs the next");
}

#[test]
fn a_batch_without_a_sequence_gets_the_next_and_those_that_have_one_go_on_behind_it() {
    let disk = disk();
    let mut log = open(&disk);
    let assigned = |epoch, keys: &[&str]| Append { check: SequenceCheck::Assigned, ..data(1, epoch, 0, keys) };
    let given = |answer: Result<Appended, AppendError>| match answer {
        Ok(Appended::Stored(batch)) => batch.header().base_sequence.0,
        other => panic!("{other:?}"),
    };
    assert_eq!(given(put(&mut log, assigned(0, &["a", "b"]), 0)), 0);
    assert_eq!(given(put(&mut log, assigned(0, &["a", "b"]), 0)), 2, "it is no repeat, whatever it holds");
    assert_eq!(given(put(&mut log, data(1, 0, 4, &["c"]), 0)), 4);
    drop(log);
    let mut log = open(&disk.restart());
    assert_eq!(word(&put(&mut log, data(1, 0, 2, &["a", "b"]), 0)), "duplicate of 2");
    assert_eq!(given(put(&mut log, assigned(0, &["d"]), 0)), 5);
    put(&mut log, end(1, 1, COMMIT, 0), 0).expect("taken");
    assert_eq!(word(&put(&mut log, assigned(0, &["e"]), 0)), "ProducerFenced");
    assert_eq!(given(put(&mut log, assigned(1, &["e"]), 0)), 0, "each transaction begins anew");
    assert_eq!(word(&put(&mut log, assigned(2, &["f"]), 0)), "TransactionOpen");
    let chunk = log.reader().read(Offset(0), 1 << 20, log.marks().log_end).expect("sound");
    assert_eq!((chunk.gaps, chunk.batches.len()), (vec![], 6));
}

#[test]
fn a_time_is_found_at_a_record_that_counts_and_at_no_marker() {
    let mut log = open(&disk());
    let at = |mut append: Append, time| {
        append.batch.set_append_time(Timestamp(time));
        append
    };
    put(&mut log, at(data(1, 0, 0, &["a"]), 5), 0).expect("taken");
    put(&mut log, at(data(2, 0, 0, &["b"]), 6), 0).expect("taken");
    put(&mut log, at(end(1, 1, ABORT, 0), 7), 0).expect("taken");
    put(&mut log, at(end(2, 1, COMMIT, 0), 8), 0).expect("taken");
    put(&mut log, at(plain(&["c"]), 9), 0).expect("taken");
    let (reader, end) = (log.reader(), log.marks().last_stable);
    let told = |found: Result<Option<(Offset, Timestamp)>, _>| found.expect("reads").map(|(offset, _)| offset.0);
    for (time, any, committed) in [(5, 0, 1), (6, 1, 1), (7, 4, 4), (8, 4, 4), (9, 4, 4)] {
        assert_eq!(told(reader.offset_for_time(Timestamp(time), end)), Some(any), "{time}");
        assert_eq!(told(reader.committed_offset_for_time(Timestamp(time), end)), Some(committed), "{time}");
    }
    assert_eq!(told(reader.committed_offset_for_time(Timestamp(10), end)), None);
}

#[test]
fn control_batches_are_taken_as_markers_alone() {
    let mut log = open(&disk());
    let marker = end(1, 1, COMMIT, 0);
    let stray = Append { check: SequenceCheck::Producer, ..marker };
    let staged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        drop(log.stage(stray, LeaderEpoch(0), Timestamp(0)));
    }));
    staged.expect_err("the owner's bug");
}
