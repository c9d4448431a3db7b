//! Counts, latencies, and how they are told: a line each second and a summary.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior};

use crate::output::{Format, Printer};

/// Latencies are counted in µs up to ten minutes, to three digits.
const LATENCY_US_MAX: u64 = 600_000_000;
/// As Kafka's tools count.
const MB: f64 = 1024.0 * 1024.0;

/// What the workers add to; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Meter(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    total: Counts,
    interval: Counts,
}

#[derive(Clone, Debug)]
struct Counts {
    records: u64,
    bytes: u64,
    requests: u64,
    failed: u64,
    latencies: Histogram<u64>,
}

impl Counts {
    fn new() -> Self {
        let latencies = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are right");
        Self { records: 0, bytes: 0, requests: 0, failed: 0, latencies }
    }
}

impl Meter {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State { total: Counts::new(), interval: Counts::new() })))
    }

    fn each(&self, mut add: impl FnMut(&mut Counts)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut state.total);
        add(&mut state.interval);
    }

    /// Records that were answered after `latency`.
    pub(super) fn done(&self, records: u64, bytes: u64, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(LATENCY_US_MAX);
        self.each(|counts| {
            counts.records += records;
            counts.bytes += bytes;
            counts.latencies.saturating_record(micros.max(1));
        });
    }

    pub(super) fn failed(&self) {
        self.each(|counts| counts.failed += 1);
    }

    pub(super) fn requests(&self, requests: u64) {
        self.each(|counts| counts.requests += requests);
    }

    fn take_interval(&self) -> Counts {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut state.interval, Counts::new())
    }

    fn total(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).total.clone()
    }
}

/// The figures of a run, or of one second of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) records: u64,
    pub(super) requests: u64,
    failed: u64,
    seconds: f64,
    records_per_second: f64,
    mb_per_second: f64,
    latency_ms_avg: f64,
    latency_ms_max: f64,
    latency_ms_p50: f64,
    latency_ms_p95: f64,
    latency_ms_p99: f64,
    latency_ms_p99_9: f64,
    #[serde(skip)]
    verb: &'static str,
}

impl Figures {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn of(counts: &Counts, elapsed: Duration, verb: &'static str) -> Self {
        let seconds = elapsed.as_secs_f64().max(f64::EPSILON);
        let at = |quantile: f64| counts.latencies.value_at_quantile(quantile) as f64 / 1000.0;
        let rounded = |figure: f64| (figure * 1000.0).round() / 1000.0;
        Self {
            records: counts.records,
            requests: counts.requests,
            failed: counts.failed,
            seconds: rounded(seconds),
            records_per_second: rounded(counts.records as f64 / seconds),
            mb_per_second: rounded(counts.bytes as f64 / MB / seconds),
            latency_ms_avg: rounded(counts.latencies.mean() / 1000.0),
            latency_ms_max: counts.latencies.max() as f64 / 1000.0,
            latency_ms_p50: at(0.5),
            latency_ms_p95: at(0.95),
            latency_ms_p99: at(0.99),
            latency_ms_p99_9: at(0.999),
            verb,
        }
    }

    /// The line of one second.
    fn interval(&self) -> String {
        format!(
            "{} records {}, {:.1} records/s ({:.2} MB/s), {:.1} ms avg latency, {:.1} ms max latency.",
            self.records,
            self.verb,
            self.records_per_second,
            self.mb_per_second,
            self.latency_ms_avg,
            self.latency_ms_max
        )
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} records {} in {:.1} s, {:.1} records/s ({:.2} MB/s), {:.2} ms avg latency, {:.2} ms max latency, {:.2} ms p50, \
             {:.2} ms p95, {:.2} ms p99, {:.2} ms p99.9, {} requests, {} failed.",
            self.records,
            self.verb,
            self.seconds,
            self.records_per_second,
            self.mb_per_second,
            self.latency_ms_avg,
            self.latency_ms_max,
            self.latency_ms_p50,
            self.latency_ms_p95,
            self.latency_ms_p99,
            self.latency_ms_p99_9,
            self.requests,
            self.failed
        )
    }
}

/// Prints a line each second while `work` goes on, and then the figures of all of it.
pub(super) async fn watch<T>(
    work: impl Future<Output = anyhow::Result<T>>,
    meter: &Meter,
    verb: &'static str,
    printer: &mut Printer,
) -> anyhow::Result<T> {
    let start = Instant::now();
    let second = Duration::from_secs(1);
    let mut ticks = tokio::time::interval_at(start + second, second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = start;
    tokio::pin!(work);
    let done = loop {
        tokio::select! {
            biased;
            done = &mut work => break done?,
            now = ticks.tick() => {
                let figures = Figures::of(&meter.take_interval(), now - last, verb);
                last = now;
                match printer.format() {
                    Format::Text => printer.line(figures.interval())?,
                    Format::Ndjson => printer.item(&serde_json::to_string(&figures)?)?,
                    // One document: the summary.
                    Format::Json => {}
                }
                printer.flush()?;
            }
        }
    };
    let figures = Figures::of(&meter.total(), start.elapsed(), verb);
    printer.result(&figures, &figures)?;
    Ok(done)
}
