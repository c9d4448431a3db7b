//! The log: Kafka record batches (v2), segments with their indexes, recovery, retention and producer state.
//!
//! Synchronous: every call runs on the caller's thread and no thread is started here. Not here: topics, queues, group
//! commit, waiting readers (the engine's), and anything that knows HTTP.

mod batch;
mod partition;
mod producers;
mod storage;

pub use batch::{
    Batch, BatchBuf, BatchBuilder, BatchError, BatchHeader, CompressionError, CoordinatorEpoch, HEADER_BYTES, Marker,
    NewBatch, RecordRef, RecordSection, RecordView, Records, RecordsError, TransactionEnd,
};
#[cfg(feature = "sim")]
pub use partition::PlantedFaults;
pub use partition::{
    AbortedTransaction, Append, AppendError, Appended, Compacted, CompactionError, CompactionOptions, CompactionPass,
    CompactionPlan, CompactionState, Damage, LogOptions, LogReader, Marks, OpenError, OpenTransaction, PartitionLog,
    ReadChunk, ReadError, Recovery, Retained, SegmentFile, SegmentScan, SequenceCheck, Stretch, Uncompacted,
    UncompactedReason, segment_files,
};
pub use producers::{derived_producer_id, is_derived};
#[cfg(feature = "sim")]
pub use storage::{CrashPlan, Fate, Pending, SimStorage};
pub use storage::{DiskStorage, File, Storage, StorageError};
