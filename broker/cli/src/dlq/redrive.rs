//! `levada dlq redrive`: sends dead letters back to the topics that they come from. What was sent is remembered as the
//! committed offsets of a group, so that no letter is sent twice; a crash in between is covered by idempotency keys.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use levada_api::{AcksWord, ErrorCode, OffsetPlace, Placed, Placement, SetGroupOffset, Topic};
use levada_client::{Client, ClientError, FetchQuery, Record};
use levada_model::limits::PRODUCER_EXPIRATION_MS;
use levada_model::{Clock as _, SystemClock};
use serde::Serialize;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::letter::{Letter, sent_back};
use crate::failure::Usage;
use crate::output::{Format, Printer, note};
use crate::signals::Stop;

/// Letters between two commits of how far it got.
const PAGE_RECORDS: u64 = 100;
/// How long one letter is tried while its failure may pass.
const RETRY_FOR: Duration = Duration::from_secs(30);

/// Send dead letters back.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada dlq redrive orders.dead-letter --dry-run
  levada dlq redrive orders.dead-letter --max 1
  levada dlq redrive orders.dead-letter --rate 50/s

A letter becomes a new record of its original topic: same key, value, headers and time, without those headers that tell \
of its death, and with `redrive_count` one higher. Letters that arrive meanwhile wait for the next run. One that was sent back \
--max-redrives times already is skipped and told, and so is a record without `original_topic`.

How far it got is kept as the committed offsets of the group `redrive.TOPIC`: the next run goes on there, and `levada \
group reset redrive.TOPIC --topic TOPIC:PARTITION --to OFFSET` makes it look at letters again. Committed offsets are \
forgotten some time (7 days) after the last run. So where nothing is remembered and letters are older than a day, a run \
does not begin by itself: --from says where to. (What is younger is recognised by its key if it was sent before.) A letter that its topic refuses ends \
its partition's run, so that nothing is passed over; the exit code is then 1.")]
pub(crate) struct RedriveCommand {
    /// The topic of dead letters.
    topic: String,
    /// End after this many were sent back.
    #[arg(long, value_name = "LETTERS")]
    max: Option<u64>,
    /// At most so many a second, e.g. `50/s`.
    #[arg(long, value_name = "N/s", value_parser = rate)]
    rate: Option<NonZeroU32>,
    /// Skip a letter that was sent back this often already.
    #[arg(long, value_name = "TIMES", default_value_t = 3)]
    max_redrives: u32,
    /// Send them all to this topic instead.
    #[arg(long, value_name = "TOPIC")]
    to: Option<String>,
    /// Where to begin in partitions of which nothing is remembered: `earliest`, `latest` or `time:MS`. [default: earliest,
    /// if all letters there are younger than a day]
    #[arg(long, value_parser = start)]
    from: Option<String>,
    /// Only tell what would be sent.
    #[arg(long)]
    dry_run: bool,
}

/// How far earlier runs got: per partition the next letter to look at.
pub(super) async fn remembered(client: &Client, topic: &str) -> Result<BTreeMap<u32, u64>, ClientError> {
    match client.group_offsets(&group_of(topic)).await {
        Ok(offsets) => {
            let own = offsets.into_iter().filter(|offset| offset.topic == topic);
            Ok(own.map(|offset| (offset.partition, offset.committed)).collect())
        }
        Err(error) if error.problem().is_some_and(|problem| problem.code == ErrorCode::GroupNotFound) => {
            Ok(BTreeMap::new())
        }
        Err(error) => Err(error),
    }
}

pub(super) async fn run(command: RedriveCommand, client: &Client, printer: Printer) -> anyhow::Result<ExitCode> {
    if command.to.as_deref() == Some(&command.topic) {
        return Err(Usage("--to names the topic of the dead letters itself".to_owned()).into());
    }
    let topic = client.topic(&command.topic).await?;
    let remembered = remembered(client, &command.topic).await?;
    if command.from.is_none() {
        refuse_old(client, &topic, &remembered).await?;
    }
    let mut redrive = Redrive {
        client,
        pace: command.rate.map(pace),
        left: command.max.unwrap_or(u64::MAX),
        topic,
        command,
        printer,
        next: BTreeMap::new(),
        seen: BTreeSet::new(),
        tally: Tally::default(),
    };
    let mut stop = Stop::listen()?;
    let done = tokio::select! {
        done = redrive.run(&remembered) => done,
        () = stop.asked() => Ok(()),
    };
    // Also after a failure: what was sent is not to be sent again.
    redrive.remember().await?;
    done?;
    redrive.end()
}

