//! The coordinator of one partition of `__transaction_state`: finds the transactional id of an event, and gathers what
//! follows.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use levada_extension::TopicPartition;
use levada_model::{GroupName, ProducerEpoch, ProducerId, Tick, TransactionalId, limits};

use super::TransactionHandle;
use super::entry::{Context, Entry};
use super::kept::Kept;
use super::record::{KeptAnswer, TransactionRecord, decode_key};
use super::terms::{
    AddError, BeginError, BodyDigest, EndError, ExecuteError, Executing, InitError, Outcome, Participants, Producer,
    Progress, TransactionCounts, TransactionError, TransactionOptions, TransactionStep, TransactionView,
};
use crate::terms::{CoordinatorRecord, Now};
use crate::timers::Timers;

/// The transactional ids of one partition of `__transaction_state`: their producers, transactions and timers.
#[derive(Clone, Debug)]
pub struct TransactionCoordinator {
    options: TransactionOptions,
    entries: BTreeMap<TransactionalId, Entry>,
    /// Whose a producer id is, or was last.
    producers: BTreeMap<ProducerId, TransactionalId>,
    due: Timers<TransactionalId>,
    kept: Kept,
    /// Ids with a transaction that is open or being ended.
    open: usize,
}

impl TransactionCoordinator {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(options: TransactionOptions) -> Self {
        Self {
            options,
            entries: BTreeMap::new(),
            producers: BTreeMap::new(),
            due: Timers::default(),
            kept: Kept::default(),
            open: 0,
        }
    }

