//! How a transaction ends: its outcome, its markers, and what its producer goes on with.

use levada_model::{ProducerEpoch, limits};

use super::super::record::{Contents, Ended, KeptAnswer, LAST_EPOCH, Phase};
use super::super::terms::{EndError, Outcome, Participants, Producer, Progress, WriteMarkers};
use super::standing::Standing;
use super::{Context, Entry};
use crate::timers::after;

impl Entry {
    /// A transaction ends, with what is to be answered to its request if that comes again.
    pub(in super::super) fn end(
        &mut self,
        ctx: &mut Context<'_>,
        producer: Producer,
        outcome: Outcome,
        answer: Option<KeptAnswer>,
    ) -> Result<Progress<Producer>, EndError> {
        match self.standing(producer) {
            Standing::Ending(ending) if ending == outcome => return Ok(self.wait()),
            Standing::Ended(ended, next) if ended == outcome => return Ok(Progress::Done(next)),
            _ => self.admit(producer)?,
        }
        let limit = limits::EXECUTE_ANSWER_BYTES_MAX;
        if answer.as_ref().is_some_and(|answer| answer.bytes.len() > limit) {
            return Err(EndError::AnswerTooLarge { limit });
        }
        self.record.answer = answer;
        self.finish(ctx, outcome, false);
        Ok(if self.contents().is_some() { self.wait() } else { Progress::Done(self.record.producer) })
    }

    /// Markers are written.
    pub(in super::super) fn markers_written(
        &mut self,
        ctx: &mut Context<'_>,
        producer: Producer,
        written: &Participants,
    ) {
        if !self.is_ending(producer) {
            return;
        }
        self.missing.remove_all(written);
        self.failed.remove_all(written);
        if self.missing.is_empty() {
            self.close(ctx);
        }
    }

    /// Markers could not be written.
    pub(in super::super) fn markers_failed(
        &mut self,
        ctx: &mut Context<'_>,
        producer: Producer,
        failed: &Participants,
    ) {
        if !self.is_ending(producer) {
            return;
        }
        self.failed.add_among(&self.missing, failed);
        if !self.failed.is_empty() {
            let again = after(ctx.now.tick, ctx.options.marker_retry_ms);
            self.due = Some(self.due.map_or(again, |due| due.min(again)));
        }
    }

    /// Decides how the transaction ends that is open, or the next one, in which there is nothing.
    pub(super) fn finish(&mut self, ctx: &mut Context<'_>, outcome: Outcome, fences: bool) {
        let contents = match std::mem::replace(&mut self.record.phase, Phase::Idle) {
            Phase::Open(contents) => Some(Contents { body: None, ..contents }),
            Phase::Idle => None,
            Phase::Ending { .. } => panic!("an outcome stands"),
        };
        self.changed = true;
        self.begun = None;
        match outcome {
            Outcome::Commit => ctx.counts.committed += 1,
            Outcome::Abort => ctx.counts.aborted += 1,
        }
        match contents {
            Some(contents) => {
                self.record.phase = Phase::Ending { contents, outcome, fences };
                self.send_markers(ctx);
            }
            None => self.close_as(ctx, outcome, fences),
        }
    }

    pub(super) fn send_markers(&mut self, ctx: &mut Context<'_>) {
        self.missing = self.contents().expect("it is being ended").participants.clone();
        self.failed = Participants::default();
        self.send_markers_to(ctx, self.missing.clone());
    }

    /// Those that failed; if none did, all that were not heard of.
    pub(super) fn send_markers_again(&mut self, ctx: &mut Context<'_>) {
        let failed = std::mem::take(&mut self.failed);
        let again = if failed.is_empty() { self.missing.clone() } else { failed };
        self.send_markers_to(ctx, again);
    }

    fn send_markers_to(&mut self, ctx: &mut Context<'_>, participants: Participants) {
        let Phase::Ending { outcome, .. } = self.record.phase else { panic!("only an end has markers") };
        let producer_epoch = ProducerEpoch(self.record.producer.epoch.0 + 1);
        ctx.markers.push(WriteMarkers {
            transaction: self.handle(ctx),
            producer_epoch,
            coordinator_epoch: ctx.options.coordinator_epoch,
            outcome,
            participants,
        });
        self.due = Some(after(ctx.now.tick, limits::MARKER_ANSWER_MS_MAX));
    }

    /// All markers are written.
    fn close(&mut self, ctx: &mut Context<'_>) {
        let phase = std::mem::replace(&mut self.record.phase, Phase::Idle);
        let Phase::Ending { outcome, fences, .. } = phase else { panic!("only an end has markers") };
        self.close_as(ctx, outcome, fences);
    }

    fn close_as(&mut self, ctx: &mut Context<'_>, outcome: Outcome, fences: bool) {
        let transaction = self.record.producer;
        let Producer { id, epoch } = transaction;
        if fences || epoch.0 < LAST_EPOCH {
            self.record.producer = Producer { id, epoch: ProducerEpoch(epoch.0 + 1) };
        } else {
            let id = self.record.successor.take().expect("the last transaction of an id begins only with one");
            self.record.producer = Producer { id, epoch: ProducerEpoch(0) };
        }
        let next = (!fences).then_some(self.record.producer);
        self.record.last = Some(Ended { transaction, outcome, next });
        self.changed = true;
        ctx.completed = true;
        self.rest(ctx);
    }

    fn is_ending(&self, producer: Producer) -> bool {
        producer == self.record.producer && matches!(self.record.phase, Phase::Ending { .. })
    }
}
