//! The pulse: a thread of the system that asks running modules every few milliseconds whether their time is over. A busy
//! runtime would do it late. While nothing runs, it rests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// How often running modules are asked whether their time is over.
pub(crate) const TICK: Duration = Duration::from_millis(5);
/// After so many ticks at which nothing runs it rests. To wake it is dearer than a short call, so it does not rest between
/// the calls of a module that works.
const TICKS_BEFORE_REST: u32 = 40;

/// The thread, which ends with this.
pub(crate) struct Pulse {
    shared: Arc<Shared>,
    thread: Thread,
}

/// A call is under way for as long as this is there.
pub(crate) struct Beat(Arc<Shared>);

#[derive(Default)]
struct Shared {
    calls: AtomicUsize,
    rests: AtomicBool,
    ends: AtomicBool,
}

impl Pulse {
    /// Starts the thread, which calls `tick`.
    pub(crate) fn start(tick: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("levada-epochs".to_owned());
        let thread = thread.spawn(move || of_thread.beat(tick))?.thread().clone();
        Ok(Self { shared, thread })
    }

    /// A call begins.
    pub(crate) fn call(&self) -> Beat {
        self.shared.calls.fetch_add(1, Ordering::SeqCst);
        if self.shared.rests.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
        Beat(Arc::clone(&self.shared))
    }

    /// Whether the thread rests.
    #[cfg(test)]
    fn rests(&self) -> bool {
        self.shared.rests.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn beat(&self, tick: impl Fn()) {
        let mut still = 0;
        while !self.ends.load(Ordering::SeqCst) {
            thread::park_timeout(TICK);
            tick();
            still = if self.calls.load(Ordering::SeqCst) == 0 { still + 1 } else { 0 };
            if still >= TICKS_BEFORE_REST {
                self.rest();
                still = 0;
            }
        }
    }

    /// Rests until a call begins. A call that does not see that this rests is seen here.
    fn rest(&self) {
        self.rests.store(true, Ordering::SeqCst);
        while self.calls.load(Ordering::SeqCst) == 0 && !self.ends.load(Ordering::SeqCst) {
            thread::park();
        }
        self.rests.store(false, Ordering::SeqCst);
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn it_beats_while_a_call_is_under_way_rests_after_and_is_woken_by_the_next() {
        let (sender, ticks) = channel();
        let pulse = Pulse::start(move || sender.send(()).unwrap_or_default()).expect("a thread");
        for _ in 0..2 {
            let beat = pulse.call();
            // More than it would beat before a rest.
            (0..2 * TICKS_BEFORE_REST).for_each(|_| ticks.recv().expect("it beats"));
            drop(beat);
            while !pulse.rests() {
                thread::yield_now();
            }
            while ticks.try_recv().is_ok() {}
        }
        drop(pulse);
        assert!(ticks.iter().count() <= 1, "it ends");
    }
}
