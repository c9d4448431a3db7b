//! One source partition of a processor: reads it batch by batch, runs the steps, stores what comes out, and commits its
//! position.
//!
//! A batch that fails is halved until the record is found that it fails for; that one is tried again a few times, and then
//! the document's rule applies. Where no record is to blame (the host has no room, a module cannot be loaded, the disk is
//! full) it waits and goes on. It holds nothing of the engine while it waits.

use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_extension::CallBatch;
use levada_model::{Offset, TopicName, limits};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use super::halt::{Failure, Halt};
use super::input::Input;
use super::ledger::Ledger;
use super::letters;
use super::pipeline::{Judged, Output, Refused, StepFault, Versions};
use super::plan::Plan;
use super::progress::Progress;
use super::terms::Then;
use crate::catalog::Topic;
use crate::engine::Core;
use crate::fetch::Reading;
use crate::groups::Origin;
use crate::partition::{Bound, Partition};
use crate::{FetchError, Isolation};

/// Pauses before something is tried again: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Most records that are stored in one produce, and most bytes but for those of one input.
const PRODUCE_RECORDS_MAX: usize = 10_000;
const PRODUCE_BYTES_MAX: usize = 4 << 20;

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
}

/// What became of a record that was tried again.
enum Tried {
    Passed(Judged),
    Failed(Refused),
    Stopped,
}

