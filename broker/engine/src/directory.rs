//! The log directory: what its partitions share. The fence that a failed write or sync raises for all of them, the log
//! threads with their run queue, the tail cache's budget, the counters.

use std::collections::VecDeque;
use std::fmt::Display;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use levada_log::{CompactionOptions, LogOptions, OpenError, PartitionLog, Recovery, Storage};
use levada_model::{Clock, Durability, PartitionIndex, Tick, Timestamp, TopicConfig, TopicId, limits};
use parking_lot::{Condvar, Mutex};

use crate::counters::Counters;
use crate::partition::{Partition, TailBudget};

/// Threads that write and sync. A sync waits for the device, not for a core, so there are more than cores (see decision 10
/// for what was measured).
const LOG_THREADS: usize = 16;

/// What the partitions of one log directory share.
pub(crate) struct Directory {
    storage: Arc<dyn Storage>,
    data_dir: PathBuf,
    clock: Arc<dyn Clock>,
    linger: Duration,
    producer_expiration: Duration,
    compaction_memory_bytes: usize,
    #[cfg(feature = "sim")]
    faults: levada_log::PlantedFaults,
    fence: OnceLock<Arc<str>>,
    run_queue: Mutex<RunQueue>,
    work: Condvar,
    tail_budget: Arc<TailBudget>,
    counters: Counters,
}

/// Partitions that want a log thread, each at most once for each job, in the order in which they are due.
#[derive(Default)]
struct RunQueue {
    due: VecDeque<(Instant, Arc<Partition>, Job)>,
    /// Lingers no more.
    hurrying: bool,
    /// Ends when all is done.
    stopping: bool,
}

/// What a log thread does for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    /// Serves its queue.
    Serve,
    /// Moves its recovery point.
    Settle,
}

/// The running log threads; they end when this is dropped, after all that was scheduled.
pub(crate) struct LogThreads {
    directory: Arc<Directory>,
    threads: Vec<JoinHandle<()>>,
}

impl Directory {
    pub(crate) fn new(options: &crate::EngineOptions) -> Self {
        Self {
            storage: options.storage.clone(),
            data_dir: options.data_dir.clone(),
            clock: options.clock.clone(),
            linger: options.linger,
            producer_expiration: options.producer_expiration,
            compaction_memory_bytes: options.compaction_memory_bytes,
            #[cfg(feature = "sim")]
            faults: levada_log::PlantedFaults::default(),
            fence: OnceLock::new(),
            run_queue: Mutex::default(),
            work: Condvar::new(),
            tail_budget: Arc::new(TailBudget::new(limits::TAIL_CACHE_BYTES_MAX)),
            counters: Counters::default(),
        }
    }

    /// The same with mistakes in its logs, which a test must find.
    #[cfg(feature = "sim")]
    pub(crate) fn with_faults(self, faults: levada_log::PlantedFaults) -> Self {
        Self { faults, ..self }
    }

