//! What is derived may be lost, damaged or of an older program, and what it tells is the same; damage in the log itself
//! shows nobody what was aborted.

use levada_log::{Batch, CrashPlan, RecordRef};

use super::history::{Fate, History};
use super::*;

/// A log of several segments whose every batch is synced, with its index and snapshot at the end.
fn settled() -> (SimStorage, History) {
    let disk = disk();
    let (mut log, mut history) = (open(&disk), History::default());
    for round in 0..5_i16 {
        let how = if round % 2 == 0 { ABORT } else { COMMIT };
        let appends = [
            data(1, round, 0, &["a", "b"]),
            data(2, round, 0, &["c"]),
            plain(&["a"]),
            end(1, round + 1, how, 0),
            data(3, 0, i32::from(round), &["open"]),
            end(2, round + 1, ABORT, 0),
        ];
        for append in appends {
            let Ok(Appended::Stored(batch)) = put(&mut log, append, 0) else { panic!("is taken") };
            history.push(&batch);
        }
    }
    let Ok(Appended::Stored(batch)) = put(&mut log, end(3, 1, ABORT, 0), 0) else { panic!("is taken") };
    history.push(&batch);
    log.settle().expect("settles");
    (disk.restart(), history)
}

fn files(disk: &SimStorage, kind: &str) -> Vec<String> {
    disk.paths().into_iter().filter(|path| path.ends_with(kind)).collect()
}

fn copy(disk: &SimStorage) -> SimStorage {
    disk.crash(&CrashPlan::all_kept())
}

#[test]
fn any_byte_of_any_index_or_snapshot_may_be_wrong() {
    let (disk, history) = settled();
    let mut flips = 0;
    for path in files(&disk, ".index").iter().chain(&files(&disk, ".snapshot")) {
        for position in 0..disk.contents(path).len() {
            let disk = copy(&disk);
            disk.corrupt(path, position as u64, 0x41);
            let log = open(&disk);
            history.agrees(&log).unwrap_or_else(|error| panic!("{path} at {position}: {error}"));
            flips += 1;
        }
    }
    assert!(flips > 500, "a vacuous proof: {flips}");
}

#[test]
fn any_index_or_snapshot_may_be_cut_off_anywhere_or_missing() {
    let (disk, history) = settled();
    for path in files(&disk, ".index").iter().chain(&files(&disk, ".snapshot")) {
        let whole = disk.contents(path);
        for length in 0..whole.len() {
            let disk = copy(&disk);
            disk.overwrite(path, &whole[..length]);
            let log = open(&disk);
            history.agrees(&log).unwrap_or_else(|error| panic!("{path} of {length} bytes: {error}"));
        }
        let disk = copy(&disk);
        disk.remove(path);
        history.agrees(&open(&disk)).unwrap_or_else(|error| panic!("without {path}: {error}"));
    }
}

#[test]
fn a_chunk_that_lies_about_where_it_ends_is_found_out() {
    const TO_AT: usize = 24;
    const POSITION_AT: usize = 32;
    const OPEN_COUNT_AT: usize = 40;
    let (whole, history) = settled();
    let mut lies = 0;
    for path in files(&whole, ".index") {
        let honest = whole.contents(&path);
        let is_chunk = |at: &usize| honest[*at..].starts_with(b"LVTX");
        for start in (0..honest.len()).filter(is_chunk) {
            let number = |at| u32::from_be_bytes(honest[at..at + 4].try_into().expect("four"));
            let (aborted, opened) = (number(start + POSITION_AT + 4), number(start + OPEN_COUNT_AT));
            let end = start + OPEN_COUNT_AT + 4 + 33 * aborted as usize + 18 * opened as usize;
            for (field, change) in [(TO_AT + 7, 1), (TO_AT + 7, 3), (POSITION_AT + 3, 1), (POSITION_AT + 3, 0x3d)] {
                let mut lie = honest.clone();
                lie[start + field] ^= change;
                let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &lie[start..end]);
                lie[end..end + 4].copy_from_slice(&u32::try_from(crc).expect("32 bits").to_be_bytes());
                let disk = copy(&whole);
                disk.overwrite(&path, &lie);
                let log = open(&disk);
                let name = format!("{path}, chunk at {start}, byte {field} ^ {change}");
                history.agrees(&log).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(log.reader().damage(), [], "{name}");
                lies += 1;
            }
        }
    }
    assert!(lies > 10, "a vacuous proof: {lies}");
}

/// All committed records that a reader gets, around damage.
fn committed(log: &PartitionLog) -> Vec<RecordRef> {
    let (reader, marks) = (log.reader(), log.marks());
    let (mut at, mut records) = (marks.log_start, Vec::new());
    while at < marks.last_stable {
        let chunk = reader.read_committed(at, 300, marks.last_stable).expect("reads");
        let counts = |batch: &&Batch| !chunk.aborted.iter().any(|aborted| aborted.holds(batch.header()));
        let data = chunk.batches.iter().filter(counts).filter(|batch| !batch.header().is_control());
        records.extend(data.flat_map(|batch| batch.records().expect("unpacks")).map(|record| record.expect("whole")));
        at = chunk.next_offset;
    }
    records
}

