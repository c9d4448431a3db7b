//! `levada topic`: create, list, describe, alter, delete, truncate, compact.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use levada_api::{
    AlterTopic, CompactedPartition, CompactedTopic, Compaction, Partition, PartitionState, PartitionerFallbacks, Topic,
    TruncateBefore, TruncatedPartition, WaitingFor,
};
use levada_client::Client;
use serde_json::{Value, json};

use crate::output::{Format, Printer, note, plain, table};

/// What to do with topics.
#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Create a topic.
    Create(Create),
    /// List all topics.
    List,
    /// Show a topic with its partitions and settings.
    Describe(Named),
    /// Change a topic's settings or number of partitions.
    Alter(Alter),
    /// Delete a topic with all its records.
    Delete(Named),
    /// Remove old records up to an offset.
    Truncate(Truncate),
    /// Compact a topic now, whatever is dirty (its `cleanup.policy` must compact).
    Compact(Named),
}

/// A topic to be.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Its name.
    name: String,
    /// How many partitions.
    #[arg(long, default_value_t = 1)]
    partitions: u32,
    /// A setting, e.g. `retention.ms=604800000`; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    config: Vec<(String, Value)>,
}

/// A topic by name.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its name.
    name: String,
}

/// A change.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("change").required(true).multiple(true).args(["partitions", "config", "reset"])))]
pub(crate) struct Alter {
    /// The topic's name.
    name: String,
    /// How many active partitions it shall have; surplus ones retire.
    #[arg(long)]
    partitions: Option<u32>,
    /// A setting to set; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    config: Vec<(String, Value)>,
    /// A setting to put back to its default; may be repeated.
    #[arg(long, value_name = "NAME")]
    reset: Vec<String>,
}

/// A truncation.
#[derive(Debug, Args)]
pub(crate) struct Truncate {
    /// The topic's name.
    name: String,
    /// Remove what comes before this offset of this partition; may be repeated.
    #[arg(long, required = true, value_name = "PARTITION:OFFSET", value_parser = partition_offset)]
    before: Vec<TruncateBefore>,
}

