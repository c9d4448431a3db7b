//! A coordinator of transactions with its log, a clock, and partitions that take markers.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use levada_coordinator::{
    AddError, BeginError, BodyDigest, EndError, ExecuteError, Executing, InitError, Now, Outcome, Participants,
    Producer, Progress, TransactionCoordinator, TransactionHandle, TransactionOptions, TransactionState,
    TransactionStep, TransactionView, WriteMarkers,
};
use levada_extension::TopicPartition;
use levada_model::{
    GroupName, PartitionIndex, ProducerEpoch, ProducerId, Tick, Timestamp, TopicId, TransactionalId, limits,
};
use uuid::Uuid;

pub(super) const TIMEOUT_MS: u64 = 10_000;
pub(super) const OPTIONS: TransactionOptions = TransactionOptions {
    partition: PartitionIndex(7),
    coordinator_epoch: 3,
    id_expiration_ms: 60_000,
    execute_answer_ms: 40_000,
    marker_retry_ms: 500,
};

pub(super) struct World {
    pub(super) coordinator: TransactionCoordinator,
    /// The newest record of each key.
    pub(super) log: BTreeMap<Bytes, Bytes>,
    /// Markers that were sent and not answered.
    pub(super) sent: Vec<WriteMarkers>,
    pub(super) completed: Vec<TransactionalId>,
    /// When the record of each key was written, by the time of day.
    pub(super) written_at: BTreeMap<Bytes, i64>,
    /// How many records were written.
    pub(super) written: usize,
    /// Who has which marker of a transaction, in order.
    pub(super) markers: BTreeMap<TransactionHandle, Vec<(Participants, Outcome)>>,
    pub(super) tick: u64,
    pub(super) wall: i64,
    next_producer_id: i64,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            coordinator: TransactionCoordinator::new(OPTIONS),
            log: BTreeMap::new(),
            sent: Vec::new(),
            completed: Vec::new(),
            written_at: BTreeMap::new(),
            written: 0,
            markers: BTreeMap::new(),
            tick: 1_000,
            wall: 1_700_000_000_000,
            next_producer_id: 100,
        }
    }

    pub(super) fn now(&self) -> Now {
        Now { tick: Tick(self.tick), wall: Timestamp(self.wall) }
    }

    /// Does what a step asks for, markers aside.
    pub(super) fn take<T>(&mut self, step: TransactionStep<T>) -> T {
        self.written += step.records.len();
        for record in step.records {
            self.written_at.insert(record.key.clone(), self.wall);
            match record.value {
                Some(value) => drop(self.log.insert(record.key, value)),
                None => assert!(self.log.remove(&record.key).is_some(), "there was something to take away"),
            }
        }
        self.sent.extend(step.markers);
        self.completed.extend(step.completed);
        step.answer
    }

    fn spare(&mut self) -> Option<ProducerId> {
        self.next_producer_id += 1;
        Some(ProducerId(self.next_producer_id - 1))
    }

    pub(super) fn init(&mut self, id: &str) -> Result<Progress<Producer>, InitError> {
        let (now, id) = (self.now(), transactional_id(id));
        let step = self.coordinator.init(now, &id, TIMEOUT_MS, None);
        match self.take(step) {
            Err(InitError::NeedsProducerId) => {
                let spare = self.spare();
                let step = self.coordinator.init(now, &id, TIMEOUT_MS, spare);
                self.take(step)
            }
            answer => answer,
        }
    }

    /// Starts a producer, with every marker written.
    pub(super) fn started(&mut self, id: &str) -> Producer {
        loop {
            match self.init(id).expect("it may start") {
                Progress::Done(producer) => return producer,
                Progress::Wait(_) => self.write_some(),
            }
        }
    }

    pub(super) fn begin(&mut self, producer: Producer) -> Result<TransactionHandle, BeginError> {
        let now = self.now();
        let step = self.coordinator.begin(now, producer.id, producer.epoch, None);
        match self.take(step) {
            Err(BeginError::NeedsProducerId) => {
                let spare = self.spare();
                let step = self.coordinator.begin(now, producer.id, producer.epoch, spare);
                self.take(step)
            }
            answer => answer,
        }
    }

    pub(super) fn add(&mut self, transaction: TransactionHandle, partitions: &[u32]) -> Result<(), AddError> {
        let partitions: Vec<_> = partitions.iter().map(|index| partition(*index)).collect();
        let step = self.coordinator.add_partitions(self.now(), transaction, &partitions);
        self.take(step)
    }

    pub(super) fn add_group(&mut self, transaction: TransactionHandle, name: &str) -> Result<(), AddError> {
        let step = self.coordinator.add_offsets(self.now(), transaction, &group(name));
        self.take(step)
    }

    pub(super) fn end(
        &mut self,
        transaction: TransactionHandle,
        outcome: Outcome,
    ) -> Result<Progress<Producer>, EndError> {
        let step = self.coordinator.end(self.now(), transaction, outcome);
        self.take(step)
    }

    /// Ends a transaction, with every marker written.
    pub(super) fn ended(&mut self, transaction: TransactionHandle, outcome: Outcome) -> Result<Producer, EndError> {
        loop {
            match self.end(transaction, outcome)? {
                Progress::Done(producer) => return Ok(producer),
                Progress::Wait(_) => self.write_some(),
            }
        }
    }

    pub(super) fn execute(&mut self, id: &str, body: Option<BodyDigest>) -> Result<Progress<Executing>, ExecuteError> {
        let (now, id) = (self.now(), transactional_id(id));
        let step = self.coordinator.execute(now, &id, TIMEOUT_MS, body, None);
        match self.take(step) {
            Err(ExecuteError::NeedsProducerId) => {
                let spare = self.spare();
                let step = self.coordinator.execute(now, &id, TIMEOUT_MS, body, spare);
                self.take(step)
            }
            answer => answer,
        }
    }

    pub(super) fn executing(&mut self, id: &str, body: Option<BodyDigest>) -> TransactionHandle {
        match self.execute(id, body) {
            Ok(Progress::Done(Executing::Begun(transaction))) => transaction,
            other => panic!("it begins: {other:?}"),
        }
    }

    pub(super) fn commit_execution(
        &mut self,
        transaction: TransactionHandle,
        body: BodyDigest,
        answer: &[u8],
    ) -> Result<Progress<Producer>, EndError> {
        let answer = Bytes::copy_from_slice(answer);
        let step = self.coordinator.commit_execution(self.now(), transaction, body, answer);
        self.take(step)
    }

    /// Writes the markers that were sent at `index`, and says so.
    pub(super) fn write(&mut self, index: usize) {
        let sent = self.sent.remove(index);
        self.note_written(&sent);
        let step = self.coordinator.markers_written(self.now(), sent.transaction, &sent.participants);
        self.take(step);
    }

    pub(super) fn note_written(&mut self, sent: &WriteMarkers) {
        assert_eq!(sent.producer_epoch.0, sent.transaction.producer_epoch.0 + 1);
        assert_eq!(sent.coordinator_epoch, OPTIONS.coordinator_epoch);
        let of = self.markers.entry(sent.transaction).or_default();
        assert!(of.iter().all(|(_, outcome)| *outcome == sent.outcome), "{sent:?} after {of:?}");
        of.push((sent.participants.clone(), sent.outcome));
    }

    pub(super) fn fail(&mut self, index: usize) {
        let sent = self.sent.remove(index);
        let step = self.coordinator.markers_failed(self.now(), sent.transaction, &sent.participants);
        self.take(step);
    }

    fn write_some(&mut self) {
        assert!(!self.sent.is_empty(), "nothing is under way that would end the wait");
        self.write_all();
    }

    pub(super) fn write_all(&mut self) {
        while !self.sent.is_empty() {
            self.write(0);
        }
    }

    /// Lets time pass, in steps at which something is due.
    pub(super) fn pass(&mut self, millis: u64) {
        let end = self.tick + millis;
        while let Some(due) = self.coordinator.next_due().filter(|due| due.0 <= end) {
            self.wall += i64::try_from(due.0.saturating_sub(self.tick)).expect("a short time");
            self.tick = self.tick.max(due.0);
            let step = self.coordinator.tick(self.now());
            self.take(step);
        }
        self.wall += i64::try_from(end - self.tick).expect("a short time");
        self.tick = end;
        let step = self.coordinator.tick(self.now());
        self.take(step);
    }

    /// The coordinator dies, with all that was on its way, and is loaded anew.
    pub(super) fn restart(&mut self) {
        self.sent.clear();
        self.coordinator = TransactionCoordinator::new(OPTIONS);
        for (key, value) in &self.log {
            self.coordinator.replay(key, Some(value)).expect("it can be read");
        }
        let step = self.coordinator.loaded(self.now());
        assert!(step.records.is_empty(), "loading changes nothing");
        self.take(step);
        self.check_log();
    }

    /// The log says exactly what the coordinator knows.
    pub(super) fn check_log(&self) {
        let known = self.coordinator.records().into_iter();
        let known: BTreeMap<_, _> = known.map(|record| (record.key, record.value.expect("a value"))).collect();
        assert_eq!(known, self.log);
    }

    pub(super) fn open(&self) -> Vec<TransactionHandle> {
        let ids = self.coordinator.open_ids(None, usize::MAX).into_iter();
        ids.map(|id| self.view(id.as_str()).expect("it is open").transaction).collect()
    }

    pub(super) fn state(&self, id: &str) -> Option<TransactionState> {
        Some(self.view(id)?.state)
    }

    pub(super) fn view(&self, id: &str) -> Option<TransactionView> {
        self.coordinator.transaction(&transactional_id(id), usize::MAX)
    }

    /// Who has a marker of this transaction, and which.
    pub(super) fn marked(&self, transaction: TransactionHandle) -> Option<(Participants, Outcome)> {
        let markers = self.markers.get(&transaction)?;
        let mut all = Participants::default();
        for (participants, _) in markers {
            all.partitions.extend(&participants.partitions);
            all.groups.extend(participants.groups.iter().cloned());
        }
        Some((all, markers.first()?.1))
    }
}

