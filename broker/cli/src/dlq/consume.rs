//! `levada dlq consume`: follows a topic of dead letters and logs each as a warning.

use std::process::ExitCode;

use clap::Args;
use levada_client::Client;

use crate::consume::{self, Plan, Shape};
use crate::output::Printer;

/// Log dead letters.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada dlq consume orders.dead-letter
  levada dlq consume orders.dead-letter --group alerts | systemd-cat

Each letter is a line: time, WARN, origin, error, attempts, its own place, key, value. With --group the letters are shared \
among the members of that group, and each is logged at least once; without it every run begins at --from.")]
pub(crate) struct ConsumeCommand {
    /// The topic of dead letters.
    topic: String,
    /// Where to begin: `earliest`, `latest`, `time:MS`, without --group also `tail:N` or a cursor.
    #[arg(long, default_value = "earliest")]
    from: String,
    /// End after this many records.
    #[arg(long, value_name = "RECORDS")]
    max: Option<u64>,
    #[command(flatten)]
    group: consume::GroupArgs,
}

pub(super) async fn run(command: ConsumeCommand, client: &Client, printer: Printer) -> anyhow::Result<ExitCode> {
    let plan = Plan {
        topics: vec![command.topic],
        from: command.from,
        follow: true,
        partition: None,
        max: command.max,
        shape: Shape::Warnings,
        group: command.group,
    };
    consume::read(plan, client, printer).await
}