impl Task {
    /// Works until it is told to stop or cannot go on.
    pub(super) async fn run(mut self) -> Ended {
        let mut pause = PAUSE_MIN;
        loop {
            let began = Instant::now();
            match self.attempt().await {
                Ok(()) | Err(Halt::Gone) => return Ended::Stopped,
                Err(Halt::Failed(failure)) => return Ended::Failed(failure),
                Err(Halt::Passing(reason) | Halt::Busy(reason)) => {
                    let (processor, topic) = (&self.plan.name, self.topic.name());
                    let partition = self.partition.index();
                    tracing::warn!(%processor, %topic, %partition, %reason, "a task of a processor begins again");
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
            let commits = match turned {
                Ok(_) => ledger.is_due(),
                // Before it stands still for long, so that nobody waits for what is done.
                Err(Halt::Busy(_) | Halt::Failed(_)) => ledger.is_whole(),
                Err(Halt::Passing(_) | Halt::Gone) => false,
            };
            if commits {
                ledger.commit(&core).await?;
            }
            drop(core);
            match turned {
                Ok(true) => pause = PAUSE_MIN,
                Ok(false) => self.wait(ledger).await,
                Err(Halt::Busy(reason)) => {
                    tracing::debug!(processor = %self.plan.name, %reason, "a task of a processor waits");
                    self.rest(pause).await;
                    pause = longer(pause);
                }
                Err(halt) => return Err(halt),
            }
        }
    }

    /// Processes what there is, up to one batch; answers whether there was something.
    async fn turn(&self, core: &Arc<Core>, ledger: &mut Ledger) -> Result<bool, Halt> {
        self.check_topics()?;
        let from = ledger.position();
        if !self.has_news(from) {
            return Ok(false);
        }
        let _room = core.processors.room().await;
        let isolation = Isolation::ReadCommitted;
        let reading = Reading { core, topic: &self.topic, partition: &self.partition, isolation };
        let read = reading.read(from, limits::MODULE_CALL_RECORDS_MAX, limits::READ_BYTES_DEFAULT).await;
        let fetched = match read {
            Err(
                FetchError::BelowStart { log_start_offset: next, .. }
                | FetchError::BeyondEnd { high_watermark: next, .. },
            ) => {
                let (processor, topic, partition) = (&self.plan.name, self.topic.name(), self.partition.index());
                tracing::warn!(%processor, %topic, %partition, %from, %next, "records are gone that were not processed");
                ledger.move_to(next);
                return Ok(true);
            }
            read => read?,
        };
        let place = format!("{} {} {from}", self.topic.id().0, self.partition.index());
        let moment = core.modules.moment(Some(place.as_bytes()));
        let input = Input::of(self.topic.name(), fetched, moment, self.plan.pipeline.timestamp.as_ref()).await;
        let versions = self.plan.pipeline.versions(&core.modules).await.map_err(Halt::Busy)?;
        let is_broken = input.is_broken.then_some(input.next);
        self.process(core, ledger, input, &versions).await?;
        match is_broken {
            Some(at) if at == ledger.position() => Err(self.failure(at, "the stored batch cannot be read".to_owned())),
            _ => Ok(true),
        }
    }

    /// Runs the steps over a batch, part by part where it fails as a whole, and stores what comes of each. Stops at the end
    /// of a part if it is told to.
    async fn process(
        &self,
        core: &Arc<Core>,
        ledger: &mut Ledger,
        input: Input,
        versions: &Arc<Versions>,
    ) -> Result<(), Halt> {
        let Input { batch, next, skipped, .. } = input;
        ledger.tally().skipped += skipped;
        ledger.tally().records_in += skipped;
        let mut parts = if batch.sections.is_empty() { Vec::new() } else { vec![batch] };
        while let Some(part) = parts.pop() {
            let judged = match self.plan.pipeline.ask(versions, part.clone()).await {
                Ok(judged) => judged,
                Err(StepFault::Busy(reason)) => return Err(Halt::Busy(reason)),
                Err(StepFault::Failed(_)) if part.record_count() > 1 => {
                    if self.is_stopped() {
                        return Ok(());
                    }
                    let halves = part.split_at(part.record_count() / 2);
                    let (front, back) = halves.map_err(|error| self.failure(ledger.position(), error.to_string()))?;
                    parts.extend([back, front]);
                    continue;
                }
                Err(StepFault::Failed(refused)) => match self.try_again(versions, &part, refused).await? {
                    Tried::Passed(judged) => judged,
                    Tried::Stopped => return Ok(()),
                    Tried::Failed(refused) => {
                        let at = Input::first_offset(&part).unwrap_or(ledger.position());
                        self.refuse(core, ledger, &part, (at, refused), self.plan.spec.on_error.attempts).await?;
                        Judged::default()
                    }
                },
            };
            self.store(core, ledger, &part, judged).await?;
            ledger.tally().records_in += part.record_count() as u64;
            ledger.see(Input::latest(&part));
            ledger.move_to(parts.last().and_then(Input::first_offset).unwrap_or(next));
            if ledger.is_due() {
                ledger.commit(core).await?;
            }
        }
        ledger.move_to(next);
        Ok(())
    }

    /// Tries a record as often as it may be that failed once.
    async fn try_again(&self, versions: &Arc<Versions>, part: &CallBatch, mut refused: Refused) -> Result<Tried, Halt> {
        let mut pause = PAUSE_MIN;
        for _ in 1..self.plan.spec.on_error.attempts {
            if !self.rest(pause).await {
                return Ok(Tried::Stopped);
            }
            pause = longer(pause);
            match self.plan.pipeline.ask(versions, part.clone()).await {
                Ok(judged) => return Ok(Tried::Passed(judged)),
                Err(StepFault::Busy(reason)) => return Err(Halt::Busy(reason)),
                Err(StepFault::Failed(again)) => refused = again,
            }
        }
        Ok(Tried::Failed(refused))
    }

    /// Stores what comes out of a part. What the sink does not take has failed as what a module rejects has.
    async fn store(&self, core: &Arc<Core>, ledger: &mut Ledger, part: &CallBatch, judged: Judged) -> Result<(), Halt> {
        let Judged { outputs, mut rejected } = judged;
        let pauses = self.plan.spec.on_error.then == Then::Pause;
        for mut portion in portions(outputs) {
            loop {
                let first = rejected.keys().next().copied().filter(|_| pauses);
                let is_left =
                    |output: &Output| first.map_or(!rejected.contains_key(&output.offset), |at| output.offset < at);
                portion.retain(is_left);
                if portion.is_empty() {
                    break;
                }
                let refused = ledger.produce(core, &portion).await?;
                if refused.is_empty() {
                    break;
                }
                for (place, reason) in refused {
                    rejected.entry(portion[place].offset).or_insert(Refused { module: None, reason });
                }
            }
        }
        for refused in rejected {
            self.refuse(core, ledger, part, refused, 1).await?;
        }
        Ok(())
    }

    /// Does with a record that failed what the document says.
    async fn refuse(
        &self,
        core: &Arc<Core>,
        ledger: &mut Ledger,
        part: &CallBatch,
        (offset, refused): (Offset, Refused),
        attempts: u32,
    ) -> Result<(), Halt> {
        let Refused { module, reason } = refused;
        ledger.tally().errors += 1;
        let named = match &self.plan.spec.on_error.then {
            Then::Skip => {
                ledger.tally().skipped += 1;
                return Ok(());
            }
            Then::Pause => {
                ledger.move_to(offset);
                return Err(self.failure(offset, reason));
            }
            Then::DeadLetter(named) => named.clone(),
        };
        let to = named.map_or_else(|| letters::topic_of(self.topic.name()), Ok).map_err(Halt::failed)?;
        let found = part.records().filter_map(Result::ok).find(|record| record.offset == offset);
        let found = found.and_then(|record| Some((record.timestamp, record.to_record().ok()?)));
        let Some((time, record)) = found else { return Err(self.failure(offset, reason)) };
        let place = (self.topic.name().clone(), self.partition.index(), offset);
        let error: String = reason.chars().take(limits::REJECT_REASON_CHARS_MAX).collect();
        let (group, module) = (&self.plan.group, module.as_ref());
        let origin = Origin { place: &place, time, group, error: &error, module, attempts: Some(attempts) };
        ledger.set_aside(core, &to, &origin.on(record), &place).await
    }

    fn failure(&self, at: Offset, reason: String) -> Halt {
        let at = Some((self.topic.name().clone(), self.partition.index(), at));
        Halt::Failed(Failure { reason, at })
    }

    /// That source and sink are there.
    fn check_topics(&self) -> Result<(), Halt> {
        let gone = |what: &str, name: &TopicName| Halt::failed(format!("the {what} topic {name} was deleted"));
        if self.topic.is_deleted() {
            return Err(gone("source", self.topic.name()));
        }
        if self.sink.is_deleted() {
            return Err(gone("sink", self.sink.name()));
        }
        if self.is_dropped() { Err(Halt::Gone) } else { Ok(()) }
    }

    /// Whether the partition was dropped, after all of it had expired.
    fn is_dropped(&self) -> bool {
        let state = self.topic.state();
        state.partition(self.partition.index()).is_none_or(|there| !Arc::ptr_eq(there, &self.partition))
    }

    fn has_news(&self, position: Offset) -> bool {
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

/// The outputs in portions of bounded size; those of one input are together.
fn portions(outputs: Vec<Output>) -> Vec<Vec<Output>> {
    let mut portions: Vec<Vec<Output>> = Vec::new();
    let mut bytes = 0;
    for output in outputs {
        let size = output.record.size_bytes();
        let fits = |portion: &Vec<Output>| {
            let is_same = portion.last().is_some_and(|last| last.offset == output.offset);
            is_same || (portion.len() < PRODUCE_RECORDS_MAX && bytes + size <= PRODUCE_BYTES_MAX)
        };
        match portions.last_mut().filter(|portion| fits(portion)) {
            Some(portion) => {
                bytes += size;
                portion.push(output);
            }
            None => {
                bytes = size;
                portions.push(vec![output]);
            }
        }
    }
    portions
}
