//! One partition's log: the writer with its segments, and the readers that share them.
//!
//! One owner holds the [`PartitionLog`] and calls `stage` for each batch, `write` once for all that was staged, and
//! `sync` where durability asks for it; readers hold [`LogReader`]s and never wait for the owner.
//!
//! What lies in a directory and why it is safe: `broker/docs/formats/log-directory.md`.

mod aborted;
mod active;
mod checkpoint;
mod compaction;
mod epochs;
mod errors;
mod index;
mod listing;
mod reader;
mod recovery;
mod retention;
mod scan;
mod segment;
mod snapshot;
mod state;
mod terms;
mod walk;
mod writer;

pub use compaction::{
    Compacted, CompactionError, CompactionOptions, CompactionPass, CompactionPlan, CompactionState, Uncompacted,
    UncompactedReason,
};
pub use errors::{AppendError, OpenError, ReadError};
pub use reader::LogReader;
pub use scan::{SegmentFile, SegmentScan, Stretch, segment_files};
#[cfg(feature = "sim")]
pub use terms::PlantedFaults;
pub use terms::{
    AbortedTransaction, Append, Appended, Damage, LogOptions, Marks, OpenTransaction, ReadChunk, Recovery, Retained,
    SequenceCheck,
};
pub use writer::PartitionLog;
