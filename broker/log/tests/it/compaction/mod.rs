//! Compaction: what stays, what goes, and that no crash, damage or reader in the middle changes that.

mod crash;
mod keeping;
mod model;
mod readers;
mod repeats;
mod sources;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use levada_log::{
    Append, Appended, Batch, BatchBuf, BatchBuilder, Compacted, CompactionError, CompactionOptions, CompactionPass,
    LogOptions, NewBatch, PartitionLog, RecordRef, SequenceCheck, SimStorage,
};
use levada_model::{LeaderEpoch, ManualClock, Offset, Record, Timestamp};

const DIR: &str = "/p";

/// Cleans whatever is sealed, whenever it is asked to, and keeps tombstones for 1000 ms.
fn compaction() -> CompactionOptions {
    CompactionOptions {
        memory_bytes: 1 << 20,
        min_cleanable_dirty_ratio: 0.0,
        min_compaction_lag_ms: 0,
        max_compaction_lag_ms: i64::MAX,
        delete_retention_ms: 1000,
    }
}

/// A compacted log with segments of 1 KiB, of which nothing goes by itself.
fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 1024,
        segment_ms: i64::MAX,
        retention_bytes: None,
        retention_ms: None,
        producer_expiration_ms: 1_000_000,
        write_ahead_zeros: false,
        compaction: Some(compaction()),
        retains: false,
    }
}

fn disk() -> SimStorage {
    SimStorage::with_block_bytes(Arc::new(ManualClock::at(Timestamp(0))), 512)
}

fn open(disk: &SimStorage, options: LogOptions) -> PartitionLog {
    let storage = Arc::new(disk.clone());
    PartitionLog::open(storage, Path::new(DIR), options, Timestamp(0), false).expect("opens").0
}

/// A batch of records with these keys and values, all of one time.
fn batch(new: NewBatch, timestamp: i64, records: &[(&str, Option<&str>)]) -> BatchBuf {
    let mut builder = BatchBuilder::new(new, 0);
    for (key, value) in records {
        let part = |part: &str| Bytes::copy_from_slice(part.as_bytes());
        builder.push(Timestamp(timestamp), &Record { key: Some(part(key)), value: value.map(part), headers: vec![] });
    }
    builder.finish().expect("packs into memory")
}

/// Stores and syncs a batch.
fn append(log: &mut PartitionLog, batch: BatchBuf, now: i64) -> Appended {
    let append = Append { batch, check: SequenceCheck::Producer, expected_offset: None };
    let appended = log.stage(append, LeaderEpoch(0), Timestamp(now)).expect("accepted");
    log.write(Timestamp(now)).expect("writes");
    log.sync().expect("syncs");
    appended
}

/// One record in a batch of its own.
fn put(log: &mut PartitionLog, key: &str, value: Option<&str>, now: i64) {
    append(log, batch(NewBatch::default(), now, &[(key, value)]), now);
}

/// Plans and runs a pass, without putting it in place.
fn run(log: &mut PartitionLog, now: i64) -> Result<Compacted, CompactionError> {
    let end = log.marks().log_end;
    let plan = log.plan_compaction(Timestamp(now), end, true).expect("plans").expect("there is something");
    plan.run(&AtomicBool::new(false))
}

/// One forced pass.
fn pass(log: &mut PartitionLog, now: i64) -> CompactionPass {
    let compacted = run(log, now).expect("runs");
    log.install_compacted(compacted).expect("installs").expect("nothing changed meanwhile")
}

/// Forced passes until all is clean.
fn compact(log: &mut PartitionLog, now: i64) -> CompactionPass {
    loop {
        let pass = pass(log, now);
        if pass.is_done {
            return pass;
        }
    }
}

/// All that a reader gets from `from` on.
fn batches(log: &PartitionLog, from: u64, max_bytes: usize) -> Vec<Batch> {
    let (reader, end) = (log.reader(), log.marks().log_end);
    let (mut at, mut batches) = (Offset(from), Vec::new());
    while at < end {
        let chunk = reader.read(at, max_bytes, end).expect("reads");
        assert_eq!(chunk.gaps, [], "compaction leaves no damage");
        assert!(chunk.next_offset > at, "a read below the bound moves on");
        batches.extend(chunk.batches);
        at = chunk.next_offset;
    }
    batches
}

/// All records that a reader gets from `from` on.
fn records(log: &PartitionLog, from: u64) -> Vec<RecordRef> {
    let all = batches(log, from, 300);
    let records = all.iter().flat_map(|batch| batch.records().expect("unpacks"));
    records.map(|record| record.expect("is whole")).filter(|record| record.offset >= Offset(from)).collect()
}

fn offsets(log: &PartitionLog, from: u64) -> Vec<u64> {
    records(log, from).iter().map(|record| record.offset.0).collect()
}

/// What a reader of the whole log knows of each key in the end.
fn table(log: &PartitionLog) -> BTreeMap<String, Option<String>> {
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).expect("text");
    let entry = |record: RecordRef| (text(record.record.key.expect("a key")), record.record.value.map(text));
    records(log, 0).into_iter().map(entry).collect()
}
