//! Any life of a log with transactions, against the naive history.

use levada_log::{Batch, CompactionOptions};
use proptest::prelude::{Just, Strategy, any, prop, proptest};
use proptest::{prop_assert_eq, prop_oneof};

use super::history::History;
use super::*;

#[derive(Clone, Debug)]
enum Step {
    /// A batch of a producer: epoch and sequence beside the right ones.
    Data {
        producer: u8,
        transactional: bool,
        epoch: i16,
        sequence: i32,
        keys: Vec<u8>,
    },
    /// A batch of a transaction whose sequence is the partition's to give.
    Assigned {
        producer: u8,
        epoch: i16,
        keys: Vec<u8>,
    },
    Plain(Vec<u8>),
    /// A marker: epochs beside the producer's and the last coordinator's.
    End {
        producer: u8,
        abort: bool,
        epoch: i16,
        coordinator: i32,
    },
    Write,
    Sync,
    Roll,
    Wait(i64),
    Compact {
        memory_bytes: usize,
        bound: u8,
    },
    Truncate(u8),
    Retain(u16),
    /// Kill the process and open the log anew, perhaps without what is derived.
    Restart {
        lose_snapshots: bool,
        lose_indexes: bool,
    },
}

struct Life {
    disk: SimStorage,
    log: PartitionLog,
    history: History,
    now: i64,
    /// Whether the snapshots were lost and none was taken since.
    is_bare: bool,
}

impl Life {
    fn new() -> Self {
        let disk = disk();
        let log = open(&disk);
        Self { disk, log, history: History::default(), now: 1_000, is_bare: false }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Data { producer, transactional, epoch, sequence, keys } => {
                let id = i64::from(*producer);
                let (current, next) = self.known(id);
                let next = if *epoch > 0 { 0 } else { next };
                let mut append = data(id, (current + epoch).max(0), (next + sequence).max(0), &names(keys));
                if !transactional {
                    let (header, keys) = (*append.batch.header(), names(keys));
                    let producer = Some((ProducerId(id), header.producer_epoch, header.base_sequence));
                    append.batch = batch(NewBatch { producer, ..NewBatch::default() }, &keys);
                }
                self.append(append)?;
            }
            Step::Assigned { producer, epoch, keys } => {
                let id = i64::from(*producer);
                let append = data(id, (self.known(id).0 + epoch).max(0), 0, &names(keys));
                self.append(Append { check: SequenceCheck::Assigned, ..append })?;
            }
            Step::Plain(keys) => self.append(plain(&names(keys)))?,
            Step::End { producer, abort, epoch, coordinator } => {
                let id = i64::from(*producer);
                let of_producer = self.history.0.iter().rev().filter(|e| e.header.producer_id == Some(ProducerId(id)));
                let last = of_producer.filter_map(|entry| entry.marker).next();
                let known = last.map_or(5, |marker| marker.coordinator_epoch.0);
                let how = if *abort { ABORT } else { COMMIT };
                self.append(end(id, (self.known(id).0 + epoch).max(0), how, known + coordinator))?;
            }
            Step::Write => self.log.write(Timestamp(self.now)).expect("writes"),
            Step::Sync => {
                self.log.write(Timestamp(self.now)).expect("writes");
                self.log.sync().expect("syncs");
                let marks = self.log.marks();
                if marks.synced_stable != marks.last_stable {
                    return Err(format!("all is synced: {marks:?}"));
                }
            }
            Step::Roll => {
                self.log.set_options(LogOptions { segment_ms: i64::MIN, ..options() });
                self.log.maintain(Timestamp(self.now), Offset(0)).expect("keeps house");
            }
            Step::Wait(ms) => self.now += ms,
            Step::Compact { memory_bytes, bound } => self.compact(*memory_bytes, *bound),
            Step::Truncate(part) => {
                self.settle();
                let end = self.log.marks().log_end.0;
                self.log.truncate_front(Offset(end * u64::from(*part) / 256)).expect("truncates");
            }
            Step::Retain(bytes) => {
                self.settle();
                self.log.set_options(LogOptions { retention_bytes: Some((*bytes).into()), ..options() });
                let end = self.log.marks().synced_end;
                self.log.maintain(Timestamp(self.now), end).expect("keeps house");
            }
            Step::Restart { lose_snapshots, lose_indexes } => {
                self.log.write(Timestamp(self.now)).expect("writes");
                self.disk = self.disk.restart();
                // What tells of records that are gone cannot be found in the log.
                if *lose_snapshots && self.log.marks().log_start == Offset(0) {
                    lose(&self.disk, ".snapshot");
                    self.is_bare = true;
                }
                if *lose_indexes {
                    lose(&self.disk, ".index");
                }
                self.log = open(&self.disk);
            }
        }
        self.log.set_options(options());
        Ok(())
    }

    fn append(&mut self, append: Append) -> Result<(), String> {
        let mut header = *append.batch.header();
        if append.check == SequenceCheck::Assigned {
            header.base_sequence = self.history.next_sequence(&header);
        }
        let expected = self.history.judge(&header, append.batch.control());
        let answer = self.log.stage(append, LeaderEpoch(0), Timestamp(self.now));
        if word(&answer) != expected {
            return Err(format!("{}, not {expected}: {header:?}", word(&answer)));
        }
        if let Ok(Appended::Stored(batch)) = answer {
            let parsed = Batch::parse(&mut batch.bytes().clone());
            if parsed.as_ref() != Ok(&batch) || batch.header().base_sequence != header.base_sequence {
                return Err(format!("{parsed:?} was stored, not {batch:?} with {}", header.base_sequence));
            }
            self.history.push(&batch);
        }
        Ok(())
    }

    /// Takes a snapshot if there is none: without one, what was known by records that go is gone with them.
    fn settle(&mut self) {
        if std::mem::take(&mut self.is_bare) {
            self.log.settle().expect("settles");
        }
    }

    /// The epoch of a producer and its next sequence.
    fn known(&self, id: i64) -> (i16, i32) {
        let last = self.history.0.iter().rev().find(|entry| entry.header.producer_id == Some(ProducerId(id)));
        let Some(last) = last else { return (0, 0) };
        let next = match last.marker {
            Some(_) => 0,
            None => last.header.base_sequence.advance(last.header.last_offset_delta + 1).0,
        };
        (last.header.producer_epoch.0, next)
    }

    fn compact(&mut self, memory_bytes: usize, bound: u8) {
        let compaction = options().compaction.map(|options| CompactionOptions { memory_bytes, ..options });
        self.log.set_options(LogOptions { compaction, ..options() });
        self.log.write(Timestamp(self.now)).expect("writes");
        let bound = Offset(self.log.marks().log_end.0 * u64::from(bound) / 255);
        loop {
            let plan = self.log.plan_compaction(Timestamp(self.now), bound, true).expect("plans");
            let Some(plan) = plan else { break };
            let compacted = plan.run(&AtomicBool::new(false)).expect("runs");
            let pass = self.log.install_compacted(compacted).expect("installs").expect("is current");
            assert!(pass.next_dirty <= bound.min(self.log.marks().last_stable), "{pass:?} is beyond");
            self.history.strike_out(pass.next_dirty);
            if pass.is_done {
                break;
            }
        }
    }

    /// What is written, as the history says.
    fn agrees(&self) -> Result<(), String> {
        self.history.lists_open(&self.log)?;
        self.history.until(self.log.marks().log_end).agrees(&self.log)
    }
}

