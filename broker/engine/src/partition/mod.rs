//! A partition: the owner of its log (a bounded queue and whoever serves it), its marks, tail cache and waiting readers.
//!
//! Nobody but the one who serves the queue appends, and at most one does at a time. There is no task or thread per
//! partition, so idle ones cost their memory alone.

mod cleaning;
mod owner;
mod queue;
mod tail;
mod waiters;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use levada_log::{LogOptions, LogReader, OpenError, PartitionLog, ReadChunk, ReadError, Retained, StorageError};
use levada_model::{
    Durability, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, Sequence, Timestamp, TimestampType,
    TopicConfig, TopicId,
};
use parking_lot::{Condvar, Mutex, MutexGuard};

pub(crate) use cleaning::{CleanFault, Failure};
pub(crate) use queue::{Landed, Landings, NewAppend, Shut};
pub(crate) use tail::TailBudget;
pub(crate) use waiters::{Bound, Waiter, Waiters};

use crate::directory::Directory;
use crate::fetch::Isolation;
use cleaning::Cleaning;
use queue::Queue;
use tail::Tail;

/// One partition on this node.
pub(crate) struct Partition {
    index: PartitionIndex,
    path: PathBuf,
    directory: Arc<Directory>,
    /// None once it is closed.
    log: Mutex<Option<PartitionLog>>,
    reader: LogReader,
    queue: Mutex<Queue>,
    /// Signalled when the queue has become idle.
    idle: Condvar,
    page_cache: AtomicBool,
    append_time: AtomicBool,
    /// Whether records need a key, since the log is or is about to be compacted. Changed by whoever holds the log.
    keyed_only: AtomicBool,
    cleaning: Cleaning,
    leader_epoch: AtomicI32,
    /// Where what cannot be taken back ends.
    high_watermark: AtomicU64,
    /// Where what is also decided ends; never beyond the high watermark.
    last_stable: AtomicU64,
    /// Something was written and not synced.
    dirty: AtomicBool,
    /// A log thread is about to move the recovery point.
    settling: AtomicBool,
    tail: Arc<Tail>,
    waiters: Arc<Waiters>,
}

/// Everything needed to open a partition.
pub(crate) struct PartitionSpec<'a> {
    pub(crate) topic: TopicId,
    pub(crate) index: PartitionIndex,
    pub(crate) config: &'a TopicConfig,
    pub(crate) retiring: bool,
    pub(crate) leader_epoch: LeaderEpoch,
    /// Where a log begins that is not there yet.
    pub(crate) start_at: Offset,
    /// Whether the whole directory was shut down cleanly.
    pub(crate) clean: bool,
}

impl Partition {
    /// Opens the partition's log, recovering it, or creates it. What it then holds is made durable where the topic
    /// promises that, before anyone can read it.
    pub(crate) fn open(directory: &Arc<Directory>, spec: &PartitionSpec<'_>) -> Result<Arc<Self>, OpenError> {
        let path = directory.partition_dir(spec.topic, spec.index);
        let options = directory.log_options(spec.config, spec.retiring);
        let mut log = open_log(directory, &path, options, spec)?;
        let page_cache = spec.config.durability == Durability::PageCache;
        if !page_cache && log.marks().synced_end < log.marks().log_end {
            log.sync().map_err(|error| StorageError {
                operation: error.operation,
                path: error.path.clone(),
                source: error.source.kind().into(),
            })?;
        }
        // Sealed segments are measured once, and here rather than on the thread of whoever asks for sizes first.
        let _ = log.reader().size_bytes();
        let (high_watermark, last_stable) = owner::visible(&log.marks(), page_cache);
        Ok(Arc::new(Self {
            index: spec.index,
            path,
            directory: directory.clone(),
            reader: log.reader(),
            log: Mutex::new(Some(log)),
            queue: Mutex::default(),
            idle: Condvar::new(),
            page_cache: AtomicBool::new(page_cache),
            append_time: AtomicBool::new(spec.config.timestamp_type == TimestampType::LogAppendTime),
            keyed_only: AtomicBool::new(spec.config.cleanup.compact),
            cleaning: Cleaning::default(),
            leader_epoch: AtomicI32::new(spec.leader_epoch.0),
            high_watermark: AtomicU64::new(high_watermark.0),
            last_stable: AtomicU64::new(last_stable.0),
            dirty: AtomicBool::new(false),
            settling: AtomicBool::new(false),
            tail: Arc::new(Tail::new(directory.tail_budget().clone())),
            waiters: Arc::default(),
        }))
    }

