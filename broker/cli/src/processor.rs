//! `levada processor`: put, list, describe, pause, resume, reset, delete, and trials.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use levada_api::{Processor, ProcessorDryRun, ProcessorTask, ResetProcessor};
use levada_client::Client;
use serde_json::json;
use serde_json::value::RawValue;

use crate::failure::Usage;
use crate::output::{Format, Printer, note, one_line, table, time_text};

/// What to do with processors.
#[derive(Debug, Subcommand)]
pub(crate) enum ProcessorCommand {
    /// Put a processor; another document takes over where the one before stands.
    Put(Put),
    /// List all processors.
    List,
    /// Show a processor: how it stands, and where.
    Describe(Named),
    /// Have one stand still.
    Pause(Named),
    /// Have one go on.
    Resume(Named),
    /// Set where one that stands still goes on.
    Reset(Reset),
    /// Delete one with its positions.
    Delete(Delete),
    /// Show what a document would make of stored records.
    DryRun(DryRun),
}

/// A processor by name.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its name.
    name: String,
}

/// A document for a processor.
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// Its name.
    name: String,
    /// The document, JSON; `-` is standard input.
    file: PathBuf,
}

/// A trial.
#[derive(Debug, Args)]
pub(crate) struct DryRun {
    /// The document, JSON; `-` is standard input.
    file: PathBuf,
    /// Where to begin: `earliest`, `time:MS` or `tail:N` in each partition.
    #[arg(long, default_value = "earliest")]
    from: String,
    /// Most records to read.
    #[arg(long, value_name = "RECORDS")]
    max: Option<u64>,
}

/// Where to go on.
#[derive(Debug, Args)]
pub(crate) struct Reset {
    /// Its name.
    name: String,
    /// `earliest`, `latest`, `time:MS`, `tail:N` or `offset:N` in each partition.
    #[arg(long)]
    to: String,
    /// Only say where that is.
    #[arg(long)]
    dry_run: bool,
}

/// A deletion.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// Its name.
    name: String,
    /// Keep its positions: one put under this name goes on there.
    #[arg(long)]
    keep_state: bool,
}

pub(crate) async fn run(command: ProcessorCommand, client: &Client, mut printer: Printer) -> anyhow::Result<ExitCode> {
    match command {
        ProcessorCommand::Put(Put { name, file }) => {
            let (processor, is_new) = client.put_processor(&name, read(&file)?).await?;
            let text = if is_new { "runs" } else { "takes over" };
            printer.result(&processor, format!("version {} of {name} {text}", processor.version))?;
        }
        ProcessorCommand::List => list(&client.processors().await?, &mut printer)?,
        ProcessorCommand::Describe(Named { name }) => tell(&client.processor(&name).await?, &mut printer)?,
        ProcessorCommand::Pause(Named { name }) => tell(&client.pause_processor(&name).await?, &mut printer)?,
        ProcessorCommand::Resume(Named { name }) => tell(&client.resume_processor(&name).await?, &mut printer)?,
        ProcessorCommand::Reset(Reset { name, to, dry_run }) => {
            let reset = client.reset_processor(&name, &ResetProcessor { start: to, dry_run }).await?;
            printer.result(&reset, tasks(&reset.tasks))?;
            if dry_run {
                note("nothing was set");
            }
        }
        ProcessorCommand::Delete(Delete { name, keep_state }) => {
            client.delete_processor(&name, keep_state).await?;
            printer.result(&json!({ "deleted": name }), format!("deleted processor {name}"))?;
        }
        ProcessorCommand::DryRun(wanted) => dry_run(&wanted, client, &mut printer).await?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("standard input cannot be read")?;
        return Ok(text);
    }
    fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
}

