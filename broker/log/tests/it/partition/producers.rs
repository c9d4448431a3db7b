//! What a partition remembers of producers, through the whole log: retries, fencing, keys, conditional appends.

use levada_log::{Append, AppendError, Appended, LogOptions, PartitionLog, SequenceCheck, derived_producer_id};
use levada_model::{LeaderEpoch, Offset, ProducerId, Sequence, Timestamp};

use super::{append, batch_at, batch_of, open, options, stage};

fn refused(log: &mut PartitionLog, epoch: i16, sequence: i32, now: i64) -> AppendError {
    let batch = batch_of(7, epoch, sequence, &["x"]);
    let append = Append { batch, check: SequenceCheck::Producer, expected_offset: None };
    log.stage(append, LeaderEpoch(0), Timestamp(now)).expect_err("refused")
}

fn repeat_of(appended: &Appended) -> Option<Offset> {
    match appended {
        Appended::Duplicate { base_offset, .. } => Some(*base_offset),
        Appended::Stored(_) => None,
    }
}

#[test]
fn a_batch_that_is_staged_and_not_yet_written_is_already_a_duplicate() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut log, _) = open(&dir.path().join("p"), options());
    assert_eq!(repeat_of(&stage(&mut log, batch_of(7, 0, 0, &["x"]), 1)), None);
    assert_eq!(repeat_of(&stage(&mut log, batch_of(7, 0, 0, &["x"]), 2)), Some(Offset(0)));
    assert!(matches!(
        refused(&mut log, 0, 2, 3),
        AppendError::OutOfOrderSequence { expected: Sequence(1), got: Sequence(2), producer_id: ProducerId(7) }
    ));
    log.write(Timestamp(3)).expect("writes");
    assert_eq!(log.marks().log_end, Offset(1), "nothing refused is stored");
}

#[test]
fn a_higher_epoch_begins_at_zero_and_fences_the_lower() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut log, _) = open(&dir.path().join("p"), options());
    append(&mut log, batch_of(7, 0, 0, &["x"]), 1);
    let wrong = refused(&mut log, 1, 1, 1);
    assert!(matches!(wrong, AppendError::OutOfOrderSequence { expected: Sequence(0), .. }), "{wrong}");
    append(&mut log, batch_of(7, 1, 0, &["x"]), 1);
    assert!(matches!(refused(&mut log, 0, 1, 1), AppendError::ProducerFenced { .. }));
}

/// PC-38: idle beyond its expiry, or its records removed, a producer goes on, and a resend is recognised.
#[test]
fn a_producer_outlives_its_records_and_ends_by_its_own_clock_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("p");
    let settings = || LogOptions { segment_bytes: 1024, producer_expiration_ms: 60_000, ..options() };
    let (mut log, _) = open(&path, settings());
    for sequence in 0..7 {
        append(&mut log, batch_of(7, 0, sequence, &["x"]), 1_000);
    }
    log.truncate_front(Offset(7)).expect("truncates");
    log.maintain(Timestamp(50_000), Offset(7)).expect("keeps house");
    assert_eq!(log.reader().log_start(), Offset(7));
    drop(log);
    // After a restart with no record left: still the same answer.
    let (mut log, _) = open(&path, settings());
    assert_eq!(repeat_of(&stage(&mut log, batch_of(7, 0, 6, &["x"]), 50_000)), Some(Offset(6)));
    assert!(matches!(refused(&mut log, 0, 9, 50_000), AppendError::OutOfOrderSequence { .. }));
    append(&mut log, batch_of(7, 0, 7, &["x"]), 50_000);
    // Idle beyond the expiry, any sequence is taken, and its resend recognised.
    assert_eq!(repeat_of(&stage(&mut log, batch_of(7, 0, 14, &["x"]), 110_001)), None);
    assert_eq!(repeat_of(&stage(&mut log, batch_of(7, 0, 14, &["x"]), 110_002)), Some(Offset(8)));
}

/// PC-31: the same key gets the same answer before and after restarts and the removal of all records.
#[test]
fn an_idempotency_key_is_remembered_by_the_append_itself() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("p");
    let id = derived_producer_id(0xfeed_beef_feed_beef).0;
    let keyed = |log: &mut PartitionLog, digest: i32, now: i64| {
        let batch = batch_of(id, 12, digest, &["body"]);
        let append = Append { batch, check: SequenceCheck::Key, expected_offset: None };
        log.stage(append, LeaderEpoch(0), Timestamp(now))
    };
    let (mut log, _) = open(&path, options());
    append(&mut log, batch_at(0, &["before"]), 0);
    assert_eq!(repeat_of(&keyed(&mut log, 4711, 10).expect("taken")), None);
    log.write(Timestamp(10)).expect("writes");
    log.sync().expect("syncs");
    assert_eq!(repeat_of(&keyed(&mut log, 4711, 20).expect("a repeat")), Some(Offset(1)));
    assert!(matches!(keyed(&mut log, 4712, 20), Err(AppendError::KeyReused)));
    drop(log);
    let (mut log, _) = open(&path, options());
    assert_eq!(repeat_of(&keyed(&mut log, 4711, 20).expect("a repeat")), Some(Offset(1)));
    log.truncate_front(Offset(2)).expect("truncates");
    log.close().expect("closes");
    let (mut log, _) = open(&path, options());
    assert_eq!(repeat_of(&keyed(&mut log, 4711, 20).expect("a repeat")), Some(Offset(1)));
}

#[test]
fn a_conditional_append_is_refused_with_the_right_offset_and_its_retry_is_a_repeat() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut log, _) = open(&dir.path().join("p"), options());
    let mut at = |expected, sequence| {
        let batch = batch_of(7, 0, sequence, &["x", "y"]);
        let append = Append { batch, check: SequenceCheck::Producer, expected_offset: Some(Offset(expected)) };
        log.stage(append, LeaderEpoch(0), Timestamp(0))
    };
    assert!(matches!(at(1, 0), Err(AppendError::OffsetMismatch { next_offset: Offset(0) })));
    assert_eq!(repeat_of(&at(0, 0).expect("taken")), None);
    assert_eq!(repeat_of(&at(0, 0).expect("the same again")), Some(Offset(0)));
    assert!(matches!(at(0, 2), Err(AppendError::OffsetMismatch { next_offset: Offset(2) })));
    assert_eq!(repeat_of(&at(2, 2).expect("taken")), None);
}

#[test]
fn leader_epochs_never_fall() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("p");
    let (mut log, _) = open(&path, options());
    let mut stamped = |epoch| {
        let append = Append { batch: batch_at(0, &["x"]), check: SequenceCheck::Producer, expected_offset: None };
        match log.stage(append, LeaderEpoch(epoch), Timestamp(0)).expect("taken") {
            Appended::Stored(batch) => batch.header().leader_epoch.0,
            Appended::Duplicate { .. } => panic!("no producer, no repeat"),
        }
    };
    assert_eq!([stamped(2), stamped(1), stamped(5), stamped(4)], [2, 2, 5, 5]);
    log.close().expect("closes");
    let (log, _) = open(&path, options());
    let at = |offset| log.reader().epoch_at(Offset(offset)).map(|epoch| epoch.0);
    assert_eq!([at(0), at(1), at(2), at(3), at(4)], [Some(2), Some(2), Some(5), Some(5), Some(5)]);
}
