//! One transactional id: who may speak for it, and the life of its transactions.
//!
//! What must survive a restart lies in `record`, exactly as it is stored. All else belongs to the moment: whether a
//! transaction with nothing in it has begun, which markers are missing, and when something is due.

use std::collections::BTreeSet;

use levada_extension::TopicPartition;
use levada_model::{GroupName, ProducerEpoch, ProducerId, Tick, Timestamp, TransactionalId, limits};

use super::TransactionHandle;
use super::record::{Contents, Ended, KeptAnswer, LAST_EPOCH, Phase, TransactionRecord, encode_key};
use super::terms::{
    AddError, BeginError, BodyDigest, EndError, ExecuteError, Executing, InitError, Outcome, Participants, Producer,
    Progress, TransactionCounts, TransactionError, TransactionOptions, TransactionState, TransactionView, WriteMarkers,
};
use crate::terms::{CoordinatorRecord, Now};
use crate::timers::{after, after_stored};

/// A transactional id.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    id: TransactionalId,
    record: TransactionRecord,
    /// Whether the log has a record of it.
    stored: bool,
    /// Whether the record is another than the log has.
    changed: bool,
    gone: bool,
    /// The transaction that is open, whether or not there is something in it.
    begun: Option<Begun>,
    /// Who has no marker yet of a transaction that is being ended.
    missing: Participants,
    /// Who of these could not be given it.
    failed: Participants,
    /// When its transaction is aborted, markers are sent again, or it is forgotten.
    due: Option<Tick>,
}

/// What there is of an open transaction besides its record.
#[derive(Clone, Debug)]
struct Begun {
    started_at: Timestamp,
    timeout_ms: u64,
    /// Of which request it is all.
    body: Option<BodyDigest>,
    /// Whether it began here, and not before a restart.
    here: bool,
}

/// What an event of an id may use, and what it has effects on.
pub(super) struct Context<'a> {
    pub(super) now: Now,
    pub(super) options: &'a TransactionOptions,
    pub(super) markers: Vec<WriteMarkers>,
    /// Whether a transaction has come to its end.
    pub(super) completed: bool,
    pub(super) counts: TransactionCounts,
}

/// What a producer id and epoch stand for.
enum Standing {
    /// The transaction that is open, or the next one.
    Current,
    /// A transaction that is being ended.
    Ending(Outcome),
    /// The transaction that ended last, and what is answered to its end.
    Ended(Outcome, Producer),
    /// A later epoch was given out.
    Fenced,
    /// This was never given out.
    Unknown,
}

impl Entry {
    /// One that is new; nothing of it is stored.
    pub(super) fn new(id: TransactionalId, producer_id: ProducerId, timeout_ms: u64) -> Self {
        let record = TransactionRecord {
            producer: Producer { id: producer_id, epoch: ProducerEpoch(0) },
            timeout_ms,
            written_at: Timestamp(0),
            phase: Phase::Idle,
            last: None,
            successor: None,
            answer: None,
        };
        Self { stored: false, ..Self::replayed(id, record) }
    }

    /// One that the log has.
    pub(super) fn replayed(id: TransactionalId, record: TransactionRecord) -> Self {
        Self {
            id,
            record,
            stored: true,
            changed: false,
            gone: false,
            begun: None,
            missing: Participants::default(),
            failed: Participants::default(),
            due: None,
        }
    }

    /// All records are in: takes up what was under way.
    pub(super) fn loaded(&mut self, ctx: &mut Context<'_>) {
        match &self.record.phase {
            Phase::Idle => self.due = Some(after_stored(ctx.now, self.record.written_at, self.kept_ms(ctx.options))),
            Phase::Open(contents) => {
                let (started_at, timeout_ms) = (contents.started_at, self.record.timeout_ms);
                self.begun = Some(Begun { started_at, timeout_ms, body: None, here: false });
                self.due = Some(after_stored(ctx.now, started_at, timeout_ms));
            }
            Phase::Ending { .. } => self.send_markers(ctx),
        }
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, ctx: &mut Context<'_>) {
        match &self.record.phase {
            Phase::Idle if self.begun.is_none() => self.gone = true,
            Phase::Idle | Phase::Open(_) => {
                ctx.counts.timed_out += 1;
                self.finish(ctx, Outcome::Abort, false);
            }
            Phase::Ending { .. } => self.send_markers_again(ctx),
        }
    }