/// Refuses to begin where nothing is remembered of letters that are older than the keys under which they are sent: they
/// may have been sent back, and that forgotten since.
async fn refuse_old(client: &Client, topic: &Topic, remembered: &BTreeMap<u32, u64>) -> anyhow::Result<()> {
    let since = SystemClock.now().0.saturating_sub(PRODUCER_EXPIRATION_MS);
    let recent = client.offsets_at(&topic.name, since).await?;
    let is_old = |partition: &u32| {
        let start = topic.partitions.iter().find(|p| p.partition == *partition).map(|p| p.log_start_offset);
        recent.iter().any(|at| at.partition == *partition && Some(at.offset) > start)
    };
    let unknown = topic.partitions.iter().map(|p| p.partition).filter(|partition| !remembered.contains_key(partition));
    let old: Vec<_> = unknown.filter(is_old).map(|partition| partition.to_string()).collect();
    if old.is_empty() {
        return Ok(());
    }
    anyhow::bail!(
        "nothing is remembered of partition {}, where letters are older than a day: they may have been sent back before. \
         Say --from earliest to send them all, or --from time:MS or latest",
        old.join(", ")
    )
}

/// A run.
struct Redrive<'a> {
    client: &'a Client,
    command: RedriveCommand,
    topic: Topic,
    printer: Printer,
    pace: Option<Interval>,
    left: u64,
    /// Per partition where this run is, and is not yet remembered.
    next: BTreeMap<u32, u64>,
    /// Topics that are there.
    seen: BTreeSet<String>,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    sent: u64,
    skipped: u64,
    refused: u64,
}

/// What became of a letter.
#[derive(Serialize)]
struct Line<'a> {
    partition: u32,
    offset: u64,
    outcome: Outcome,
    /// Where it went or would go.
    to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_partition: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redrive_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Sent,
    WouldBeSent,
    Skipped,
    /// The partition's run ended with it.
    Refused,
}

