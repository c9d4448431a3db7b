//! Heavy computing, kept off the threads that answer everyone.

use crate::partition::blocking;

/// Most work that is done in place, counted in bytes that are looked at once (as a checksum does).
const IN_PLACE_BYTES_MAX: usize = 1 << 20;

/// How much more than looking at it once a kind of work costs a byte, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Checking stored bytes.
    Check,
    /// Parsing or hashing, and packing.
    Parse,
    /// Unpacking, whose result may be much larger.
    Unpack,
}

impl Work {
    fn weight(self) -> usize {
        match self {
            Self::Check => 1,
            Self::Parse => 4,
            Self::Unpack => 16,
        }
    }
}

/// Does some work on so many bytes: a little in place, much on a thread that may block.
pub async fn compute<T: Send + 'static>(work: Work, bytes: usize, run: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes.saturating_mul(work.weight()) <= IN_PLACE_BYTES_MAX { run() } else { blocking(run).await }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn little_is_done_in_place_and_much_elsewhere() {
        let here = thread::current().id();
        for (work, bytes) in [(Work::Check, 1 << 20), (Work::Parse, 256 << 10), (Work::Unpack, 64 << 10)] {
            assert_eq!(compute(work, bytes, || thread::current().id()).await, here, "{work:?}");
            assert_ne!(compute(work, bytes + 1, || thread::current().id()).await, here, "{work:?}");
        }
    }
}
