//! Proofs that a log survives what disks do: power cuts at every point, torn and reordered blocks, flipped bits, lost
//! and lying files. Each check is a function with a `Result`, so that planted faults can show that it finds them.

mod damage;
mod damaged_index;
mod planted;
mod power_cut;
mod trace;
mod verdict;

use std::path::Path;
use std::sync::Arc;

use levada_log::{LogOptions, OpenError, PartitionLog, PlantedFaults, Recovery, SimStorage};
use levada_model::{ManualClock, Timestamp};

/// Where the log lies on the simulated disk.
const DIR: &str = "/p";

/// Small segments, zeros written ahead, nothing that goes by itself.
fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 1024,
        segment_ms: i64::MAX,
        retention_bytes: None,
        retention_ms: None,
        producer_expiration_ms: 1_000_000,
        write_ahead_zeros: true,
        compaction: None,
        retains: true,
    }
}

/// An empty disk; with small blocks few bytes are many of them.
fn disk(block_bytes: usize) -> SimStorage {
    SimStorage::with_block_bytes(Arc::new(ManualClock::at(Timestamp(0))), block_bytes)
}

fn open(
    disk: &SimStorage,
    options: LogOptions,
    trust_clean_marker: bool,
    faults: PlantedFaults,
) -> Result<(PartitionLog, Recovery), OpenError> {
    let storage = Arc::new(disk.clone());
    PartitionLog::open_with_faults(storage, Path::new(DIR), options, Timestamp(0), trust_clean_marker, faults)
}