fn names(keys: &[u8]) -> Vec<&'static str> {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    keys.iter().map(|key| NAMES[usize::from(*key)]).collect()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = || prop::collection::vec(0..6_u8, 1..4);
    let mostly = |right: i32| prop_oneof![12 => Just(right), 1 => Just(right - 1), 1 => Just(right + 1)];
    let epoch = |right: i32| mostly(right).prop_map(|epoch| i16::try_from(epoch).expect("small"));
    let data = (1..5_u8, prop::bool::weighted(0.85), epoch(0), mostly(0), keys()).prop_map(
        |(producer, transactional, epoch, sequence, keys)| Step::Data {
            producer,
            transactional,
            epoch,
            sequence,
            keys,
        },
    );
    let assigned =
        (1..5_u8, epoch(0), keys()).prop_map(|(producer, epoch, keys)| Step::Assigned { producer, epoch, keys });
    let end = (1..5_u8, any::<bool>(), epoch(1), mostly(0))
        .prop_map(|(producer, abort, epoch, coordinator)| Step::End { producer, abort, epoch, coordinator });
    let memory_bytes = prop_oneof![Just(0_usize), 100..400_usize, Just(1 << 20)];
    let bound = prop_oneof![3 => Just(255_u8), 1 => any::<u8>()];
    let step = prop_oneof![
        15 => data,
        5 => assigned,
        10 => end,
        2 => keys().prop_map(Step::Plain),
        4 => Just(Step::Write),
        6 => Just(Step::Sync),
        2 => Just(Step::Roll),
        1 => (0..1_500_i64).prop_map(Step::Wait),
        3 => (memory_bytes, bound).prop_map(|(memory_bytes, bound)| Step::Compact { memory_bytes, bound }),
        1 => (0..128_u8).prop_map(Step::Truncate),
        1 => (500..6_000_u16).prop_map(Step::Retain),
        2 => any::<(bool, bool)>()
            .prop_map(|(lose_snapshots, lose_indexes)| Step::Restart { lose_snapshots, lose_indexes }),
    ];
    prop::collection::vec(step, 1..90)
}

/// All records that a plain reader gets.
fn all(log: &PartitionLog) -> Vec<Batch> {
    let marks = log.marks();
    log.reader().read(marks.log_start, usize::MAX, marks.log_end).expect("reads").batches
}

proptest! {
    #[test]
    fn a_log_with_transactions_is_what_all_its_batches_say(steps in steps()) {
        let mut life = Life::new();
        let mut stable = Offset(0);
        for (place, step) in steps.iter().enumerate() {
            let done = life.step(step).and_then(|()| life.agrees());
            prop_assert_eq!(done.map_err(|error| format!("step {place}: {error}")), Ok(()));
            assert!(life.log.marks().last_stable >= stable, "the last stable offset goes back");
            stable = life.log.marks().last_stable;
        }
        // All that is derived may be lost at once.
        life.step(&Step::Sync).expect("syncs");
        let disk = life.disk.restart();
        lose(&disk, ".index");
        if life.log.marks().log_start == Offset(0) {
            lose(&disk, ".snapshot");
        }
        let log = open(&disk);
        prop_assert_eq!(life.history.agrees(&log), Ok(()));
        prop_assert_eq!(all(&log), all(&life.log));
    }
}
