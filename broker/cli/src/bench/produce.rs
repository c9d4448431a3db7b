//! `levada bench produce`: records come one by one from a load generator into the client's producer, as an application's
//! would, so that linger and batch do here what they do there.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use levada_api::ErrorCode;
use levada_client::{Client, Delivery, NewRecord, Producer};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::report::{Meter, watch};
use crate::output::Printer;
use crate::produce::GatherArgs;

/// Answers that one connection's counter may be behind.
const ANSWERS_WAITING_MAX: usize = 100_000;

/// Measure storing.
#[derive(Debug, Args)]
#[command(after_help = "Linger against throughput at one connection (the same records, one by one or gathered):
  levada bench produce --topic linger --create --records 2000 --linger-ms 0
  levada bench produce --topic linger --create --records 2000 --linger-ms 20

Latency is from handing a record to the producer until its answer, so it holds the time it was gathered and queued.")]
pub(crate) struct BenchProduce {
    /// The topic.
    #[arg(long, default_value = "bench")]
    topic: String,
    /// Create the topic, if there is none, with --partitions and --durability.
    #[arg(long)]
    create: bool,
    /// Partitions of a topic that is created.
    #[arg(long, default_value_t = 1, requires = "create")]
    partitions: u32,
    /// Durability of a topic that is created.
    #[arg(long, value_enum, default_value_t, requires = "create")]
    durability: DurabilityArg,
    /// End after this many records. [default: 100000, without --seconds]
    #[arg(long, conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    records: Option<u64>,
    /// End after this many seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Bytes of each record's value, a JSON string.
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(2..=268_435_456))]
    record_size: u64,
    /// Connections, each with a producer of its own and one request at a time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    #[command(flatten)]
    gather: GatherArgs,
}

/// `durability`, as the command line writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum DurabilityArg {
    /// An answer means on the disk.
    #[default]
    Fsync,
    /// An answer means in the kernel's page cache.
    PageCache,
}

pub(super) async fn run(command: BenchProduce, url: &str, mut printer: Printer) -> anyhow::Result<ExitCode> {
    if command.create {
        create(&command, &Client::new(url)?).await?;
    }
    let record = NewRecord::json(value(command.record_size)).context("the value is JSON")?;
    let records = command.records.or(command.seconds.is_none().then_some(100_000));
    let deadline = command.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let meter = Meter::new();
    let mut workers = JoinSet::new();
    for connection in 0..command.connections {
        // A client of its own is a connection of its own.
        let producer = Producer::new(Client::new(url)?, &command.topic, command.gather.options());
        let share = records.map(|records| share(records, command.connections, connection));
        workers.spawn(load(producer, record.clone(), command.record_size, share, deadline, meter.clone()));
    }
    let work = async {
        while let Some(worker) = workers.join_next().await {
            worker.context("a worker broke down")??;
        }
        Ok(())
    };
    watch(work, &meter, "sent", &mut printer).await?;
    Ok(ExitCode::SUCCESS)
}

async fn create(command: &BenchProduce, client: &Client) -> anyhow::Result<()> {
    let durability = match command.durability {
        DurabilityArg::Fsync => "fsync",
        DurabilityArg::PageCache => "page-cache",
    };
    let config = BTreeMap::from([("durability".to_owned(), durability.into())]);
    match client.create_topic(&command.topic, command.partitions, config).await {
        Err(error) if error.problem().is_some_and(|problem| problem.code == ErrorCode::TopicExists) => {
            let topic = client.topic(&command.topic).await?;
            let (has, partitions) = (&topic.effective_config["durability"], topic.partition_count);
            anyhow::ensure!(
                has == durability && partitions == command.partitions,
                "topic {} exists with durability {has} and {partitions} partitions; name another topic",
                command.topic
            );
            Ok(())
        }
        result => result.map(drop).map_err(Into::into),
    }
}

/// Hands records over until there were enough or the time is over; ends at the first that is not stored.
async fn load(
    producer: Producer,
    record: NewRecord,
    record_bytes: u64,
    records: Option<u64>,
    deadline: Option<Instant>,
    meter: Meter,
) -> anyhow::Result<()> {
    let (deliveries, answers) = mpsc::channel(ANSWERS_WAITING_MAX);
    let counter = tokio::spawn(count(answers, record_bytes, meter.clone()));
    let mut left = records.unwrap_or(u64::MAX);
    while left > 0 && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        left -= 1;
        let start = Instant::now();
        let delivery = producer.send(record.clone()).await;
        if deliveries.send((start, delivery)).await.is_err() {
            break;
        }
    }
    drop(deliveries);
    meter.requests(producer.close().await.requests);
    counter.await.context("the counter broke down")?
}

async fn count(mut answers: mpsc::Receiver<(Instant, Delivery)>, bytes: u64, meter: Meter) -> anyhow::Result<()> {
    while let Some((start, delivery)) = answers.recv().await {
        match delivery.answer().await {
            Ok(_) => meter.done(1, bytes, start.elapsed()),
            Err(error) => {
                meter.failed();
                return Err(error).context("a record was not stored");
            }
        }
    }
    Ok(())
}

/// A JSON string of so many bytes, quotes included, that no compression could make nothing of.
fn value(bytes: u64) -> String {
    let mut state = 0x2545_f491_u32;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        char::from(b'a' + u8::try_from(state % 26).expect("below 26"))
    };
    let letters: String = (2..bytes).map(|_| letter()).collect();
    format!("\"{letters}\"")
}

/// How many of the records are this connection's.
fn share(records: u64, connections: u32, connection: u32) -> u64 {
    let (connections, connection) = (u64::from(connections), u64::from(connection));
    records / connections + u64::from(connection < records % connections)
}

#[cfg(test)]
mod tests {
    use super::{share, value};

    #[test]
    fn the_shares_of_all_connections_are_all_records() {
        assert_eq!((0..7).map(|connection| share(100, 7, connection)).sum::<u64>(), 100);
        assert_eq!((0..7).map(|connection| share(3, 7, connection)).max(), Some(1));
    }

    #[test]
    fn a_value_is_a_json_string_of_the_size_that_was_asked_for() {
        for bytes in [2, 3, 1024] {
            let value = value(bytes);
            assert_eq!(value.len() as u64, bytes);
            assert!(serde_json::from_str::<String>(&value).is_ok());
        }
    }
}
