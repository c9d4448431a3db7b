//! One source partition of a processor: turn by turn, until it is told to stop or cannot go on, with commits of its position.
//! Not here: what a turn does (`parts`).
//!
//! Where no record is to blame (the host has no room, a module cannot be loaded, the disk is full) it waits, says so, and goes
//! on. It holds nothing of the engine while it waits, and no records.

use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_model::Offset;
use tokio::sync::{Notify, SemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::halt::{Failure, Halt};
use super::ledger::Ledger;
use super::parts::Turn;
use super::plan::Plan;
use super::progress::Progress;
use super::terms::ProcessorWaiting;
use super::trouble::Trouble;
use crate::catalog::Topic;
use crate::engine::Core;
use crate::partition::{Bound, Partition};

/// Pauses before something is tried again: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How a task has ended.
pub(super) enum Ended {
    /// It was told to, or there is nothing left to do; what it has done is committed unless the engine closes.
    Stopped,
    /// The processor is to stand still.
    Failed(Failure),
}

/// The task of one partition.
pub(super) struct Task {
    pub(super) core: Weak<Core>,
    pub(super) plan: Arc<Plan>,
    pub(super) topic: Arc<Topic>,
    pub(super) partition: Arc<Partition>,
    pub(super) sink: Arc<Topic>,
    pub(super) progress: Arc<Progress>,
    /// True when it is to stop at the end of the batch; also when its sender is gone.
    pub(super) stop: watch::Receiver<bool>,
    /// What failed behind its position.
    pub(super) trouble: Trouble,
}

impl Task {
    /// Works until it is told to stop or cannot go on.
    pub(super) async fn run(mut self) -> Ended {
        let ended = self.go_on().await;
        self.progress.set_waiting(None);
        ended
    }

    async fn go_on(&mut self) -> Ended {
        let mut pause = PAUSE_MIN;
        loop {
            let began = Instant::now();
            match self.attempt().await {
                Ok(()) | Err(Halt::Gone | Halt::Over) => return Ended::Stopped,
                Err(Halt::Failed(failure)) => return Ended::Failed(failure),
                Err(Halt::Passing(reason) | Halt::Busy(reason)) => {
                    let (processor, topic) = (&self.plan.name, self.topic.name());
                    let partition = self.partition.index();
                    tracing::warn!(%processor, %topic, %partition, %reason, "a task of a processor begins again");
                    self.waits(reason);
                }
            }
            if began.elapsed() > PAUSE_MAX {
                pause = PAUSE_MIN;
            }
            if !self.rest(pause).await {
                return Ended::Stopped;
            }
            pause = longer(pause);
        }
    }

    /// Works from where it has committed; answers when it is told to stop.
    async fn attempt(&mut self) -> Result<(), Halt> {
        self.check_topics()?;
        let core = self.core.upgrade().ok_or(Halt::Gone)?;
        let mut ledger = Ledger::open(&core, &self.plan, (&self.topic, &self.partition), &self.progress).await?;
        drop(core);
        let worked = self.work(&mut ledger).await;
        if worked.is_err()
            && let Some(core) = self.core.upgrade()
        {
            ledger.give_up(&core).await;
        }
        worked
    }

    async fn work(&mut self, ledger: &mut Ledger) -> Result<(), Halt> {
        let mut pause = PAUSE_MIN;
        loop {
            let core = self.core.upgrade().ok_or(Halt::Gone)?;
            if self.is_stopped() {
                return ledger.commit(&core).await;
            }
            let turned = self.turn(&core, ledger).await;
            let commits = match &turned {
                Ok(Turn::Done | Turn::Nothing) => ledger.is_due(),
                // Before it stands still for long, so that nobody waits for what is done.
                Ok(Turn::Again(..)) | Err(Halt::Busy(_) | Halt::Failed(_) | Halt::Over) => ledger.is_whole(),
                Err(Halt::Passing(_) | Halt::Gone) => false,
            };
            if commits {
                ledger.commit(&core).await?;
            }
            drop(core);
            match turned {
                Ok(Turn::Again(waiting, attempts)) => {
                    self.progress.set_waiting(Some(waiting));
                    self.rest(pause_behind(attempts)).await;
                }
                Err(Halt::Busy(reason)) if ledger.is_whole() => {
                    tracing::debug!(processor = %self.plan.name, %reason, "a task of a processor waits");
                    self.waits(reason);
                    self.rest(pause).await;
                    pause = longer(pause);
                }
                Ok(turned) => {
                    self.progress.set_waiting(None);
                    pause = PAUSE_MIN;
                    if let Turn::Nothing = turned {
                        self.wait(ledger).await;
                    }
                }
                Err(halt) => return Err(halt),
            }
        }
    }

    /// Waits for room to work on a batch; none if before that it is to stop or to commit.
    pub(super) async fn room<'a>(&self, core: &'a Core, ledger: &Ledger) -> Option<SemaphorePermit<'a>> {
        let (mut stop, due) = (self.stop.clone(), ledger.due());
        let due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stops| *stops) => None,
            room = core.processors.room() => Some(room),
            () = due => None,
        }
    }

    /// Says what it waits for, where no record is to blame.
    fn waits(&self, reason: String) {
        self.progress.set_waiting(Some(ProcessorWaiting { reason, offset: None, attempts: None }));
    }

    /// Whether the partition was dropped, after all of it had expired.
    pub(super) fn is_dropped(&self) -> bool {
        let state = self.topic.state();
        state.partition(self.partition.index()).is_none_or(|there| !Arc::ptr_eq(there, &self.partition))
    }

    pub(super) fn has_news(&self, position: Offset) -> bool {
        let partition = &self.partition;
        let is_gone = self.topic.is_deleted() || self.sink.is_deleted() || self.is_dropped();
        let is_outside = partition.log_start() > position || position > partition.high_watermark();
        is_gone || is_outside || partition.last_stable_offset() > position
    }

    /// Waits for records, for the next commit, or to be stopped.
    async fn wait(&mut self, ledger: &Ledger) {
        let (woken, position) = (Arc::new(Notify::new()), ledger.position());
        let watch = |topic: &Topic| topic.watchers().register(Bound::HighWatermark, Offset(0), &woken);
        let _waiters = [
            self.partition.waiters().register(Bound::LastStable, position, &woken),
            watch(&self.topic),
            watch(&self.sink),
        ];
        if self.has_news(position) || self.is_stopped() {
            return;
        }
        let woken = async {
            match ledger.due() {
                Some(due) => drop(timeout_at(due, woken.notified()).await),
                None => woken.notified().await,
            }
        };
        tokio::select! {
            () = woken => {}
            _ = self.stop.changed() => {}
        }
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    /// Waits for a while; false if it is to stop.
    async fn rest(&self, pause: Duration) -> bool {
        let mut stop = self.stop.clone();
        timeout_at(Instant::now() + pause, stop.wait_for(|stops| *stops)).await.is_err()
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}

/// The pause before a record is tried again that failed so often.
fn pause_behind(attempts: u32) -> Duration {
    PAUSE_MIN.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(PAUSE_MAX)
}
