//! `levada group reset`: sets where a group without members goes on.

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use clap::Args;
use levada_api::{GroupOffset, OffsetPlace, SetGroupOffset};
use levada_client::Client;
use serde::Serialize;
use serde_json::Value;

use crate::output::{Printer, table};

/// New offsets.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  levada group reset billing --topic orders --to earliest --dry-run
  levada group reset billing --topic orders:0 --topic orders:2 --to -100
  levada group reset billing --topic orders --to time:1700000000000

It works while the group has no members; stop them first. +N and -N count offsets from what is committed, and stay within \
what the partition holds.")]
pub(crate) struct Reset {
    /// The group's name.
    group: String,
    /// A topic, or one partition of it; may be repeated.
    #[arg(long, required = true, value_name = "TOPIC[:PARTITION]")]
    topic: Vec<Target>,
    /// Next to read: an offset, `earliest`, `latest`, `time:MS`, or `+N` or `-N`.
    #[arg(long, allow_hyphen_values = true, value_name = "PLACE")]
    to: Place,
    /// Only tell what would be set.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Debug)]
struct Target {
    topic: String,
    partition: Option<u32>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.rsplit_once(':') {
            None => Ok(Self { topic: text.to_owned(), partition: None }),
            Some((topic, partition)) => {
                let partition = partition.parse().map_err(|_| "write it as TOPIC or TOPIC:PARTITION")?;
                Ok(Self { topic: topic.to_owned(), partition: Some(partition) })
            }
        }
    }
}

/// Where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// As the interface has it.
    At(OffsetPlace),
    /// So far from what is committed.
    Moved(i64),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(['+', '-']) {
            let moved = text.parse().map_err(|_| "write a whole number behind the sign, like +10 or -10")?;
            return Ok(Self::Moved(moved));
        }
        // The interface's own rule: a number, or one of its words.
        let json = text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from);
        serde_json::from_value(json).map(Self::At).map_err(|error| format!("{error}, or +N or -N"))
    }
}

/// What a reset did.
#[derive(Serialize)]
struct Done {
    group: String,
    dry_run: bool,
    offsets: Vec<Moved>,
}

#[derive(Serialize)]
struct Moved {
    #[serde(flatten)]
    offset: GroupOffset,
    /// What was committed before.
    before: Option<u64>,
}

pub(super) async fn run(reset: Reset, client: &Client, printer: &mut Printer) -> anyhow::Result<()> {
    let before = client.committed_offsets(&reset.group).await?;
    let offsets = new_offsets(&reset, client, &before).await?;
    let offsets = client.set_group_offsets(&reset.group, offsets, reset.dry_run).await?;
    let moved = |offset: GroupOffset| {
        let before = before.get(&(offset.topic.clone(), offset.partition)).copied();
        Moved { offset, before }
    };
    let offsets = offsets.into_iter().map(moved).collect();
    let done = Done { group: reset.group, dry_run: reset.dry_run, offsets };
    let text = text(&done);
    Ok(printer.result(&done, text)?)
}

type Committed = BTreeMap<(String, u32), u64>;

async fn new_offsets(reset: &Reset, client: &Client, before: &Committed) -> anyhow::Result<Vec<SetGroupOffset>> {
    // Each once, also where a topic is named beside one of its partitions.
    let mut offsets: BTreeMap<(String, u32), OffsetPlace> = BTreeMap::new();
    for Target { topic, partition } in &reset.topic {
        let bounds: BTreeMap<u32, (u64, u64)> = match (partition, reset.to) {
            // The server knows best whether there is such a partition.
            (Some(partition), Place::At(_)) => BTreeMap::from([(*partition, (0, 0))]),
            _ => {
                let all = client.topic(topic).await?.partitions;
                let all = all.iter().map(|p| (p.partition, (p.log_start_offset, p.high_watermark)));
                all.filter(|(number, _)| partition.is_none_or(|only| only == *number)).collect()
            }
        };
        if bounds.is_empty() {
            bail!("topic {topic} has no partition {}", partition.unwrap_or_default());
        }
        for (partition, (start, end)) in bounds {
            let key = (topic.clone(), partition);
            let place = match reset.to {
                Place::At(place) => place,
                Place::Moved(by) => {
                    let from = before.get(&key).with_context(|| {
                        format!("nothing is committed for {topic} {partition}, so there is nothing to count from")
                    })?;
                    OffsetPlace::At(from.saturating_add_signed(by).clamp(start, end.max(start)))
                }
            };
            offsets.insert(key, place);
        }
    }
    let new = |((topic, partition), offset)| SetGroupOffset { topic, partition, offset };
    Ok(offsets.into_iter().map(new).collect())
}

fn text(done: &Done) -> String {
    let now = if done.dry_run { "WOULD BE" } else { "NOW" };
    let mut rows = vec![["TOPIC", "PARTITION", "BEFORE", now, "END", "LAG"].map(str::to_owned).to_vec()];
    rows.extend(done.offsets.iter().map(|Moved { offset, before }| {
        let before = before.map_or_else(|| "-".to_owned(), |before| before.to_string());
        let numbers = [offset.committed, offset.high_watermark, offset.lag].map(|number| number.to_string());
        [offset.topic.clone(), offset.partition.to_string(), before].into_iter().chain(numbers).collect()
    }));
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::{Place, Target};
    use levada_api::OffsetPlace;

    #[test]
    fn places_are_those_of_the_interface_and_steps() {
        let place = |text: &str| text.parse::<Place>();
        assert_eq!(place("7"), Ok(Place::At(OffsetPlace::At(7))));
        assert_eq!(place("latest"), Ok(Place::At(OffsetPlace::Latest)));
        assert_eq!(place("time:5"), Ok(Place::At(OffsetPlace::Time(5))));
        assert_eq!((place("+3"), place("-3")), (Ok(Place::Moved(3)), Ok(Place::Moved(-3))));
        for wrong in ["soon", "", "-", "+x", "1.5"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_target_is_a_topic_or_one_partition_of_it() {
        let target = |text: &str| text.parse::<Target>().map(|target| (target.topic, target.partition));
        assert_eq!(target("a.b"), Ok(("a.b".to_owned(), None)));
        assert_eq!(target("a.b:2"), Ok(("a.b".to_owned(), Some(2))));
        assert!(target("a:").is_err() && target("a:b").is_err());
    }
}
