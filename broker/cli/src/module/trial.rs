//! `levada module test`: a local file on local records. It starts a broker of its own in a temporary directory, which is
//! gone afterwards, so that a module is tried by exactly what will run it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use levada_api::{
    DryRunMember, DryRunModule, DryRunOutput, DryRunTopic, GroupPartition, ModuleDryRun, VerdictWord, WorldWord,
};
use levada_client::{Client, NewRecord};
use levada_server::ServeOptions;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use super::read;
use crate::failure::Usage;
use crate::host;
use crate::line::{LineFormat, LineReader, separator};
use crate::output::{Printer, note, one_line};

/// What the module is called meanwhile.
const NAME: &str = "module";

/// A trial.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada module test module.wasm --world transform --file records.ndjson
  levada module test module.wasm --world transform --file records.ndjson --compare old.wasm
  levada module test module.wasm --world assignor --file group.json
  echo '{\"n\":1}' | levada module test module.wasm --world transform --config '{\"field\":\"/n\"}'

What comes out is printed, and what was logged and used is told beside it. The exit code is 1 where the module gives no
answer, or (with --compare) where the two differ.")]
pub(crate) struct Test {
    /// The `.wasm`, a component or a core module.
    module: PathBuf,
    /// Which of its worlds to try.
    #[arg(long, default_value = "transform", value_parser = world)]
    world: WorldWord,
    /// Its config, as JSON.
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = json)]
    config: Box<RawValue>,
    /// Read lines from this file instead of standard input, each the value of a record as in `levada produce`. For an
    /// assignor it is one JSON object: `{"members":[{"member_id":"a"}],"topics":[{"topic":"orders","partitions":3}]}`.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// What a line's value is.
    #[arg(long, value_enum, default_value_t)]
    format: LineFormat,
    /// The key is what stands before this text (`\t` is a tab), the value what stands after it.
    #[arg(long, value_name = "TEXT", conflicts_with = "key_pointer", value_parser = separator)]
    key_separator: Option<Bytes>,
    /// The key is what this JSON pointer finds in the value.
    #[arg(long, value_name = "POINTER")]
    key_pointer: Option<String>,
    /// Of a partitioner: how many partitions there are.
    #[arg(long, value_name = "COUNT")]
    partitions: Option<u32>,
    /// Another file, which is given the same records.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
}

pub(super) async fn run(test: Test, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    let wasm = read(&test.module)?;
    let other = test.compare.as_deref().map(read).transpose()?;
    let given = given(&test)?;
    let dir = tempfile::tempdir().context("there is no temporary directory")?;
    let listen = "127.0.0.1:0".parse().expect("an address");
    let options = ServeOptions { data_dir: dir.path().to_owned(), listen, ..ServeOptions::default() };
    let limits = host::Limits::default();
    let mut server = levada_server::start_with_modules(options, move |data_dir| host::open(data_dir, &limits)).await?;
    let report = async {
        server.opened().await?;
        let client = Client::new(&format!("http://{}", server.address()))?;
        let compare_with = match other {
            Some(other) => Some(client.put_module(NAME, other.into(), true).await?.0.version),
            None => None,
        };
        let version = client.put_module(NAME, wasm.into(), true).await?.0.version;
        let trial = DryRunModule {
            world: test.world,
            version: Some(version),
            config: Some(test.config),
            records: given.records,
            members: given.members,
            topics: given.topics,
            topic: None,
            from: None,
            max_records: None,
            partition_count: test.partitions,
            compare_with,
        };
        anyhow::Ok(client.dry_run_module(NAME, &trial).await?)
    };
    let report = report.await;
    server.shutdown().await?;
    tell(&report?, printer)
}

/// What a module is tried on: records, or (an assignor) members and topics.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    #[serde(skip)]
    records: Option<Box<RawValue>>,
    members: Option<Vec<DryRunMember>>,
    topics: Option<Vec<DryRunTopic>>,
}

