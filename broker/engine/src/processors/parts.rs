//! One turn of a task: a part of the source's records is read, goes through the steps, and what comes out is stored.
//!
//! A part that fails is asked again in two, until the record is found that fails alone; that one is tried again a few times,
//! and then the document's rule applies. A turn asks once, so that nobody waits long for its room.

use std::sync::Arc;

use levada_model::{Offset, TopicName, limits};

use super::halt::{Failure, Halt};
use super::input::Input;
use super::ledger::{Ledger, Stored};
use super::letters;
use super::pipeline::{Judged, Output, Refused, StepFault};
use super::task::Task;
use super::terms::{FailedRecord, ProcessorWaiting, Then};
use crate::engine::Core;
use crate::fetch::Reading;
use crate::groups::Origin;
use crate::{FetchError, Fetched, Isolation};

/// Most records that are stored in one produce, and most bytes but for those of one input.
const PRODUCE_RECORDS_MAX: usize = 10_000;
const PRODUCE_BYTES_MAX: usize = 4 << 20;

/// How a turn has ended. Nothing is stored of what is behind the position.
pub(super) enum Turn {
    /// There may be more.
    Done,
    /// There was nothing.
    Nothing,
    /// A record failed alone, and is tried again in a while.
    Again(ProcessorWaiting, u32),
}

/// Records that failed together, or one that did alone.
struct Fault {
    /// The first of them.
    first: Offset,
    /// One behind the first, where there are several.
    middle: Option<Offset>,
    refused: Refused,
}

impl Task {
    /// Processes what there is, up to one batch.
    pub(super) async fn turn(&mut self, core: &Arc<Core>, ledger: &mut Ledger) -> Result<Turn, Halt> {
        self.check_topics()?;
        let from = ledger.position();
        if !self.has_news(from) {
            return Ok(Turn::Nothing);
        }
        let Some(_room) = self.room(core, ledger).await else { return Ok(Turn::Done) };
        let Some(fetched) = self.read(core, ledger).await? else { return Ok(Turn::Done) };
        let place = format!("{} {} {from}", self.topic.id().0, self.partition.index());
        let moment = core.modules.moment(Some(place.as_bytes()));
        let timestamp = self.plan.pipeline.timestamp.as_ref();
        let input = Input::of(self.topic.name(), fetched, self.trouble.end(), moment, timestamp).await;
        if input.next == from && input.broken.is_some() {
            return self.pass_broken(ledger, &input);
        }
        let judged = if input.batch.sections.is_empty() {
            Ok(Judged::default())
        } else {
            let versions = self.plan.pipeline.versions(&core.modules).await.map_err(Halt::Busy)?;
            self.plan.pipeline.ask(&versions, input.batch.clone()).await
        };
        let fault = match judged {
            Ok(judged) => self.store(core, ledger, &input, judged).await?,
            Err(StepFault::Busy(reason)) => return Err(Halt::Busy(reason)),
            Err(StepFault::Failed(refused)) => {
                let Some((first, middle)) = input.first_and_middle() else {
                    return Err(self.failure(&input, from, refused.reason));
                };
                Some(Fault { first, middle, refused })
            }
        };
        match fault {
            Some(fault) => self.isolate(core, ledger, &input, fault).await,
            None => {
                self.pass(ledger, &input, input.next);
                Ok(Turn::Done)
            }
        }
    }

    /// Reads a batch; none where the records are gone, and the position moves on.
    async fn read(&self, core: &Core, ledger: &mut Ledger) -> Result<Option<Fetched>, Halt> {
        let (from, isolation) = (ledger.position(), Isolation::ReadCommitted);
        let reading = Reading { core, topic: &self.topic, partition: &self.partition, isolation };
        match reading.read(from, limits::MODULE_CALL_RECORDS_MAX, limits::READ_BYTES_DEFAULT).await {
            Err(
                FetchError::BelowStart { log_start_offset: next, .. }
                | FetchError::BeyondEnd { high_watermark: next, .. },
            ) => {
                let (processor, topic, partition) = (&self.plan.name, self.topic.name(), self.partition.index());
                tracing::warn!(%processor, %topic, %partition, %from, %next, "records are gone that were not processed");
                ledger.tally().lost += next.0.saturating_sub(from.0);
                ledger.move_to(next);
                Ok(None)
            }
            read => Ok(Some(read?)),
        }
    }

    /// All before `next` is done: counts it, and moves the position.
    fn pass(&mut self, ledger: &mut Ledger, input: &Input, next: Offset) {
        let done = ledger.position()..next;
        let (mut count, mut latest) = (0, None);
        for record in input.records().filter(|record| done.contains(&record.offset)) {
            count += 1;
            latest = latest.max(Some(record.timestamp));
        }
        let timeless = input.timeless.iter().filter(|offset| done.contains(offset)).count() as u64;
        let lost = |gap: &std::ops::Range<Offset>| gap.end.min(done.end).0.saturating_sub(gap.start.max(done.start).0);
        let tally = ledger.tally();
        tally.records_in += count + timeless;
        tally.skipped += timeless;
        tally.lost += input.gaps.iter().map(lost).sum::<u64>();
        ledger.see(latest);
        ledger.move_to(next);
        self.trouble.passed(next);
    }

