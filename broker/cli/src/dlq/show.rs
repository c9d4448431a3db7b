//! `levada dlq show`: dead letters with where they come from, why they died, and what they hold.

use std::process::ExitCode;

use clap::Args;
use levada_client::{Client, Record};

use super::letter::{Letter, Told, key_text, value_text};
use crate::output::{Format, Printer, note, one_line, time_text};

/// Most records asked for at once.
const PAGE_RECORDS: u64 = 1_000;

/// Show dead letters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada dlq show orders.dead-letter
  levada dlq show orders.dead-letter --from tail:10 --output ndjson

Control characters, and values that are not UTF-8, are shown escaped; --output ndjson and `levada consume` have them as \
they are.")]
pub(crate) struct ShowCommand {
    /// The topic of dead letters.
    topic: String,
    /// Where to begin: `earliest`, `latest`, `time:MS`, `tail:N` or a cursor.
    #[arg(long, default_value = "earliest")]
    from: String,
    /// End after this many records.
    #[arg(long, value_name = "RECORDS")]
    max: Option<u64>,
}

pub(super) async fn run(command: ShowCommand, client: &Client, mut printer: Printer) -> anyhow::Result<ExitCode> {
    let mut from = command.from;
    let mut left = command.max.unwrap_or(u64::MAX);
    while left > 0 {
        let fetched = client.fetch_topic(&command.topic, &from, Some(left.min(PAGE_RECORDS)), 0).await?;
        fetched.gaps.iter().for_each(|gap| note(format!("gap: {gap}")));
        for record in &fetched.records {
            match printer.format() {
                Format::Text => printer.line(text(record))?,
                Format::Json | Format::Ndjson => printer.item(&serde_json::to_string(&Told::new(record)?)?)?,
            }
        }
        printer.flush()?;
        left = left.saturating_sub(u64::try_from(fetched.records.len()).expect("a page is small"));
        if fetched.records.is_empty() && fetched.cursor == from {
            break;
        }
        from = fetched.cursor;
    }
    if printer.format() == Format::Json {
        printer.end_items()?;
    }
    printer.flush()?;
    if left == 0 {
        note(format!("go on with --from {from}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(record: &Record) -> String {
    let mut lines = vec![format!("{}:{}  {}", record.partition, record.offset, time_text(record.timestamp))];
    let mut line = |name: &str, value: String| lines.push(format!("  {name:<9} {value}"));
    match Letter::of(record) {
        Some(letter) => {
            line("from", letter.origin());
            if let Some(time) = letter.original_timestamp {
                line("of", time_text(time));
            }
            line("error", letter.error.as_deref().map_or_else(|| "-".to_owned(), |error| one_line(error.as_bytes())));
            if let Some(attempts) = letter.attempts {
                line("attempts", attempts.to_string());
            }
            if let Some(group) = letter.group {
                line("group", one_line(group.as_bytes()));
            }
            if let Some(module) = letter.module {
                line("module", one_line(module.as_bytes()));
            }
            if letter.redrive_count > 0 {
                line("redriven", letter.redrive_count.to_string());
            }
        }
        None => line("from", "unknown: it has no original_topic".to_owned()),
    }
    line("key", key_text(record));
    line("value", value_text(record));
    lines.join("\n")
}
