//! An engine under load that can be killed, closed and robbed of its power, and that is open again right after.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use levada_engine::{
    AppendFault, Engine, ExecuteRecord, ExecuteRequest, FetchError, FetchRequest, From, GroupError, Isolation,
    OffsetCommit, Once, ProduceError, ProduceRequest, Produced, Producer, TransactionError, TransactionHandle,
    TransactionOffset, TransactionOffsets,
};
use levada_history::{Broker, Event, Found, History, Marks, Outcome, Partition, Refusal, Value, View};
use levada_log::{AppendError, CrashPlan, PlantedFaults, SimStorage};
use levada_model::{GroupName, Offset, Sequence, Timestamp, TransactionalId};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::support::{Bench, START, me, to};

/// How long a reader waits for something new.
const READ_WAIT: Duration = Duration::from_millis(5);
/// Most records of a read; few, so that reads end at many places.
const READ_RECORDS_MAX: usize = 50;

/// How an engine comes to its end.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// As by kill -9: what was written is there.
    Kill,
    /// The power goes: what was not synced is lost, or torn.
    PowerCut(CrashPlan),
    /// It closes.
    Close,
}

/// An engine on a simulated disk.
pub(crate) struct Node {
    bench: Bench,
    faults: PlantedFaults,
    disk: Mutex<SimStorage>,
    since: Instant,
    /// The engine, with its place among all that there were; none while it is down.
    running: watch::Sender<Option<(usize, Engine)>>,
    next: AtomicUsize,
}

impl Node {
    pub(crate) fn start(faults: PlantedFaults) -> Self {
        let (bench, disk) = Bench::sim();
        let node = Self {
            bench,
            faults,
            disk: Mutex::new(disk),
            since: Instant::now(),
            running: watch::Sender::new(None),
            next: AtomicUsize::new(0),
        };
        node.open();
        node
    }

    fn open(&self) {
        let bench = self.bench.with(self.disk.lock().clone());
        let engine = Engine::open_with_faults(bench.options(), self.faults).expect("the engine opens");
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.running.send_replace(Some((number, engine)));
    }

    /// The engine that runs now, once one does.
    pub(crate) async fn engine(&self) -> Engine {
        self.numbered().await.1
    }

    async fn numbered(&self) -> (usize, Engine) {
        let mut watching = self.running.subscribe();
        let running = watching.wait_for(Option::is_some).await.expect("the node lives");
        running.clone().expect("waited for")
    }

    /// Lets the engine end, and another one open on what it leaves. Whoever is not answered by now never is.
    pub(crate) async fn restart(&self, end: End, history: &History) {
        let (_, engine) = self.running.send_replace(None).expect("it runs");
        history.note(Event::Down(match end {
            End::Kill => "killed",
            End::PowerCut(_) => "robbed of its power",
            End::Close => "closed",
        }));
        let disk = self.disk.lock().clone();
        let left = match end {
            End::Kill => disk.restart(),
            End::PowerCut(plan) => disk.crash(&plan),
            End::Close => {
                engine.close().await.expect("the disk works");
                // A copy, which nobody can reach who still holds the engine.
                disk.restart()
            }
        };
        *self.disk.lock() = left;
        self.open();
        history.note(Event::Up);
    }

    /// Lets the engine's clock go on as that on the wall does.
    pub(crate) fn keep_time(&self) {
        let passed = i64::try_from(self.since.elapsed().as_millis()).expect("a short test");
        self.bench.clock.set(Timestamp(START.0 + passed));
    }

    /// Asks the engine that runs. An answer that comes when it runs no more counts for nothing.
    async fn ask<T, F>(&self, work: impl FnOnce(Engine) -> F + Send) -> Result<T, Refusal>
    where
        T: Send,
        F: Future<Output = Result<T, Refusal>> + Send,
    {
        let (number, engine) = self.numbered().await;
        let answer = work(engine).await;
        if matches!(answer, Err(Refusal::Later)) {
            tokio::task::yield_now().await;
        }
        let is_running = self.running.borrow().as_ref().is_some_and(|(running, _)| *running == number);
        if is_running { answer } else { Err(Refusal::Unknown) }
    }
}

fn wrong(error: impl std::fmt::Debug) -> Refusal {
    Refusal::Wrong(format!("{error:?}"))
}

