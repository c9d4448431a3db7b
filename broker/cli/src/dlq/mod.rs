//! `levada dlq`: dead letters, which are records that somebody could not process. Any topic whose records carry
//! `original_topic` is one of dead letters, whoever wrote them.

mod consume;
mod letter;
mod list;
mod redrive;
mod show;

use std::process::ExitCode;

use clap::Subcommand;
use levada_client::Client;

pub(crate) use letter::{Told, warning_line};
pub(crate) use show::letter_text;

use crate::output::Printer;

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List the topics that hold dead letters.
    List,
    /// Show dead letters with their reasons.
    Show(show::ShowCommand),
    /// Follow a topic of dead letters, and log each as a warning.
    Consume(consume::ConsumeCommand),
    /// Send dead letters back to the topics that they come from.
    Redrive(redrive::RedriveCommand),
}

pub(crate) async fn run(command: DlqCommand, client: &Client, printer: Printer) -> anyhow::Result<ExitCode> {
    match command {
        DlqCommand::List => list::run(client, printer).await,
        DlqCommand::Show(command) => show::run(command, client, printer).await,
        DlqCommand::Consume(command) => consume::run(command, client, printer).await,
        DlqCommand::Redrive(command) => redrive::run(command, client, printer).await,
    }
}
