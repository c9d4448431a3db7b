//! Compaction: a thread of its own that looks for logs to compact at every interval, and does what it is asked for.
//!
//! One pass at a time, so that its memory is bounded by one setting: first those that were asked for, then those that are
//! due, the dirtiest first. Not here: what a pass does (`levada_log`), and what one partition knows of its passes
//! (`partition::cleaning`).

mod forced;
mod terms;

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use levada_log::{CompactionPass, CompactionState, UncompactedReason};
use levada_model::{Operation, PartitionIndex, Principal, Resource, TopicName};
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

pub use terms::{CompactedPartition, CompactedTopic, CompactionFailure, PartitionCompaction};

use forced::Forced;

use crate::Engine;
use crate::catalog::Topic;
use crate::engine::Core;
use crate::partition::{CleanFault, Partition, blocking};
use crate::topics::{TopicError, refuse_internal};

/// Between two looks at what failed there is so much at least, whatever a clock says.
const RETRY_LOOK_MIN: Duration = Duration::from_secs(1);

/// What came of a forced pass.
type Outcome = Result<Option<CompactionPass>, CleanFault>;

/// What the cleaner is asked to do, and when it ends.
#[derive(Default)]
pub(crate) struct Cleaner {
    agenda: Mutex<Agenda>,
    woken: Condvar,
    /// Held during a pass.
    turn: Mutex<()>,
}

#[derive(Default)]
struct Agenda {
    forced: Forced<Partition, Outcome>,
    stopping: bool,
}

impl Engine {
    /// Compacts a topic now: rolls its active segments, and cleans again what is clean. Waits for it at most `wait`; it
    /// goes on behind that, and also when nobody waits any more. Who asks while a pass is still to begin shares it.
    /// Partitions that are dropped meanwhile are left out.
    ///
    /// # Errors
    /// See [`TopicError`]; [`TopicError::CompactionFailed`] where a partition could not be compacted (others may be).
    pub async fn compact_topic(
        &self,
        who: &Principal,
        name: &TopicName,
        wait: Duration,
    ) -> Result<CompactedTopic, TopicError> {
        self.core.authorize(who, Operation::Alter, Resource::Topic(name))?;
        refuse_internal(name)?;
        let topic = self.core.catalog.get(name).ok_or_else(|| TopicError::NotFound(name.clone()))?;
        let state = topic.state_full();
        if !state.config.cleanup.compact {
            return Err(TopicError::NotCompacted(name.clone()));
        }
        if let Some(reason) = self.core.directory.fenced() {
            return Err(TopicError::Fenced { reason: reason.to_owned(), possible: false });
        }
        let waits = !wait.is_zero();
        let asked: Vec<_> =
            state.partitions().map(|partition| (partition, self.core.cleaner.force(partition, waits))).collect();
        let mut compacted = CompactedTopic { partitions: Vec::new(), is_done: true };
        let mut failed = Vec::new();
        let deadline = Instant::now() + wait;
        for (partition, outcome) in asked {
            match outcome_until(deadline, outcome).await {
                None => compacted.is_done = false,
                Some(Ok(pass)) => compacted.partitions.push(CompactedPartition::new(partition.index(), pass)),
                Some(Err(fault)) => failed.push((partition, fault)),
            }
        }
        match failed.into_iter().find_map(|(partition, fault)| self.core.no_pass(&topic, partition, fault)) {
            None => Ok(compacted),
            Some(error) => Err(error),
        }
    }

    /// How far the partitions of a topic are compacted, in order of number; none at all where the topic is not compacted.
    ///
    /// # Errors
    /// See [`TopicError`].
    pub async fn topic_compaction(
        &self,
        who: &Principal,
        name: &TopicName,
    ) -> Result<Vec<(PartitionIndex, PartitionCompaction)>, TopicError> {
        self.core.authorize(who, Operation::Describe, Resource::Topic(name))?;
        let topic = self.core.catalog.get(name).ok_or_else(|| TopicError::NotFound(name.clone()))?;
        let state = topic.state_full();
        if !state.config.cleanup.compact {
            return Ok(Vec::new());
        }
        let core = self.core.clone();
        Ok(blocking(move || state.partitions().filter_map(|partition| core.compaction_of(partition)).collect()).await)
    }

    /// Compacts what is due now, as the cleaner does at every interval. Blocks.
    pub fn run_compaction(&self) {
        self.core.cleaner.run(due(&self.core));
    }
}

impl Core {
    /// Why a forced pass came to nothing; none where the partition was dropped from the topic, which is no failure.
    fn no_pass(&self, topic: &Topic, partition: &Arc<Partition>, fault: CleanFault) -> Option<TopicError> {
        let fenced = |reason: &str| TopicError::Fenced { reason: reason.to_owned(), possible: false };
        Some(match fault {
            CleanFault::Failed(reason) => TopicError::CompactionFailed {
                topic: topic.name().clone(),
                partition: partition.index(),
                reason: reason.to_string(),
            },
            CleanFault::Fenced(reason) => fenced(&reason),
            CleanFault::Gone if self.is_closing() => TopicError::Closing,
            CleanFault::Gone if topic.is_deleted() => TopicError::NotFound(topic.name().clone()),
            CleanFault::Gone => match self.directory.fenced() {
                Some(reason) => fenced(reason),
                None if topic.state().partitions().all(|other| !Arc::ptr_eq(other, partition)) => return None,
                // Nothing else ends a log that its topic has.
                None => TopicError::Closing,
            },
        })
    }