    /// Takes in one record of the partition, in order; what cannot be read changes nothing.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        let id = decode_key(key)?;
        match value.map(TransactionRecord::decode).transpose()? {
            Some(record) => drop(self.entries.insert(id.clone(), Entry::replayed(id, record))),
            None => drop(self.entries.remove(&id)),
        }
        Ok(())
    }

    /// Ends the replay: markers of outcomes that stand are sent again, and what is open has what is left of its time. It
    /// has no records.
    pub fn loaded(&mut self, now: Now) -> TransactionStep<()> {
        let mut ids: Vec<_> = self.entries.iter().map(|(id, entry)| (entry.written_at(), id.clone())).collect();
        ids.sort_unstable();
        self.open = self.entries.values().filter(|entry| entry.is_open()).count();
        let mut all = TransactionStep::empty(());
        for (_, id) in ids {
            for producer_id in self.entries[&id].producer_ids() {
                self.producers.insert(producer_id, id.clone());
            }
            all.absorb(self.at(now, &id, |entry, ctx| entry.loaded(ctx)));
        }
        all
    }

    /// When [`tick`](Self::tick) has something to do next; none while nothing is timed.
    #[must_use]
    pub fn next_due(&self) -> Option<Tick> {
        self.due.next()
    }

    /// Does all that is due: aborts transactions whose time is over, sends markers again, forgets ids that were not used.
    pub fn tick(&mut self, now: Now) -> TransactionStep<()> {
        let mut all = TransactionStep::empty(());
        while let Some(id) = self.due.pop(now.tick) {
            all.absorb(self.at(now, &id, |entry, ctx| entry.tick(ctx)));
        }
        all
    }

    /// Whether a user's producer may start at all.
    ///
    /// # Errors
    /// [`InitError::InvalidTimeout`] and [`InitError::ReservedId`].
    pub fn check_init(id: &TransactionalId, timeout_ms: u64) -> Result<(), InitError> {
        let (min, max) = limits::TRANSACTION_TIMEOUT_MS.into_inner();
        if timeout_ms < min || timeout_ms > max {
            return Err(InitError::InvalidTimeout { min, max });
        }
        if id.is_internal() { Err(InitError::ReservedId) } else { Ok(()) }
    }

    /// A producer starts: all before it under this id are fenced, and what they left open is aborted first.
    ///
    /// `spare` is a producer id that nobody has; it is needed only if a call without it said so. Whether a user may start so
    /// says [`check_init`](Self::check_init); ids of processors are the broker's own.
    ///
    /// # Errors
    /// See [`InitError`].
    pub fn init(
        &mut self,
        now: Now,
        id: &TransactionalId,
        timeout_ms: u64,
        spare: Option<ProducerId>,
    ) -> TransactionStep<Result<Progress<Producer>, InitError>> {
        // Ids of processors are reserved too, and begin here.
        if let Err(error) = Self::check_init(id, timeout_ms)
            && (error != InitError::ReservedId || id.is_of_requests())
        {
            return TransactionStep::empty(Err(error));
        }
        if self.entries.contains_key(id) {
            return self.at(now, id, |entry, ctx| entry.init(ctx, timeout_ms, spare));
        }
        let limit = limits::TRANSACTIONAL_IDS_MAX;
        if self.entries.len() >= limit {
            return TransactionStep::empty(Err(InitError::TooManyIds { limit }));
        }
        let Some(producer_id) = spare else { return TransactionStep::empty(Err(InitError::NeedsProducerId)) };
        self.create(id, producer_id, timeout_ms);
        self.at(now, id, |entry, ctx| Ok(Progress::Done(entry.start(ctx))))
    }

    /// A transaction begins. Nothing is stored before something is in it. The same again answers the same.
    ///
    /// # Errors
    /// See [`BeginError`].
    pub fn begin(
        &mut self,
        now: Now,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        spare: Option<ProducerId>,
    ) -> TransactionStep<Result<TransactionHandle, BeginError>> {
        // Those of requests begin with `execute` alone.
        let Some(id) = self.producers.get(&producer_id).filter(|id| !id.is_of_requests()).cloned() else {
            return TransactionStep::empty(Err(BeginError::UnknownProducer));
        };
        let producer = Producer { id: producer_id, epoch: producer_epoch };
        self.at(now, &id, |entry, ctx| entry.begin(ctx, producer, spare))
    }

    /// A transaction is going to write to these partitions: to be asked before each append, and durable before it.
    /// Partitions that it has already cost nothing.
    ///
    /// # Errors
    /// See [`AddError`].
    pub fn add_partitions(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        partitions: &[TopicPartition],
    ) -> TransactionStep<Result<(), AddError>> {
        self.at_transaction(now, transaction, |entry, ctx, producer| entry.add_partitions(ctx, producer, partitions))
    }

    /// A transaction is going to commit offsets of this group: to be asked before, and durable before it.
    ///
    /// # Errors
    /// See [`AddError`].
    pub fn add_offsets(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        group: &GroupName,
    ) -> TransactionStep<Result<(), AddError>> {
        self.at_transaction(now, transaction, |entry, ctx, producer| entry.add_offsets(ctx, producer, group))
    }

    /// A transaction ends. The same end again answers the same, until the next transaction has ended.
    ///
    /// # Errors
    /// See [`EndError`].
    pub fn end(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        outcome: Outcome,
    ) -> TransactionStep<Result<Progress<Producer>, EndError>> {
        self.at_transaction(now, transaction, |entry, ctx, producer| entry.end(ctx, producer, outcome, None))
    }

    /// An operator aborts this transaction. Its producer is told so, and may go on. The same again answers the same.
    ///
    /// # Errors
    /// See [`TransactionError`].
    pub fn abort(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
    ) -> TransactionStep<Result<Progress<()>, TransactionError>> {
        self.at_transaction(now, transaction, |entry, ctx, producer| entry.abort(ctx, producer))
    }

    /// A transaction of one request begins under an id of the broker's own (one that
    /// [`is_of_requests`](TransactionalId::is_of_requests)): one that it uses again and again, or, with `body`, the one that is
    /// derived from an `Idempotency-Key` and its principal. A try that is under way is waited for; one that was open
    /// before the coordinator was loaded is aborted first.
    ///
    /// # Errors
    /// See [`ExecuteError`].
    pub fn execute(
        &mut self,
        now: Now,
        id: &TransactionalId,
        timeout_ms: u64,
        body: Option<BodyDigest>,
        spare: Option<ProducerId>,
    ) -> TransactionStep<Result<Progress<Executing>, ExecuteError>> {
        assert!(id.is_of_requests(), "{id} is a user's or a processor's");
        if !self.entries.contains_key(id) {
            let limit = limits::TRANSACTIONAL_IDS_MAX;
            if self.entries.len() >= limit {
                return TransactionStep::empty(Err(ExecuteError::TooManyIds { limit }));
            }
            let Some(producer_id) = spare else { return TransactionStep::empty(Err(ExecuteError::NeedsProducerId)) };
            self.create(id, producer_id, timeout_ms);
        }
        self.at(now, id, |entry, ctx| entry.execute(ctx, timeout_ms, body, spare))
    }

    /// Commits a transaction that [`execute`](Self::execute) began with this `body`, and keeps what is answered to it.
    ///
    /// # Errors
    /// See [`EndError`].
    pub fn commit_execution(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        body: BodyDigest,
        answer: Bytes,
    ) -> TransactionStep<Result<Progress<Producer>, EndError>> {
        let answer = KeptAnswer { body, bytes: answer };
        self.at_transaction(now, transaction, |entry, ctx, producer| {
            entry.end(ctx, producer, Outcome::Commit, Some(answer))
        })
    }

    /// These participants have their markers. Of a transaction that is not being ended it changes nothing.
    pub fn markers_written(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        written: &Participants,
    ) -> TransactionStep<()> {
        self.at_markers(now, transaction, |entry, ctx, producer| entry.markers_written(ctx, producer, written))
    }

    /// These markers could not be written: they are sent again after a while.
    pub fn markers_failed(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        failed: &Participants,
    ) -> TransactionStep<()> {
        self.at_markers(now, transaction, |entry, ctx, producer| entry.markers_failed(ctx, producer, failed))
    }

    /// The id of which this is the next producer once the transaction before it has ended: whoever was told of it before a
    /// restart has to wait for that.
    #[must_use]
    pub fn awaited(&self, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> Option<&TransactionalId> {
        let id = self.producers.get(&producer_id)?;
        self.entries[id].is_ending_before(Producer { id: producer_id, epoch: producer_epoch }).then_some(id)
    }

    /// Whether this producer id was given to one of its ids.
    #[must_use]
    pub fn knows_producer(&self, producer_id: ProducerId) -> bool {
        self.producers.contains_key(&producer_id)
    }

    /// How many ids have a transaction that is open or being ended.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open
    }

    /// The transaction of this id that is open or being ended.
    #[must_use]
    pub fn transaction(&self, id: &TransactionalId) -> Option<TransactionView> {
        self.entries.get(id)?.view(&self.options)
    }

    /// At most `limit` transactions that are open or being ended, by transactional id, behind `after`.
    #[must_use]
    pub fn transactions(&self, after: Option<&TransactionalId>, limit: usize) -> Vec<TransactionView> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.entries.range::<TransactionalId, _>((from, Bound::Unbounded));
        entries.filter_map(|(_, entry)| entry.view(&self.options)).take(limit).collect()
    }

    /// Records that hold all that it knows: what is left of all its steps' records after compaction.
    #[must_use]
    pub fn records(&self) -> Vec<CoordinatorRecord> {
        self.entries.values().filter_map(Entry::stored_record).collect()
    }

    fn create(&mut self, id: &TransactionalId, producer_id: ProducerId, timeout_ms: u64) {
        self.entries.insert(id.clone(), Entry::new(id.clone(), producer_id, timeout_ms));
        self.producers.insert(producer_id, id.clone());
    }

    /// Does something with a transaction, if its producer is known.
    fn at_transaction<T, E: From<TransactionError>>(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        event: impl FnOnce(&mut Entry, &mut Context<'_>, Producer) -> Result<T, E>,
    ) -> TransactionStep<Result<T, E>> {
        match self.owner(transaction) {
            Some((id, producer)) => self.at(now, &id, |entry, ctx| event(entry, ctx, producer)),
            None => TransactionStep::empty(Err(TransactionError::UnknownTransaction.into())),
        }
    }

    fn at_markers(
        &mut self,
        now: Now,
        transaction: TransactionHandle,
        event: impl FnOnce(&mut Entry, &mut Context<'_>, Producer),
    ) -> TransactionStep<()> {
        match self.owner(transaction) {
            Some((id, producer)) => self.at(now, &id, |entry, ctx| event(entry, ctx, producer)),
            None => TransactionStep::empty(()),
        }
    }

    fn owner(&self, transaction: TransactionHandle) -> Option<(TransactionalId, Producer)> {
        let TransactionHandle { coordinator, producer_id, producer_epoch } = transaction;
        let id = self.producers.get(&producer_id).filter(|_| coordinator == self.options.partition)?;
        Some((id.clone(), Producer { id: producer_id, epoch: producer_epoch }))
    }

    /// Does something with an id that is there, and gathers what follows.
    fn at<T>(
        &mut self,
        now: Now,
        id: &TransactionalId,
        event: impl FnOnce(&mut Entry, &mut Context<'_>) -> T,
    ) -> TransactionStep<T> {
        let entry = self.entries.get_mut(id).expect("the caller has looked");
        let (before, was_open) = (entry.producer_ids(), entry.is_open());
        let counts = TransactionCounts::default();
        let mut ctx = Context { now, options: &self.options, markers: Vec::new(), completed: false, counts };
        let answer = event(entry, &mut ctx);
        let mut step = TransactionStep {
            answer,
            records: Vec::new(),
            markers: ctx.markers,
            completed: ctx.completed.then(|| id.clone()).into_iter().collect(),
            counts: ctx.counts,
        };
        self.open = self.open + usize::from(entry.is_open()) - usize::from(was_open);
        let after = entry.producer_ids();
        for gone in before.difference(&after) {
            self.producers.remove(gone);
        }
        for new in after.difference(&before) {
            self.producers.insert(*new, id.clone());
        }
        self.settle(now, id, &mut step.records);
        while let Some(oldest) = self.kept.excess(limits::EXECUTE_ANSWERS_BYTES_MAX) {
            self.entries.get_mut(&oldest).expect("what is kept is there").forget();
            self.settle(now, &oldest, &mut step.records);
        }
        step
    }

    /// Stores what became of an id, and sets when it is due.
    fn settle(&mut self, now: Now, id: &TransactionalId, records: &mut Vec<CoordinatorRecord>) {
        let entry = self.entries.get_mut(id).expect("the caller has looked");
        records.extend(entry.take_record(now.wall));
        let due = entry.next_due().filter(|_| !entry.is_gone());
        self.due.set(id, due);
        self.kept.set(id, entry.kept_bytes());
        if entry.is_gone() {
            for producer_id in entry.producer_ids() {
                self.producers.remove(&producer_id);
            }
            self.entries.remove(id);
        }
    }
}

impl<T> TransactionStep<T> {
    /// An answer without effects.
    pub fn empty(answer: T) -> Self {
        let counts = TransactionCounts::default();
        Self { answer, records: Vec::new(), markers: Vec::new(), completed: Vec::new(), counts }
    }

    /// Adds the effects of a later step.
    fn absorb(&mut self, later: TransactionStep<()>) {
        self.records.extend(later.records);
        self.markers.extend(later.markers);
        self.completed.extend(later.completed);
        self.counts += later.counts;
    }
}
