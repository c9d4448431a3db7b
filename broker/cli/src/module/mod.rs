//! `levada module`: push, list, describe, activate, logs, delete, and a project to begin with. Not here: trials of local
//! files (`trial.rs`).

mod trial;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use levada_api::{Module, ModuleLogLine, ModuleStats};
use levada_client::Client;
use levada_templates::{Language, World, write_project};
use serde_json::json;
use tokio::time::interval;

use crate::failure::Usage;
use crate::output::{Format, Printer, one_line, table, time_text};

/// How often `logs --follow` asks.
const LOOK_INTERVAL: Duration = Duration::from_millis(300);
/// Where there is nothing to tell.
const NOTHING: &str = "-";

/// What to do with modules.
#[derive(Debug, Subcommand)]
pub(crate) enum ModuleCommand {
    /// Put a version of a module. The first one is active at once.
    Push(Push),
    /// List all modules.
    List,
    /// Show a module: its versions, who uses it, and its numbers.
    Describe(Named),
    /// Make a version the active one; also an earlier one.
    Activate(Activate),
    /// Print what a module logs.
    Logs(Logs),
    /// Try a local file on local records, without a server.
    Test(trial::Test),
    /// Delete a module that nothing uses, with all its versions.
    Delete(Named),
    /// Write a project for a module, which builds as it is.
    New(New),
}

/// A module by name.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its name.
    name: String,
}

/// An upload.
#[derive(Debug, Args)]
pub(crate) struct Push {
    /// The module's name.
    name: String,
    /// The `.wasm`, a component or a core module.
    file: PathBuf,
    /// Make it the active version.
    #[arg(long)]
    activate: bool,
}

/// A version by its number.
#[derive(Debug, Args)]
pub(crate) struct Activate {
    /// The module's name.
    name: String,
    /// The version.
    #[arg(value_name = "VERSION")]
    number: u32,
}

/// What to print of a log.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The module's name.
    name: String,
    /// Of which version; the active one where none is named.
    #[arg(long = "of-version", value_name = "VERSION")]
    number: Option<u32>,
    /// Go on with new lines until Ctrl-C.
    #[arg(long)]
    follow: bool,
}