    /// A producer starts.
    pub(super) fn init(
        &mut self,
        ctx: &mut Context<'_>,
        timeout_ms: u64,
        spare: Option<ProducerId>,
    ) -> Result<Progress<Producer>, InitError> {
        match &self.record.phase {
            Phase::Idle => {
                self.fence(spare).ok_or(InitError::NeedsProducerId)?;
                self.record.timeout_ms = timeout_ms;
                self.rest(ctx);
                Ok(Progress::Done(self.record.producer))
            }
            Phase::Open(_) => {
                self.finish(ctx, Outcome::Abort, true);
                Ok(self.wait())
            }
            Phase::Ending { .. } => Ok(self.wait()),
        }
    }

    /// It is new, and its first producer starts.
    pub(super) fn start(&mut self, ctx: &mut Context<'_>) -> Producer {
        self.changed = true;
        self.rest(ctx);
        self.record.producer
    }

    /// A transaction begins.
    pub(super) fn begin(
        &mut self,
        ctx: &mut Context<'_>,
        producer: Producer,
        spare: Option<ProducerId>,
    ) -> Result<TransactionHandle, BeginError> {
        match self.standing(producer) {
            Standing::Current => {}
            Standing::Ending(_) => return Err(BeginError::ConcurrentTransactions),
            Standing::Ended(..) | Standing::Fenced => return Err(BeginError::ProducerFenced),
            Standing::Unknown => return Err(BeginError::UnknownProducer),
        }
        self.reserve_successor(spare).ok_or(BeginError::NeedsProducerId)?;
        self.begun_with(ctx, self.record.timeout_ms, None);
        Ok(self.handle(ctx))
    }

    /// A transaction of one request begins.
    pub(super) fn execute(
        &mut self,
        ctx: &mut Context<'_>,
        timeout_ms: u64,
        body: Option<BodyDigest>,
        spare: Option<ProducerId>,
    ) -> Result<Progress<Executing>, ExecuteError> {
        let of = match (&self.record.answer, &self.begun) {
            (Some(answer), _) => Some(Some(answer.body)),
            (None, Some(begun)) if begun.here => Some(begun.body),
            (None, _) => None,
        };
        if of.is_some_and(|of| of != body) {
            return Err(ExecuteError::KeyReused);
        }
        match (&self.record.phase, &self.record.answer) {
            (Phase::Idle, Some(answer)) => return Ok(Progress::Done(Executing::Replayed(answer.bytes.clone()))),
            (Phase::Ending { .. }, _) => return Ok(self.wait()),
            (Phase::Idle | Phase::Open(_), _) if of.is_some() => return Ok(self.wait()),
            (Phase::Open(_), _) => {
                self.finish(ctx, Outcome::Abort, true);
                return Ok(self.wait());
            }
            (Phase::Idle, None) => {}
        }
        if self.is_vacant() {
            self.fence(spare).ok_or(ExecuteError::NeedsProducerId)?;
        }
        self.reserve_successor(spare).ok_or(ExecuteError::NeedsProducerId)?;
        self.begun_with(ctx, timeout_ms, body);
        Ok(Progress::Done(Executing::Begun(self.handle(ctx))))
    }

    /// A transaction is going to write to partitions.
    pub(super) fn add_partitions(
        &mut self,
        ctx: &mut Context<'_>,
        producer: Producer,
        partitions: &[TopicPartition],
    ) -> Result<(), AddError> {
        self.admit(producer)?;
        let old = self.contents().map(|contents| &contents.participants.partitions);
        let is_new = |partition: &&TopicPartition| !old.is_some_and(|old| old.contains(*partition));
        let new: BTreeSet<_> = partitions.iter().filter(is_new).copied().collect();
        let limit = limits::TRANSACTION_PARTITIONS_MAX;
        if old.map_or(0, BTreeSet::len) + new.len() > limit {
            return Err(AddError::TooManyPartitions { limit });
        }
        if !new.is_empty() {
            self.open(ctx).partitions.extend(new);
        }
        Ok(())
    }

