//! `levada group`: committed offsets, shown and set.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use levada_api::{GroupOffset, GroupOffsets, OffsetPlace, SetGroupOffset};
use levada_client::Client;
use serde_json::Value;

use crate::output::{Printer, table};

/// What to do with groups.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// A group's committed offsets.
    #[command(subcommand)]
    Offsets(OffsetsCommand),
}

/// What to do with a group's offsets.
#[derive(Debug, Subcommand)]
pub(crate) enum OffsetsCommand {
    /// Show where the group is.
    Show(Show),
    /// Set where the group goes on.
    Set(Set),
}

/// A group by name.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Its name.
    group: String,
}

/// New offsets.
#[derive(Debug, Args)]
pub(crate) struct Set {
    /// The group's name.
    group: String,
    /// The topic.
    #[arg(long)]
    topic: String,
    /// Only this partition; all of the topic where none is named.
    #[arg(long)]
    partition: Option<u32>,
    /// Next to read: a number, `earliest`, `latest` or `time:MS`.
    #[arg(long, value_parser = offset_place)]
    to: OffsetPlace,
    /// Only tell what would be set.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(command: GroupCommand, client: &Client, mut printer: Printer) -> anyhow::Result<ExitCode> {
    let GroupCommand::Offsets(command) = command;
    let (group, offsets) = match command {
        OffsetsCommand::Show(Show { group }) => {
            let offsets = client.group_offsets(&group).await?;
            (group, offsets)
        }
        OffsetsCommand::Set(set) => {
            let offsets = choose(&set, client).await?;
            let offsets = client.set_group_offsets(&set.group, offsets, set.dry_run).await?;
            (set.group, offsets)
        }
    };
    let text = text(&offsets);
    printer.result(&GroupOffsets { group, offsets }, text)?;
    Ok(ExitCode::SUCCESS)
}

async fn choose(set: &Set, client: &Client) -> anyhow::Result<Vec<SetGroupOffset>> {
    let partitions = match set.partition {
        Some(partition) => vec![partition],
        None => client.topic(&set.topic).await?.partitions.iter().map(|p| p.partition).collect(),
    };
    let new = |partition| SetGroupOffset { topic: set.topic.clone(), partition, offset: set.to };
    Ok(partitions.into_iter().map(new).collect())
}

fn text(offsets: &[GroupOffset]) -> String {
    let mut rows = vec![["TOPIC", "PARTITION", "COMMITTED", "END", "LAG"].map(str::to_owned).to_vec()];
    rows.extend(offsets.iter().map(|o| {
        let numbers = [u64::from(o.partition), o.committed, o.high_watermark, o.lag];
        std::iter::once(o.topic.clone()).chain(numbers.map(|number| number.to_string())).collect()
    }));
    table(&rows)
}

/// The interface's own rule: a number, or one of its words.
fn offset_place(text: &str) -> Result<OffsetPlace, String> {
    let json = text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from);
    serde_json::from_value(json).map_err(|error| error.to_string())
}