pub(crate) async fn run(command: TopicCommand, client: &Client, mut printer: Printer) -> anyhow::Result<ExitCode> {
    match command {
        TopicCommand::Create(Create { name, partitions, config }) => {
            let topic = client.create_topic(&name, partitions, config.into_iter().collect()).await?;
            let text = format!("created topic {name} with {}", counted(topic.partition_count));
            printer.result(&topic, text)?;
        }
        TopicCommand::List => list(&client.topics().await?, &mut printer)?,
        TopicCommand::Describe(Named { name }) => {
            let topic = client.topic(&name).await?;
            printer.result(&topic, describe(&topic))?;
        }
        TopicCommand::Alter(Alter { name, partitions, config, reset }) => {
            let mut config: BTreeMap<_, _> = config.into_iter().map(|(name, value)| (name, Some(value))).collect();
            config.extend(reset.into_iter().map(|name| (name, None)));
            let topic = client.alter_topic(&name, &AlterTopic { partitions, config }, None).await?;
            printer.result(&topic, describe(&topic))?;
        }
        TopicCommand::Delete(Named { name }) => {
            client.delete_topic(&name).await?;
            printer.result(&json!({ "deleted": name }), format!("deleted topic {name}"))?;
        }
        TopicCommand::Truncate(Truncate { name, before }) => {
            let answer = client.truncate_topic(&name, before).await?;
            let place =
                |p: &TruncatedPartition| format!("partition {} begins at offset {}", p.partition, p.log_start_offset);
            printer.result(&answer, answer.partitions.iter().map(place).collect::<Vec<_>>().join("\n"))?;
        }
        TopicCommand::Compact(Named { name }) => {
            let (answer, is_done) = client.compact_topic(&name).await?;
            printer.result(&answer, compacted(&answer))?;
            if !is_done {
                note(
                    "the other partitions take longer; the server goes on with them, `levada topic describe` shows how far",
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(topics: &[Topic], printer: &mut Printer) -> anyhow::Result<()> {
    match printer.format() {
        Format::Text if topics.is_empty() => printer.line("there are no topics")?,
        Format::Text => {
            let mut rows = vec![["TOPIC", "PARTITIONS", "OFFSETS", "BYTES"].map(str::to_owned).to_vec()];
            rows.extend(topics.iter().map(|topic| {
                let offsets: u64 = topic.partitions.iter().map(|p| p.high_watermark - p.log_start_offset).sum();
                let bytes: u64 = topic.partitions.iter().map(|p| p.size_bytes).sum();
                let name = if topic.internal { format!("{} (internal)", topic.name) } else { topic.name.clone() };
                vec![name, topic.partition_count.to_string(), offsets.to_string(), bytes.to_string()]
            }));
            printer.line(table(&rows))?;
        }
        Format::Json | Format::Ndjson => {
            for topic in topics {
                printer.item(&serde_json::to_string(topic)?)?;
            }
            printer.end_items()?;
        }
    }
    Ok(printer.flush()?)
}

fn describe(topic: &Topic) -> String {
    let kind = if topic.internal { ", internal" } else { "" };
    let mut text = format!("topic {} ({}{kind}), {}\n\n", topic.name, topic.id, counted(topic.partition_count));
    let head = ["PARTITION", "STATE", "LEADER", "EPOCH", "START", "END", "STABLE", "BYTES"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(topic.partitions.iter().map(|p| {
        vec![
            p.partition.to_string(),
            match p.state {
                PartitionState::Active => "active".to_owned(),
                PartitionState::Retiring => "retiring".to_owned(),
            },
            p.leader.to_string(),
            p.leader_epoch.to_string(),
            p.log_start_offset.to_string(),
            p.high_watermark.to_string(),
            p.last_stable_offset.to_string(),
            p.size_bytes.to_string(),
        ]
    }));
    text.push_str(&table(&rows));
    text.push_str("\n\n");
    if topic.partitions.iter().any(|partition| partition.compaction.is_some()) {
        text.push_str(&compaction(&topic.partitions));
        text.push_str("\n\n");
    }
    if let Some(fallbacks) = &topic.partitioner_fallbacks {
        let PartitionerFallbacks { count, reason } = fallbacks;
        text.push_str(&format!(
            "murmur2 placed the records of {count} requests in the partitioner's stead: {reason}\n\n"
        ));
    }
    let mut rows = vec![["SETTING", "VALUE", ""].map(str::to_owned).to_vec()];
    rows.extend(topic.effective_config.iter().map(|(name, value)| {
        let set = if topic.config.contains_key(name) { "set" } else { "" };
        vec![name.clone(), plain(value), set.to_owned()]
    }));
    text.push_str(&table(&rows));
    text
}

/// How far the partitions of a compacted topic are compacted.
fn compaction(partitions: &[Partition]) -> String {
    let mut rows =
        vec![["PARTITION", "CLEAN TO", "DIRTY BYTES", "DIRTY RATIO", "NOT COMPACTED"].map(str::to_owned).to_vec()];
    rows.extend(partitions.iter().filter_map(|partition| {
        let state = partition.compaction.as_ref()?;
        Some(vec![
            partition.partition.to_string(),
            state.cleaned_to.to_string(),
            state.dirty_bytes.to_string(),
            format!("{:.2}", state.dirty_ratio),
            uncompacted(state),
        ])
    }));
    table(&rows)
}

/// Which offsets are not compacted and why, and what went wrong.
fn uncompacted(state: &Compaction) -> String {
    let failure = state.error.as_ref().map(|error| format!("failed: {}", error.reason));
    let stretches = state.uncompacted.iter().map(|stretch| {
        let why = match stretch.waiting_for {
            WaitingFor::Pass => "next pass",
            WaitingFor::DirtyRatio => "dirty ratio",
            WaitingFor::MinLag => "too young",
            WaitingFor::Undecided => "undecided",
            WaitingFor::ActiveSegment => "active segment",
        };
        format!("{}..{} ({why})", stretch.from, stretch.to)
    });
    failure.into_iter().chain(stretches).collect::<Vec<_>>().join(", ")
}

fn compacted(answer: &CompactedTopic) -> String {
    let line = |p: &CompactedPartition| {
        format!(
            "partition {}: {} of {} records stay, {} of {} bytes",
            p.partition, p.after_records, p.before_records, p.after_bytes, p.before_bytes
        )
    };
    answer.partitions.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn counted(partitions: u32) -> String {
    if partitions == 1 { "1 partition".to_owned() } else { format!("{partitions} partitions") }
}

/// A setting's value is a number where it looks like one; every other value is a word.
fn setting(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    // Numbers and objects are JSON; all else is a text.
    let read = serde_json::from_str(value).ok().filter(|value: &Value| value.is_number() || value.is_object());
    let value = read.unwrap_or_else(|| Value::from(value));
    Ok((name.to_owned(), value))
}

fn partition_offset(text: &str) -> Result<TruncateBefore, String> {
    let parsed = text
        .split_once(':')
        .and_then(|(p, o)| Some(TruncateBefore { partition: p.parse().ok()?, before: o.parse().ok()? }));
    parsed.ok_or_else(|| "write it as PARTITION:OFFSET, two numbers".to_owned())
}
