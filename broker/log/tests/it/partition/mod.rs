//! A partition's log on the real file system.

mod failing;
mod housekeeping;
mod producers;
mod reading;
mod scanning;
mod times;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use levada_log::{
    Append, Appended, Batch, BatchBuf, BatchBuilder, DiskStorage, LogOptions, NewBatch, PartitionLog, Recovery,
    SequenceCheck,
};
use levada_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Record, Sequence, Timestamp};

/// Settings under which nothing rolls or goes by itself.
pub(crate) fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 1 << 20,
        segment_ms: i64::MAX,
        retention_bytes: None,
        retention_ms: None,
        producer_expiration_ms: 60_000,
        write_ahead_zeros: false,
        compaction: None,
        retains: true,
    }
}

/// A batch of records whose values are `values`, all of one time.
pub(crate) fn batch_at(timestamp: i64, values: &[&str]) -> BatchBuf {
    build(NewBatch::default(), values.iter().map(|value| (timestamp, *value)))
}

/// A batch of an idempotent producer.
pub(crate) fn batch_of(producer: i64, epoch: i16, sequence: i32, values: &[&str]) -> BatchBuf {
    let producer = Some((ProducerId(producer), ProducerEpoch(epoch), Sequence(sequence)));
    build(NewBatch { producer, ..NewBatch::default() }, values.iter().map(|value| (0, *value)))
}

/// A batch of one record for each time.
pub(crate) fn batch_of_times(times: &[i64]) -> BatchBuf {
    build(NewBatch::default(), times.iter().map(|time| (*time, "value")))
}

fn build<'a>(new: NewBatch, records: impl IntoIterator<Item = (i64, &'a str)>) -> BatchBuf {
    let mut builder = BatchBuilder::new(new, 1024);
    for (timestamp, value) in records {
        let value = Some(Bytes::copy_from_slice(value.as_bytes()));
        builder.push(Timestamp(timestamp), &Record { value, ..Record::default() });
    }
    builder.finish().expect("no compression, no error")
}

/// Opens a log on the disk as after a crash.
pub(crate) fn open(dir: &Path, options: LogOptions) -> (PartitionLog, Recovery) {
    PartitionLog::open(Arc::new(DiskStorage), dir, options, Timestamp(0), false).expect("opens")
}

/// Stages one batch.
pub(crate) fn stage(log: &mut PartitionLog, batch: BatchBuf, now: i64) -> Appended {
    let append = Append { batch, check: SequenceCheck::Producer, expected_offset: None };
    log.stage(append, LeaderEpoch(0), Timestamp(now)).expect("accepted")
}

/// Stages, writes and syncs one batch.
pub(crate) fn append(log: &mut PartitionLog, batch: BatchBuf, now: i64) -> Batch {
    let Appended::Stored(batch) = stage(log, batch, now) else { panic!("a duplicate") };
    log.write(Timestamp(now)).expect("writes");
    log.sync().expect("syncs");
    batch
}

/// All batches from `from` on, read in chunks of at most `max_bytes`.
pub(crate) fn read_all(log: &PartitionLog, from: u64, max_bytes: usize) -> Vec<Batch> {
    let reader = log.reader();
    let end = log.marks().log_end;
    let mut at = Offset(from);
    let mut batches = Vec::new();
    while at < end {
        let chunk = reader.read(at, max_bytes, end).expect("reads");
        assert!(chunk.next_offset > at, "a read below the bound moves on");
        batches.extend(chunk.batches);
        at = chunk.next_offset;
    }
    batches
}