#[test]
fn damage_in_the_log_shows_nobody_what_was_aborted_with_or_without_what_is_derived() {
    let (whole, history) = settled();
    let mut damaged = 0;
    for path in files(&whole, ".log") {
        for position in (0..whole.contents(&path).len()).step_by(7) {
            for lost in ["none", ".index", ".snapshot"] {
                let disk = copy(&whole);
                disk.corrupt(&path, position as u64, 0x41);
                lose(&disk, lost);
                let log = open(&disk);
                for record in committed(&log) {
                    let index = history.0.partition_point(|entry| entry.header.next_offset() <= record.offset);
                    assert_eq!(history.fate(index), Fate::Counts, "{path} at {position}, no {lost}: {record:?}");
                }
                if log.reader().damage_count() > 0 {
                    damaged += 1;
                }
            }
        }
    }
    assert!(damaged > 200, "a vacuous proof: {damaged}");
}

#[test]
fn a_lost_marker_ends_compaction_since_it_may_have_been_a_commit() {
    let disk = disk();
    let mut log = open(&disk);
    put(&mut log, data(1, 0, 0, &["a"]), 0).expect("taken");
    roll(&mut log);
    put(&mut log, end(1, 1, COMMIT, 0), 0).expect("taken");
    put(&mut log, plain(&["b"]), 0).expect("taken");
    log.settle().expect("settles");
    drop(log);
    let disk = disk.restart();
    let newest = files(&disk, ".log").pop().expect("a segment");
    disk.corrupt(newest, 30, 1);
    lose(&disk, ".index");
    let mut log = open(&disk);
    assert_eq!(committed(&log).len(), 1, "of what the marker ended nobody knows whether it counts");
    let plan = log.plan_compaction(Timestamp(0), Offset(3), false).expect("plans").expect("is due");
    let error = plan.run(&AtomicBool::new(false)).err().expect("cannot know");
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[test]
fn a_snapshot_of_the_version_before_transactions_is_read() {
    let disk = disk();
    let mut log = open(&disk);
    let idempotent = |sequence| {
        let producer = Some((ProducerId(9), ProducerEpoch(2), Sequence(sequence)));
        let batch = batch(NewBatch { producer, ..NewBatch::default() }, &["a"]);
        Append { batch, check: SequenceCheck::Producer, expected_offset: None }
    };
    put(&mut log, idempotent(0), 0).expect("taken");
    put(&mut log, idempotent(1), 0).expect("taken");
    log.settle().expect("settles");
    drop(log);
    let disk = disk.restart();
    let path = files(&disk, ".snapshot").pop().expect("a snapshot");
    // The second version adds 9 bytes to a producer without transactions, which end before the CRC.
    let mut old = disk.contents(&path);
    old[5] = 1;
    old.truncate(old.len() - 13);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &old);
    old.extend(u32::try_from(crc).expect("32 bits").to_be_bytes());
    disk.overwrite(&path, &old);
    // Were it not read, the log would tell nothing: its first segment is gone.
    files(&disk, ".log").iter().for_each(|path| disk.remove(path));
    let mut log = open(&disk);
    assert_eq!(word(&put(&mut log, idempotent(1), 0)), "duplicate of 1");
    assert_eq!(word(&put(&mut log, idempotent(3), 0)), "OutOfOrderSequence");
    assert_eq!(log.open_transactions(), []);
}

#[test]
fn the_index_of_a_log_without_transactions_is_as_it_always_was() {
    let disk = disk();
    let mut log = open(&disk);
    for _ in 0..20 {
        put(&mut log, plain(&["a"]), 0).expect("taken");
    }
    log.settle().expect("settles");
    let has_transactions = |disk: &SimStorage| {
        files(disk, ".index").iter().any(|path| disk.contents(path).windows(4).any(|bytes| bytes == b"LVTX"))
    };
    assert!(files(&disk, ".index").len() > 1 && !has_transactions(&disk));
    // The first transaction in a segment with such an index.
    drop(log);
    let disk = disk.restart();
    let mut log = open(&disk);
    put(&mut log, data(1, 0, 0, &["a"]), 0).expect("taken");
    log.settle().expect("settles");
    assert!(has_transactions(&disk));
    drop(log);
    let disk = disk.restart();
    let mut log = open(&disk);
    put(&mut log, end(1, 1, ABORT, 0), 0).expect("taken");
    let aborted = log.reader().aborted(Offset(0), log.marks().log_end).expect("reads");
    assert_eq!(aborted.iter().map(|a| (a.first_offset.0, a.last_offset.0)).collect::<Vec<_>>(), [(20, 21)]);
}
