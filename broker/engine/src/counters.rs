//! Numbers that only grow, for the metrics page.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the partitions of a directory count; see [`Stats`](crate::Stats).
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) appended_records: Counter,
    pub(crate) appended_bytes: Counter,
    pub(crate) groups_written: Counter,
    pub(crate) syncs: Counter,
    pub(crate) duplicates: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) tail_cache_hits: Counter,
    pub(crate) file_reads: Counter,
    pub(crate) segments_removed: Counter,
    pub(crate) compaction_passes: Counter,
    pub(crate) compaction_read_bytes: Counter,
    pub(crate) compaction_written_bytes: Counter,
    pub(crate) compaction_failures: Counter,
    pub(crate) group_rebalances: Counter,
    pub(crate) dead_letters: Counter,
    pub(crate) partitioner_fallbacks: Counter,
    pub(crate) records_rejected: Counter,
    pub(crate) processor_records_in: Counter,
    pub(crate) processor_records_out: Counter,
    pub(crate) processor_skipped: Counter,
    pub(crate) processor_errors: Counter,
    pub(crate) transactions_begun: Counter,
    pub(crate) transactions_committed: Counter,
    pub(crate) transactions_aborted: Counter,
    pub(crate) transactions_timed_out: Counter,
}
