//! What the host keeps beside an instance: what it holds of the budget, when its call must end, what it may still write.

use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_extension::{LogLevel, Moment};
use levada_model::limits::{MODULE_LOG_CALL_LINES_MAX, MODULE_LOG_LINE_BYTES_MAX};
use wasmtime::ResourceLimiter;

use crate::budget::Budget;
use crate::engine::{Meter, Watch};
use crate::idle::Idle;
use crate::instance::Template;
use crate::journal::Journal;

/// Bytes that an element of a table takes.
const TABLE_ELEMENT_BYTES: usize = 8;

/// The state of an instance's store.
pub(crate) struct State {
    pub(crate) holding: Holding,
    pub(crate) meter: Meter,
    pub(crate) journal: Arc<Journal>,
    /// Clock and randomness of the call.
    pub(crate) moment: Moment,
    /// How long the call takes.
    pub(crate) watch: Watch,
    lines_left: usize,
    draws: u64,
    outputs: [Vec<u8>; 2],
}

/// What an instance holds; its end gives it back.
pub(crate) struct Holding {
    budget: Arc<Budget>,
    idle: Weak<Idle>,
    bytes: usize,
    bytes_max: usize,
    last_growth: usize,
    /// Why the last growth of this call was denied, if it was.
    pub(crate) denied: Option<Denied>,
}

/// Why an instance did not get more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// It had all that one may have.
    Own,
    /// All together had all that there is.
    Shared,
}

/// Where a guest writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Standard,
    Error,
}

impl State {
    pub(crate) fn new(template: &Template, moment: Moment) -> Self {
        let Template { meter, memory_bytes_max, .. } = *template;
        let (budget, idle) = (Arc::clone(&template.budget), Weak::clone(&template.idle));
        Self {
            holding: Holding { budget, idle, bytes: 0, bytes_max: memory_bytes_max, last_growth: 0, denied: None },
            meter,
            journal: Arc::clone(&template.journal),
            moment,
            watch: Watch::start(Duration::MAX),
            lines_left: 0,
            draws: 0,
            outputs: [Vec::new(), Vec::new()],
        }
    }

    /// Before a call.
    pub(crate) fn begin(&mut self, moment: Moment, cpu: Duration) {
        (self.moment, self.watch) = (moment, Watch::start(cpu));
        (self.lines_left, self.draws, self.holding.denied) = (MODULE_LOG_CALL_LINES_MAX, 0, None);
    }

    /// After a call: lines that no newline ended.
    pub(crate) fn end(&mut self) {
        for output in [Output::Standard, Output::Error] {
            if !self.outputs[output as usize].is_empty() {
                self.write(output, b"\n");
            }
        }
    }

    /// Whether the call may write one more line; if not, that one is counted as dropped.
    pub(crate) fn may_log(&mut self) -> bool {
        let may = self.lines_left > 0;
        match may {
            true => self.lines_left -= 1,
            false => self.journal.drop_line(),
        }
        may
    }

    /// Takes what the guest writes, line by line; what is beyond a line's limit is lost.
    pub(crate) fn write(&mut self, output: Output, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let line = &mut self.outputs[output as usize];
            let room = MODULE_LOG_LINE_BYTES_MAX.saturating_sub(line.len());
            line.extend_from_slice(&text[..text.len().min(room)]);
            if ends {
                let line = std::mem::take(line);
                if self.may_log() {
                    self.journal.line(output.level(), String::from_utf8_lossy(&line).into_owned());
                }
            }
        }
    }

    /// The next random number of the call (SplitMix64; Steele, Lea and Flood, 2014).
    pub(crate) fn draw(&mut self) -> u64 {
        self.draws += 1;
        let mut z = self.moment.seed.wrapping_add(self.draws.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Output {
    fn level(self) -> LogLevel {
        match self {
            Self::Standard => LogLevel::Info,
            Self::Error => LogLevel::Warn,
        }
    }
}

impl Holding {
    /// Memories and tables together; they never shrink.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Most that they may be.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    fn grow(&mut self, bytes: usize) -> bool {
        self.last_growth = 0;
        if self.bytes.saturating_add(bytes) > self.bytes_max {
            self.denied = Some(Denied::Own);
            return false;
        }
        let mut taken = self.budget.take_bytes(bytes);
        if taken.is_err()
            && let Some(idle) = self.idle.upgrade()
        {
            // Others' memory that nobody uses now.
            idle.clear();
            taken = self.budget.take_bytes(bytes);
        }
        match taken {
            Ok(()) => {
                self.bytes += bytes;
                self.last_growth = bytes;
                // The module got along without what it was denied before.
                self.denied = None;
            }
            Err(_) => self.denied = Some(Denied::Shared),
        }
        taken.is_ok()
    }

    fn take_back(&mut self) {
        let bytes = std::mem::take(&mut self.last_growth);
        self.bytes -= bytes;
        self.budget.give_back_bytes(bytes);
    }
}

impl ResourceLimiter for Holding {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.grow(desired.saturating_sub(current)))
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.take_back();
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.grow(desired.saturating_sub(current).saturating_mul(TABLE_ELEMENT_BYTES)))
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.take_back();
        Ok(())
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.budget.give_back_bytes(self.bytes);
    }
}