fn given(test: &Test) -> anyhow::Result<Given> {
    if test.world == WorldWord::Assignor {
        return serde_json::from_reader(input(test)?).map_err(|error| {
            Usage(format!("an assignor is tried on {{\"members\":[…],\"topics\":[…]}}: {error}")).into()
        });
    }
    let records = records(test)?;
    if records.is_empty() {
        return Err(Usage("there are no records to try it on".to_owned()).into());
    }
    Ok(Given { records: Some(to_raw_value(&records)?), ..Given::default() })
}

fn input(test: &Test) -> anyhow::Result<Box<dyn Read>> {
    Ok(match &test.file {
        Some(path) => Box::new(File::open(path).with_context(|| format!("{} cannot be read", path.display()))?),
        None => Box::new(std::io::stdin()),
    })
}

/// The records that the lines are.
fn records(test: &Test) -> anyhow::Result<Vec<NewRecord>> {
    let reader = LineReader {
        format: test.format,
        key_separator: test.key_separator.clone(),
        key_pointer: test.key_pointer.clone(),
        partition: None,
        headers: Vec::new(),
    };
    let mut records = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(input(test)?).split(b'\n')) {
        match reader.record(&line.context("the records cannot be read")?) {
            Ok(record) => records.extend(record),
            Err(reason) => bail!("line {number}: {reason}"),
        }
    }
    Ok(records)
}

fn tell(report: &ModuleDryRun, printer: &mut Printer) -> anyhow::Result<ExitCode> {
    printer.result(report, text(report))?;
    for line in &report.logs {
        note(format!("{}: {}", line.level.as_str(), one_line(line.message.as_bytes())));
    }
    let inputs = if report.world == WorldWord::Assignor { "members" } else { "records" };
    note(format!(
        "{} {inputs} in, {} out, {} instructions, {} bytes of memory, {} us",
        report.inputs,
        report.outputs.len(),
        report.instructions,
        report.memory_peak_bytes,
        report.elapsed_us
    ));
    if let Some(fault) = &report.fault {
        note(format!("the module gives no answer: {}", one_line(fault.as_bytes())));
    }
    if report.compared.is_some() {
        note(match &report.differences[..] {
            [] => "both do the same".to_owned(),
            places => {
                let numbers: Vec<_> = places.iter().take(10).map(|place| (place.input + 1).to_string()).collect();
                let more = if places.len() > 10 { ", …" } else { "" };
                format!("they differ in {} {inputs}: {}{more}", places.len(), numbers.join(", "))
            }
        });
    }
    let is_well = report.fault.is_none() && report.differences.is_empty();
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line for each thing that came out, and for each record that was rejected.
fn text(report: &ModuleDryRun) -> String {
    let output = |output: &DryRunOutput| {
        let input = output.input.map_or_else(String::new, |input| format!("{}: ", input + 1));
        let what = output.record.as_ref().or(output.group.as_ref()).map(|raw| raw.get().to_owned());
        let what = what.or(output.partition.map(|partition| format!("partition {partition}")));
        let share = |share: &Vec<GroupPartition>| {
            share.iter().map(|at| format!("{} {}", at.topic, at.partition)).collect::<Vec<_>>().join(", ")
        };
        let what = what.or(output.assignment.as_ref().map(share));
        format!("{input}{}", what.unwrap_or_default())
    };
    let mut lines: Vec<_> = report.outputs.iter().map(output).collect();
    for verdict in report.verdicts.iter().flatten().filter(|verdict| verdict.verdict == VerdictWord::Reject) {
        let reason = one_line(verdict.reason.as_deref().unwrap_or_default().as_bytes());
        lines.push(format!("{}: rejected: {reason}", verdict.input + 1));
    }
    lines.join("\n")
}

fn world(text: &str) -> Result<WorldWord, String> {
    let found = WorldWord::ALL.into_iter().find(|world| world.as_str() == text);
    found.ok_or_else(|| "say one of transform, partitioner, assignor and aggregator".to_owned())
}

fn json(text: &str) -> Result<Box<RawValue>, serde_json::Error> {
    RawValue::from_string(text.to_owned())
}
