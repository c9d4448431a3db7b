//! What the tests share: an engine over a disk of their choice, and short forms of its calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use levada_engine::{
    CreateTopic, Engine, EngineOptions, FetchError, FetchRequest, Fetched, From, GroupOptions, Isolation,
    ProduceRecord, ProduceRequest, Produced, TopicDescription,
};
use levada_log::{SimStorage, Storage};
use levada_model::{AllowAll, ManualClock, Offset, PartitionIndex, Principal, Record, Timestamp, TopicName};
use serde_json::Value;

/// The time at which tests begin.
pub(crate) const START: Timestamp = Timestamp(1_700_000_000_000);
/// Long enough for anything that shall happen.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A disk, a clock and the options of the engines that run on them.
pub(crate) struct Bench {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) data_dir: PathBuf,
}

impl Bench {
    /// On a simulated disk.
    pub(crate) fn sim() -> (Self, SimStorage) {
        let clock = Arc::new(ManualClock::at(START));
        let disk = SimStorage::new(clock.clone());
        (Self { clock, storage: Arc::new(disk.clone()), data_dir: "data".into() }, disk)
    }

    /// On any disk.
    pub(crate) fn on(storage: impl Storage, data_dir: impl Into<PathBuf>) -> Self {
        Self { clock: Arc::new(ManualClock::at(START)), storage: Arc::new(storage), data_dir: data_dir.into() }
    }

    /// The same clock, another disk.
    pub(crate) fn with(&self, storage: impl Storage) -> Self {
        Self { clock: self.clock.clone(), storage: Arc::new(storage), data_dir: self.data_dir.clone() }
    }

    pub(crate) fn options(&self) -> EngineOptions {
        EngineOptions {
            storage: self.storage.clone(),
            data_dir: self.data_dir.clone(),
            clock: self.clock.clone(),
            authorizer: Arc::new(AllowAll),
            auto_create_topics: false,
            producer_expiration: Duration::from_secs(24 * 60 * 60),
            maintenance_interval: Duration::from_secs(60 * 60),
            compaction_memory_bytes: 1 << 20,
            linger: Duration::ZERO,
            groups: GroupOptions::default(),
            modules: None,
        }
    }

    pub(crate) fn open(&self) -> Engine {
        Engine::open(self.options()).expect("the engine opens")
    }
}

/// Comes back when something holds, which must come in the end.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < LONG, "it never came that {what}");
        tokio::task::yield_now().await;
    }
}

/// Polls a future so many times at most; its answer, if it has come.
pub(crate) async fn poll_times<T>(future: impl Future<Output = T>, mut times: usize) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(move |context| {
        if times == 0 {
            return Poll::Ready(None);
        }
        times -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if times == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

pub(crate) fn me() -> Principal {
    Principal::anonymous()
}

pub(crate) fn name(text: &str) -> TopicName {
    TopicName::new(text).expect("a topic's name")
}

pub(crate) fn p(index: u32) -> PartitionIndex {
    PartitionIndex(index)
}

pub(crate) fn set(settings: &[(&str, Value)]) -> BTreeMap<String, Value> {
    settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

pub(crate) async fn create(
    engine: &Engine,
    topic: &str,
    partitions: u32,
    config: &[(&str, Value)],
) -> TopicDescription {
    let new = CreateTopic { name: name(topic), partitions, config: set(config) };
    engine.create_topic(&me(), new).await.expect("the topic is created")
}

/// A record with a value, and a key if it is not empty.
pub(crate) fn record(key: &str, value: &str) -> ProduceRecord {
    let key = (!key.is_empty()).then(|| Bytes::copy_from_slice(key.as_bytes()));
    let value = Some(Bytes::copy_from_slice(value.as_bytes()));
    ProduceRecord { record: Record { key, value, headers: Vec::new() }, timestamp: None, partition: None }
}

/// A record for one partition.
pub(crate) fn to(partition: u32, value: &str) -> ProduceRecord {
    ProduceRecord { partition: Some(p(partition)), ..record("", value) }
}

pub(crate) fn request(records: Vec<ProduceRecord>) -> ProduceRequest {
    ProduceRequest { records, ..ProduceRequest::default() }
}

pub(crate) async fn produce(engine: &Engine, topic: &str, records: Vec<ProduceRecord>) -> Produced {
    engine.produce(&me(), &name(topic), request(records)).await.expect("the request is taken")
}

/// The offsets that were given, all of them.
pub(crate) fn offsets(produced: &Produced) -> Vec<u64> {
    let offset = |placed: &Result<levada_engine::Placed, _>| {
        placed.as_ref().unwrap_or_else(|fault: &Arc<levada_engine::AppendFault>| panic!("{fault}")).offset
    };
    produced.records.iter().map(|placed| offset(placed).expect("an offset was asked for").0).collect()
}

pub(crate) fn read_from(from: From) -> FetchRequest {
    FetchRequest {
        from,
        max_records: 500,
        max_bytes: 1 << 20,
        wait: Duration::ZERO,
        isolation: Isolation::ReadCommitted,
        filter: None,
        as_stored: false,
    }
}

pub(crate) async fn fetch(engine: &Engine, topic: &str, partition: u32, from: From) -> Result<Fetched, FetchError> {
    engine.fetch(&me(), &name(topic), p(partition), read_from(from)).await
}

/// Offsets and values of what a read gave.
pub(crate) fn values(fetched: &Fetched) -> Vec<(u64, String)> {
    let records = fetched.records().map(|record| record.expect("what was stored is sound"));
    records
        .map(|record| {
            let value = record.record.value.unwrap_or_default();
            (record.offset.0, String::from_utf8_lossy(&value).into_owned())
        })
        .collect()
}

/// Everything in a partition from an offset on.
pub(crate) async fn all(engine: &Engine, topic: &str, partition: u32, from: u64) -> Vec<(u64, String)> {
    try_all(engine, topic, partition, from).await.expect("a read")
}

/// Everything in a partition from an offset on, if it can be read.
pub(crate) async fn try_all(
    engine: &Engine,
    topic: &str,
    partition: u32,
    mut from: u64,
) -> Result<Vec<(u64, String)>, FetchError> {
    let mut found = Vec::new();
    loop {
        let fetched = fetch(engine, topic, partition, From::Offset(Offset(from))).await?;
        if fetched.next_offset == Offset(from) {
            return Ok(found);
        }
        found.extend(values(&fetched));
        from = fetched.next_offset.0;
    }
}
