//! What is remembered of a module while the host runs: its log, its counters, its statistics. All of it is bounded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use levada_extension::{LogLevel, LogLine, LogPage, ModuleStats};
use levada_model::Clock;
use levada_model::limits::{
    MODULE_COUNTER_NAME_BYTES_MAX, MODULE_COUNTERS_MAX, MODULE_LOG_LINE_BYTES_MAX, MODULE_LOG_LINES_MAX,
};
use parking_lot::Mutex;

use crate::contract::cut;
use crate::instance::Spent;

/// A module's log, counters and statistics.
pub(crate) struct Journal {
    clock: Arc<dyn Clock>,
    log: Mutex<Log>,
    book: Mutex<Book>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With an answer, or without the module's fault.
    OfItself,
    Trapped,
    TookTooLong,
}

#[derive(Default)]
struct Log {
    lines: VecDeque<LogLine>,
    next: u64,
    dropped: u64,
}

struct Book {
    stats: ModuleStats,
    /// CPU time of calls in nanoseconds.
    calls: Histogram<u64>,
}

impl Journal {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let calls = Histogram::new_with_bounds(1, 60_000_000_000, 1).expect("bounds that a histogram takes");
        let book = Book { stats: ModuleStats::default(), calls };
        Self { clock, log: Mutex::default(), book: Mutex::new(book) }
    }

    pub(crate) fn line(&self, level: LogLevel, message: String) {
        let (time, message) = (self.clock.now(), cut(message, MODULE_LOG_LINE_BYTES_MAX));
        let mut log = self.log.lock();
        let number = log.next;
        log.next += 1;
        log.lines.push_back(LogLine { number, time, level, message });
        if log.lines.len() > MODULE_LOG_LINES_MAX {
            log.lines.pop_front();
            log.dropped += 1;
        }
    }

    /// Counts a line that was one too many in its call.
    pub(crate) fn drop_line(&self) {
        self.log.lock().dropped += 1;
    }

    pub(crate) fn page(&self, from: u64, lines_max: usize) -> LogPage {
        let log = self.log.lock();
        let lines: Vec<_> = log.lines.iter().filter(|line| line.number >= from).take(lines_max).cloned().collect();
        let next = lines.last().map_or(from.min(log.next), |line| line.number + 1);
        LogPage { lines, next, dropped: log.dropped }
    }

    pub(crate) fn count(&self, name: &str, delta: u64) {
        let stats = &mut self.book.lock().stats;
        if stats.counters.contains_key(name) || place_for(&stats.counters, name) {
            let counter = stats.counters.entry(name.to_owned()).or_default();
            *counter = counter.saturating_add(delta);
        } else {
            stats.counters_dropped += 1;
        }
    }

    /// Books a call.
    pub(crate) fn called(&self, records: u64, ending: Ending, spent: Spent) {
        let mut book = self.book.lock();
        book.spent(ending, spent);
        book.stats.calls += 1;
        book.stats.records += records;
        book.calls.saturating_record(u64::try_from(spent.cpu.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Books one of an instance's first steps.
    pub(crate) fn began(&self, ending: Ending, spent: Spent) {
        self.book.lock().spent(ending, spent);
    }

    /// Counts an instance.
    pub(crate) fn set_up(&self) {
        self.book.lock().stats.instances += 1;
    }

    pub(crate) fn refused_answer(&self) {
        self.book.lock().stats.refused_answers += 1;
    }

    pub(crate) fn fell_back(&self) {
        self.book.lock().stats.fallbacks += 1;
    }

    pub(crate) fn stats(&self) -> ModuleStats {
        let book = self.book.lock();
        let call_p99 = Duration::from_nanos(book.calls.value_at_quantile(0.99));
        ModuleStats { call_p99, ..book.stats.clone() }
    }
}

impl Book {
    fn spent(&mut self, ending: Ending, spent: Spent) {
        let stats = &mut self.stats;
        stats.cpu += spent.cpu;
        stats.memory_peak_bytes = stats.memory_peak_bytes.max(spent.memory_bytes);
        if let Some(instructions) = spent.instructions {
            *stats.instructions.get_or_insert(0) += instructions;
        }
        match ending {
            Ending::OfItself => (),
            Ending::Trapped => stats.traps += 1,
            Ending::TookTooLong => stats.deadlines += 1,
        }
    }
}

fn place_for(counters: &BTreeMap<String, u64>, name: &str) -> bool {
    counters.len() < MODULE_COUNTERS_MAX && (1..=MODULE_COUNTER_NAME_BYTES_MAX).contains(&name.len())
}
