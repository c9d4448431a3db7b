//! Transactions in the log: what is open, what was aborted, who is fenced, and that no crash, damage or compaction changes
//! that.

mod compacting;
mod crash;
mod derived;
mod history;
mod life;
mod planted;
mod reading;
mod rules;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use levada_log::{
    Append, AppendError, Appended, BatchBuf, BatchBuilder, CompactionOptions, CompactionPass, CoordinatorEpoch,
    LogOptions, Marker, NewBatch, PartitionLog, PlantedFaults, SequenceCheck, SimStorage, TransactionEnd,
};
use levada_model::{LeaderEpoch, ManualClock, Offset, ProducerEpoch, ProducerId, Record, Sequence, Timestamp};

const DIR: &str = "/p";
const COMMIT: TransactionEnd = TransactionEnd::Commit;
const ABORT: TransactionEnd = TransactionEnd::Abort;

/// Small segments, of which nothing goes by itself; cleaned whenever it is asked for.
fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 1024,
        segment_ms: i64::MAX,
        retention_bytes: None,
        retention_ms: None,
        producer_expiration_ms: 1_000_000,
        write_ahead_zeros: true,
        compaction: Some(CompactionOptions {
            memory_bytes: 1 << 20,
            min_cleanable_dirty_ratio: 0.0,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            delete_retention_ms: 1000,
        }),
        retains: true,
    }
}

fn disk() -> SimStorage {
    SimStorage::with_block_bytes(Arc::new(ManualClock::at(Timestamp(0))), 512)
}

fn open(disk: &SimStorage) -> PartitionLog {
    open_with(disk, PlantedFaults::default())
}

fn open_with(disk: &SimStorage, faults: PlantedFaults) -> PartitionLog {
    let storage = Arc::new(disk.clone());
    PartitionLog::open_with_faults(storage, Path::new(DIR), options(), Timestamp(0), false, faults).expect("opens").0
}

/// A batch of records with these keys and one value; transactional if it has a producer and `new` says so.
fn batch(new: NewBatch, keys: &[&str]) -> BatchBuf {
    let mut builder = BatchBuilder::new(new, 0);
    for key in keys {
        let key = Some(Bytes::copy_from_slice(key.as_bytes()));
        builder.push(Timestamp(0), &Record { key, value: Some("value".into()), headers: vec![] });
    }
    builder.finish().expect("packs")
}

/// A batch of a transaction.
fn data(id: i64, epoch: i16, sequence: i32, keys: &[&str]) -> Append {
    let producer = Some((ProducerId(id), ProducerEpoch(epoch), Sequence(sequence)));
    let batch = batch(NewBatch { producer, transactional: true, ..NewBatch::default() }, keys);
    Append { batch, check: SequenceCheck::Producer, expected_offset: None }
}

/// A batch of nobody's.
fn plain(keys: &[&str]) -> Append {
    Append { batch: batch(NewBatch::default(), keys), check: SequenceCheck::Producer, expected_offset: None }
}

/// The end of a transaction.
fn end(id: i64, epoch: i16, end: TransactionEnd, coordinator: i32) -> Append {
    let marker = Marker { end, coordinator_epoch: CoordinatorEpoch(coordinator) };
    let batch = marker.batch(ProducerId(id), ProducerEpoch(epoch), Timestamp(0));
    Append { batch, check: SequenceCheck::Marker, expected_offset: None }
}

/// Stages, writes and syncs.
fn put(log: &mut PartitionLog, append: Append, now: i64) -> Result<Appended, AppendError> {
    let appended = log.stage(append, LeaderEpoch(0), Timestamp(now))?;
    log.write(Timestamp(now)).expect("writes");
    log.sync().expect("syncs");
    Ok(appended)
}

/// What became of an append, in a word, and where.
fn word(answer: &Result<Appended, AppendError>) -> String {
    match answer {
        Ok(Appended::Stored(batch)) => format!("stored at {}", batch.header().base_offset),
        Ok(Appended::Duplicate { base_offset, .. }) => format!("duplicate of {base_offset}"),
        Err(error) => format!("{error:?}").split([' ', '{']).next().expect("a name").to_owned(),
    }
}

/// Begins a new segment.
fn roll(log: &mut PartitionLog) {
    log.set_options(LogOptions { segment_ms: i64::MIN, ..options() });
    log.maintain(Timestamp(0), Offset(0)).expect("keeps house");
    log.set_options(options());
}

/// One forced pass.
fn compact(log: &mut PartitionLog, now: i64) -> CompactionPass {
    let end = log.marks().log_end;
    let plan = log.plan_compaction(Timestamp(now), end, true).expect("plans").expect("there is something");
    let compacted = plan.run(&AtomicBool::new(false)).expect("runs");
    log.install_compacted(compacted).expect("installs").expect("nothing changed meanwhile")
}

/// Removes all files of a kind.
fn lose(disk: &SimStorage, kind: &str) {
    disk.paths().iter().filter(|path| path.ends_with(kind)).for_each(|path| disk.remove(path));
}