pub(super) fn transactional_id(id: &str) -> TransactionalId {
    TransactionalId::new(id).expect("within the rule")
}

pub(super) fn group(name: &str) -> GroupName {
    GroupName::new(name).expect("within the rule")
}

pub(super) fn partition(index: u32) -> TopicPartition {
    TopicPartition { topic: TopicId(Uuid::from_u128(1)), partition: PartitionIndex(index) }
}

pub(super) fn participants(partitions: &[u32], groups: &[&str]) -> Participants {
    Participants {
        partitions: partitions.iter().map(|index| partition(*index)).collect(),
        groups: groups.iter().map(|name| group(name)).collect::<BTreeSet<_>>(),
    }
}

pub(super) fn body(byte: u8) -> BodyDigest {
    BodyDigest([byte; 32])
}

pub(super) fn handle(producer: Producer) -> TransactionHandle {
    TransactionHandle { coordinator: OPTIONS.partition, producer_id: producer.id, producer_epoch: producer.epoch }
}

/// The producer of the epoch that is this far from `producer`'s.
pub(super) fn off(producer: Producer, by: i16) -> Producer {
    Producer { epoch: ProducerEpoch(producer.epoch.0 + by), ..producer }
}

/// Longer than any marker waits for its next try.
pub(super) const PATIENCE_MS: u64 = limits::MARKER_ANSWER_MS_MAX;
