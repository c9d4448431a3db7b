//! A processor that runs: one task for each partition of its sources, begun anew when its document changes, stopped when
//! somebody pauses it or one of them cannot go on.
//!
//! It holds nothing of the engine while it waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use levada_model::{Offset, PartitionIndex, ProcessorName, TopicId, TopicName};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

use super::halt::Failure;
use super::plan::Plan;
use super::positions::{self, PositionError};
use super::progress::{Progress, Tally};
use super::task::{Ended, Task};
use super::terms::{ProcessorSpec, ProcessorState, ProcessorWaiting};
use super::trouble::Trouble;
use crate::FetchError;
use crate::catalog::Topic;
use crate::engine::Core;
use crate::metadata::ProcessorImage;
use crate::partition::{Bound, Waiter};

/// Pause before positions are begun again that could not be.
const PAUSE: Duration = Duration::from_millis(100);

/// A partition of a source.
type Place = (TopicId, PartitionIndex);

/// What others see of a processor that runs, and how they move it.
pub(super) struct Control {
    /// Counts the words of others to it.
    wanted: AtomicU64,
    /// Whether it is to try again over what it stands still.
    retries: AtomicBool,
    woken: Arc<Notify>,
    status: watch::Sender<Status>,
    closing: Notify,
    progress: Mutex<BTreeMap<Place, Arc<Progress>>>,
}

/// How a processor stands.
#[derive(Clone, Debug)]
struct Status {
    /// The last word that was followed.
    followed: u64,
    state: ProcessorState,
    /// Why tasks begin later.
    waiting: Option<String>,
}

