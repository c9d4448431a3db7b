//! `levada bench`: measures a server, in the manner of Kafka's perf tools.

mod consume;
mod produce;
mod report;

use std::process::ExitCode;

use clap::Subcommand;

use crate::output::Printer;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Store records as fast as it goes.
    Produce(produce::BenchProduce),
    /// Read records as fast as it goes.
    Consume(consume::BenchConsume),
}

pub(crate) async fn run(command: BenchCommand, url: &str, printer: Printer) -> anyhow::Result<ExitCode> {
    match command {
        BenchCommand::Produce(command) => produce::run(command, url, printer).await,
        BenchCommand::Consume(command) => consume::run(command, url, printer).await,
    }
}
