//! The owner's work: take all that waits as one group, stage it, write it with one call, sync it where the topic
//! promises that, publish the marks, answer.
//!
//! The end of a transaction is synced in every topic.
//!
//! Who does it ("combining by whoever comes first"): in `page-cache` topics the producer that finds nobody at work
//! serves the queue on its own thread, for a few groups at most and never where a sync may be due; everywhere else a log
//! thread of the directory. While one group is written the next one forms.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use levada_log::{
    AbortedTransaction, Append, AppendError, Appended, Batch, BatchBuf, Marks, PartitionLog, StorageError,
    TransactionEnd,
};
use levada_model::{Offset, Timestamp};
use parking_lot::MutexGuard;
use tokio::sync::oneshot;

use super::queue::{Pending, Queue, Shut};
use super::{Landed, Landings, NewAppend, Partition};
use crate::AppendFault;

/// Groups that a producer serves at most on its own thread before it hands over to a log thread.
const INLINE_GROUPS_MAX: usize = 3;

impl Partition {
    /// Hands an append to the owner. From then on it is the owner's: it is stored though nobody waits for the answer. A
    /// partition that retires takes the ends of its transactions still.
    ///
    /// # Errors
    /// When it is not accepted; nothing of it is stored then.
    pub(crate) fn push(self: &Arc<Self>, append: NewAppend) -> Result<oneshot::Receiver<Landings>, AppendFault> {
        if let Some(reason) = self.directory.fenced() {
            return Err(AppendFault::Fenced { reason: reason.to_owned(), possible: false });
        }
        let (pending, answer) = Pending::new(append);
        let mut queue = self.queue.lock();
        let is_end = pending.append.is_end();
        if let Some(shut) = queue.shut.filter(|shut| *shut != Shut::Retiring || !is_end) {
            return Err(shut.fault(self.index));
        }
        if queue.push(pending).is_err() {
            return Err(AppendFault::Overloaded(self.index));
        }
        if !std::mem::replace(&mut queue.served, true) {
            drop(queue);
            if self.is_inline() {
                self.serve_inline();
            } else {
                self.directory.schedule(self.clone());
            }
        }
        Ok(answer)
    }

    /// Serves one group on a log thread. Answers whether more waits; then the caller sees to it that it is served again.
    pub(crate) fn serve(self: &Arc<Self>) -> bool {
        let _guard = PanicGuard(self);
        let mut log = self.log.lock();
        let Some(group) = self.take_group() else { return false };
        self.serve_group(log.as_mut(), group);
        if !self.page_cache.load(Ordering::Acquire)
            && let Some(log) = &mut *log
        {
            log.prepare_ahead();
        }
        drop(log);
        self.has_more()
    }

    fn is_inline(&self) -> bool {
        self.page_cache.load(Ordering::Acquire) && !self.directory.lingers()
    }

    fn serve_inline(self: &Arc<Self>) {
        let _guard = PanicGuard(self);
        for _ in 0..INLINE_GROUPS_MAX {
            // Housekeeping may hold the log for as long as a sync takes; a request's thread does not wait for that.
            let Some(mut log) = self.log.try_lock() else { break };
            let mut queue = self.queue.lock();
            if log.as_ref().is_some_and(|log| self.may_sync(log, &queue)) {
                break;
            }
            let Some(group) = self.take_from(&mut queue) else { return };
            drop(queue);
            self.serve_group(log.as_mut(), group);
            MutexGuard::unlock_fair(log);
            if !self.is_inline() {
                break;
            }
        }
        if self.has_more() {
            self.directory.schedule(self.clone());
        }
    }

    /// Whether a sync may be due on the way to store what waits.
    fn may_sync(&self, log: &PartitionLog, queue: &Queue) -> bool {
        let (size_bytes, offsets) = queue.extent();
        queue.has_end() || log.may_sync(size_bytes as u64, offsets, self.leader_epoch())
    }

    fn take_group(&self) -> Option<VecDeque<Pending>> {
        self.take_from(&mut self.queue.lock())
    }

    fn take_from(&self, queue: &mut Queue) -> Option<VecDeque<Pending>> {
        let group = queue.take_group();
        if group.is_none() {
            self.idle.notify_all();
        }
        group
    }