fn of_transaction(error: &TransactionError) -> Refusal {
    match error {
        TransactionError::ProducerFenced => Refusal::Fenced,
        TransactionError::Ended { .. } => Refusal::Ended,
        TransactionError::ConcurrentTransactions | TransactionError::Overloaded => Refusal::Later,
        TransactionError::Loading | TransactionError::Closing | TransactionError::Fenced { .. } => Refusal::Unknown,
        TransactionError::Produce { error, .. } => of_produce(error),
        TransactionError::Append { fault, .. } => of_append(fault),
        TransactionError::Group(error) => of_group(error),
        other => wrong(other),
    }
}

fn of_produce(error: &ProduceError) -> Refusal {
    match error {
        ProduceError::Transaction(error) => of_transaction(error),
        ProduceError::Closing | ProduceError::Fenced(_) => Refusal::Unknown,
        other => wrong(other),
    }
}

fn of_append(fault: &AppendFault) -> Refusal {
    match fault {
        AppendFault::Refused(AppendError::ProducerFenced { .. }) => Refusal::Fenced,
        AppendFault::Transaction(error) => of_transaction(error),
        AppendFault::Overloaded(_) | AppendFault::OutOfFiles(_) => Refusal::Later,
        AppendFault::Closing | AppendFault::Fenced { .. } => Refusal::Unknown,
        other => wrong(other),
    }
}

fn of_group(error: &GroupError) -> Refusal {
    match error {
        GroupError::Loading | GroupError::Closing | GroupError::Fenced { .. } => Refusal::Unknown,
        GroupError::Overloaded => Refusal::Later,
        other => wrong(other),
    }
}

fn of_fetch(error: FetchError) -> Refusal {
    match error {
        // What was there is there no more; whoever reads from the beginning finds out what.
        FetchError::Closing | FetchError::BeyondEnd { .. } => Refusal::Unknown,
        other => wrong(other),
    }
}

fn offsets(produced: Result<Produced, ProduceError>) -> Result<Vec<Offset>, Refusal> {
    let placed = produced.map_err(|error| of_produce(&error))?.records.into_iter();
    placed.map(|placed| placed.map_err(|fault| of_append(&fault))?.offset.ok_or_else(|| wrong("no offset"))).collect()
}

async fn produce(
    engine: Engine,
    partition: &Partition,
    once: Once,
    values: Vec<Value>,
) -> Result<Vec<Offset>, Refusal> {
    offsets(engine.produce(&me(), &partition.topic, of(partition, once, &values)).await)
}

fn of(partition: &Partition, once: Once, values: &[Value]) -> ProduceRequest {
    let records = values.iter().map(|value| to(partition.index.0, &value.to_string())).collect();
    ProduceRequest { records, once, ..ProduceRequest::default() }
}

fn with_transaction(group: &GroupName, partition: &Partition, offset: Offset) -> TransactionOffsets {
    let offset = TransactionOffset { topic: partition.topic.clone(), partition: partition.index, offset };
    TransactionOffsets { group: group.clone(), member_id: None, offsets: vec![offset] }
}

impl Broker for Node {
    type Producer = Producer;
    type Transaction = TransactionHandle;

    async fn start(&self, id: &str, timeout_ms: u64) -> Result<Producer, Refusal> {
        let id = TransactionalId::new(id).expect("an id");
        let start = |engine: Engine| async move {
            engine.init_transactional_producer(&me(), &id, timeout_ms).await.map_err(|error| of_transaction(&error))
        };
        self.ask(start).await
    }

    async fn begin(&self, producer: &Producer) -> Result<TransactionHandle, Refusal> {
        let Producer { id, epoch } = *producer;
        let begin = |engine: Engine| async move {
            engine.begin_transaction(&me(), id, epoch).await.map_err(|error| of_transaction(&error))
        };
        self.ask(begin).await
    }

    async fn send(
        &self,
        transaction: &TransactionHandle,
        partition: &Partition,
        sequence: Option<u32>,
        values: &[Value],
    ) -> Result<Vec<Offset>, Refusal> {
        let sequence = sequence.map(|sequence| Sequence(i32::try_from(sequence).expect("few")));
        let once = Once::Transaction { transaction: *transaction, sequence };
        self.ask(|engine| produce(engine, partition, once, values.to_vec())).await
    }

    async fn add_offset(
        &self,
        transaction: &TransactionHandle,
        group: &GroupName,
        partition: &Partition,
        offset: Offset,
    ) -> Result<(), Refusal> {
        let offsets = with_transaction(group, partition, offset);
        let add = |engine: Engine| async move {
            engine.add_transaction_offsets(&me(), *transaction, offsets).await.map_err(|error| of_transaction(&error))
        };
        self.ask(add).await
    }

