//! `levada group`: consumer groups, listed, described and deleted. Not here: where they go on (`reset.rs`), and reading
//! as a member (`levada consume --group`).

mod describe;
mod reset;

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use levada_api::{GroupPartition, GroupSummary};
use levada_client::Client;
use serde_json::json;

use crate::failure::Usage;
use crate::output::{Format, Printer, note, table};

/// What to do with groups.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List all groups.
    List,
    /// Show a group: its members, what they hold, and how far behind it is.
    Describe(Named),
    /// Set where a group goes on.
    Reset(reset::Reset),
    /// Delete a group with its committed offsets.
    Delete(Delete),
}

/// A group by name.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its name.
    group: String,
}

/// A deletion.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The group's name.
    group: String,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(command: GroupCommand, client: &Client, mut printer: Printer) -> anyhow::Result<ExitCode> {
    match command {
        GroupCommand::List => list(&client.groups().await?, &mut printer)?,
        GroupCommand::Describe(Named { group }) => {
            let group = client.group(&group).await?;
            printer.result(&group, describe::text(&group))?;
        }
        GroupCommand::Reset(reset) => reset::run(reset, client, &mut printer).await?,
        GroupCommand::Delete(Delete { group, yes }) => {
            if !yes && !confirmed(&group)? {
                note("nothing was deleted");
                return Ok(ExitCode::FAILURE);
            }
            client.delete_group(&group).await?;
            printer.result(&json!({ "deleted": group }), format!("deleted group {group}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Partitions for people, topic by topic: `orders 0 1, payments 0`.
pub(crate) fn partitions_text(partitions: &[GroupPartition]) -> String {
    let mut topics: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for GroupPartition { topic, partition } in partitions {
        topics.entry(topic).or_default().push(partition.to_string());
    }
    let topics = topics.into_iter().map(|(topic, partitions)| format!("{topic} {}", partitions.join(" ")));
    topics.collect::<Vec<_>>().join(", ")
}

fn list(groups: &[GroupSummary], printer: &mut Printer) -> anyhow::Result<()> {
    match printer.format() {
        Format::Text if groups.is_empty() => printer.line("there are no groups")?,
        Format::Text => {
            let mut rows = vec![["GROUP", "STATE", "MEMBERS"].map(str::to_owned).to_vec()];
            rows.extend(
                groups
                    .iter()
                    .map(|group| vec![group.group.clone(), group.state.as_str().to_owned(), group.members.to_string()]),
            );
            printer.line(table(&rows))?;
        }
        Format::Json | Format::Ndjson => {
            for group in groups {
                printer.item(&serde_json::to_string(group)?)?;
            }
            printer.end_items()?;
        }
    }
    Ok(printer.flush()?)
}

/// Asks whoever sits at the terminal.
fn confirmed(group: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(Usage("there is no terminal to ask at; --yes deletes without asking".to_owned()).into());
    }
    note(format!("Delete group {group} with all that it has committed? Its next member begins anew. [y/N]"));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::partitions_text;
    use levada_api::GroupPartition;

    #[test]
    fn partitions_are_told_topic_by_topic() {
        let all =
            [("b", 0), ("a", 2), ("b", 1)].map(|(topic, partition)| GroupPartition { topic: topic.into(), partition });
        assert_eq!(partitions_text(&all), "a 2, b 0 1");
    }
}