    /// How far a partition is compacted; none where it is not, or is gone. Blocks.
    fn compaction_of(&self, partition: &Partition) -> Option<(PartitionIndex, PartitionCompaction)> {
        let failure = partition.compaction_failure().map(CompactionFailure::from);
        let compaction = match self.compaction_state(partition) {
            Ok(state) => PartitionCompaction::new(state?, failure),
            // It is shown by the failure that the cleaner meets for the same reason.
            Err(reason) => PartitionCompaction::unknown(failure.unwrap_or_else(|| self.failing_now(reason))),
        };
        Some((partition.index(), compaction))
    }

    fn failing_now(&self, reason: Arc<str>) -> CompactionFailure {
        let now = self.directory.now();
        CompactionFailure { reason, since: now, retry_at: now }
    }

    fn compaction_state(&self, partition: &Partition) -> Result<Option<CompactionState>, Arc<str>> {
        let state = partition.reader().compaction_state(self.directory.now(), partition.last_stable_offset());
        state.map_err(|error| error.to_string().into())
    }
}

impl Cleaner {
    /// Asks for a forced pass over a partition; answers what becomes of it if somebody waits.
    fn force(&self, partition: &Arc<Partition>, waits: bool) -> Option<watch::Receiver<Option<Outcome>>> {
        let mut agenda = self.agenda.lock();
        if agenda.stopping {
            // Closed at once.
            return waits.then(|| watch::Sender::new(None).subscribe());
        }
        let outcome = agenda.forced.push(partition);
        let outcome = waits.then(|| outcome.subscribe());
        self.woken.notify_all();
        outcome
    }

    /// Ends the thread behind the pass that runs, and lets go of what was asked for.
    pub(crate) fn stop(&self) {
        let mut agenda = self.agenda.lock();
        agenda.stopping = true;
        agenda.forced.clear();
        self.woken.notify_all();
    }

    /// Waits until there is something to do, at most so long; false when the thread shall end.
    fn wait(&self, most: Duration) -> bool {
        let mut agenda = self.agenda.lock();
        if !agenda.stopping && agenda.forced.is_empty() {
            self.woken.wait_for(&mut agenda, most);
        }
        !agenda.stopping
    }

    /// One round over logs that are due; those that were asked for come first at any time.
    fn run(&self, due: Vec<Arc<Partition>>) {
        for partition in due {
            self.run_forced();
            if self.agenda.lock().stopping {
                return;
            }
            let _turn = self.turn.lock();
            // What failed was noted, and is tried again after a pause.
            let _ = partition.clean(false);
        }
    }

    /// Does all that was asked for.
    fn run_forced(&self) {
        loop {
            let Some((partition, outcome)) = self.agenda.lock().forced.pop() else { return };
            let cleaned = {
                let _turn = self.turn.lock();
                partition.clean(true)
            };
            outcome.send_replace(Some(cleaned));
        }
    }
}

/// What came of a forced pass until then; none where that is not known yet, or nobody wants to know.
async fn outcome_until(deadline: Instant, outcome: Option<watch::Receiver<Option<Outcome>>>) -> Option<Outcome> {
    let mut outcome = outcome?;
    let told = timeout_at(deadline, outcome.wait_for(Option::is_some)).await.ok()?;
    // The cleaner ends without it.
    told.map_or(Some(Err(CleanFault::Gone)), |told| told.clone())
}

/// Starts the thread. It ends when the cleaner is stopped or the engine is gone; while a pass runs it holds no more of the
/// engine than the partition.
pub(crate) fn start(core: &Arc<Core>, interval: Duration) {
    let (cleaner, core) = (core.cleaner.clone(), Arc::downgrade(core));
    let run = move || {
        let mut next = std::time::Instant::now() + interval;
        while cleaner.wait(next.saturating_duration_since(std::time::Instant::now())) {
            cleaner.run_forced();
            if std::time::Instant::now() < next {
                continue;
            }
            let Some(due) = Weak::upgrade(&core).map(|core| due(&core)) else { return };
            cleaner.run(due);
            let Some(retry_in) = Weak::upgrade(&core).map(|core| retry_in(&core)) else { return };
            next = std::time::Instant::now() + interval.min(retry_in.unwrap_or(interval));
        }
    };
    thread::Builder::new().name("cleaner".to_owned()).spawn(run).expect("the system has room for one more thread");
}

/// Partitions to compact now, the dirtiest first, and before them those that are due for their age.
fn due(core: &Core) -> Vec<Arc<Partition>> {
    let mut found = Vec::new();
    for partition in
        compacted(core).into_iter().filter(|partition| partition.cleaning_waits_ms().is_none_or(|ms| ms == 0))
    {
        match core.compaction_state(&partition) {
            Ok(None) => (),
            Ok(Some(state)) => found.push((rank(&state), partition)),
            Err(reason) => partition.note_failure(&reason),
        }
    }
    found.sort_by(|(a, _), (b, _)| b.partial_cmp(a).expect("a ratio is a number"));
    found.into_iter().map(|(_, partition)| partition).collect()
}

/// What is due comes before what only may be (its active segment may have to be rolled for its age), then the dirtier.
fn rank(state: &CompactionState) -> (bool, f64) {
    let is_due = state.uncompacted.iter().any(|stretch| stretch.reason == UncompactedReason::Due);
    (is_due, state.dirty_ratio)
}

/// When the first of those that failed is tried again.
fn retry_in(core: &Core) -> Option<Duration> {
    let waits = compacted(core).into_iter().filter_map(|partition| partition.cleaning_waits_ms());
    waits.min().map(|ms| Duration::from_millis(ms).max(RETRY_LOOK_MIN))
}

/// The partitions of all topics that are compacted.
fn compacted(core: &Core) -> Vec<Arc<Partition>> {
    let topics = core.catalog.topics();
    let states = topics.iter().map(|topic| topic.state_full()).filter(|state| state.config.cleanup.compact);
    states.flat_map(|state| state.partitions().cloned().collect::<Vec<_>>()).collect()
}
