//! One partition's compaction: passes over its log, what became of the last, and their end when the log goes.
//!
//! Only the cleaner begins passes, one at a time. A pass holds the log to be planned and to be put in place (a segment at
//! a time), and not while it reads and writes: what fails there fails the pass, and neither the log nor its directory. Not here: which
//! partition is next, and when.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use levada_log::{Compacted, CompactionError, CompactionPass, CompactionPlan, PartitionLog, StorageError};
use levada_model::{Tick, Timestamp};
use parking_lot::{Condvar, Mutex};

use super::Partition;
use super::owner::PanicGuard;

/// Pause after the first pass that failed; each further one in a row doubles it.
const RETRY_MS_MIN: u64 = 1_000;
/// Longest pause: a segment that stays damaged is read so often.
const RETRY_MS_MAX: u64 = 600_000;

/// After so many doublings a pause is the longest anyway.
const RETRY_DOUBLINGS_MAX: u32 = 16;

/// What is known of a partition's passes.
#[derive(Debug, Default)]
pub(super) struct Cleaning {
    /// The log goes: the pass that runs ends, and none begins.
    stopped: AtomicBool,
    passes: Mutex<Passes>,
    /// Signalled when a pass has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Passes {
    running: bool,
    failure: Option<Failure>,
}

/// That the last pass failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What happened.
    pub(crate) reason: Arc<str>,
    /// When the first pass of those failed that failed in a row.
    pub(crate) since: Timestamp,
    /// When the next one begins, by the time of day.
    pub(crate) retry_at: Timestamp,
    /// The same by the clock that is counted by.
    retry_tick: Tick,
    in_a_row: u32,
}

/// Why there was no pass, or nothing came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CleanFault {
    /// The pass failed; the log is as it was.
    Failed(Arc<str>),
    /// The log goes, or has gone.
    Gone,
    /// The directory takes no writes.
    Fenced(Arc<str>),
}

impl Partition {
    /// Compacts as far as it is due, in as many passes as the memory for keys asks for; `forced` rolls first, and cleans
    /// again what is clean. None where there was nothing to do. Blocks for as long as it takes.
    pub(crate) fn clean(&self, forced: bool) -> Result<Option<CompactionPass>, CleanFault> {
        let Some(_running) = self.cleaning.begin() else { return Err(CleanFault::Gone) };
        let cleaned = self.passes(forced);
        match &cleaned {
            Ok(_) => self.cleaning.passes.lock().failure = None,
            Err(CleanFault::Failed(reason)) => self.note_failure(reason),
            Err(CleanFault::Gone | CleanFault::Fenced(_)) => (),
        }
        cleaned
    }

    /// Notes that the partition cannot be compacted now.
    pub(crate) fn note_failure(&self, reason: &Arc<str>) {
        self.directory.counters().compaction_failures.add(1);
        let mut passes = self.cleaning.passes.lock();
        let (now, tick) = (self.directory.now(), self.directory.tick());
        let (since, in_a_row) = passes.failure.as_ref().map_or((now, 1), |last| (last.since, last.in_a_row + 1));
        let pause_ms = RETRY_MS_MIN.saturating_mul(1 << (in_a_row - 1).min(RETRY_DOUBLINGS_MAX)).min(RETRY_MS_MAX);
        tracing::warn!(path = %self.path.display(), %reason, pause_ms, "compaction of this partition failed");
        passes.failure = Some(Failure {
            reason: reason.clone(),
            since,
            retry_at: Timestamp(now.0.saturating_add_unsigned(pause_ms)),
            retry_tick: Tick(tick.0.saturating_add(pause_ms)),
            in_a_row,
        });
    }

    /// That the last pass failed, if it did.
    pub(crate) fn compaction_failure(&self) -> Option<Failure> {
        self.cleaning.passes.lock().failure.clone()
    }

    /// How many milliseconds the next pass still waits because of the last one's failure; none where it did not fail.
    pub(crate) fn cleaning_waits_ms(&self) -> Option<u64> {
        let passes = self.cleaning.passes.lock();
        passes.failure.as_ref().map(|failure| failure.retry_tick.0.saturating_sub(self.directory.tick().0))
    }

    /// Has the pass that runs end soon; no other begins.
    pub(crate) fn cancel_cleaning(&self) {
        self.cleaning.stopped.store(true, Ordering::Release);
    }