    /// Whether more waits; if not, the queue is no longer served.
    fn has_more(&self) -> bool {
        let mut queue = self.queue.lock();
        let more = queue.has_more();
        if !more {
            self.idle.notify_all();
        }
        more
    }

    fn serve_group(self: &Arc<Self>, log: Option<&mut PartitionLog>, group: VecDeque<Pending>) {
        if let Some(reason) = self.directory.fenced() {
            let fault = Arc::new(fenced(reason, false));
            group.into_iter().for_each(|pending| pending.refuse(&fault));
            return;
        }
        let log = log.expect("a log is closed when its partition is shut and idle");
        if let Err(fault) = self.ready(log, &group) {
            group.into_iter().for_each(|pending| pending.refuse(&fault));
            return;
        }
        let now = self.directory.now();
        let mut staged = Staged::default();
        let answers: Vec<_> = group
            .into_iter()
            .map(|pending| (pending.reply, self.stage(log, pending.append, now, &mut staged)))
            .collect();
        let result = self.commit(log, now, staged);
        for (reply, mut landings) in answers {
            if let Err(fault) = &result {
                landings.iter_mut().filter(|landing| landing.is_ok()).for_each(|landing| *landing = Err(fault.clone()));
            }
            // Whoever asked may be gone; what was accepted is stored all the same.
            drop(reply.send(landings));
        }
        if log.is_settle_due() && !self.settling.swap(true, Ordering::AcqRel) {
            self.directory.schedule_settle(self.clone());
        }
    }

    /// Has everything opened that the group may need, so that none of it is staged where file descriptors run out.
    fn ready(&self, log: &mut PartitionLog, group: &VecDeque<Pending>) -> Result<(), Arc<AppendFault>> {
        let size_bytes: usize = group.iter().map(|pending| pending.size_bytes).sum();
        let offsets = group.iter().map(|pending| pending.offsets).sum();
        log.ready(size_bytes as u64, offsets, self.leader_epoch()).map_err(|error| {
            if error.is_out_of_files() {
                tracing::warn!(path = %self.path.display(), %error, "appends are refused until a file can be opened");
                return Arc::new(AppendFault::OutOfFiles(self.index));
            }
            Arc::new(fenced(&self.directory.fence(&error), false))
        })
    }

    /// Moves the recovery point to the end after many appends, on a log thread. Appends go on meanwhile for most of it.
    pub(crate) fn settle(&self) {
        let _guard = PanicGuard(self);
        let settled = self.with_flushed(|log| {
            self.settling.store(false, Ordering::Release);
            log.settle()
        });
        match settled {
            Err(error) if error.is_out_of_files() => {
                tracing::warn!(path = %self.path.display(), %error, "the recovery point is moved later");
            }
            Err(error) => drop(self.directory.fence(&error)),
            Ok(_) => (),
        }
    }

    fn stage(&self, log: &mut PartitionLog, append: NewAppend, now: Timestamp, staged: &mut Staged) -> Landings {
        let append_time = self.append_time.load(Ordering::Acquire);
        let epoch = self.leader_epoch();
        let mut expected_offset = append.expected_offset;
        staged.has_end |= append.is_end();
        // The request was judged by the settings that held then. What holds now is known here alone: whoever changes it
        // holds the log.
        let is_keyless = append.keyless && self.keyed_only.load(Ordering::Acquire);
        let mut refused = is_keyless.then(|| Arc::new(AppendFault::Keyless(self.index)));
        let mut one = |mut batch: BatchBuf| {
            if let Some(fault) = &refused {
                return Err(fault.clone());
            }
            if append_time {
                batch.set_append_time(now);
            }
            let ends = aborted_since(log, &batch);
            let append = Append { batch, check: append.check, expected_offset: expected_offset.take() };
            match log.stage(append, epoch, now) {
                Ok(Appended::Stored(batch)) => {
                    let base_offset = batch.header().base_offset;
                    staged.aborted.extend(ends.map(|ends| AbortedTransaction { last_offset: base_offset, ..ends }));
                    staged.stored.push(batch);
                    Ok(Landed { base_offset, appended_at: now, append_time, duplicate: false })
                }
                Ok(Appended::Duplicate { base_offset, timestamp }) => {
                    self.directory.counters().duplicates.add(1);
                    staged.duplicates_end = staged.duplicates_end.max(base_offset.advance(1));
                    Ok(Landed { base_offset, appended_at: timestamp, append_time, duplicate: true })
                }
                Err(AppendError::Poisoned(error)) => {
                    let fault = Arc::new(fenced(&self.directory.fence(&error), false));
                    Err(refused.insert(fault).clone())
                }
                Err(error) => Err(refused.insert(Arc::new(error.into())).clone()),
            }
        };
        append.batches.into_iter().map(&mut one).collect()
    }