/// A project.
#[derive(Debug, Args)]
pub(crate) struct New {
    /// The module's name: lower-case letters, digits and hyphens.
    name: String,
    /// What it is to be: transform, partitioner, assignor or aggregator.
    #[arg(long)]
    world: World,
    /// What it is to be written in: rust, js or python.
    #[arg(long, default_value = "rust")]
    lang: Language,
    /// The folder, which is made or is empty; the module's name where none is given.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) async fn run(
    command: ModuleCommand,
    client: impl FnOnce() -> anyhow::Result<Client>,
    mut printer: Printer,
) -> anyhow::Result<ExitCode> {
    match command {
        ModuleCommand::Push(push) => run_push(push, &client()?, &mut printer).await?,
        ModuleCommand::List => list(&client()?.modules().await?, &mut printer)?,
        ModuleCommand::Describe(Named { name }) => describe(&name, &client()?, &mut printer).await?,
        ModuleCommand::Activate(Activate { name, number }) => {
            let module = client()?.activate_module(&name, number).await?;
            printer.result(&module, format!("version {number} of {name} is active"))?;
        }
        ModuleCommand::Logs(wanted) => logs(wanted, &client()?, &mut printer).await?,
        ModuleCommand::Test(test) => return trial::run(test, &mut printer).await,
        ModuleCommand::Delete(Named { name }) => {
            client()?.delete_module(&name).await?;
            printer.result(&json!({ "deleted": name }), format!("deleted module {name}"))?;
        }
        ModuleCommand::New(new) => run_new(new, &mut printer)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn run_push(push: Push, client: &Client, printer: &mut Printer) -> anyhow::Result<()> {
    let wasm = read(&push.file)?;
    let (put, is_new) = client.put_module(&push.name, wasm.into(), push.activate).await?;
    let is = if is_new { "is new" } else { "was there already" };
    let active = match put.active_version == put.version {
        true => "it is active".to_owned(),
        false => format!("version {} is active", put.active_version),
    };
    let text = format!("version {} of {} {is}; {active}", put.version, put.name);
    Ok(printer.result(&put, text)?)
}

/// A file of a user's.
fn read(path: &std::path::Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("{} cannot be read", path.display()))
}

fn list(modules: &[Module], printer: &mut Printer) -> anyhow::Result<()> {
    match printer.format() {
        Format::Text if modules.is_empty() => printer.line("there are no modules")?,
        Format::Text => {
            let mut rows = vec![["MODULE", "WORLDS", "ACTIVE", "VERSIONS", "USED BY"].map(str::to_owned).to_vec()];
            rows.extend(modules.iter().map(|module| {
                let (version, versions) = (module.active_version.to_string(), module.versions.len().to_string());
                vec![module.name.clone(), worlds(module), version, versions, module.used_by.len().to_string()]
            }));
            printer.line(table(&rows))?;
        }
        Format::Json | Format::Ndjson => {
            for module in modules {
                printer.item(&serde_json::to_string(module)?)?;
            }
            printer.end_items()?;
        }
    }
    Ok(printer.flush()?)
}

/// What the active version can be.
fn worlds(module: &Module) -> String {
    let active = module.versions.iter().find(|version| version.version == module.active_version);
    let words: Vec<_> = active.into_iter().flat_map(|version| &version.worlds).map(|world| world.as_str()).collect();
    words.join(", ")
}

async fn describe(name: &str, client: &Client, printer: &mut Printer) -> anyhow::Result<()> {
    let module = client.module(name).await?;
    // A version that cannot be loaded now has no numbers, and is told all the same.
    let stats = client.module_stats(name, None).await.ok();
    Ok(printer.result(&json!({ "module": module, "stats": stats }), text(&module, stats.as_ref()))?)
}

fn text(module: &Module, stats: Option<&ModuleStats>) -> String {
    let mut rows = vec![["VERSION", "WORLDS", "BYTES", "SINCE", "DIGEST"].map(str::to_owned).to_vec()];
    rows.extend(module.versions.iter().map(|version| {
        let active = if version.version == module.active_version { " (active)" } else { "" };
        let worlds: Vec<_> = version.worlds.iter().map(|world| world.as_str()).collect();
        vec![
            format!("{}{active}", version.version),
            worlds.join(", "),
            version.size_bytes.to_string(),
            time_text(version.created_at),
            version.digest.clone(),
        ]
    }));
    let used: Vec<_> = module.used_by.iter().map(|used| format!("{} of {}", used.kind.as_str(), used.name)).collect();
    let used = if used.is_empty() { NOTHING.to_owned() } else { used.join(", ") };
    let mut text = format!("{}\n\nused by: {used}", table(&rows));
    if let Some(stats) = stats {
        text.push_str(&format!(
            "\nversion {}: {} calls, {} records, {} ms of CPU, p99 {} us, {} bytes at most, {} traps, {} deadlines, \
             {} refused answers, {} fallbacks",
            stats.version,
            stats.calls,
            stats.records,
            stats.cpu_us / 1_000,
            stats.call_p99_us,
            stats.memory_peak_bytes,
            stats.traps,
            stats.deadlines,
            stats.refused_answers,
            stats.fallbacks
        ));
        for (name, count) in &stats.counters {
            text.push_str(&format!("\n  {}: {count}", one_line(name.as_bytes())));
        }
    }
    text
}

async fn logs(wanted: Logs, client: &Client, printer: &mut Printer) -> anyhow::Result<()> {
    let (mut at, mut dropped) = ((0, 0), 0);
    let mut looks = interval(LOOK_INTERVAL);
    loop {
        looks.tick().await;
        let mut page = client.module_logs(&wanted.name, wanted.number, at.1).await?;
        // Another version is active now, or the broker has started again.
        let mut lines = Vec::new();
        if page.version != at.0 || page.next < at.1 {
            // What the one before logged since the last look; where the broker has let go of it there is nothing to tell.
            if page.version != at.0 && at.0 != 0 {
                lines.extend(client.module_logs(&wanted.name, Some(at.0), at.1).await.ok().map(|rest| rest.lines));
            }
            (at, dropped) = ((page.version, 0), 0);
            page = client.module_logs(&wanted.name, Some(at.0), 0).await?;
        }
        if page.dropped > dropped {
            crate::output::note(format!("{} lines are lost", page.dropped - dropped));
        }
        (at.1, dropped) = (page.next, page.dropped);
        lines.push(page.lines);
        for line in lines.iter().flatten() {
            match printer.format() {
                Format::Text => printer.line(log_line(line))?,
                Format::Json | Format::Ndjson => printer.item(&serde_json::to_string(line)?)?,
            }
        }
        if !wanted.follow {
            let is_text = printer.format() == Format::Text;
            return Ok(if is_text { printer.flush() } else { printer.end_items() }?);
        }
        printer.flush()?;
    }
}

fn log_line(line: &ModuleLogLine) -> String {
    let message = one_line(line.message.as_bytes());
    format!("{} {} v{} {message}", time_text(line.timestamp), line.level.as_str().to_uppercase(), line.version)
}

fn run_new(new: New, printer: &mut Printer) -> anyhow::Result<()> {
    let dir = new.dir.unwrap_or_else(|| PathBuf::from(&new.name));
    let files = write_project(&dir, &new.name, new.world, new.lang).map_err(|error| match error {
        error @ levada_templates::WriteProjectError::Name(_) => Usage(error.to_string()).into(),
        error => anyhow::Error::from(error),
    })?;
    let build = new.lang.build_command(new.world);
    let wasm = dir.join(new.lang.wasm());
    let text = format!(
        "wrote {} files to {}\n\nbuild it there:  {build}\ntry it:          levada module test {} --world {} --file RECORDS\n\
         put it:          levada module push {} {}",
        files.len(),
        dir.display(),
        wasm.display(),
        new.world,
        new.name,
        wasm.display()
    );
    Ok(printer.result(&json!({ "dir": dir, "files": files, "build": build, "wasm": wasm }), text)?)
}