    pub(crate) fn index(&self) -> PartitionIndex {
        self.index
    }

    /// The directory of its log.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    pub(crate) fn last_stable_offset(&self) -> Offset {
        Offset(self.last_stable.load(Ordering::Acquire))
    }

    pub(crate) fn log_start(&self) -> Offset {
        self.reader.log_start()
    }

    pub(crate) fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(self.leader_epoch.load(Ordering::Acquire))
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.reader.size_bytes()
    }

    /// The reader of its files; calls block.
    pub(crate) fn reader(&self) -> &LogReader {
        &self.reader
    }

    /// The offset that a reader of this isolation must not pass.
    pub(crate) fn bound(&self, isolation: Isolation) -> Offset {
        match isolation {
            Isolation::ReadCommitted => self.last_stable_offset(),
            Isolation::ReadUncommitted => self.high_watermark(),
        }
    }

    /// Readers that wait here.
    pub(crate) fn waiters(&self) -> &Arc<Waiters> {
        &self.waiters
    }

    /// Appends that wait for the owner.
    pub(crate) fn waiting_appends(&self) -> usize {
        self.queue.lock().len()
    }

    /// Whether an append of moderate size will be taken, if nobody else comes first.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.lock().has_room()
    }

    /// The one read for everyone: from the tail cache, else from the files on a thread that may block. `from` must be
    /// below `bound`, which must be the mark that [`bound`](Self::bound) gives for the isolation. What was aborted is in
    /// the chunk, which tells of it where only committed records are wanted.
    ///
    /// # Errors
    /// As [`LogReader::read`].
    pub(crate) async fn read(
        self: &Arc<Self>,
        from: Offset,
        max_bytes: usize,
        bound: Offset,
        isolation: Isolation,
    ) -> Result<ReadChunk, ReadError> {
        let log_start = self.log_start();
        if from < log_start {
            return Err(ReadError::BelowStart { requested: from, log_start });
        }
        let counters = self.directory.counters();
        let mut chunk = match self.tail.read(from, max_bytes, bound) {
            Some(chunk) => {
                counters.tail_cache_hits.add(1);
                chunk
            }
            None => {
                counters.file_reads.add(1);
                let reader = self.reader.clone();
                let read = move || match isolation {
                    Isolation::ReadCommitted => reader.read_committed(from, max_bytes, bound),
                    Isolation::ReadUncommitted => reader.read(from, max_bytes, bound),
                };
                blocking(read).await?
            }
        };
        if isolation == Isolation::ReadUncommitted {
            chunk.aborted.clear();
        }
        let size_bytes: usize = chunk.batches.iter().map(|batch| batch.bytes().len()).sum();
        counters.read_bytes.add(size_bytes as u64);
        Ok(chunk)
    }

    /// Changes settings, term and whether appends are taken. What was written without a sync is synced when the topic
    /// begins to promise that; so this blocks.
    pub(crate) fn reconfigure(
        &self,
        config: &TopicConfig,
        retiring: bool,
        leader_epoch: LeaderEpoch,
    ) -> Result<(), Arc<StorageError>> {
        let page_cache = config.durability == Durability::PageCache;
        self.append_time.store(config.timestamp_type == TimestampType::LogAppendTime, Ordering::Release);
        self.leader_epoch.store(leader_epoch.0, Ordering::Release);
        {
            let mut log = self.log.lock();
            self.page_cache.store(page_cache, Ordering::Release);
            self.keyed_only.store(config.cleanup.compact, Ordering::Release);
            if let Some(log) = &mut *log {
                log.set_options(self.directory.log_options(config, retiring));
                if !page_cache {
                    self.flush(log)?;
                }
                self.publish(&log.marks());
            }
        }
        self.queue.lock().shut = retiring.then_some(Shut::Retiring);
        Ok(())
    }

    /// Takes no more appends, and comes back when all that were accepted are answered. Blocks.
    pub(crate) fn shut(&self, why: Shut) {
        let mut queue = self.queue.lock();
        queue.shut = Some(why);
        while !queue.is_idle() {
            self.idle.wait(&mut queue);
        }
    }

    /// Housekeeping of the log; blocks.
    pub(crate) fn maintain(&self, now: Timestamp) -> Result<Retained, Arc<StorageError>> {
        // What is not decided was readable by nobody yet, so it stays, however old it is.
        let retained = self.with_flushed(|log| {
            let retained = log.maintain(now, self.last_stable_offset())?;
            self.publish(&log.marks());
            Ok(retained)
        })?;
        let retained = retained.unwrap_or_default();
        self.directory.counters().segments_removed.add(retained.segments as u64);
        Ok(retained)
    }

    /// Does something with the log once all that was written is synced; nothing if the log is closed. Whoever waits for
    /// the log has it next, also when this is called again at once.
    fn with_flushed<T>(
        &self,
        work: impl FnOnce(&mut PartitionLog) -> Result<T, Arc<StorageError>>,
    ) -> Result<Option<T>, Arc<StorageError>> {
        // Most of what a page-cache topic has to flush goes while appends go on.
        let ahead = if self.dirty.load(Ordering::Acquire) { self.reader.sync_ahead() } else { Ok(()) };
        let mut held = self.log.lock();
        // A log that was given up meanwhile may have lost its files.
        let Some(log) = &mut *held else { return Ok(None) };
        // To be early is not worth a failure: what is missing is synced below.
        if let Err(error) = ahead
            && !error.is_out_of_files()
        {
            return Err(error.into());
        }
        self.flush(log)?;
        let done = work(log);
        MutexGuard::unlock_fair(held);
        done.map(Some)
    }

    fn flush(&self, log: &mut PartitionLog) -> Result<(), Arc<StorageError>> {
        if self.dirty.swap(false, Ordering::AcqRel) {
            log.sync()?;
            self.directory.counters().syncs.add(1);
        }
        Ok(())
    }

    /// What an idempotency key stands for here: the body's digest, and the offset of its append. Blocks.
    pub(crate) fn keyed_append(&self, id: ProducerId) -> Option<((ProducerEpoch, Sequence), Offset)> {
        self.log.lock().as_ref()?.keyed_append(id, self.directory.now())
    }

    /// Sets whether records need a key. Answers the end of the log at that moment: what lies below was stored before.
    /// Blocks.
    pub(crate) fn require_keys(&self, required: bool) -> Offset {
        let log = self.log.lock();
        self.keyed_only.store(required, Ordering::Release);
        log.as_ref().map_or(self.log_start(), |log| log.marks().log_end)
    }

    /// Moves the log start up; blocks.
    pub(crate) fn truncate_front(&self, before: Offset) -> Result<Offset, Arc<StorageError>> {
        match &mut *self.log.lock() {
            Some(log) => {
                let log_start = log.truncate_front(before)?;
                self.publish(&log.marks());
                Ok(log_start)
            }
            None => Ok(self.log_start()),
        }
    }

    /// Closes a log that was shut, leaving it clean; blocks.
    pub(crate) fn close(&self) -> Result<(), Arc<StorageError>> {
        self.log.lock().take().map_or(Ok(()), PartitionLog::close)
    }

    /// Gives up the log as it is, because its directory goes.
    pub(crate) fn abandon(&self) {
        drop(self.log.lock().take());
        self.waiters.wake_all();
    }
}

/// Runs what blocks on a thread that may.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Blocking work is only cancelled when the runtime ends, and this future then with it.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Does async work of several steps to its end, whatever becomes of who waits for it.
pub(crate) async fn to_the_end<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // As above.
            Err(_) => std::future::pending().await,
        },
    }
}

fn open_log(
    directory: &Directory,
    path: &Path,
    options: LogOptions,
    spec: &PartitionSpec<'_>,
) -> Result<PartitionLog, OpenError> {
    let (mut log, recovery) = directory.open_log(path, options, spec.clean)?;
    log.begin_at(spec.start_at);
    if recovery.cut_bytes > 0 || !recovery.damage.is_empty() {
        tracing::warn!(path = %path.display(), ?recovery, "the log was recovered");
    }
    Ok(log)
}
