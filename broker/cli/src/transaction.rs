//! `levada transaction`: what is open, and ending what nobody ends.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use levada_api::OpenTransaction;
use levada_client::Client;
use serde_json::json;

use crate::group::partitions_text;
use crate::output::{Format, Printer, one_line, table, time_text};

/// Where there is nothing to tell.
const NOTHING: &str = "-";

/// What to do with transactions.
#[derive(Debug, Subcommand)]
pub(crate) enum TransactionCommand {
    /// List those that are open or being ended.
    List,
    /// Abort one: nothing of it counts, and its producer may go on with the next.
    Abort(Named),
}

/// A transaction by its id.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its id, as `levada transaction list` shows it.
    transaction: String,
}

pub(crate) async fn run(
    command: TransactionCommand,
    client: &Client,
    mut printer: Printer,
) -> anyhow::Result<ExitCode> {
    match command {
        TransactionCommand::List => list(&client.transactions().await?, &mut printer)?,
        TransactionCommand::Abort(Named { transaction }) => {
            client.abort_transaction(&transaction).await?;
            printer.result(&json!({ "aborted": transaction }), format!("aborted transaction {transaction}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(transactions: &[OpenTransaction], printer: &mut Printer) -> anyhow::Result<()> {
    match printer.format() {
        Format::Text if transactions.is_empty() => printer.line("no transaction is open")?,
        Format::Text => printer.line(text(transactions))?,
        Format::Json | Format::Ndjson => {
            for transaction in transactions {
                printer.item(&serde_json::to_string(transaction)?)?;
            }
            printer.end_items()?;
        }
    }
    Ok(printer.flush()?)
}

fn text(transactions: &[OpenTransaction]) -> String {
    let head = ["TRANSACTION", "TRANSACTIONAL ID", "STATE", "SINCE", "ENDS BY", "WRITES TO", "COMMITS OFFSETS OF"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(transactions.iter().map(|open| {
        let or_nothing = |text: String| if text.is_empty() { NOTHING.to_owned() } else { text };
        vec![
            open.transaction.clone(),
            // A producer calls itself whatever it likes.
            one_line(open.transactional_id.as_bytes()),
            open.state.as_str().to_owned(),
            time_text(open.started_at),
            time_text(open.started_at.saturating_add_unsigned(open.timeout_ms)),
            or_nothing(partitions_text(&open.partitions)) + &of_how_many(open),
            or_nothing(open.groups.join(", ")),
        ]
    }));
    table(&rows)
}

/// What is said where not all partitions are told.
fn of_how_many(open: &OpenTransaction) -> String {
    open.partition_count.map(|count| format!(" … of {count} partitions")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::text;
    use levada_api::{GroupPartition, OpenTransaction, TransactionState};

    #[test]
    fn a_transaction_is_told_with_what_it_holds_up() {
        let place = |partition| GroupPartition { topic: "orders".into(), partition };
        let open = OpenTransaction {
            transactional_id: "bill\u{1b}ing".into(),
            transaction: "7-100-3".into(),
            producer_id: 100,
            producer_epoch: 3,
            state: TransactionState::Ongoing,
            started_at: 1_700_000_000_123,
            timeout_ms: 60_000,
            partitions: vec![place(0), place(2)],
            partition_count: None,
            groups: vec!["billing".into()],
            unfinished: None,
        };
        let empty = OpenTransaction {
            transactional_id: "b".into(),
            partitions: Vec::new(),
            partition_count: None,
            groups: Vec::new(),
            ..open.clone()
        };
        let expected = "\
TRANSACTION  TRANSACTIONAL ID  STATE    SINCE                     ENDS BY                   WRITES TO   COMMITS OFFSETS OF
7-100-3      bill\\u{1b}ing     ongoing  2023-11-14T22:13:20.123Z  2023-11-14T22:14:20.123Z  orders 0 2  billing
7-100-3      b                 ongoing  2023-11-14T22:13:20.123Z  2023-11-14T22:14:20.123Z  -           -";
        assert_eq!(text(&[open, empty]), expected);
    }
}
