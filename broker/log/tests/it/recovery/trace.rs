//! A trace of operations on a log, and the naive model of what it must hold: a list of batches.

use bytes::Bytes;
use levada_log::{
    Append, Appended, Batch, BatchBuf, BatchBuilder, LogOptions, NewBatch, PartitionLog, SequenceCheck,
    derived_producer_id,
};
use levada_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Record, Sequence, Timestamp};

use super::options;

/// Who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Nobody,
    /// An idempotent producer with this id; its sequences go on by themselves.
    Producer(i64),
    /// An idempotency key.
    Key(u64),
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    /// Stage a batch of so many records with values of so many bytes.
    Stage {
        source: Source,
        records: usize,
        value_bytes: usize,
    },
    Write,
    Sync,
    PrepareAhead,
    /// Move the time on and keep house.
    Maintain {
        wait_ms: i64,
    },
    /// Keep at most so many bytes from the next maintenance on.
    Retain {
        bytes: Option<u64>,
    },
    Truncate {
        before: u64,
    },
    /// Later batches are of the next leader epoch.
    NextEpoch,
}

/// What the log must hold. Marks that an operation was about to move are kept apart from those that it has moved.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    /// All batches that got a place, in order.
    pub(super) batches: Vec<Batch>,
    /// What was acknowledged as synced ends here.
    pub(super) synced_end: Offset,
    /// What was answered as written ends here.
    pub(super) written_end: Offset,
    /// The log start is at least this.
    pub(super) start_least: Offset,
    /// The log start is at most this.
    pub(super) start_most: Offset,
    /// Whether the last operation failed, as all do after the cut.
    pub(super) is_cut: bool,
}

/// Runs a trace on a log.
pub(super) struct Runner {
    pub(super) log: PartitionLog,
    pub(super) model: Model,
    options: LogOptions,
    epoch: i32,
    now: i64,
}

impl Model {
    /// The batches that have records in a range of offsets.
    pub(super) fn between(&self, from: Offset, to: Offset) -> Vec<Batch> {
        let holds = |batch: &&Batch| batch.header().next_offset() > from && batch.header().base_offset < to;
        self.batches.iter().filter(holds).cloned().collect()
    }

    fn next_sequence(&self, id: ProducerId) -> Sequence {
        let last = self.batches.iter().rev().map(Batch::header).find(|header| header.producer_id == Some(id));
        last.map_or(Sequence(0), |header| header.base_sequence.advance(header.record_count))
    }
}

impl Runner {
    pub(super) fn new(log: PartitionLog) -> Self {
        Self { log, model: Model::default(), options: options(), epoch: 0, now: 0 }
    }

    /// Runs until the end or the first failure, which is the cut.
    pub(super) fn run(&mut self, trace: &[Operation]) {
        for operation in trace {
            if self.step(*operation).is_err() {
                self.model.is_cut = true;
                break;
            }
        }
        // What the log says now was on its way when the power went.
        self.model.start_most = self.model.start_most.max(self.log.marks().log_start);
    }

    fn step(&mut self, operation: Operation) -> Result<(), String> {
        let text = |error: &dyn ToString| error.to_string();
        match operation {
            Operation::Stage { source, records, value_bytes } => self.stage(source, records, value_bytes)?,
            Operation::Write => {
                self.log.write(Timestamp(self.now)).map_err(|e| text(&e))?;
                self.model.written_end = self.log.marks().log_end;
            }
            Operation::Sync => {
                self.log.sync().map_err(|e| text(&e))?;
                self.model.synced_end = self.log.marks().synced_end;
            }
            Operation::PrepareAhead => self.log.prepare_ahead(),
            Operation::Maintain { wait_ms } => {
                self.now += wait_ms;
                let end = self.model.synced_end;
                self.log.maintain(Timestamp(self.now), end).map_err(|e| text(&e))?;
                self.model.synced_end = self.log.marks().synced_end;
                self.model.start_least = self.log.marks().log_start;
            }
            Operation::Retain { bytes } => {
                self.options.retention_bytes = bytes;
                self.log.set_options(self.options.clone());
            }
            Operation::Truncate { before } => {
                self.model.start_most = self.model.start_most.max(Offset(before));
                let start = self.log.truncate_front(Offset(before)).map_err(|e| text(&e))?;
                self.model.start_least = start;
            }
            Operation::NextEpoch => self.epoch += 1,
        }
        Ok(())
    }

    fn stage(&mut self, source: Source, records: usize, value_bytes: usize) -> Result<(), String> {
        let batch = self.build(source, records, value_bytes);
        let check = if matches!(source, Source::Key(_)) { SequenceCheck::Key } else { SequenceCheck::Producer };
        let append = Append { batch, check, expected_offset: None };
        let now = Timestamp(self.now);
        match self.log.stage(append, LeaderEpoch(self.epoch), now).map_err(|error| error.to_string())? {
            Appended::Stored(batch) => self.model.batches.push(batch),
            Appended::Duplicate { .. } => panic!("the trace repeats nothing"),
        }
        Ok(())
    }