    /// Opens the log in a directory, or creates it there.
    pub(crate) fn open_log(
        &self,
        path: &Path,
        options: LogOptions,
        trust_clean_marker: bool,
    ) -> Result<(PartitionLog, Recovery), OpenError> {
        let storage = self.storage.clone();
        #[cfg(feature = "sim")]
        return PartitionLog::open_with_faults(storage, path, options, self.now(), trust_clean_marker, self.faults);
        #[cfg(not(feature = "sim"))]
        PartitionLog::open(storage, path, options, self.now(), trust_clean_marker)
    }

    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Milliseconds that never go back.
    pub(crate) fn tick(&self) -> Tick {
        self.clock.tick()
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn tail_budget(&self) -> &Arc<TailBudget> {
        &self.tail_budget
    }

    /// Where the topics' logs are.
    pub(crate) fn logs_dir(&self) -> PathBuf {
        self.data_dir.join("log")
    }

    /// Where one topic's logs are. Topics' names never become file names.
    pub(crate) fn topic_dir(&self, topic: TopicId) -> PathBuf {
        self.logs_dir().join(topic.to_string())
    }

    /// Where one partition's log is.
    pub(crate) fn partition_dir(&self, topic: TopicId, partition: PartitionIndex) -> PathBuf {
        self.topic_dir(topic).join(partition.to_string())
    }

    /// A log's options. A retiring partition rolls at every look, so that retention can take all of it.
    pub(crate) fn log_options(&self, config: &TopicConfig, retiring: bool) -> LogOptions {
        LogOptions {
            segment_bytes: config.segment_bytes,
            segment_ms: if retiring { 1 } else { config.segment_ms },
            retention_bytes: config.retention_bytes,
            retention_ms: config.retention_ms,
            producer_expiration_ms: i64::try_from(self.producer_expiration.as_millis()).unwrap_or(i64::MAX),
            write_ahead_zeros: config.durability == Durability::Fsync,
            compaction: config.cleanup.compact.then_some(CompactionOptions {
                memory_bytes: self.compaction_memory_bytes,
                min_cleanable_dirty_ratio: config.min_cleanable_dirty_ratio,
                min_compaction_lag_ms: config.min_compaction_lag_ms,
                max_compaction_lag_ms: config.max_compaction_lag_ms.unwrap_or(i64::MAX),
                delete_retention_ms: config.delete_retention_ms,
            }),
            retains: config.cleanup.delete,
        }
    }

    /// Why no more is written here, if so.
    pub(crate) fn fenced(&self) -> Option<&str> {
        self.fence.get().map(|reason| &**reason)
    }

    /// Lets nothing more be written here, until a restart; the first reason stays and is answered.
    pub(crate) fn fence(&self, reason: &dyn Display) -> Arc<str> {
        let mut first = false;
        let fence = self.fence.get_or_init(|| {
            first = true;
            reason.to_string().into()
        });
        if first {
            tracing::error!(reason = %fence, "the log directory takes no more writes until a restart");
        }
        fence.clone()
    }

    /// Whether groups wait for company before they are written.
    pub(crate) fn lingers(&self) -> bool {
        !self.linger.is_zero()
    }

    /// Has a log thread serve the partition's queue, after the linger. The caller holds the queue's `served` mark, so a
    /// partition is scheduled once.
    pub(crate) fn schedule(&self, partition: Arc<Partition>) {
        self.enqueue(partition, Job::Serve);
        self.work.notify_one();
    }

    /// Has a log thread move the partition's recovery point. The caller holds its `settling` mark.
    pub(crate) fn schedule_settle(&self, partition: Arc<Partition>) {
        self.enqueue(partition, Job::Settle);
        self.work.notify_one();
    }

    fn enqueue(&self, partition: Arc<Partition>, job: Job) {
        let due = Instant::now() + self.linger;
        self.run_queue.lock().due.push_back((due, partition, job));
    }

    /// Starts the log threads.
    pub(crate) fn start(self: &Arc<Self>) -> LogThreads {
        let start = |number: usize| {
            let directory = self.clone();
            let builder = thread::Builder::new().name(format!("log-{number}"));
            builder.spawn(move || while directory.serve_next() {}).expect("the system has room for a few threads")
        };
        LogThreads { directory: self.clone(), threads: (0..LOG_THREADS).map(start).collect() }
    }

    /// Serves the next partition that is due; false when all is done and the threads shall end.
    fn serve_next(&self) -> bool {
        let Some((partition, job)) = self.next_due() else { return false };
        // A panic is our own bug; the owner has fenced the directory, and the other partitions still want their answers.
        let work = || match job {
            Job::Serve => partition.serve(),
            Job::Settle => {
                partition.settle();
                false
            }
        };
        let more = panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
        if more {
            // Nobody needs to be woken for it: this thread comes back to the queue at once.
            self.enqueue(partition, Job::Serve);
        }
        true
    }

    fn next_due(&self) -> Option<(Arc<Partition>, Job)> {
        let mut queue = self.run_queue.lock();
        loop {
            match queue.due.front() {
                Some((due, ..)) if !queue.hurrying && *due > Instant::now() => {
                    let due = *due;
                    self.work.wait_until(&mut queue, due);
                }
                Some(_) => {
                    let (_, partition, job) = queue.due.pop_front().expect("looked at above");
                    // This thread was woken for the item; another must watch the next one, however long the work takes.
                    if !queue.due.is_empty() {
                        self.work.notify_one();
                    }
                    return Some((partition, job));
                }
                None if queue.stopping => return None,
                None => self.work.wait(&mut queue),
            }
        }
    }
}

impl LogThreads {
    /// Serves what is scheduled without further linger.
    pub(crate) fn hurry(&self) {
        self.directory.run_queue.lock().hurrying = true;
        self.directory.work.notify_all();
    }
}

impl Drop for LogThreads {
    fn drop(&mut self) {
        {
            let mut queue = self.directory.run_queue.lock();
            queue.hurrying = true;
            queue.stopping = true;
        }
        self.directory.work.notify_all();
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}
