//! Replays a real feed into a topic, over and over at a visible pace, so that a newcomer has live data at once.
//!
//! The record's timestamp is the broker's time of arrival. Within a lap all event times (`time`, `updated`) are moved by
//! the same span, so lateness stays as real as it was; each lap moves them a week further, so event time goes on. After a
//! restart it goes on where the topic ends.

use std::time::Duration;

use anyhow::Context as _;
use levada_api::ErrorCode;
use levada_client::{AcksWord, Client, NewRecord, Record};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{info, warn};

/// The feed; its provenance is in `data/README.md`.
const FEED: &str = include_str!("../data/earthquakes.ndjson");
/// How much further each lap moves the event times: the feed spans a week, less two hours.
const LAP_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// The topic it goes to.
pub(crate) const TOPIC: &str = "earthquakes";
const PARTITIONS: u32 = 3;
/// Records a request when there is no pace to keep.
const UNPACED_BATCH: usize = 500;

/// A place in the endless feed: a lap and a line, both counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    lap: i64,
    line: usize,
}

/// Replays for ever; each record comes `pace` after the one before.
pub(crate) async fn run(client: Client, pace: Duration) {
    let lines: Vec<&str> = FEED.lines().collect();
    let mut place = None;
    // The broker may run no modules; the feed goes on all the same.
    if let Err(error) = put_examples(&client).await {
        warn!("the demo has no modules: {error:#}");
    }
    loop {
        // The server may be fenced or closing; the demo is not worth more than a line in its log.
        let Err(error) = replay(&client, &lines, &mut place, pace).await;
        warn!("the demo pauses: {error:#}");
        tokio::time::sleep_until(Instant::now() + Duration::from_secs(5)).await;
    }
}

/// Puts the example modules, so that there is something to try at once. Those that are there stay as they are.
#[cfg(feature = "examples")]
async fn put_examples(client: &Client) -> anyhow::Result<()> {
    for example in levada_examples::examples() {
        let wasm = bytes::Bytes::from_static(example.wasm);
        let (put, is_new) = client.put_module(example.name, wasm, false).await.context("putting the demo's modules")?;
        if is_new {
            info!(module = put.name, version = put.version, "the demo has put a module");
        }
    }
    Ok(())
}

/// A program without them puts none.
#[cfg(not(feature = "examples"))]
async fn put_examples(_: &Client) -> anyhow::Result<()> {
    Ok(())
}

async fn replay(
    client: &Client,
    lines: &[&str],
    place: &mut Option<Place>,
    pace: Duration,
) -> anyhow::Result<std::convert::Infallible> {
    let mut next = match *place {
        Some(place) => place,
        None => start(client, lines).await?,
    };
    info!(topic = TOPIC, lap = next.lap + 1, line = next.line + 1, "the demo replays");
    let batch = if pace.is_zero() { UNPACED_BATCH } else { 1 };
    let mut ticks = tokio::time::interval(pace.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let end = (next.line + batch).min(lines.len());
        let records: Vec<_> =
            lines[next.line..end].iter().map(|line| record(line, next.lap)).collect::<Result<_, _>>()?;
        client.produce(TOPIC, &records, AcksWord::All).await?;
        next = if end < lines.len() { Place { line: end, ..next } } else { Place { lap: next.lap + 1, line: 0 } };
        *place = Some(next);
    }
}

/// Makes the topic if there is none, and finds where it ends.
async fn start(client: &Client, lines: &[&str]) -> anyhow::Result<Place> {
    match client.create_topic(TOPIC, PARTITIONS, Default::default()).await {
        Ok(_) => return Ok(Place::default()),
        Err(error) if error.problem().is_some_and(|p| p.code == ErrorCode::TopicExists) => {}
        Err(error) => return Err(error).context("making the demo's topic"),
    }
    let newest = client.fetch_topic(TOPIC, "tail:1", None, 0).await?;
    let last = newest.records.iter().filter_map(|record| place_of(record, lines)).max();
    Ok(last.map_or_else(Place::default, |last| match last.line + 1 {
        line if line < lines.len() => Place { line, ..last },
        _ => Place { lap: last.lap + 1, line: 0 },
    }))
}

fn record(line: &str, lap: i64) -> anyhow::Result<NewRecord> {
    let text = moved(line, lap * LAP_MS).with_context(|| format!("in the feed's line {line}"))?;
    let id = id_of(line).with_context(|| format!("no id in the feed's line {line}"))?;
    Ok(NewRecord::json(text)?.with_key(id.to_owned()))
}

/// The line with `time` and `updated` moved by so many ms, and every other byte as it was.
fn moved(line: &str, by_ms: i64) -> Option<String> {
    let mut text = line.to_owned();
    for name in ["\"time\":", "\"updated\":"] {
        let (start, end) = number_after(&text, name)?;
        let moved = text[start..end].parse::<i64>().ok()? + by_ms;
        text.replace_range(start..end, &moved.to_string());
    }
    Some(text)
}

fn number_after(text: &str, name: &str) -> Option<(usize, usize)> {
    let start = text.find(name)? + name.len();
    let digits = text[start..].bytes().take_while(u8::is_ascii_digit).count();
    Some((start, start + digits))
}

fn id_of(line: &str) -> Option<&str> {
    let start = line.find("\"id\":\"")? + "\"id\":\"".len();
    line[start..].split('"').next()
}

/// Which place of the feed a record came from; none if somebody else wrote it.
fn place_of(record: &Record, lines: &[&str]) -> Option<Place> {
    let text = std::str::from_utf8(record.value.as_deref()?).ok()?;
    let id = id_of(text)?;
    let line = lines.iter().position(|line| id_of(line) == Some(id))?;
    let updated = |text: &str| {
        let (start, end) = number_after(text, "\"updated\":")?;
        text[start..end].parse::<i64>().ok()
    };
    let lap = (updated(text)? - updated(lines[line])?) / LAP_MS;
    (moved(lines[line], lap * LAP_MS)? == text).then_some(Place { lap, line })
}

#[cfg(test)]
mod tests {
    use super::{FEED, LAP_MS, id_of, moved, number_after};

    #[test]
    fn a_lap_moves_both_times_by_the_same_span_and_no_other_byte() {
        for line in FEED.lines() {
            assert_eq!(moved(line, 0).as_deref(), Some(line));
            let there = moved(line, LAP_MS).expect("every line has both times");
            assert_ne!(there, line);
            assert_eq!(moved(&there, -LAP_MS).as_deref(), Some(line));
            assert!(id_of(line).is_some_and(|id| !id.is_empty()));
        }
    }

    #[test]
    fn a_lap_is_longer_than_the_feed_so_that_arrival_never_goes_back() {
        let updated: Vec<i64> = FEED
            .lines()
            .map(|line| {
                let (start, end) = number_after(line, "\"updated\":").expect("every line has it");
                line[start..end].parse().expect("it is a number")
            })
            .collect();
        assert!(updated.is_sorted());
        assert!(updated[0] + LAP_MS > updated[updated.len() - 1]);
    }
}
