//! Time as something that tests can replace: the time of day, and a clock that never goes back.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::{Tick, Timestamp};

/// Tells the time. What is stored or shown is the time of day; sessions and other leases count ticks, so that a clock
/// that is set does not end them. Waits of single requests are measured by the runtime.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970 (UTC).
    fn now(&self) -> Timestamp;
    /// Milliseconds that never go back.
    fn tick(&self) -> Tick;
}

/// Where ticks count from.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The machine's clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the machine for the time")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn tick(&self) -> Tick {
        Tick(u64::try_from(ORIGIN.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicI64,
    tick: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self { now: AtomicI64::new(now.0), tick: AtomicU64::new(0) }
    }

    /// Sets the time of day; it may go back, as a real clock may. Ticks do not notice.
    pub fn set(&self, now: Timestamp) {
        self.now.store(now.0, Ordering::SeqCst);
    }

    /// Moves both clocks on by `millis`; ticks never go back.
    pub fn advance(&self, millis: i64) {
        self.now.fetch_add(millis, Ordering::SeqCst);
        self.tick.fetch_add(millis.max(0).cast_unsigned(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn tick(&self) -> Tick {
        Tick(self.tick.load(Ordering::SeqCst))
    }
}
