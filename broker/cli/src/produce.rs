//! `levada produce`: each line of standard input or a file becomes a record. Not here: how a line becomes a record
//! (`line.rs`), and how records are gathered and retried (the client's producer).

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressStyle};
use levada_api::ErrorCode;
use levada_client::{AcksWord, Client, ClientError, Delivery, Producer, ProducerOptions};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::line::{LineFormat, LineReader, separator};
use crate::output::{Printer, is_watched, note};

/// Lines wait here between the reader and the producer.
const LINES_WAITING_MAX: usize = 1_000;
/// Refused lines that are told one by one.
const REFUSED_SHOWN_MAX: u64 = 20;

/// Send lines as records.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada produce earthquakes --file earthquakes.ndjson --key-pointer /id
  tail -f app.log | levada produce logs --format text --linger-ms 200
  printf 'user-7\\t{\"n\":1}\\n' | levada produce orders --key-separator '\\t'

A line that is refused is told with its number and the others go on; the exit code is then 1.")]
pub(crate) struct ProduceCommand {
    /// The topic.
    topic: String,
    /// Read lines from this file instead of standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// What a line's value is.
    #[arg(long, value_enum, default_value_t)]
    format: LineFormat,
    /// The key is what stands before this text (`\t` is a tab), the value what stands after it.
    #[arg(long, value_name = "TEXT", conflicts_with = "key_pointer", value_parser = separator)]
    key_separator: Option<Bytes>,
    /// The key is what this JSON pointer finds in the value: a string's text, or other JSON as it is.
    #[arg(long, value_name = "POINTER")]
    key_pointer: Option<String>,
    /// Store all in this partition.
    #[arg(long)]
    partition: Option<u32>,
    /// A header of every record; without `=` a null header. May be repeated.
    #[arg(long, value_name = "NAME=TEXT", value_parser = header)]
    header: Vec<(String, Option<Bytes>)>,
    #[command(flatten)]
    gather: GatherArgs,
}

/// How records are gathered into requests; the same in `produce` and `bench`.
#[derive(Clone, Debug, Args)]
pub(crate) struct GatherArgs {
    /// How long the first record of a request waits for others. 0 gathers nothing: every record is a request.
    #[arg(long, value_name = "MS", default_value_t = 5)]
    pub(crate) linger_ms: u64,
    /// A request is sent before its linger is over when it has this many records.
    #[arg(long, value_name = "RECORDS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) batch: u64,
    /// When the server answers: when all in-sync replicas have the records, when the leader has, or at once.
    #[arg(long, value_name = "WORD", default_value = "all", value_parser = acks())]
    pub(crate) acks: AcksWord,
}

impl GatherArgs {
    pub(crate) fn options(&self) -> ProducerOptions {
        ProducerOptions {
            linger: Duration::from_millis(self.linger_ms),
            batch_records: usize::try_from(self.batch).expect("clap bounds it"),
            acks: self.acks,
            ..ProducerOptions::default()
        }
    }
}

/// What became of the lines.
#[derive(Debug, Default, Serialize)]
struct Tally {
    stored: u64,
    refused: u64,
    requests: u64,
    /// The first lines that were refused, with the reason.
    failures: Vec<Failure>,
}

#[derive(Debug, Serialize)]
struct Failure {
    line: u64,
    reason: String,
}

enum Outcome {
    Wrong(String),
    Sent(Delivery),
}

