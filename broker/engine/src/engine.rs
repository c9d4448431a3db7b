//! The engine as a whole: options, opening, health, numbers, closing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use levada_log::{Storage, StorageError};
use levada_model::{Authorizer, Clock, ClusterId, NodeId};
use thiserror::Error;

/// What an engine is made of.
pub struct EngineOptions {
    /// Where everything lies.
    pub storage: Arc<dyn Storage>,
    /// The data directory within the storage.
    pub data_dir: PathBuf,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// Who may do what.
    pub authorizer: Arc<dyn Authorizer>,
    /// Whether the first produce to a topic creates it.
    pub auto_create_topics: bool,
    /// How long a partition remembers a producer after its last append.
    pub producer_expiration: Duration,
    /// How often retention, age rolls and checkpoints are looked after.
    pub maintenance_interval: Duration,
    /// How long the owner of a partition waits for company before it writes and syncs a group; zero: not at all.
    pub linger: Duration,
}

/// Whether the engine takes writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// All is well.
    Serving,
    /// A sync or write failed or the disk is full: reads go on up to what was synced, writes are refused until a
    /// restart.
    Fenced {
        /// What happened.
        reason: String,
    },
    /// Closing; writes are refused.
    Closing,
}

/// Numbers since the start, and sizes now. Counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Topics there are.
    pub topics: u64,
    /// Partitions there are.
    pub partitions: u64,
    /// Bytes of all log segments.
    pub log_bytes: u64,
    /// Records appended.
    pub appended_records: u64,
    /// Bytes of batches appended.
    pub appended_bytes: u64,
    /// Groups written (one write call each).
    pub groups_written: u64,
    /// Syncs of segment files.
    pub syncs: u64,
    /// Appends that were recognised as duplicates.
    pub duplicates: u64,
    /// Bytes of batches read, from memory and from files.
    pub read_bytes: u64,
    /// Reads answered from the tail cache.
    pub tail_cache_hits: u64,
    /// Reads that went to a file.
    pub file_reads: u64,
    /// Bytes in the tail cache.
    pub tail_cache_bytes: u64,
    /// Stretches of offsets lost to damage.
    pub damaged_ranges: u64,
    /// Segments that retention removed.
    pub segments_removed: u64,
}

/// Why an engine could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A log could not be opened.
    #[error(transparent)]
    Log(#[from] levada_log::OpenError),
    /// The file system said no.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The metadata store could not be opened; nothing was changed.
    #[error("the metadata in {path}: {detail}")]
    Metadata {
        /// The file.
        path: String,
        /// What is wrong and what to do.
        detail: String,
    },
}

/// Why closing was not clean; the next start recovers.
#[derive(Debug, Error)]
#[error("not everything could be closed cleanly: {0}")]
pub struct CloseError(pub String);

/// A handle to the engine; cheap to clone.
#[derive(Clone)]
pub struct Engine {}

impl Engine {
    /// Opens what lies in the data directory (or starts a new one) and recovers it. Blocks; needs a Tokio runtime around
    /// it only for the maintenance task.
    ///
    /// # Errors
    /// When something there needs a person; nothing is changed then.
    pub fn open(options: EngineOptions) -> Result<Self, OpenError> {
        let _ = options;
        todo!()
    }

    /// Whether writes are taken.
    #[must_use]
    pub fn health(&self) -> Health {
        todo!()
    }

    /// Numbers for the metrics page.
    #[must_use]
    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// The cluster's identity.
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        todo!()
    }

    /// This node.
    #[must_use]
    pub fn node_id(&self) -> NodeId {
        todo!()
    }

    /// Refuses new appends, writes and syncs what was accepted, answers it, wakes waiting readers, closes every log and
    /// leaves the clean-shutdown marker.
    ///
    /// # Errors
    /// When a log could not be closed; the next start recovers.
    pub async fn close(&self) -> Result<(), CloseError> {
        todo!()
    }
}