    /// A transaction is going to commit offsets of a group.
    pub(super) fn add_offsets(
        &mut self,
        ctx: &mut Context<'_>,
        producer: Producer,
        group: &GroupName,
    ) -> Result<(), AddError> {
        self.admit(producer)?;
        let old = self.contents().map(|contents| &contents.participants.groups);
        if old.is_some_and(|old| old.contains(group)) {
            return Ok(());
        }
        let limit = limits::TRANSACTION_GROUPS_MAX;
        if old.map_or(0, BTreeSet::len) == limit {
            return Err(AddError::TooManyGroups { limit });
        }
        self.open(ctx).groups.insert(group.clone());
        Ok(())
    }

    /// A transaction ends, with what is to be answered to its request if that comes again.
    pub(super) fn end(
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

    /// An operator aborts a transaction.
    pub(super) fn abort(
        &mut self,
        ctx: &mut Context<'_>,
        producer: Producer,
    ) -> Result<Progress<()>, TransactionError> {
        if let Some(last) = self.record.last.filter(|last| last.transaction == producer) {
            return match last.outcome {
                Outcome::Abort => Ok(Progress::Done(())),
                outcome @ Outcome::Commit => Err(TransactionError::TransactionEnded { outcome }),
            };
        }
        match &self.record.phase {
            _ if self.record.producer != producer => Err(TransactionError::UnknownTransaction),
            Phase::Ending { outcome: Outcome::Abort, .. } => Ok(self.wait()),
            Phase::Ending { outcome, .. } => Err(TransactionError::TransactionEnded { outcome: *outcome }),
            Phase::Idle if self.begun.is_none() => Err(TransactionError::UnknownTransaction),
            Phase::Idle | Phase::Open(_) => {
                self.finish(ctx, Outcome::Abort, false);
                Ok(if self.contents().is_some() { self.wait() } else { Progress::Done(()) })
            }
        }
    }

    /// Markers are written.
    pub(super) fn markers_written(&mut self, ctx: &mut Context<'_>, producer: Producer, written: &Participants) {
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
    pub(super) fn markers_failed(&mut self, ctx: &mut Context<'_>, producer: Producer, failed: &Participants) {
        if !self.is_ending(producer) {
            return;
        }
        self.failed.add_among(&self.missing, failed);
        if !self.failed.is_empty() {
            let again = after(ctx.now.tick, ctx.options.marker_retry_ms);
            self.due = Some(self.due.map_or(again, |due| due.min(again)));
        }
    }

    /// Takes it away, whatever is kept of it.
    pub(super) fn forget(&mut self) {
        self.gone = true;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// When it has something to do next.
    pub(super) fn next_due(&self) -> Option<Tick> {
        self.due
    }

    /// The producer ids by which it is found.
    pub(super) fn producer_ids(&self) -> BTreeSet<ProducerId> {
        let last = self.record.last.map(|last| last.transaction.id);
        last.into_iter().chain([self.record.producer.id]).collect()
    }

    /// When its record was written.
    pub(super) fn written_at(&self) -> Timestamp {
        self.record.written_at
    }

    /// The bytes that it takes while it is one of the broker's own without a transaction.
    pub(super) fn kept_bytes(&self) -> Option<usize> {
        let is_kept =
            self.id.is_of_requests() && self.record.phase == Phase::Idle && self.begun.is_none() && !self.gone;
        let answer = self.record.answer.as_ref().map_or(0, |answer| answer.bytes.len());
        is_kept.then_some(limits::EXECUTE_ENTRY_BYTES + answer)
    }

    /// The transaction that is open or being ended.
    pub(super) fn view(&self, options: &TransactionOptions) -> Option<TransactionView> {
        let contents = self.contents();
        let started_at = contents.map(|contents| contents.started_at);
        let ending = match &self.record.phase {
            Phase::Ending { outcome, .. } => Some(*outcome),
            Phase::Idle | Phase::Open(_) => None,
        };
        Some(TransactionView {
            transactional_id: self.id.clone(),
            transaction: self.handle_of(options),
            state: ending.map_or(TransactionState::Ongoing, TransactionState::Prepared),
            started_at: started_at.or(self.begun.as_ref().map(|begun| begun.started_at))?,
            timeout_ms: self.begun.as_ref().map_or(self.record.timeout_ms, |begun| begun.timeout_ms),
            participants: contents.map(|contents| contents.participants.clone()).unwrap_or_default(),
            markers_missing: ending.map(|_| self.missing.len()),
        })
    }

    /// Whether this producer goes on with the next transaction once the one that is being ended has.
    pub(super) fn is_ending_before(&self, producer: Producer) -> bool {
        let Producer { id, epoch } = self.record.producer;
        let is_next = producer.id == id && producer.epoch.0 == epoch.0 + 1;
        is_next && epoch.0 < LAST_EPOCH && matches!(self.record.phase, Phase::Ending { fences: false, .. })
    }

    /// Whether it has a transaction that is open or being ended.
    pub(super) fn is_open(&self) -> bool {
        !self.gone && (self.begun.is_some() || self.record.phase != Phase::Idle)
    }

    /// Its record, if that is another than the log has.
    pub(super) fn take_record(&mut self, now: Timestamp) -> Option<CoordinatorRecord> {
        if self.gone {
            return self.stored.then(|| CoordinatorRecord { key: encode_key(&self.id), value: None });
        }
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        self.stored = true;
        self.record.written_at = now;
        self.stored_record()
    }

    /// Its record as the log has it.
    pub(super) fn stored_record(&self) -> Option<CoordinatorRecord> {
        let value = || Some(self.record.encode());
        self.stored.then(|| CoordinatorRecord { key: encode_key(&self.id), value: value() })
    }

    fn standing(&self, producer: Producer) -> Standing {
        let current = self.record.producer;
        if producer == current {
            return match self.record.phase {
                Phase::Ending { fences: true, .. } => Standing::Fenced,
                Phase::Ending { outcome, .. } => Standing::Ending(outcome),
                Phase::Idle if self.is_vacant() => Standing::Fenced,
                // What was answered stands until it is forgotten.
                Phase::Idle if self.record.answer.is_some() => Standing::Unknown,
                Phase::Idle | Phase::Open(_) => Standing::Current,
            };
        }
        match self.record.last {
            Some(Ended { transaction, outcome, next: Some(next) }) if transaction == producer => {
                Standing::Ended(outcome, next)
            }
            _ if producer.id == current.id && producer.epoch > current.epoch => Standing::Unknown,
            _ => Standing::Fenced,
        }
    }

    /// Whether this is the transaction that is open, or the next one, which may begin without a word.
    fn admit(&self, producer: Producer) -> Result<(), TransactionError> {
        match self.standing(producer) {
            Standing::Current if self.lacks_successor() => Err(TransactionError::UnknownTransaction),
            Standing::Current => Ok(()),
            Standing::Ending(outcome) | Standing::Ended(outcome, _) => {
                Err(TransactionError::TransactionEnded { outcome })
            }
            Standing::Fenced => Err(TransactionError::ProducerFenced),
            Standing::Unknown => Err(TransactionError::UnknownTransaction),
        }
    }

    /// Whether nobody was given the epoch, since the transaction before was aborted to fence its producer.
    fn is_vacant(&self) -> bool {
        let Producer { id, epoch } = self.record.producer;
        let fenced = self.record.last.filter(|last| last.next.is_none()).map(|last| last.transaction);
        fenced.is_some_and(|fenced| fenced.id == id && fenced.epoch.0 + 1 == epoch.0)
    }

    fn is_ending(&self, producer: Producer) -> bool {
        producer == self.record.producer && matches!(self.record.phase, Phase::Ending { .. })
    }

    /// Whether the transaction of this epoch has nobody yet who goes on after it.
    fn lacks_successor(&self) -> bool {
        self.record.producer.epoch.0 >= LAST_EPOCH && self.record.successor.is_none()
    }

    fn reserve_successor(&mut self, spare: Option<ProducerId>) -> Option<()> {
        if self.lacks_successor() {
            self.record.successor = Some(spare?);
            self.changed = true;
        }
        Some(())
    }

    /// Gives the next producer an epoch that nobody has; none if that needs a new id.
    fn fence(&mut self, spare: Option<ProducerId>) -> Option<()> {
        let Producer { id, epoch } = self.record.producer;
        self.record.producer = if epoch.0 < LAST_EPOCH {
            Producer { id, epoch: ProducerEpoch(epoch.0 + 1) }
        } else {
            let id = self.record.successor.or(spare)?;
            self.record.successor = None;
            Producer { id, epoch: ProducerEpoch(0) }
        };
        self.changed = true;
        Some(())
    }

    /// Notes that a transaction has begun, if none has.
    fn begun_with(&mut self, ctx: &mut Context<'_>, timeout_ms: u64, body: Option<BodyDigest>) {
        if self.begun.is_none() {
            self.begun = Some(Begun { started_at: ctx.now.wall, timeout_ms, body, here: true });
            self.due = Some(after(ctx.now.tick, timeout_ms));
            ctx.counts.begun += 1;
        }
    }

    /// Who is in the transaction, to be added to.
    fn open(&mut self, ctx: &mut Context<'_>) -> &mut Participants {
        self.begun_with(ctx, self.record.timeout_ms, None);
        let begun = self.begun.as_ref().expect("it has begun");
        if self.record.phase == Phase::Idle {
            self.record.timeout_ms = begun.timeout_ms;
            let contents = Contents { started_at: begun.started_at, participants: Participants::default() };
            self.record.phase = Phase::Open(contents);
        }
        self.changed = true;
        let Phase::Open(contents) = &mut self.record.phase else { panic!("only what is open is added to") };
        &mut contents.participants
    }

    /// Decides how the transaction ends that is open, or the next one, in which there is nothing.
    fn finish(&mut self, ctx: &mut Context<'_>, outcome: Outcome, fences: bool) {
        let contents = match std::mem::replace(&mut self.record.phase, Phase::Idle) {
            Phase::Open(contents) => Some(contents),
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

    fn send_markers(&mut self, ctx: &mut Context<'_>) {
        self.missing = self.contents().expect("it is being ended").participants.clone();
        self.failed = Participants::default();
        self.send_markers_to(ctx, self.missing.clone());
    }

    /// Those that failed; if none did, all that were not heard of.
    fn send_markers_again(&mut self, ctx: &mut Context<'_>) {
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

    /// There is no transaction: from now on it is kept for a while.
    fn rest(&mut self, ctx: &Context<'_>) {
        self.begun = None;
        self.due = Some(after(ctx.now.tick, self.kept_ms(ctx.options)));
    }

    fn kept_ms(&self, options: &TransactionOptions) -> u64 {
        if self.id.is_of_requests() { options.execute_answer_ms } else { options.id_expiration_ms }
    }

    fn contents(&self) -> Option<&Contents> {
        match &self.record.phase {
            Phase::Idle => None,
            Phase::Open(contents) | Phase::Ending { contents, .. } => Some(contents),
        }
    }

    fn handle(&self, ctx: &Context<'_>) -> TransactionHandle {
        self.handle_of(ctx.options)
    }

    fn handle_of(&self, options: &TransactionOptions) -> TransactionHandle {
        let Producer { id, epoch } = self.record.producer;
        TransactionHandle { coordinator: options.partition, producer_id: id, producer_epoch: epoch }
    }

    fn wait<T>(&self) -> Progress<T> {
        Progress::Wait(self.id.clone())
    }
}
