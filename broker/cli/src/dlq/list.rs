//! `levada dlq list`: which topics hold dead letters, how many, and how many of them were not sent back yet.

use std::collections::BTreeMap;
use std::process::ExitCode;

use levada_api::Topic;
use levada_client::{Client, ClientError, Record};
use levada_model::dead_letter::SUFFIX;
use serde::Serialize;

use super::letter::Letter;
use super::redrive::remembered;
use crate::output::{Format, Printer, one_line, table, time_text};

#[derive(Serialize)]
struct Row {
    topic: String,
    partition_count: u32,
    /// Offsets in use: as many letters, if no other records are among them and nothing was compacted.
    offsets: u64,
    /// How many of these a redrive would look at.
    to_redrive: u64,
    newest: Option<Newest>,
}

#[derive(Serialize)]
struct Newest {
    timestamp: i64,
    #[serde(flatten)]
    letter: Letter,
}

pub(super) async fn run(client: &Client, mut printer: Printer) -> anyhow::Result<ExitCode> {
    let mut rows = Vec::new();
    for topic in client.topics().await?.into_iter().filter(|topic| !topic.internal) {
        rows.extend(row(client, topic).await?);
    }
    match printer.format() {
        Format::Text if rows.is_empty() => printer.line("no topic holds dead letters")?,
        Format::Text => printer.line(text(&rows))?,
        Format::Json | Format::Ndjson => {
            for row in &rows {
                printer.item(&serde_json::to_string(row)?)?;
            }
            printer.end_items()?;
        }
    }
    printer.flush()?;
    Ok(ExitCode::SUCCESS)
}

async fn row(client: &Client, topic: Topic) -> Result<Option<Row>, ClientError> {
    let records = client.fetch_topic(&topic.name, "tail:1", None, 0).await?.records;
    let newest = |record: &Record| Letter::of(record).map(|letter| Newest { timestamp: record.timestamp, letter });
    let newest = records.iter().filter_map(newest).max_by_key(|newest| newest.timestamp);
    if newest.is_none() && !topic.name.ends_with(SUFFIX) {
        return Ok(None);
    }
    let redriven: BTreeMap<u32, u64> = remembered(client, &topic.name).await?;
    let (mut offsets, mut to_redrive) = (0, 0);
    for p in &topic.partitions {
        offsets += p.high_watermark - p.log_start_offset;
        let next = redriven.get(&p.partition).map_or(p.log_start_offset, |next| (*next).max(p.log_start_offset));
        to_redrive += p.high_watermark.saturating_sub(next);
    }
    let partition_count = topic.partition_count;
    Ok(Some(Row { topic: topic.name, partition_count, offsets, to_redrive, newest }))
}

fn text(rows: &[Row]) -> String {
    let head = ["TOPIC", "PARTITIONS", "OFFSETS", "TO REDRIVE", "NEWEST", "OF", "ERROR"];
    let mut table_rows = vec![head.map(str::to_owned).to_vec()];
    table_rows.extend(rows.iter().map(|row| {
        let mut cells = vec![row.topic.clone(), row.partition_count.to_string()];
        cells.extend([row.offsets, row.to_redrive].map(|count| count.to_string()));
        cells.extend(row.newest.iter().flat_map(|Newest { timestamp, letter }| {
            let error = letter.error.as_deref().unwrap_or_default();
            [time_text(*timestamp), letter.origin(), one_line(error.as_bytes())]
        }));
        cells
    }));
    table(&table_rows)
}
