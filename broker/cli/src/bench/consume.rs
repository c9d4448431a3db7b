//! `levada bench consume`: reads partitions from their beginning, each connection one request at a time.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use levada_client::{Client, FetchQuery, Record};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::report::{Meter, watch};
use crate::output::Printer;

/// Measure reading.
#[derive(Debug, Args)]
#[command(
    after_help = "Each connection reads the partitions of its share from their first offset, over and over with \
                        --seconds. Latency is of one request; bytes are those of keys and values."
)]
pub(crate) struct BenchConsume {
    /// The topic.
    #[arg(long, default_value = "bench")]
    topic: String,
    /// End after this many records. [default: all there are, without --seconds]
    #[arg(long, conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    records: Option<u64>,
    /// End after this many seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Most records a request.
    #[arg(long, value_name = "RECORDS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Connections; those beyond the number of partitions share partitions.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
}

/// When the reading ends.
#[derive(Clone, Debug)]
struct End {
    deadline: Option<Instant>,
    left: Arc<AtomicU64>,
}

impl End {
    fn is_here(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0 || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Counts records; answers how many of them were still wanted.
    fn take(&self, records: u64) -> u64 {
        let subtract = |left: u64| Some(left.saturating_sub(records));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
        before.unwrap_or_else(|left| left).min(records)
    }
}

pub(super) async fn run(command: BenchConsume, url: &str, mut printer: Printer) -> anyhow::Result<ExitCode> {
    let topic = Client::new(url)?.topic(&command.topic).await?;
    let partitions: Vec<u32> = topic.partitions.iter().map(|partition| partition.partition).collect();
    let end = End {
        deadline: command.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        left: Arc::new(AtomicU64::new(command.records.unwrap_or(u64::MAX))),
    };
    let meter = Meter::new();
    let mut workers = JoinSet::new();
    for connection in 0..command.connections as usize {
        let mine = partitions.iter().copied().enumerate();
        let mut mine: Vec<u32> =
            mine.filter(|(index, _)| index % command.connections as usize == connection).map(|(_, p)| p).collect();
        if mine.is_empty() {
            mine.extend(partitions.get(connection % partitions.len().max(1)));
        }
        let reader = Reader {
            client: Client::new(url)?,
            topic: command.topic.clone(),
            batch: command.batch,
            end: end.clone(),
            meter: meter.clone(),
        };
        workers.spawn(async move { reader.read(&mine).await });
    }
    let work = async {
        while let Some(worker) = workers.join_next().await {
            worker.context("a worker broke down")??;
        }
        Ok(())
    };
    watch(work, &meter, "read", &mut printer).await?;
    Ok(ExitCode::SUCCESS)
}

struct Reader {
    client: Client,
    topic: String,
    batch: u64,
    end: End,
    meter: Meter,
}

impl Reader {
    async fn read(&self, partitions: &[u32]) -> anyhow::Result<()> {
        loop {
            let mut records = 0;
            for partition in partitions {
                records += self.read_partition(*partition).await?;
            }
            // Only a time asks for more than there is; without a record there is nothing to go round.
            if self.end.deadline.is_none() || records == 0 || self.end.is_here() {
                return Ok(());
            }
        }
    }

    async fn read_partition(&self, partition: u32) -> anyhow::Result<u64> {
        let mut offset = "earliest".to_owned();
        let mut total = 0;
        while !self.end.is_here() {
            let query = FetchQuery { max_records: Some(self.batch), ..FetchQuery::from(&offset) };
            let start = Instant::now();
            let fetched = self.client.fetch(&self.topic, partition, &query).await?;
            let latency = start.elapsed();
            let wanted = self.end.take(fetched.records.len() as u64);
            let wanted_records = &fetched.records[..usize::try_from(wanted).expect("no more than there are")];
            self.meter.done(wanted, wanted_records.iter().map(size).sum(), latency);
            self.meter.requests(1);
            total += wanted;
            if fetched.next_offset >= fetched.last_stable_offset {
                break;
            }
            offset = fetched.next_offset.to_string();
        }
        Ok(total)
    }
}

fn size(record: &Record) -> u64 {
    let bytes = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len) as u64;
    bytes(&record.key) + bytes(&record.value)
}
