//! What was written is read back, across segments, restarts and chunks.

use std::sync::Arc;

use levada_log::{Appended, Batch, DiskStorage, PartitionLog, ReadError};
use levada_model::{Offset, Timestamp};

use super::{append, batch_at, batch_of, open, options, read_all, stage};

#[test]
fn what_was_appended_is_read_back_byte_for_byte_also_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("p");
    let small = || levada_log::LogOptions { segment_bytes: 1024, ..options() };
    let (mut log, recovery) = open(&path, small());
    assert_eq!(recovery.scanned_bytes, 0);
    let written: Vec<Batch> = (0..200).map(|n| append(&mut log, batch_at(n, &["one", "two"]), n)).collect();
    assert_eq!(log.marks().log_end, Offset(400));
    assert_eq!(log.marks().synced_end, Offset(400));
    for max_bytes in [1, 300, 5_000, 1 << 20] {
        assert_eq!(read_all(&log, 0, max_bytes), written, "{max_bytes}");
    }
    assert_eq!(read_all(&log, 399, 1), written[199..]);
    drop(log);
    let (log, recovery) = open(&path, small());
    assert_eq!(recovery.cut_bytes, 0);
    assert_eq!(recovery.damage, []);
    assert_eq!(log.marks().log_end, Offset(400));
    assert_eq!(read_all(&log, 0, 700), written);
    assert!(matches!(log.reader().read(Offset(401), 1, Offset(500)), Err(ReadError::BeyondEnd { .. })));
}

#[test]
fn a_clean_close_spares_the_scan_and_loses_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("p");
    let settings = || levada_log::LogOptions { write_ahead_zeros: true, ..options() };
    let (mut log, _) = open(&path, settings());
    let mut written = Vec::new();
    for n in 0..20 {
        written.push(append(&mut log, batch_of(7, 0, n, &["x"]), 5));
        log.prepare_ahead();
    }
    log.close().expect("closes");
    let storage = Arc::new(DiskStorage);
    let (mut log, recovery) = PartitionLog::open(storage, &path, settings(), Timestamp(9), true).expect("opens");
    assert!(recovery.clean);
    assert_eq!(recovery.scanned_bytes, 0);
    assert_eq!(read_all(&log, 0, 100), written);
    let repeat = stage(&mut log, batch_of(7, 0, 19, &["x"]), 10);
    assert_eq!(repeat, Appended::Duplicate { base_offset: Offset(19), timestamp: Timestamp(5) });
    append(&mut log, batch_of(7, 0, 20, &["y"]), 10);
    drop(log);
    let (mut log, recovery) = open(&path, settings());
    assert!(!recovery.clean);
    assert_eq!(log.marks().log_end, Offset(21));
    assert!(matches!(stage(&mut log, batch_of(7, 0, 20, &["y"]), 10), Appended::Duplicate { .. }));
}