    fn build(&self, source: Source, records: usize, value_bytes: usize) -> BatchBuf {
        let producer = match source {
            Source::Nobody => None,
            Source::Producer(id) => {
                let id = ProducerId(id);
                Some((id, ProducerEpoch(0), self.model.next_sequence(id)))
            }
            Source::Key(hash) => Some((derived_producer_id(hash), ProducerEpoch(3), Sequence(77))),
        };
        let number = self.model.batches.len();
        let fill = b'a' + u8::try_from(number % 26).expect("below 26");
        let values = vec![fill; value_bytes];
        build(producer, i64::try_from(number).expect("few") * 10, &vec![values; records])
    }
}

/// A batch of records with these values, all of one time.
pub(super) fn build(
    producer: Option<(ProducerId, ProducerEpoch, Sequence)>,
    timestamp: i64,
    values: &[Vec<u8>],
) -> BatchBuf {
    let mut builder = BatchBuilder::new(NewBatch { producer, ..NewBatch::default() }, 0);
    for value in values {
        let record = Record { value: Some(Bytes::copy_from_slice(value)), ..Record::default() };
        builder.push(Timestamp(timestamp), &record);
    }
    builder.finish().expect("no compression, no error")
}

/// The trace of the proofs: five segments, rolls by size within a group and by hand, two leader epochs, a producer
/// snapshot, retention, and truncation within a segment and at the end.
pub(super) fn full() -> Vec<Operation> {
    use Operation::{Maintain, NextEpoch, PrepareAhead, Retain, Stage, Sync, Truncate, Write};
    let of = |source, records| Stage { source, records, value_bytes: 60 };
    let (nobody, one, two, key) = (Source::Nobody, Source::Producer(1), Source::Producer(2), Source::Key(9));
    let mut trace = Vec::new();
    // One by one, as a lone client: zeros are written ahead of the third.
    for source in [nobody, one, key, one] {
        trace.extend([of(source, 1), Write, Sync, PrepareAhead]);
    }
    // A group, and what is written and not synced.
    trace.extend([of(two, 2), of(one, 1), Write, Sync, of(nobody, 1), Write]);
    // This group rolls in its middle.
    trace.extend([of(two, 4), of(one, 4), of(nobody, 2), Write, Sync, PrepareAhead]);
    trace.extend([Maintain { wait_ms: 40_000 }, NextEpoch]);
    for source in [one, two, nobody, one] {
        trace.extend([of(source, 2), Write, Sync]);
    }
    trace.extend([Truncate { before: 3 }, of(two, 5), of(one, 5), Write, Sync]);
    trace.extend([Retain { bytes: Some(2000) }, Maintain { wait_ms: 10 }, Retain { bytes: None }]);
    trace.extend([of(one, 1), Write, Sync, PrepareAhead, of(nobody, 1), Write]);
    // All goes, and what comes then still knows its producers.
    trace.extend([Truncate { before: 1_000 }, of(two, 1), of(one, 1), Write, Sync, of(nobody, 3), Write]);
    trace
}

/// A trace that `seed` alone decides.
pub(super) fn random(seed: u64, length: usize) -> Vec<Operation> {
    use Operation::{Maintain, NextEpoch, PrepareAhead, Retain, Stage, Sync, Truncate, Write};
    let mut state = seed + 1;
    let mut below = |bound: u64| draw(&mut state) % bound;
    let mut trace = Vec::new();
    let mut keys = 0;
    while trace.len() < length {
        let records = 1 + usize::try_from(below(4)).expect("small");
        let value_bytes = usize::try_from(below(200)).expect("small");
        trace.push(match below(24) {
            0..=6 => Stage { source: Source::Producer(i64::try_from(below(3)).expect("small")), records, value_bytes },
            7..=8 => Stage { source: Source::Nobody, records, value_bytes },
            9 => {
                keys += 1;
                Stage { source: Source::Key(keys), records, value_bytes }
            }
            10..=14 => Write,
            15..=18 => Sync,
            19..=20 => PrepareAhead,
            21 => Maintain { wait_ms: i64::try_from(below(40_000)).expect("small") },
            22 => Retain { bytes: Some(below(4_000)).filter(|bytes| *bytes > 1_000) },
            _ if below(3) == 0 => NextEpoch,
            _ => Truncate { before: below(60) },
        });
    }
    trace
}

/// The next number of Marsaglia's xorshift64*: small, and the same on every machine.
pub(super) fn draw(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}
