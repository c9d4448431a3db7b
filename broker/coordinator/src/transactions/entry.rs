//! One transactional id: the life of its transactions up to their ends.
//!
//! Who may speak for it is in `standing`, how a transaction ends in `ending`.
//!
//! What must survive a restart lies in `record`, exactly as it is stored. All else belongs to the moment: whether a
//! transaction with nothing in it has begun, which markers are missing, and when something is due.

mod ending;
mod standing;

use std::collections::BTreeSet;

use levada_extension::TopicPartition;
use levada_model::{GroupName, ProducerEpoch, ProducerId, Tick, Timestamp, TransactionalId, limits};

use super::TransactionHandle;
use super::record::{Contents, Phase, TransactionRecord, encode_key};
use super::terms::{
    AddError, BeginError, BodyDigest, ExecuteError, Executing, InitError, Outcome, Participants, Producer, Progress,
    TransactionCounts, TransactionOptions, TransactionState, TransactionView, WriteMarkers,
};
use crate::terms::{CoordinatorRecord, Now};
use crate::timers::{after, after_stored};
use standing::Standing;

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
    /// Whether its epoch may be that of a transaction of one request that began before the coordinator was loaded, of which
    /// nothing was stored.
    may_have_begun: bool,
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
        Self { stored: false, may_have_begun: false, ..Self::replayed(id, record) }
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
            may_have_begun: true,
        }
    }

    /// All records are in: takes up what was under way.
    pub(super) fn loaded(&mut self, ctx: &mut Context<'_>) {
        match &self.record.phase {
            Phase::Idle => self.due = Some(after_stored(ctx.now, self.record.written_at, self.kept_ms(ctx.options))),
            Phase::Open(contents) => {
                let (started_at, timeout_ms) = (contents.started_at, self.record.timeout_ms);
                self.begun = Some(Begun { started_at, timeout_ms, body: contents.body, here: false });
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
            // What was left open is given up for the same request, but another one is told of it.
            (None, Some(begun)) => begun.body.filter(|of| Some(*of) != body).map(Some),
            (None, None) => None,
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
        if self.is_vacant() || self.may_have_begun {
            self.fence(spare).ok_or(ExecuteError::NeedsProducerId)?;
        }
        self.reserve_successor(spare).ok_or(ExecuteError::NeedsProducerId)?;
        self.may_have_begun = false;
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

    /// The transaction that is open or being ended, with the first of its partitions.
    pub(super) fn view(&self, options: &TransactionOptions, partitions_max: usize) -> Option<TransactionView> {
        let contents = self.contents();
        let all = contents.map(|contents| &contents.participants);
        let some = |all: &Participants| Participants {
            partitions: all.partitions.iter().take(partitions_max).copied().collect(),
            groups: all.groups.clone(),
        };
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
            participants: all.map(some).unwrap_or_default(),
            partition_count: all.map_or(0, |all| all.partitions.len()),
            markers_missing: ending.map(|_| self.missing.len()),
        })
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
            let Begun { started_at, body, .. } = *begun;
            let contents = Contents { started_at, body, participants: Participants::default() };
            self.record.phase = Phase::Open(contents);
        }
        self.changed = true;
        let Phase::Open(contents) = &mut self.record.phase else { panic!("only what is open is added to") };
        &mut contents.participants
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
