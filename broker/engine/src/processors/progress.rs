//! What the tasks of a processor count, since the broker started, and what they wait for.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::terms::ProcessorWaiting;
use crate::counters::Counters;

/// Of one partition; it outlives the task that counts.
#[derive(Debug, Default)]
pub(super) struct Progress {
    skipped: AtomicU64,
    lost: AtomicU64,
    errors: AtomicU64,
    records_in: AtomicU64,
    records_out: AtomicU64,
    waiting: Mutex<Option<ProcessorWaiting>>,
}

/// The same, not yet committed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) skipped: u64,
    pub(super) lost: u64,
    pub(super) errors: u64,
    pub(super) records_in: u64,
    pub(super) records_out: u64,
    pub(super) dead_letters: u64,
}

impl Progress {
    /// Takes in what is committed.
    pub(super) fn add(&self, tally: Tally, counters: &Counters) {
        let Tally { skipped, lost, errors, records_in, records_out, dead_letters } = tally;
        self.skipped.fetch_add(skipped, Ordering::Relaxed);
        self.lost.fetch_add(lost, Ordering::Relaxed);
        self.errors.fetch_add(errors, Ordering::Relaxed);
        self.records_in.fetch_add(records_in, Ordering::Relaxed);
        self.records_out.fetch_add(records_out, Ordering::Relaxed);
        counters.processor_skipped.add(skipped);
        counters.processor_errors.add(errors);
        counters.processor_records_in.add(records_in);
        counters.processor_records_out.add(records_out);
        counters.dead_letters.add(dead_letters);
    }

    /// What was committed so far.
    pub(super) fn get(&self) -> Tally {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Tally {
            skipped: get(&self.skipped),
            lost: get(&self.lost),
            errors: get(&self.errors),
            records_in: get(&self.records_in),
            records_out: get(&self.records_out),
            dead_letters: 0,
        }
    }

    /// What the task waits for, or that it goes on.
    pub(super) fn set_waiting(&self, waiting: Option<ProcessorWaiting>) {
        *self.waiting.lock() = waiting;
    }

    /// What the task waits for.
    pub(super) fn waiting(&self) -> Option<ProcessorWaiting> {
        self.waiting.lock().clone()
    }
}