pub(crate) async fn run(command: ProduceCommand, client: Client, mut printer: Printer) -> anyhow::Result<ExitCode> {
    let reader = LineReader {
        format: command.format,
        key_separator: command.key_separator.clone(),
        key_pointer: command.key_pointer.clone(),
        partition: command.partition,
        headers: command.header.clone(),
    };
    let bar = progress_bar(command.file.as_ref())?;
    let mut lines = lines(command.file.as_ref())?;
    let producer = Producer::new(client, &command.topic, command.gather.options());
    let (outcomes, to_tally) = mpsc::channel(LINES_WAITING_MAX);
    let tally = tokio::spawn(tally(to_tally, bar.clone()));
    let mut number = 0;
    let mut broken = None;
    while let Some(line) = lines.recv().await {
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                broken = Some(error);
                break;
            }
        };
        number += 1;
        bar.inc(u64::try_from(line.len()).expect("a line fits in memory"));
        let outcome = match reader.record(&line) {
            Ok(None) => continue,
            Ok(Some(record)) => Outcome::Sent(producer.send(record).await),
            Err(reason) => Outcome::Wrong(reason),
        };
        if outcomes.send((number, outcome)).await.is_err() {
            // The tally met an error that every further record would meet.
            break;
        }
    }
    drop(outcomes);
    let requests = producer.close().await.requests;
    let (mut tally, fatal) = tally.await.expect("the tally does not panic");
    tally.requests = requests;
    bar.finish_and_clear();
    let refused = if tally.refused == 0 { String::new() } else { format!(", {} refused", tally.refused) };
    printer.result(&tally, format!("{} stored{refused} ({requests} requests)", tally.stored))?;
    if let Some((line, error)) = fatal {
        return Err(error).context(format!("line {line}"));
    }
    if let Some(error) = broken {
        return Err(error).context(format!("after line {number}"));
    }
    Ok(if tally.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

type Fatal = Option<(u64, Arc<ClientError>)>;

/// Counts answers in the order of lines; ends early at an error that is not about one record.
async fn tally(mut outcomes: mpsc::Receiver<(u64, Outcome)>, bar: ProgressBar) -> (Tally, Fatal) {
    let mut tally = Tally::default();
    let mut fatal: Fatal = None;
    while let Some((line, outcome)) = outcomes.recv().await {
        let reason = match outcome {
            Outcome::Wrong(reason) => reason,
            Outcome::Sent(delivery) => match delivery.answer().await {
                Ok(_) => {
                    tally.stored += 1;
                    continue;
                }
                Err(error) if is_about_the_record(&error) => reason_of(&error),
                Err(error) => {
                    // What was sent before is still answered, so that the count is right.
                    outcomes.close();
                    fatal.get_or_insert((line, error));
                    continue;
                }
            },
        };
        tally.refused += 1;
        if tally.refused <= REFUSED_SHOWN_MAX {
            bar.suspend(|| note(format!("line {line}: {reason}")));
            tally.failures.push(Failure { line, reason });
        }
    }
    (tally, fatal)
}

/// Whether the next record may fare better.
fn is_about_the_record(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| {
        problem.code == ErrorCode::BodyTooLarge
            || problem.errors.iter().any(|fault| fault.pointer.starts_with("/records/"))
    })
}

/// One record's refusal without the list of places: which line it is, is known better here.
fn reason_of(error: &ClientError) -> String {
    match error.problem().map(|problem| problem.errors.as_slice()) {
        Some([only]) => only.detail.clone(),
        _ => error.to_string(),
    }
}

/// Lines as they come, read on a thread of their own since standard input blocks.
fn lines(file: Option<&PathBuf>) -> anyhow::Result<mpsc::Receiver<io::Result<Vec<u8>>>> {
    let mut input: Box<dyn BufRead + Send> = match file {
        Some(path) => Box::new(BufReader::new(File::open(path).with_context(|| path.display().to_string())?)),
        None => Box::new(BufReader::new(io::stdin())),
    };
    if file.is_none() && io::stdin().is_terminal() {
        note("reading lines from the terminal; end with Ctrl-D");
    }
    let (to, lines) = mpsc::channel(LINES_WAITING_MAX);
    tokio::task::spawn_blocking(move || {
        loop {
            let mut line = Vec::new();
            let read = match input.read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(_) => Ok(line),
                Err(error) => Err(error),
            };
            let failed = read.is_err();
            if to.blocking_send(read).is_err() || failed {
                return;
            }
        }
    });
    Ok(lines)
}

fn progress_bar(file: Option<&PathBuf>) -> anyhow::Result<ProgressBar> {
    if !is_watched() || io::stdin().is_terminal() && file.is_none() {
        return Ok(ProgressBar::hidden());
    }
    let length = match file {
        Some(path) => Some(std::fs::metadata(path).with_context(|| path.display().to_string())?.len()),
        None => None,
    };
    let template = match length {
        Some(_) => "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        None => "{spinner} {bytes} {bytes_per_sec}",
    };
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    Ok(ProgressBar::new(length.unwrap_or_default()).with_style(style))
}

fn acks() -> impl TypedValueParser<Value = AcksWord> {
    let word = |word: String| AcksWord::read(&word).map_err(|words| words.to_string());
    PossibleValuesParser::new(["all", "leader", "none"]).try_map(word)
}

fn header(text: &str) -> Result<(String, Option<Bytes>), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("a header needs a name".to_owned()),
        Some((name, value)) => Ok((name.to_owned(), Some(Bytes::from(value.to_owned())))),
        None => Ok((text.to_owned(), None)),
    }
}