    /// The same, and comes back when nothing of the pass is left. To be called before the log is closed or given up.
    /// Blocks.
    pub(crate) fn stop_cleaning(&self) {
        self.cancel_cleaning();
        let mut passes = self.cleaning.passes.lock();
        while passes.running {
            self.cleaning.ended.wait(&mut passes);
        }
    }

    fn passes(&self, forced: bool) -> Result<Option<CompactionPass>, CleanFault> {
        let mut whole: Option<CompactionPass> = None;
        // What a pass leaves for want of memory is dirty still, so only the first has to be forced.
        while let Some(pass) = self.pass(forced && whole.is_none())? {
            let done = pass.is_done;
            whole = Some(whole.map_or(pass, |before| joined(&before, &pass)));
            if done {
                break;
            }
        }
        Ok(whole)
    }

    fn pass(&self, forced: bool) -> Result<Option<CompactionPass>, CleanFault> {
        loop {
            let (now, bound) = (self.directory.now(), self.last_stable_offset());
            // What cannot be judged makes no plan either, and would look like nothing to do.
            self.reader.compaction_state(now, bound).map_err(|error| CleanFault::Failed(error.to_string().into()))?;
            let plan = self.holding(|log| log.plan_compaction(now, bound, forced))?;
            let Some(plan) = plan else { return Ok(None) };
            let mut compacted = self.run(plan)?;
            // Each segment costs some syncs: appends have their turn in between.
            while self.holding(|log| log.install_next(&mut compacted))? {}
            let installed = self.holding(|log| {
                let installed = log.install_compacted(compacted)?;
                // Readers at the tail would go on to see what is gone; of what came to nothing, some may be in place.
                self.tail.drop_below(installed.as_ref().map_or(bound, |pass| pass.next_dirty));
                Ok(installed)
            })?;
            // Retention or a truncation came in between: what is left is another log.
            let Some(pass) = installed else { continue };
            let counters = self.directory.counters();
            counters.compaction_passes.add(1);
            counters.compaction_read_bytes.add(pass.before_bytes);
            counters.compaction_written_bytes.add(pass.after_bytes);
            return Ok(Some(pass));
        }
    }

    /// The long part, which touches nothing of the log.
    fn run(&self, plan: CompactionPlan) -> Result<Compacted, CleanFault> {
        // It reads whatever lies there. A panic is our own bug, and costs this partition its compaction alone.
        match panic::catch_unwind(AssertUnwindSafe(|| plan.run(&self.cleaning.stopped))) {
            Ok(Ok(compacted)) => Ok(compacted),
            Ok(Err(CompactionError::Cancelled)) => Err(CleanFault::Gone),
            Ok(Err(error)) => Err(CleanFault::Failed(error.to_string().into())),
            Err(_) => Err(CleanFault::Failed("the pass panicked".into())),
        }
    }

    /// Does something with the log that changes files of it: where that fails, the directory is fenced, as everywhere.
    fn holding<T>(
        &self,
        work: impl FnOnce(&mut PartitionLog) -> Result<T, Arc<StorageError>>,
    ) -> Result<T, CleanFault> {
        let _guard = PanicGuard(self);
        if self.cleaning.stopped.load(Ordering::Acquire) {
            return Err(CleanFault::Gone);
        }
        if let Some(reason) = self.directory.fenced() {
            return Err(CleanFault::Fenced(reason.into()));
        }
        match self.with_flushed(work) {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(CleanFault::Gone),
            Err(error) if error.is_out_of_files() => Err(CleanFault::Failed(error.to_string().into())),
            Err(error) => Err(CleanFault::Fenced(self.directory.fence(&error))),
        }
    }
}

impl Cleaning {
    /// Begins a pass, if there may still be one; the cleaner begins none beside another.
    fn begin(&self) -> Option<Running<'_>> {
        let mut passes = self.passes.lock();
        if self.stopped.load(Ordering::Acquire) {
            return None;
        }
        assert!(!passes.running, "there is one cleaner, and it does one thing at a time");
        passes.running = true;
        Some(Running(self))
    }
}

/// A pass that runs, also one that panics.
struct Running<'a>(&'a Cleaning);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.passes.lock().running = false;
        self.0.ended.notify_all();
    }
}

/// Two passes in a row as one: the second read what the first had left, and more.
fn joined(first: &CompactionPass, second: &CompactionPass) -> CompactionPass {
    let added = |before: u64, left: u64| before.saturating_sub(left);
    CompactionPass {
        before_bytes: first.before_bytes + added(second.before_bytes, first.after_bytes),
        before_records: first.before_records + added(second.before_records, first.after_records),
        ..*second
    }
}