    /// A stored batch cannot be taken apart: it is passed over where records are skipped, and nothing else can be done.
    fn pass_broken(&mut self, ledger: &mut Ledger, input: &Input) -> Result<Turn, Halt> {
        let range = input.broken.clone().expect("there is one");
        if self.plan.spec.on_error.then != Then::Skip {
            let reason = "the stored batch cannot be read".to_owned();
            return Err(self.failure(input, range.start, reason));
        }
        let tally = ledger.tally();
        tally.errors += 1;
        tally.lost += range.end.0 - range.start.0;
        ledger.move_to(range.end);
        self.trouble.passed(range.end);
        Ok(Turn::Done)
    }

    /// Has records that failed together asked again in two parts, and one that did alone again, or treats it by the rule.
    async fn isolate(
        &mut self,
        core: &Arc<Core>,
        ledger: &mut Ledger,
        input: &Input,
        Fault { first, middle, refused }: Fault,
    ) -> Result<Turn, Halt> {
        if let Some(middle) = middle {
            self.trouble.split(middle, input.next);
            return Ok(Turn::Done);
        }
        let attempts = self.trouble.failed(first);
        if attempts < self.plan.spec.on_error.attempts {
            let waiting = ProcessorWaiting { reason: refused.reason, offset: Some(first), attempts: Some(attempts) };
            return Ok(Turn::Again(waiting, attempts));
        }
        self.refuse(core, ledger, input, (first, refused), attempts).await?;
        self.pass(ledger, input, first.advance(1));
        Ok(Turn::Done)
    }

    /// Stores what comes out of a part, portion by portion, each of which moves the position. What the sink does not take has
    /// failed as what a module rejects has. Answers the records for which the sink fails.
    async fn store(
        &mut self,
        core: &Arc<Core>,
        ledger: &mut Ledger,
        input: &Input,
        judged: Judged,
    ) -> Result<Option<Fault>, Halt> {
        let Judged { outputs, mut rejected } = judged;
        let pauses = self.plan.spec.on_error.then == Then::Pause;
        for mut portion in portions(outputs) {
            loop {
                let stands_at = rejected.keys().next().copied().filter(|_| pauses);
                portion
                    .retain(|output| stands_at.map_or(!rejected.contains_key(&output.offset), |at| output.offset < at));
                let Some(first) = portion.first().map(|output| output.offset) else { break };
                while let Some(refused) = rejected.first_entry().filter(|refused| *refused.key() < first) {
                    self.refuse(core, ledger, input, refused.remove_entry(), 1).await?;
                }
                self.pass(ledger, input, first);
                match ledger.produce(core, &self.sink, &portion).await? {
                    Stored::All => break,
                    Stored::Refused(refused) => {
                        for (place, reason) in refused {
                            rejected.entry(portion[place].offset).or_insert(Refused { module: None, reason });
                        }
                    }
                    Stored::Failed(refused) => {
                        let behind = portion.iter().skip(portion.len() / 2).map(|output| output.offset);
                        let middle = behind.filter(|offset| *offset > first).min();
                        return Ok(Some(Fault { first, middle, refused }));
                    }
                }
            }
        }
        for refused in rejected {
            self.refuse(core, ledger, input, refused, 1).await?;
        }
        Ok(None)
    }

    /// Does with a record that failed what the document says.
    async fn refuse(
        &mut self,
        core: &Arc<Core>,
        ledger: &mut Ledger,
        input: &Input,
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
                self.pass(ledger, input, offset);
                return Err(self.failure(input, offset, reason));
            }
            Then::DeadLetter(named) => named.clone(),
        };
        let to = named.map_or_else(|| letters::topic_of(self.topic.name()), Ok).map_err(Halt::failed)?;
        let failed = self.record_at(input, offset);
        let Some((time, record)) = failed.record.clone() else { return Err(self.failure(input, offset, reason)) };
        let place = (failed.topic.clone(), failed.partition, offset);
        let error: String = reason.chars().take(limits::REJECT_REASON_CHARS_MAX).collect();
        let (group, module) = (&self.plan.group, module.as_ref());
        let origin = Origin { place: &place, time, group, error: &error, module, attempts: Some(attempts) };
        let stored = ledger.set_aside(core, &to, &origin.on(record), &place).await;
        stored.map_err(|halt| halt.over(failed))
    }

    fn failure(&self, input: &Input, at: Offset, reason: String) -> Halt {
        Halt::Failed(Failure { reason, at: Some(Box::new(self.record_at(input, at))) })
    }

    fn record_at(&self, input: &Input, offset: Offset) -> FailedRecord {
        let found = input.records().find(|record| record.offset == offset);
        let record = found.and_then(|record| Some((input.stored_time(&record), record.to_record().ok()?)));
        FailedRecord { topic: self.topic.name().clone(), partition: self.partition.index(), offset, record }
    }

    /// That source and sink are there.
    pub(super) fn check_topics(&self) -> Result<(), Halt> {
        let gone = |what: &str, name: &TopicName| Halt::failed(format!("the {what} topic {name} was deleted"));
        if self.topic.is_deleted() {
            return Err(gone("source", self.topic.name()));
        }
        if self.sink.is_deleted() {
            return Err(gone("sink", self.sink.name()));
        }
        if self.is_dropped() { Err(Halt::Over) } else { Ok(()) }
    }
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
