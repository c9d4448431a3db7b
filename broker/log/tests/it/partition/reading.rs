//! What was written is read back, across segments, restarts and chunks.

use levada_log::{Batch, ReadError};
use levada_model::Offset;

use super::{append, batch_at, open, options, read_all};

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