    /// Writes and syncs what was staged and shows it to readers.
    fn commit(&self, log: &mut PartitionLog, now: Timestamp, staged: Staged) -> Result<(), Arc<AppendFault>> {
        let failed = |error: Arc<StorageError>| Arc::new(fenced(&self.directory.fence(&error), true));
        let counters = self.directory.counters();
        if !staged.stored.is_empty() {
            log.write(now).map_err(failed)?;
            counters.groups_written.add(1);
        }
        // A retry may not be told "stored" before the first try is as safe as the topic promises.
        let marks = log.marks();
        let unsynced = !staged.stored.is_empty() || staged.duplicates_end > marks.synced_end;
        // Whoever ends a transaction forgets it then: if its end were lost, nothing would ever be stable behind it.
        if staged.has_end || !self.page_cache.load(Ordering::Acquire) {
            if unsynced {
                log.sync().map_err(failed)?;
                counters.syncs.add(1);
                self.dirty.store(false, Ordering::Release);
            }
        } else {
            self.dirty.store(true, Ordering::Release);
        }
        let data = staged.stored.iter().map(Batch::header).filter(|header| !header.is_control());
        counters.appended_records.add(data.map(|header| u64::from(header.record_count)).sum());
        let size_bytes: usize = staged.stored.iter().map(|batch| batch.bytes().len()).sum();
        counters.appended_bytes.add(size_bytes as u64);
        // Before the marks: whoever may read a batch finds there whether it was aborted.
        self.tail.push(staged.stored, staged.aborted);
        self.publish(&log.marks());
        Ok(())
    }

    /// Moves what readers may see up to the log's marks, and wakes those who wait for that. To be called by whoever holds
    /// the log, when what was written is as safe as the topic promises.
    pub(super) fn publish(&self, marks: &Marks) {
        let (high_watermark, last_stable) = visible(marks, self.page_cache.load(Ordering::Acquire));
        // In this order: who looks at the last stable offset first never finds it beyond the high watermark.
        self.high_watermark.fetch_max(high_watermark.0, Ordering::AcqRel);
        self.last_stable.fetch_max(last_stable.0, Ordering::AcqRel);
        self.waiters.wake(high_watermark, last_stable);
    }
}

/// The high watermark and the last stable offset of a topic that promises to outlive the process alone (`page-cache`), or
/// a power cut.
pub(super) fn visible(marks: &Marks, page_cache: bool) -> (Offset, Offset) {
    if page_cache { (marks.log_end, marks.last_stable) } else { (marks.synced_end, marks.synced_stable) }
}

/// The transaction that a batch aborts if it is stored, all but where it ends.
fn aborted_since(log: &PartitionLog, batch: &BatchBuf) -> Option<AbortedTransaction> {
    batch.control().filter(|marker| marker.end == TransactionEnd::Abort)?;
    let producer_id = batch.header().producer_id?;
    let first_offset = log.open_since(producer_id)?;
    Some(AbortedTransaction { first_offset, last_offset: first_offset, producer_id })
}

/// What a group has put into the log so far.
#[derive(Default)]
struct Staged {
    stored: Vec<Batch>,
    /// The transactions that it aborts.
    aborted: Vec<AbortedTransaction>,
    /// Whether it ends a transaction, or that was done before.
    has_end: bool,
    /// Behind the first offset of the furthest duplicate.
    duplicates_end: Offset,
}

fn fenced(reason: &str, possible: bool) -> AppendFault {
    AppendFault::Fenced { reason: reason.to_owned(), possible }
}

/// When one who holds the log panics, which is our own bug, nobody may wait for it for ever.
pub(super) struct PanicGuard<'a>(pub(super) &'a Partition);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let partition = self.0;
        let reason = partition.directory.fence(&"the owner of a partition panicked");
        let fault = Arc::new(fenced(&reason, true));
        while let Some(group) = partition.take_group() {
            group.into_iter().for_each(|pending| pending.refuse(&fault));
        }
    }
}
