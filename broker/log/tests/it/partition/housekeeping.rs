//! Rolls, retention, truncation, and what they cost an idle partition.

use std::path::Path;

use levada_log::{LogOptions, PartitionLog, ReadError, Retained};
use levada_model::{Offset, Timestamp};

use super::{append, batch_at, open, options, read_all};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Long after any time of change that the file system may tell.
const NOW: i64 = 4_000_000_000_000;

fn logs(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().expect("UTF-8")).collect();
    names.retain(|name| name.ends_with(".log"));
    names.sort();
    names
}

fn maintain(log: &mut PartitionLog, now: i64) -> Retained {
    let end = log.marks().log_end;
    log.maintain(Timestamp(now), end).expect("keeps house")
}

#[test]
fn the_active_segment_is_rolled_when_its_first_append_is_old_and_never_when_empty() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("p");
    let settings = || LogOptions { segment_ms: 100, ..options() };
    let (mut log, _) = open(&path, settings());
    maintain(&mut log, 1_000);
    assert_eq!(logs(&path), [""; 0], "nothing was written, so there is no file");
    append(&mut log, batch_at(0, &["x"]), 1_000);
    append(&mut log, batch_at(0, &["y"]), 1_090);
    maintain(&mut log, 1_100);
    assert_eq!(logs(&path).len(), 1);
    log.close().expect("closes");
    // A restart does not make it young again.
    let (mut log, _) = open(&path, settings());
    maintain(&mut log, 1_101);
    assert_eq!(logs(&path), ["00000000000000000000.log", "00000000000000000002.log"]);
    maintain(&mut log, 9_999);
    assert_eq!(logs(&path).len(), 2);
}

#[test]
fn retention_by_size_removes_oldest_segments_while_all_hold_more_and_spares_the_active_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("p");
    let (mut log, _) = open(&path, LogOptions { segment_bytes: 1024, ..options() });
    (0..60).for_each(|n| drop(append(&mut log, batch_at(n, &["0123456789"; 4]), n)));
    let reader = log.reader();
    let before = reader.size_bytes();
    let held = logs(&path).len();
    log.set_options(LogOptions { segment_bytes: 1024, retention_bytes: Some(before / 2), ..options() });
    // What must not be removed is not.
    assert_eq!(log.maintain(Timestamp(60), Offset(0)).expect("keeps house"), Retained::default());
    let retained = maintain(&mut log, 60);
    assert!(retained.segments > 1 && retained.bytes == before - reader.size_bytes(), "{retained:?}");
    assert!(reader.size_bytes() <= before / 2 && reader.size_bytes() + 1024 > before / 2);
    assert_eq!(logs(&path).len(), held - retained.segments);
    let start = reader.log_start();
    assert!(
        matches!(reader.read(Offset(0), 1, Offset(1)), Err(ReadError::BelowStart { log_start, .. }) if log_start == start)
    );
    assert_eq!(read_all(&log, start.0, 4096)[0].header().base_offset, start);
    log.set_options(LogOptions { segment_bytes: 1024, retention_bytes: Some(0), ..options() });
    maintain(&mut log, 60);
    assert_eq!(logs(&path).len(), 1, "the active one stays");
    drop(log);
    let (log, recovery) = open(&path, options());
    assert_eq!((recovery.damage, log.marks().log_end), (vec![], Offset(240)));
    assert!(log.marks().log_start > start);
}

#[test]
fn retention_by_time_counts_from_the_later_of_largest_timestamp_and_last_append() {
    let kept = |timestamp: i64, appended: i64| {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("p");
        let settings = LogOptions { segment_ms: 0, retention_ms: Some(14 * DAY_MS), ..options() };
        let (mut log, _) = open(&path, settings);
        append(&mut log, batch_at(timestamp, &["x"]), appended);
        maintain(&mut log, appended + 1);
        assert_eq!(logs(&path).len(), 2, "rolled");
        maintain(&mut log, NOW).segments == 0
    };
    assert!(!kept(NOW - 20 * DAY_MS, NOW - 15 * DAY_MS), "both are old");
    assert!(kept(NOW - 20 * DAY_MS, NOW - 13 * DAY_MS), "old events that arrived lately");
    assert!(kept(NOW - 13 * DAY_MS, NOW - 20 * DAY_MS), "its timestamp was ahead, and is young by now");
    assert!(!kept(NOW + 9999 * DAY_MS, NOW - 15 * DAY_MS), "a time from the future keeps nothing for ever");
    assert!(kept(NOW + 9999 * DAY_MS, NOW - 13 * DAY_MS));
}

#[test]
fn truncation_from_the_front_holds_at_once_within_a_segment_and_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("p");
    let (mut log, _) = open(&path, options());
    (0..10).for_each(|n| drop(append(&mut log, batch_at(n, &["a", "b", "c"]), n)));
    let reader = log.reader();
    assert_eq!(log.truncate_front(Offset(4)).expect("truncates"), Offset(4));
    assert_eq!(log.truncate_front(Offset(2)).expect("a start never goes back"), Offset(4));
    assert!(matches!(reader.read(Offset(3), 1, Offset(9)), Err(ReadError::BelowStart { .. })));
    let chunk = reader.read(Offset(4), 1, Offset(9)).expect("reads");
    assert_eq!(chunk.batches[0].header().base_offset, Offset(3), "the batch that holds it");
    assert_eq!(reader.offset_for_time(Timestamp(0), Offset(30)).expect("reads"), Some((Offset(4), Timestamp(1))));
    drop(log);
    let (mut log, _) = open(&path, options());
    assert_eq!(log.marks().log_start, Offset(4));
    assert_eq!(log.truncate_front(Offset(999)).expect("truncates"), Offset(30));
    assert_eq!(log.reader().size_bytes(), 0);
    assert_eq!(logs(&path), ["00000000000000000030.log"]);
    let marks = log.marks();
    assert_eq!((marks.log_start, marks.log_end), (Offset(30), Offset(30)));
    append(&mut log, batch_at(1, &["x"]), 1);
    assert_eq!(read_all(&log, 30, 1).len(), 1);
}

#[test]
fn a_reader_goes_on_undisturbed_while_the_writer_appends_and_retention_removes() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = LogOptions { segment_bytes: 4096, retention_bytes: Some(40_000), ..options() };
    let (mut log, _) = open(&dir.path().join("p"), settings);
    append(&mut log, batch_at(0, &["first"]), 0);
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let reader = log.reader();
                scope.spawn(move || {
                    let (mut at, mut read) = (Offset(0), 0);
                    while read < 2_000 {
                        match reader.read(at, 3_000, Offset(u64::MAX)) {
                            Ok(chunk) => {
                                assert_eq!(chunk.gaps, []);
                                for batch in chunk.batches {
                                    assert!(batch.header().next_offset() > at);
                                    at = batch.header().next_offset();
                                    read += 1;
                                }
                            }
                            Err(ReadError::BelowStart { log_start, .. }) => at = log_start,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        let writer = scope.spawn(move || {
            let mut n = 0;
            while is_done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                n += 1;
                super::stage(&mut log, batch_at(n, &["some text", "more text"]), n);
                log.write(Timestamp(n)).expect("writes");
                maintain(&mut log, n);
            }
        });
        readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
        drop(done);
        writer.join().expect("the writer");
    });
}