    async fn end(&self, transaction: &TransactionHandle, outcome: Outcome) -> Result<Producer, Refusal> {
        let end = |engine: Engine| async move {
            engine.end_transaction(&me(), *transaction, outcome).await.map_err(|error| of_transaction(&error))
        };
        self.ask(end).await
    }

    async fn send_outside(&self, producer: &Producer, partition: &Partition, value: Value) -> Result<Offset, Refusal> {
        // The engine refuses it by its id alone; the partition must, too.
        let once = Once::Producer { id: producer.id, epoch: producer.epoch, sequence: Sequence(0) };
        let send = |engine: Engine| async move {
            offsets(engine.produce_unchecked(&me(), &partition.topic, of(partition, once, &[value])).await)
        };
        Ok(self.ask(send).await?[0])
    }

    async fn store(&self, partition: &Partition, value: Value) -> Result<Offset, Refusal> {
        Ok(self.ask(|engine| produce(engine, partition, Once::No, vec![value])).await?[0])
    }

    async fn commit_offset(&self, group: &GroupName, partition: &Partition, offset: Offset) -> Result<(), Refusal> {
        let commit =
            OffsetCommit { topic: partition.topic.clone(), partition: partition.index, offset: From::Offset(offset) };
        let commit = |engine: Engine| async move {
            engine
                .commit_group_offsets(&me(), group, vec![commit], false)
                .await
                .map(drop)
                .map_err(|error| of_group(&error))
        };
        self.ask(commit).await
    }

    async fn execute(
        &self,
        key: &str,
        records: &[(Partition, Value)],
        offset: Option<&(GroupName, Partition, Offset)>,
    ) -> Result<Vec<Offset>, Refusal> {
        let record = |(partition, value): &(Partition, Value)| ExecuteRecord {
            topic: partition.topic.clone(),
            record: to(partition.index.0, &value.to_string()),
        };
        let request = ExecuteRequest {
            records: records.iter().map(record).collect(),
            group_offsets: offset.map(|(group, partition, offset)| with_transaction(group, partition, *offset)),
            key: Some((key.to_owned(), [7; 32])),
        };
        let execute = |engine: Engine| async move {
            let executed = engine.execute_transaction(&me(), request).await.map_err(|error| of_transaction(&error))?;
            Ok(executed.records.iter().filter_map(|record| record.placed.offset).collect())
        };
        self.ask(execute).await
    }

    async fn read(&self, view: View, partition: &Partition, from: Offset) -> Result<Found, Refusal> {
        let isolation = match view {
            View::Committed => Isolation::ReadCommitted,
            View::Uncommitted => Isolation::ReadUncommitted,
        };
        let request = FetchRequest {
            from: From::Offset(from),
            max_records: READ_RECORDS_MAX,
            max_bytes: 1 << 20,
            wait: READ_WAIT,
            isolation,
            as_stored: false,
        };
        let fetch = |engine: Engine| async move {
            engine.fetch(&me(), &partition.topic, partition.index, request).await.map_err(of_fetch)
        };
        let fetched = self.ask(fetch).await?;
        let record = |record: Result<levada_log::RecordRef, _>| {
            let record = record.map_err(|error: levada_log::RecordsError| wrong(error))?;
            let text = String::from_utf8(record.record.value.unwrap_or_default().to_vec()).map_err(wrong)?;
            Ok((record.offset, text.parse().map_err(Refusal::Wrong)?))
        };
        Ok(Found {
            records: fetched.records().map(record).collect::<Result<_, Refusal>>()?,
            next: fetched.next_offset,
            marks: Marks { high_watermark: fetched.high_watermark, last_stable: fetched.last_stable_offset },
        })
    }

    async fn group_offset(&self, group: &GroupName, partition: &Partition) -> Result<Option<Offset>, Refusal> {
        let look = |engine: Engine| async move {
            match engine.group_offsets(&me(), group).await {
                Ok(offsets) => Ok(offsets),
                Err(GroupError::NotFound(_)) => Ok(Vec::new()),
                Err(error) => Err(of_group(&error)),
            }
        };
        let offsets = self.ask(look).await?;
        let is_it = |committed: &&levada_engine::CommittedOffset| {
            (&committed.topic, committed.partition) == (&partition.topic, partition.index)
        };
        Ok(offsets.iter().find(is_it).map(|committed| committed.committed))
    }
}