impl Control {
    pub(super) fn new(paused: bool) -> Self {
        let state = if paused { ProcessorState::Paused } else { ProcessorState::Running };
        Self {
            wanted: AtomicU64::new(0),
            retries: AtomicBool::new(false),
            woken: Arc::default(),
            status: watch::Sender::new(Status { followed: 0, state, waiting: None }),
            closing: Notify::new(),
            progress: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> ProcessorState {
        self.status.borrow().state.clone()
    }

    /// What the task of a partition has counted, and what it waits for.
    pub(super) fn progress_of(&self, place: Place) -> (Tally, Option<ProcessorWaiting>) {
        let progress = self.progress.lock().get(&place).cloned().unwrap_or_default();
        let later = || {
            let reason = self.status.borrow().waiting.clone()?;
            Some(ProcessorWaiting { reason, offset: None, attempts: None })
        };
        (progress.get(), progress.waiting().or_else(later))
    }

    /// Has it look at the metadata, and try again over what it stands still; answers the number of this word.
    pub(super) fn tell(&self, retries: bool) -> u64 {
        if retries {
            self.retries.store(true, Ordering::Release);
            self.status.send_if_modified(|status| {
                let is_failed = matches!(status.state, ProcessorState::Failed { .. });
                if is_failed {
                    status.state = ProcessorState::Running;
                }
                is_failed
            });
        }
        let number = self.wanted.fetch_add(1, Ordering::AcqRel) + 1;
        self.woken.notify_one();
        number
    }

    /// Waits until a word is followed: tasks of an earlier document have ended, and those of one that is paused; those of one
    /// that runs have begun, with their positions committed.
    pub(super) async fn followed(&self, number: u64) {
        // It cannot end before this does.
        let _ = self.status.subscribe().wait_for(|status| status.followed >= number).await;
    }

    /// Nobody follows words any more.
    pub(super) fn end(&self) {
        self.status.send_modify(|status| {
            status.followed = u64::MAX;
            status.waiting = None;
            if thread::panicking() {
                let reason = "whoever keeps its tasks panicked".to_owned();
                status.state = ProcessorState::Failed { reason, at: None };
            }
        });
    }

    /// Has whoever keeps the tasks end them wherever they are, and itself.
    pub(super) fn close(&self) {
        self.closing.notify_one();
        self.end();
    }

    fn progress(&self, place: Place) -> Arc<Progress> {
        self.progress.lock().entry(place).or_default().clone()
    }
}

/// Whoever keeps the tasks of a processor.
pub(super) struct Runner {
    name: ProcessorName,
    control: Arc<Control>,
    core: Weak<Core>,
    /// The document that is followed, and whether it is paused. One that was put, deleted and put again is another.
    current: Option<(Arc<ProcessorSpec>, bool)>,
    tasks: JoinSet<(Place, Ended)>,
    running: BTreeSet<Place>,
    stop: watch::Sender<bool>,
    failure: Option<Failure>,
}

impl Runner {
    pub(super) fn new(name: ProcessorName, control: Arc<Control>, core: Weak<Core>) -> Self {
        Self {
            name,
            control,
            core,
            current: None,
            tasks: JoinSet::new(),
            running: BTreeSet::new(),
            stop: watch::Sender::new(false),
            failure: None,
        }
    }

    /// Runs until the processor is deleted or the engine closes or is gone.
    pub(super) async fn run(mut self) {
        let control = self.control.clone();
        let _end = EndOnDrop(control.clone());
        tokio::select! {
            () = self.keep() => {}
            () = control.closing.notified() => {}
        }
        self.tasks.shutdown().await;
    }

    async fn keep(&mut self) {
        loop {
            let number = self.control.wanted.load(Ordering::Acquire);
            let Some(core) = self.core.upgrade() else { return };
            let Some(image) = core.metadata.image().processors.get(&self.name).cloned() else {
                drop(core);
                return self.stop_tasks().await;
            };
            self.follow(&image).await;
            let mut waiters = Vec::new();
            let mut later = None;
            if !image.paused && self.failure.is_none() {
                match self.begin_tasks(&core, &image, &mut waiters).await {
                    Ok(()) => {}
                    Err(NotBegun::Later(reason)) => {
                        tracing::warn!(processor = %self.name, %reason, "its tasks begin later");
                        later = Some(reason);
                    }
                    Err(NotBegun::Never(failure)) => self.failure = Some(failure),
                }
            }
            drop(core);
            if self.failure.is_some() {
                self.stop_tasks().await;
            }
            let again = later.as_ref().map(|_| Instant::now() + PAUSE);
            self.publish(number, image.paused, later);
            self.wait(again).await;
        }
    }

    /// Stops the tasks of another document, or those that shall stand still.
    async fn follow(&mut self, image: &ProcessorImage) {
        let retries = self.control.retries.swap(false, Ordering::AcqRel) && self.failure.is_some();
        let is_same =
            |(spec, paused): &(Arc<ProcessorSpec>, bool)| Arc::ptr_eq(spec, &image.spec) && *paused == image.paused;
        if retries || !self.current.as_ref().is_some_and(is_same) {
            self.stop_tasks().await;
            self.failure = None;
            self.current = Some((image.spec.clone(), image.paused));
        }
    }

    /// Begins the tasks that are missing. What may change that is registered first, so that no change is lost.
    async fn begin_tasks(
        &mut self,
        core: &Arc<Core>,
        image: &ProcessorImage,
        waiters: &mut Vec<Waiter>,
    ) -> Result<(), NotBegun> {
        let plan = Plan::new(&self.name, image).map_err(|error| {
            NotBegun::Never(Failure { reason: format!("its document cannot be followed: {error}"), at: None })
        })?;
        let plan = Arc::new(plan);
        let sink = topic(core, "sink", &plan.spec.sink)?;
        let watch = |topic: &Topic| topic.watchers().register(Bound::HighWatermark, Offset(0), &self.control.woken);
        waiters.push(watch(&sink));
        for source in &plan.spec.sources {
            let source_topic = topic(core, "source", &source.topic)?;
            waiters.push(watch(&source_topic));
            let state = source_topic.state_full();
            let missing = |index| !self.running.contains(&(source_topic.id(), index));
            let missing: Vec<_> = state.partitions().filter(|partition| missing(partition.index())).collect();
            if missing.is_empty() {
                continue;
            }
            positions::begin(core, &plan.group, &source_topic, source.start).await?;
            for partition in missing {
                let place = (source_topic.id(), partition.index());
                let task = Task {
                    core: self.core.clone(),
                    plan: plan.clone(),
                    topic: source_topic.clone(),
                    partition: partition.clone(),
                    sink: sink.clone(),
                    progress: self.control.progress(place),
                    stop: self.stop.subscribe(),
                    trouble: Trouble::default(),
                };
                self.running.insert(place);
                self.tasks.spawn(async move { (place, task.run().await) });
            }
        }
        Ok(())
    }

    /// Has all tasks end where they are done with a batch.
    async fn stop_tasks(&mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            self.note_end(ended);
        }
        self.running.clear();
        self.stop = watch::Sender::new(false);
    }

    fn note_end(&mut self, ended: Result<(Place, Ended), JoinError>) {
        match ended {
            Ok((place, ended)) => {
                self.running.remove(&place);
                if let Ended::Failed(failure) = ended {
                    tracing::warn!(processor = %self.name, reason = %failure.reason, "a processor stands still");
                    self.failure.get_or_insert(failure);
                }
            }
            Err(error) => {
                let reason = format!("a task panicked: {error}");
                tracing::error!(processor = %self.name, %reason, "a processor stands still");
                self.failure.get_or_insert(Failure { reason, at: None });
            }
        }
    }

    /// Tells how it stands. A word counts as followed once the tasks have begun.
    fn publish(&self, number: u64, paused: bool, waiting: Option<String>) {
        let state = match &self.failure {
            _ if paused => ProcessorState::Paused,
            Some(Failure { reason, at }) => ProcessorState::Failed { reason: reason.clone(), at: at.clone() },
            None => ProcessorState::Running,
        };
        self.control.status.send_modify(|status| {
            let followed = if waiting.is_none() { number } else { status.followed };
            *status = Status { followed, state, waiting };
        });
    }

    /// Waits until there may be something to do.
    async fn wait(&mut self, again: Option<Instant>) {
        let woken = self.control.woken.clone();
        let woken = async {
            match again {
                Some(at) => drop(timeout_at(at, woken.notified()).await),
                None => woken.notified().await,
            }
        };
        tokio::select! {
            () = woken => {}
            Some(ended) = self.tasks.join_next() => self.note_end(ended),
        }
    }
}

/// Nobody waits for one that has ended, however it did.
struct EndOnDrop(Arc<Control>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Why the tasks were not begun.
enum NotBegun {
    Later(String),
    Never(Failure),
}

impl From<PositionError> for NotBegun {
    fn from(error: PositionError) -> Self {
        match error {
            PositionError::Fetch(FetchError::NotFound(_) | FetchError::Denied(_)) => {
                Self::Never(Failure { reason: error.to_string(), at: None })
            }
            error => Self::Later(error.to_string()),
        }
    }
}

fn topic(core: &Core, what: &str, name: &TopicName) -> Result<Arc<Topic>, NotBegun> {
    let gone = || NotBegun::Never(Failure { reason: format!("the {what} topic {name} was deleted"), at: None });
    core.catalog.get(name).ok_or_else(gone)
}
