//! Memory and instances of all modules together, and what one instance holds of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all instances may hold, and hold.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: usize,
    instances_max: usize,
    bytes: AtomicUsize,
    instances: AtomicUsize,
}

/// An instance's place among all; its end gives it back.
pub(crate) struct Place(Arc<Budget>);

/// Too much was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl Budget {
    pub(crate) fn new(bytes_max: usize, instances_max: usize) -> Self {
        Self { bytes_max, instances_max, bytes: AtomicUsize::new(0), instances: AtomicUsize::new(0) }
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn instances(&self) -> usize {
        self.instances.load(Ordering::Relaxed)
    }

    pub(crate) fn take_bytes(&self, bytes: usize) -> Result<(), Exhausted> {
        take(&self.bytes, bytes, self.bytes_max)
    }

    pub(crate) fn give_back_bytes(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn take_place(self: &Arc<Self>) -> Result<Place, Exhausted> {
        take(&self.instances, 1, self.instances_max).map(|()| Place(Arc::clone(self)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.instances.fetch_sub(1, Ordering::Relaxed);
    }
}

fn take(counter: &AtomicUsize, amount: usize, max: usize) -> Result<(), Exhausted> {
    let taken = |held: usize| held.checked_add(amount).filter(|sum| *sum <= max);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).map(drop).map_err(|_| Exhausted)
}