impl Redrive<'_> {
    async fn run(&mut self, remembered: &BTreeMap<u32, u64>) -> anyhow::Result<()> {
        // Letters beyond this end may be those that this run sent back.
        let ends: Vec<_> = self.topic.partitions.iter().map(|p| (p.partition, p.last_stable_offset)).collect();
        for (partition, end) in ends {
            let start = match remembered.get(&partition) {
                Some(next) => next.to_string(),
                None => self.command.from.clone().unwrap_or_else(|| "earliest".to_owned()),
            };
            self.partition(partition, start, end).await?;
            self.remember().await?;
        }
        Ok(())
    }

    /// Goes through one partition from `start` to `end`.
    async fn partition(&mut self, partition: u32, mut start: String, end: u64) -> anyhow::Result<()> {
        while self.left > 0 {
            let query = FetchQuery { max_records: Some(PAGE_RECORDS), ..FetchQuery::from(&start) };
            let fetched = match self.client.fetch(&self.command.topic, partition, &query).await {
                // Retention took letters that nobody sent back.
                Err(error) if error.problem().is_some_and(|p| p.code == ErrorCode::OffsetOutOfRange) => {
                    note(format!("partition {partition}: letters from offset {start} on are gone"));
                    "earliest".clone_into(&mut start);
                    continue;
                }
                fetched => fetched?,
            };
            fetched.gaps.iter().for_each(|gap| note(format!("gap: {gap}")));
            for record in fetched.records.iter().filter(|record| record.offset < end) {
                if self.left == 0 || !self.letter(record).await? {
                    return Ok(());
                }
            }
            self.next.insert(partition, fetched.next_offset.min(end));
            self.remember().await?;
            if fetched.next_offset >= end {
                return Ok(());
            }
            start = fetched.next_offset.to_string();
        }
        Ok(())
    }

    /// Sends one letter back, or says why not. Whether the partition goes on.
    async fn letter(&mut self, record: &Record) -> anyhow::Result<bool> {
        let line = Line::new(record);
        let letter = match self.letter_to_send(record) {
            Ok(letter) => letter,
            Err(reason) => {
                self.tally.skipped += 1;
                self.next.insert(record.partition, record.offset + 1);
                self.tell(&Line { reason: Some(reason), ..line })?;
                return Ok(true);
            }
        };
        let to = self.command.to.clone().unwrap_or_else(|| letter.original_topic.clone());
        let line = Line { to: Some(&to), redrive_count: Some(letter.redrive_count + 1), ..line };
        if self.command.dry_run {
            self.left -= 1;
            self.tally.sent += 1;
            self.tell(&Line { outcome: Outcome::WouldBeSent, ..line })?;
            return Ok(true);
        }
        if let Some(pace) = &mut self.pace {
            pace.tick().await;
        }
        match self.send(record, &letter, &to).await {
            Ok(place) => {
                self.left -= 1;
                self.tally.sent += 1;
                self.next.insert(record.partition, record.offset + 1);
                let (to_partition, to_offset) = (Some(place.partition), place.offset);
                self.tell(&Line { outcome: Outcome::Sent, to_partition, to_offset, ..line })?;
                Ok(true)
            }
            Err(error) if error.problem().is_some_and(|problem| !problem.retryable) => {
                self.tally.refused += 1;
                self.tell(&Line { outcome: Outcome::Refused, reason: Some(error.to_string()), ..line })?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn letter_to_send(&self, record: &Record) -> Result<Letter, String> {
        let letter = Letter::of(record).ok_or("it has no original_topic")?;
        if letter.redrive_count >= self.command.max_redrives {
            return Err(format!("it was sent back {} times already", letter.redrive_count));
        }
        if self.command.to.is_none() && letter.original_topic == self.command.topic {
            return Err("it comes from this topic itself".to_owned());
        }
        Ok(letter)
    }

    async fn send(&mut self, record: &Record, letter: &Letter, to: &str) -> Result<Placed, ClientError> {
        // Producing would make a topic that was deleted anew, and nobody would read it there.
        if !self.seen.contains(to) {
            self.client.topic(to).await?;
            self.seen.insert(to.to_owned());
        }
        let key = format!("redrive-{}-{}-{}-{}", self.topic.id, record.partition, record.offset, letter.redrive_count);
        let records = [sent_back(record, letter)];
        let answer = self.client.produce_with_retries(to, &records, AcksWord::All, &key, RETRY_FOR).await?;
        match answer.records.into_iter().next().expect("an answer has a place for each record") {
            Placement::Placed(placed) => Ok(placed),
            Placement::Failed { problem } => Err(ClientError::Refused { problem, retry_after: None }),
        }
    }

    fn tell(&mut self, line: &Line<'_>) -> anyhow::Result<()> {
        match self.printer.format() {
            Format::Text => self.printer.line(line.text())?,
            Format::Json | Format::Ndjson => self.printer.item(&serde_json::to_string(line)?)?,
        }
        Ok(self.printer.flush()?)
    }

    /// Commits where this run is.
    async fn remember(&mut self) -> anyhow::Result<()> {
        if self.command.dry_run || self.next.is_empty() {
            return Ok(());
        }
        let topic = &self.command.topic;
        let offset = |(partition, next): (&u32, &u64)| SetGroupOffset {
            topic: topic.clone(),
            partition: *partition,
            offset: OffsetPlace::At(*next),
        };
        let offsets = self.next.iter().map(offset).collect();
        self.client.set_group_offsets(&group_of(topic), offsets, false).await?;
        self.next.clear();
        Ok(())
    }

    fn end(mut self) -> anyhow::Result<ExitCode> {
        if self.printer.format() == Format::Json {
            self.printer.end_items()?;
        }
        self.printer.flush()?;
        let Tally { sent, skipped, refused } = self.tally;
        let would = if self.command.dry_run { " would be" } else { "" };
        note(format!("{sent}{would} sent back, {skipped} skipped, {refused} refused"));
        Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Line<'_> {
    /// A letter that is skipped, where nothing else is said of it.
    fn new(record: &Record) -> Self {
        Self {
            partition: record.partition,
            offset: record.offset,
            outcome: Outcome::Skipped,
            to: None,
            to_partition: None,
            to_offset: None,
            redrive_count: None,
            reason: None,
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{}:{}", self.partition, self.offset);
        match self.outcome {
            Outcome::Sent => text.push_str(" sent back to"),
            Outcome::WouldBeSent => text.push_str(" would be sent back to"),
            Outcome::Skipped => text.push_str(" skipped"),
            Outcome::Refused => text.push_str(" refused by"),
        }
        text.extend(self.to.map(|to| format!(" {to}")));
        text.extend(self.to_partition.zip(self.to_offset).map(|(partition, offset)| format!(" {partition}:{offset}")));
        let count = self.redrive_count.filter(|_| self.outcome != Outcome::Refused);
        text.extend(count.map(|count| format!(" (redrive {count})")));
        text.extend(self.reason.as_ref().map(|reason| format!(": {reason}")));
        text
    }
}

fn group_of(topic: &str) -> String {
    format!("redrive.{topic}")
}

/// Even steps: a second that was lost is not caught up.
fn pace(rate: NonZeroU32) -> Interval {
    let mut pace = interval(Duration::from_secs(1) / rate.get());
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

fn rate(text: &str) -> Result<NonZeroU32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    number.parse().map_err(|_| "write it like 50/s, with a whole number from 1".to_owned())
}

/// Where each partition may begin; the server reads it again.
fn start(text: &str) -> Result<String, String> {
    let time = |text: &str| text.strip_prefix("time:").is_some_and(|time| time.parse::<i64>().is_ok());
    if matches!(text, "earliest" | "latest") || time(text) {
        return Ok(text.to_owned());
    }
    Err("write earliest, latest or time:MS".to_owned())
}
