//! `levada consume`: reads a topic or one partition, to its end or live.

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use levada_client::{Client, FetchQuery, FollowEvent, Record};
use tokio::time::Instant;

use crate::failure::Usage;
use crate::line::separator;
use crate::output::{Format, Printer, note};

/// How long the server holds an empty answer back while one partition is followed.
const WAIT_MS: u64 = 30_000;
/// Between two tries to reach a server that was there.
const PAUSE: Duration = Duration::from_millis(200);
/// Most records asked for at once.
const PAGE_RECORDS: u64 = 10_000;

/// Read records.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada consume earthquakes | head
  levada consume earthquakes --follow --output ndjson
  levada consume orders --partition 0 --from tail:100 --key-separator '\\t'

Text output is each record's value and a line break. Without --follow it ends at the end of the topic. Reading all of a \
topic, a note tells the cursor to go on from when --max ended it.")]
pub(crate) struct ConsumeCommand {
    /// The topic.
    topic: String,
    /// Where to begin: `earliest`, `latest`, `time:MS`, `tail:N`, a cursor, or with --partition an offset. [default:
    /// earliest, with --follow latest]
    #[arg(long)]
    from: Option<String>,
    /// Only this partition.
    #[arg(long)]
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
}

/// Prints records until there were enough.
struct Sink {
    printer: Printer,
    key_separator: Option<Bytes>,
    left: u64,
}

impl Sink {
    fn print(&mut self, record: &Record) -> anyhow::Result<()> {
        self.left -= 1;
        if self.printer.format() != Format::Text {
            return Ok(self.printer.item(&record.to_line())?);
        }
        let value = record.value.as_deref().unwrap_or_default();
        match &self.key_separator {
            Some(separator) => {
                self.printer.bytes_line(&[record.key.as_deref().unwrap_or_default(), separator, value])?
            }
            None => self.printer.bytes_line(&[value])?,
        }
        Ok(())
    }

    fn print_all(&mut self, records: &[Record]) -> anyhow::Result<()> {
        for record in records {
            if self.left > 0 {
                self.print(record)?;
            }
        }
        Ok(self.printer.flush()?)
    }
}

pub(crate) async fn run(command: ConsumeCommand, client: &Client, printer: Printer) -> anyhow::Result<ExitCode> {
    let key_separator = command.key_separator.clone();
    if key_separator.is_some() && printer.format() != Format::Text {
        return Err(Usage("--key-separator is for --output text; JSON has the key in each record".to_owned()).into());
    }
    let mut sink = Sink { printer, key_separator, left: command.max.unwrap_or(u64::MAX) };
    let from = command.from.clone().unwrap_or_else(|| if command.follow { "latest" } else { "earliest" }.to_owned());
    let reading = async {
        match (command.partition, command.follow) {
            (Some(partition), _) => read_partition(client, &command, partition, &from, &mut sink).await,
            (None, true) => follow_topic(client, &command.topic, &from, &mut sink).await,
            (None, false) => read_topic(client, &command.topic, &from, &mut sink).await,
        }
    };
    tokio::select! {
        result = reading => result?,
        // Ctrl-C ends a live reading, and a JSON array is then still whole.
        _ = tokio::signal::ctrl_c(), if command.follow => {}
    }
    if sink.printer.format() == Format::Json {
        sink.printer.end_items()?;
    }
    sink.printer.flush()?;
    Ok(ExitCode::SUCCESS)
}

async fn read_partition(
    client: &Client,
    command: &ConsumeCommand,
    partition: u32,
    from: &str,
    sink: &mut Sink,
) -> anyhow::Result<()> {
    let mut offset = from.to_owned();
    let mut answered = false;
    while sink.left > 0 {
        let query = FetchQuery {
            offset: Some(offset.clone()),
            max_records: Some(sink.left.min(PAGE_RECORDS)),
            wait_ms: command.follow.then_some(WAIT_MS),
            ..FetchQuery::default()
        };
        let fetched = match client.fetch(&command.topic, partition, &query).await {
            Ok(fetched) => fetched,
            // As live following of a whole topic does: once it was there, it is waited for.
            Err(error) if command.follow && answered && error.is_retryable() => {
                tokio::time::sleep_until(Instant::now() + error.retry_after().unwrap_or_default().max(PAUSE)).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        answered = true;
        fetched.gaps.iter().for_each(|gap| note(format!("gap: {gap}")));
        sink.print_all(&fetched.records)?;
        if !command.follow && fetched.next_offset >= fetched.last_stable_offset {
            break;
        }
        offset = fetched.next_offset.to_string();
    }
    Ok(())
}

async fn read_topic(client: &Client, topic: &str, from: &str, sink: &mut Sink) -> anyhow::Result<()> {
    let mut from = from.to_owned();
    while sink.left > 0 {
        let fetched = client.fetch_topic(topic, &from, Some(sink.left.min(PAGE_RECORDS)), 0).await?;
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

async fn follow_topic(client: &Client, topic: &str, from: &str, sink: &mut Sink) -> anyhow::Result<()> {
    let mut follow = client.follow(topic, from);
    while sink.left > 0 {
        match follow.next().await? {
            FollowEvent::Record(record) => sink.print_all(std::slice::from_ref(&*record))?,
            FollowEvent::Gap(what) => note(format!("gap: {what}")),
            FollowEvent::Heartbeat => {}
        }
    }
    if let Some(cursor) = follow.cursor() {
        tell_cursor(sink, cursor);
    }
    Ok(())
}

/// Whoever asked for so many records may want the next ones.
fn tell_cursor(sink: &Sink, cursor: &str) {
    if sink.left == 0 {
        note(format!("go on with --from {cursor}"));
    }
}
