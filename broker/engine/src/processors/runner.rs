//! A processor that runs: one task for each partition of its sources, begun anew when its document changes, stopped when
//! somebody pauses it or one of them cannot go on.
//!
//! It holds nothing of the engine while it waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
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
use super::terms::ProcessorState;
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
    progress: Mutex<BTreeMap<Place, Arc<Progress>>>,
    /// Held by whoever changes the processor.
    pub(super) changing: tokio::sync::Mutex<()>,
}

/// How a processor stands.
#[derive(Clone, Debug)]
struct Status {
    /// The last word that was followed.
    followed: u64,
    state: ProcessorState,
}

impl Control {
    pub(super) fn new(paused: bool) -> Self {
        let state = if paused { ProcessorState::Paused } else { ProcessorState::Running };
        Self {
            wanted: AtomicU64::new(0),
            retries: AtomicBool::new(false),
            woken: Arc::default(),
            status: watch::Sender::new(Status { followed: 0, state }),
            progress: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> ProcessorState {
        self.status.borrow().state.clone()
    }

    pub(super) fn counts(&self, place: Place) -> Tally {
        self.progress.lock().get(&place).map_or_else(Tally::default, |progress| progress.get())
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

    /// Waits until a word is followed: tasks of an earlier document have ended, and those of one that is paused.
    pub(super) async fn followed(&self, number: u64) {
        // It cannot end before this does.
        let _ = self.status.subscribe().wait_for(|status| status.followed >= number).await;
    }

    /// Nobody follows words any more.
    pub(super) fn end(&self) {
        self.status.send_modify(|status| status.followed = u64::MAX);
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
    /// The document that is followed, and whether it is paused.
    current: Option<(u64, bool)>,
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

    /// Runs until the processor is deleted or the engine is gone.
    pub(super) async fn run(mut self) {
        loop {
            let number = self.control.wanted.load(Ordering::Acquire);
            let Some(core) = self.core.upgrade() else { break };
            let Some(image) = core.metadata.image().processors.get(&self.name).cloned() else {
                drop(core);
                self.stop_tasks().await;
                break;
            };
            self.follow(&image).await;
            let mut waiters = Vec::new();
            let mut again = None;
            if !image.paused && self.failure.is_none() {
                match self.begin_tasks(&core, &image, &mut waiters).await {
                    Ok(()) => {}
                    Err(NotBegun::Later(reason)) => {
                        tracing::warn!(processor = %self.name, %reason, "its tasks begin later");
                        again = Some(Instant::now() + PAUSE);
                    }
                    Err(NotBegun::Never(failure)) => self.failure = Some(failure),
                }
            }
            drop(core);
            if self.failure.is_some() {
                self.stop_tasks().await;
            }
            self.publish(number, image.paused);
            self.wait(again).await;
        }
        self.control.end();
    }

    /// Stops the tasks of another document, or those that shall stand still.
    async fn follow(&mut self, image: &ProcessorImage) {
        let retries = self.control.retries.swap(false, Ordering::AcqRel) && self.failure.is_some();
        let wanted = Some((image.version, image.paused));
        if self.current != wanted || retries {
            self.stop_tasks().await;
            self.failure = None;
            self.current = wanted;
        }
    }

    /// Begins the tasks that are missing. What may change that is registered first, so that no change is lost.
    async fn begin_tasks(
        &mut self,
        core: &Arc<Core>,
        image: &ProcessorImage,
        waiters: &mut Vec<Waiter>,
    ) -> Result<(), NotBegun> {
        let plan = Arc::new(Plan::new(&self.name, image));
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

    fn publish(&self, followed: u64, paused: bool) {
        let state = match &self.failure {
            _ if paused => ProcessorState::Paused,
            Some(Failure { reason, at }) => ProcessorState::Failed { reason: reason.clone(), at: at.clone() },
            None => ProcessorState::Running,
        };
        self.control.status.send_replace(Status { followed, state });
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
