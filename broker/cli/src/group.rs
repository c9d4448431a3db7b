//! `levada group`: committed offsets, shown and set.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use levada_client::{Client, GroupOffset, NewGroupOffset, OffsetChoice};
use serde::Serialize;

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
    #[arg(long)]
    to: String,
    /// Only tell what would be set.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Serialize)]
struct Offsets<'a> {
    group: &'a str,
    offsets: &'a [GroupOffset],
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
            let offsets = client.set_group_offsets(&set.group, &offsets, set.dry_run).await?;
            (set.group, offsets)
        }
    };
    printer.result(&Offsets { group: &group, offsets: &offsets }, text(&offsets))?;
    Ok(ExitCode::SUCCESS)
}

async fn choose(set: &Set, client: &Client) -> anyhow::Result<Vec<NewGroupOffset>> {
    let offset = set.to.parse().map_or_else(|_| OffsetChoice::Word(set.to.clone()), OffsetChoice::Number);
    let partitions = match set.partition {
        Some(partition) => vec![partition],
        None => client.topic(&set.topic).await?.partitions.iter().map(|p| p.partition).collect(),
    };
    let new = |partition| NewGroupOffset { topic: set.topic.clone(), partition, offset: offset.clone() };
    Ok(partitions.into_iter().map(new).collect())
}

fn text(offsets: &[GroupOffset]) -> String {
    let known = |number: Option<String>| number.unwrap_or_else(|| "-".to_owned());
    let mut rows = vec![["TOPIC", "PARTITION", "COMMITTED", "END", "LAG"].map(str::to_owned).to_vec()];
    rows.extend(offsets.iter().map(|o| {
        vec![
            o.topic.clone(),
            o.partition.to_string(),
            known(o.committed.map(|n| n.to_string())),
            known(o.high_watermark.map(|n| n.to_string())),
            known(o.lag.map(|n| n.to_string())),
        ]
    }));
    table(&rows)
}