async fn dry_run(wanted: &DryRun, client: &Client, printer: &mut Printer) -> anyhow::Result<()> {
    let wrong = |error: String| Usage(format!("{}: {error}", wanted.file.display()));
    let text = read(&wanted.file)?;
    let document: &RawValue = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let fields = document.get().strip_prefix('{').and_then(|fields| fields.strip_suffix('}'));
    let fields = fields.ok_or_else(|| wrong("it is no object".to_owned()))?;
    // All else is tried word for word as it would be put.
    let mut document = format!("{{\"from\":{}", json!(wanted.from));
    document.extend(wanted.max.map(|max| format!(",\"max_records\":{max}")));
    document.extend((!fields.trim().is_empty()).then(|| format!(",{fields}")));
    document.push('}');
    let report: ProcessorDryRun = client.dry_run_processor("dry-run", document).await?;
    let rows: Vec<_> = report.rows.iter().map(|row| row.get().to_owned()).collect();
    printer.result(&report, rows.join("\n"))?;
    for failed in &report.failed {
        let reason = one_line(failed.reason.as_bytes());
        note(format!("partition {} offset {}: {reason}", failed.partition, failed.offset));
    }
    note(format!("{} records in, {} out, {} failed", report.records_in, report.rows.len(), report.failed.len()));
    if report.truncated {
        note("more came out than a trial answers; try fewer records");
    }
    Ok(())
}

fn list(processors: &[Processor], printer: &mut Printer) -> anyhow::Result<()> {
    match printer.format() {
        Format::Text if processors.is_empty() => printer.line("there are no processors")?,
        Format::Text => {
            let mut rows = vec![["PROCESSOR", "STATE", "VERSION", "LAG"].map(str::to_owned).to_vec()];
            rows.extend(processors.iter().map(|one| {
                let lag: u64 = one.tasks.iter().map(|task| task.lag).sum();
                let (name, state) = (one.name.clone(), one.state.as_str().to_owned());
                vec![name, state, one.version.to_string(), lag.to_string()]
            }));
            printer.line(table(&rows))?;
        }
        Format::Json | Format::Ndjson => {
            for processor in processors {
                printer.item(&serde_json::to_string(processor)?)?;
            }
            printer.end_items()?;
        }
    }
    Ok(printer.flush()?)
}

fn tell(processor: &Processor, printer: &mut Printer) -> anyhow::Result<()> {
    let mut text = format!("{} is {}", processor.name, processor.state.as_str());
    if let Some(failure) = &processor.failure {
        text.push_str(&format!(": {}", one_line(failure.reason.as_bytes())));
        if let (Some(topic), Some(partition), Some(offset)) = (&failure.topic, failure.partition, failure.offset) {
            text.push_str(&format!(" (topic {topic}, partition {partition}, offset {offset})"));
        }
    }
    Ok(printer.result(processor, format!("{text}\n\n{}", tasks(&processor.tasks)))?)
}

fn tasks(tasks: &[ProcessorTask]) -> String {
    let head = ["TOPIC", "PARTITION", "POSITION", "LAG", "IN", "OUT", "SKIPPED", "ERRORS", "STREAM TIME"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(tasks.iter().map(|task| {
        let numbers = [task.position, task.lag, task.records_in, task.records_out, task.skipped, task.errors];
        let mut row = vec![task.topic.clone(), task.partition.to_string()];
        row.extend(numbers.map(|number| number.to_string()));
        row.push(task.stream_time.map_or_else(|| "-".to_owned(), time_text));
        row
    }));
    let waiting = tasks.iter().filter_map(|task| {
        let waiting = task.waiting.as_ref()?;
        let at = waiting.offset.map_or_else(String::new, |offset| format!(" offset {offset}"));
        let tries = waiting.attempts.map_or_else(String::new, |attempts| format!(" (tried {attempts} times)"));
        let reason = one_line(waiting.reason.as_bytes());
        Some(format!("\n{} partition {}{at} waits: {reason}{tries}", task.topic, task.partition))
    });
    table(&rows) + &waiting.collect::<String>()
}
