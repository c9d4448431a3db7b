//! Readers of committed records beside a writer that aborts, compacts and truncates under them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use levada_log::{Batch, LogReader, ReadError};

use super::*;

/// Reads from the log start to the end, again and again; every record that counts is of nobody or of an even producer.
fn read_until(reader: &LogReader, bound: &AtomicU64, is_over: &AtomicBool) -> usize {
    let mut rounds = 0;
    while !is_over.load(Ordering::Acquire) || rounds == 0 {
        let mut at = reader.log_start();
        let stable = Offset(bound.load(Ordering::Acquire));
        while at < stable {
            let chunk = match reader.read_committed(at, 400, stable) {
                Err(ReadError::BelowStart { log_start, .. }) => {
                    at = log_start;
                    continue;
                }
                other => other.expect("reads"),
            };
            assert_eq!(chunk.gaps, []);
            let data = chunk.batches.iter().map(Batch::header).filter(|header| !header.is_control());
            for header in data.filter(|header| !chunk.aborted.iter().any(|aborted| aborted.holds(header))) {
                let is_committed = header.producer_id.is_none_or(|id| id.0 % 2 == 0);
                assert!(is_committed, "{header:?} was aborted; listed are {:?}", chunk.aborted);
            }
            assert!(chunk.next_offset > at);
            at = chunk.next_offset;
        }
        rounds += 1;
    }
    rounds
}

#[test]
fn no_reader_sees_an_aborted_record_while_the_log_is_compacted_and_truncated_under_it() {
    let disk = disk();
    let mut log = open(&disk);
    let (bound, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let readers: Vec<_> = (0..2).map(|_| log.reader()).collect();
    thread::scope(|scope| {
        let reading: Vec<_> =
            readers.iter().map(|reader| scope.spawn(|| read_until(reader, &bound, &is_over))).collect();
        // Odd producers abort, even ones commit.
        for round in 0..120_i16 {
            let now = i64::from(round) * 700;
            for id in 1..=4 {
                put(&mut log, data(id, round, 0, &["a", "b"]), now).expect("taken");
            }
            put(&mut log, plain(&["c"]), now).expect("taken");
            for id in [2, 1, 4, 3] {
                let how = if id % 2 == 0 { COMMIT } else { ABORT };
                put(&mut log, end(id, round + 1, how, 0), now).expect("taken");
            }
            bound.store(log.marks().last_stable.0, Ordering::Release);
            if round % 3 == 2 {
                compact(&mut log, now);
            }
            if round % 20 == 19 {
                let middle = log.marks().log_start.0.midpoint(log.marks().log_end.0);
                log.truncate_front(Offset(middle)).expect("truncates");
            }
        }
        is_over.store(true, Ordering::Release);
        for reader in reading {
            assert!(reader.join().expect("sees nothing wrong") > 1);
        }
    });
}
