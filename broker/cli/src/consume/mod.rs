//! `levada consume`: reads a topic or one partition, to its end or live, or topics as a member of a group. Not here: how
//! records are printed (`sink.rs`), and what a member does (`group.rs`).

mod group;
mod sink;

use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use levada_client::{Backoff, Client, FetchQuery, FollowEvent};
use tokio::time::Instant;

pub(crate) use group::GroupArgs;
pub(crate) use sink::Shape;

use crate::failure::Usage;
use crate::line::separator;
use crate::output::{Format, Printer, note};
use crate::signals::Stop;
use sink::Sink;

/// How long the server holds an empty answer back while one partition, or a group, is followed.
const WAIT_MS: u64 = 30_000;
/// Most records asked for at once.
const PAGE_RECORDS: u64 = 10_000;

/// Read records.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada consume earthquakes | head
  levada consume earthquakes --follow --output ndjson
  levada consume orders --partition 0 --from tail:100 --key-separator '\\t'
  levada consume orders payments --group billing --follow

Text output is each record's value and a line break. Without --follow it ends at the end of the topic. Reading all of a \
topic, a note tells the cursor to go on from when --max ended it.

With --group the partitions are shared among the group's members, and the group's committed offsets say where to go on; \
--from then only says where to begin in partitions of which nothing is committed. Without --follow it ends when the \
partitions that it holds are read to their ends. SIGINT (Ctrl-C) and SIGTERM end it with care: what was written is \
committed, and the others get its partitions at once (but those of a member with --instance-id wait for it). What \
happens in the group is told on standard error.")]
pub(crate) struct ConsumeCommand {
    /// The topic; with --group there may be several.
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    /// Where to begin: `earliest`, `latest` or `time:MS`; without --group also `tail:N`, a cursor, or with --partition an
    /// offset. [default: earliest, with --follow and without --group latest]
    #[arg(long)]
    from: Option<String>,
    /// Only this partition.
    #[arg(long, conflicts_with = "group")]
    partition: Option<u32>,
    /// Go on with what comes.
    #[arg(long)]
    follow: bool,
    /// End after this many records.
    #[arg(long, value_name = "RECORDS")]
    max: Option<u64>,
    /// In text, print the key and this before the value (`\t` is a tab).
    #[arg(long, value_name = "TEXT", value_parser = separator)]
    key_separator: Option<Bytes>,
    #[command(flatten)]
    group: GroupArgs,
}

/// What to read, and how to print it.
pub(crate) struct Plan {
    pub(crate) topics: Vec<String>,
    pub(crate) from: String,
    pub(crate) partition: Option<u32>,
    pub(crate) follow: bool,
    pub(crate) max: Option<u64>,
    pub(crate) shape: Shape,
    pub(crate) group: GroupArgs,
}

pub(crate) async fn run(command: ConsumeCommand, client: &Client, printer: Printer) -> anyhow::Result<ExitCode> {
    let ConsumeCommand { topics, from, partition, follow, max, key_separator, group } = command;
    if key_separator.is_some() && printer.format() != Format::Text {
        return Err(Usage("--key-separator is for --output text; JSON has the key in each record".to_owned()).into());
    }
    let from = from.unwrap_or_else(|| {
        let begins_live = follow && group.name().is_none();
        if begins_live { "latest" } else { "earliest" }.to_owned()
    });
    let plan = Plan { topics, from, partition, follow, max, shape: Shape::Values { key_separator }, group };
    read(plan, client, printer).await
}

/// Reads and prints until there were enough, all was read, or a signal came.
pub(crate) async fn read(plan: Plan, client: &Client, printer: Printer) -> anyhow::Result<ExitCode> {
    let mut sink = Sink { printer, shape: plan.shape, left: plan.max.unwrap_or(u64::MAX) };
    match (plan.group.membership(&plan.topics, &plan.from)?, plan.topics.as_slice()) {
        (Some(membership), _) => group::read(client, membership, plan.follow, &mut sink).await?,
        (None, [topic]) => {
            let source = Source { client, topic, from: &plan.from, follow: plan.follow };
            let reading = source.read(plan.partition, &mut sink);
            if plan.follow {
                let mut stop = Stop::listen()?;
                tokio::select! {
                    result = reading => result?,
                    // A JSON array is then still whole.
                    () = stop.asked() => {}
                }
            } else {
                reading.await?;
            }
        }
        (None, _) => return Err(Usage("several topics are read with --group only".to_owned()).into()),
    }
    sink.end()?;
    Ok(ExitCode::SUCCESS)
}

/// A topic that is read without a group.
struct Source<'a> {
    client: &'a Client,
    topic: &'a str,
    from: &'a str,
    follow: bool,
}

impl Source<'_> {
    async fn read(&self, partition: Option<u32>, sink: &mut Sink) -> anyhow::Result<()> {
        match (partition, self.follow) {
            (Some(partition), _) => self.read_partition(partition, sink).await,
            (None, true) => self.follow_topic(sink).await,
            (None, false) => self.read_topic(sink).await,
        }
    }

    async fn read_partition(&self, partition: u32, sink: &mut Sink) -> anyhow::Result<()> {
        let mut offset = self.from.to_owned();
        let (mut answered, mut backoff) = (false, Backoff::default());
        while sink.left > 0 {
            let query = FetchQuery {
                offset: Some(offset.clone()),
                max_records: Some(sink.left.min(PAGE_RECORDS)),
                wait_ms: self.follow.then_some(WAIT_MS),
                ..FetchQuery::default()
            };
            let fetched = match self.client.fetch(self.topic, partition, &query).await {
                Ok(fetched) => fetched,
                // As live following of a whole topic does: once it was there, it is waited for.
                Err(error) if self.follow && answered && error.is_retryable() => {
                    tokio::time::sleep_until(Instant::now() + backoff.next_pause(error.retry_after())).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            (answered, backoff) = (true, Backoff::default());
            fetched.gaps.iter().for_each(|gap| note(format!("gap: {gap}")));
            sink.print_all(&fetched.records)?;
            if !self.follow && fetched.next_offset >= fetched.last_stable_offset {
                break;
            }
            offset = fetched.next_offset.to_string();
        }
        Ok(())
    }

    async fn read_topic(&self, sink: &mut Sink) -> anyhow::Result<()> {
        let mut from = self.from.to_owned();
        while sink.left > 0 {
            let fetched = self.client.fetch_topic(self.topic, &from, Some(sink.left.min(PAGE_RECORDS)), 0).await?;
            fetched.gaps.iter().for_each(|gap| note(format!("gap: {gap}")));
            sink.print_all(&fetched.records)?;
            if fetched.records.is_empty() && fetched.cursor == from {
                return Ok(());
            }
            from = fetched.cursor;
        }
        tell_cursor(sink, &from);
        Ok(())
    }

    async fn follow_topic(&self, sink: &mut Sink) -> anyhow::Result<()> {
        let mut follow = self.client.follow(self.topic, self.from);
        while sink.left > 0 {
            match follow.next().await? {
                FollowEvent::Record(record) => sink.print_all([&*record])?,
                FollowEvent::Gap(what) => note(format!("gap: {what}")),
                FollowEvent::Heartbeat => {}
            }
        }
        if let Some(cursor) = follow.cursor() {
            tell_cursor(sink, cursor);
        }
        Ok(())
    }
}

/// Whoever asked for so many records may want the next ones.
fn tell_cursor(sink: &Sink, cursor: &str) {
    if sink.left == 0 {
        note(format!("go on with --from {cursor}"));
    }
}
