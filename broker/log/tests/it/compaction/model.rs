//! Any log, compacted in any way, against a naive model: a list of records from which passes strike out some.

use std::collections::HashMap;

use levada_log::BatchHeader;
use levada_model::{Compression, ProducerEpoch, ProducerId, Sequence};
use proptest::prelude::{Just, Strategy, any, prop, proptest};
use proptest::{prop_assert, prop_assert_eq, prop_oneof};

use super::*;

/// One step of a log's life.
#[derive(Clone, Debug)]
enum Step {
    Append(NewRecords),
    /// Later batches are of the next leader epoch.
    NextEpoch,
    Roll,
    Wait(i64),
    /// Forced passes with so much memory until all is clean, below this part of the log (in 256ths).
    Compact {
        memory_bytes: usize,
        bound: u8,
    },
    Truncate(u8),
    /// Kill the process and open the log anew.
    Restart,
}

#[derive(Clone, Debug)]
struct NewRecords {
    compression: Compression,
    producer: Option<u8>,
    append_time: bool,
    /// Key and length of the value; none is a tombstone.
    records: Vec<(u8, Option<u8>)>,
}

/// What a batch still has.
struct ModelBatch {
    header: BatchHeader,
    records: Vec<RecordRef>,
    horizon: Option<i64>,
}

struct Life {
    disk: SimStorage,
    log: PartitionLog,
    model: Vec<ModelBatch>,
    sequences: HashMap<u8, i32>,
    epoch: i32,
    now: i64,
}

impl Life {
    fn new() -> Self {
        let disk = disk();
        let log = open(&disk, options());
        Self { disk, log, model: Vec::new(), sequences: HashMap::new(), epoch: 0, now: 1_000 }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append(new) => self.append(new),
            Step::NextEpoch => self.epoch += 1,
            Step::Roll => {
                self.log.set_options(LogOptions { segment_ms: i64::MIN, ..options() });
                self.log.maintain(Timestamp(self.now), Offset(0)).expect("keeps house");
            }
            Step::Wait(ms) => self.now += ms,
            Step::Compact { memory_bytes, bound } => self.compact(*memory_bytes, *bound),
            Step::Truncate(part) => {
                let end = self.log.marks().log_end.0;
                self.log.truncate_front(Offset(end * u64::from(*part) / 256)).expect("truncates");
            }
            Step::Restart => {
                self.disk = self.disk.restart();
                self.log = open(&self.disk, options());
            }
        }
    }

    fn append(&mut self, new: &NewRecords) {
        let producer = new.producer.map(|id| {
            let next = self.sequences.entry(id).or_default();
            let first = Sequence(*next);
            *next += i32::try_from(new.records.len()).expect("few");
            (ProducerId(id.into()), ProducerEpoch(0), first)
        });
        let head = NewBatch { compression: new.compression, producer, ..NewBatch::default() };
        let mut builder = BatchBuilder::new(head, 0);
        for (place, (key, value)) in new.records.iter().enumerate() {
            let value = value.map(|length| Bytes::from(vec![length; usize::from(length)]));
            let header = levada_model::Header { name: "place".to_owned(), value: Some(vec![*key].into()) };
            let key = Some(format!("key-{key}").into());
            let timestamp = self.now - 7 * i64::try_from(place).expect("few");
            builder.push(Timestamp(timestamp), &Record { key, value, headers: vec![header] });
        }
        let mut batch = builder.finish().expect("packs");
        if new.append_time {
            batch.set_append_time(Timestamp(self.now));
        }
        let append = Append { batch, check: SequenceCheck::Producer, expected_offset: None };
        let epoch = LeaderEpoch(self.epoch);
        let appended = self.log.stage(append, epoch, Timestamp(self.now)).expect("accepted");
        let Appended::Stored(batch) = appended else { panic!("nothing is repeated") };
        self.log.write(Timestamp(self.now)).expect("writes");
        self.log.sync().expect("syncs");
        let records = batch.records().expect("unpacks").map(|record| record.expect("whole")).collect();
        self.model.push(ModelBatch { header: *batch.header(), records, horizon: None });
    }

    fn compact(&mut self, memory_bytes: usize, bound: u8) {
        let compaction = CompactionOptions { memory_bytes, ..compaction() };
        self.log.set_options(LogOptions { compaction: Some(compaction), ..options() });
        let bound = Offset(self.log.marks().log_end.0 * u64::from(bound) / 255);
        loop {
            let Some(plan) = self.log.plan_compaction(Timestamp(self.now), bound, true).expect("plans") else { break };
            let compacted = plan.run(&AtomicBool::new(false)).expect("runs");
            let pass = self.log.install_compacted(compacted).expect("installs").expect("is current");
            assert!(pass.next_dirty <= bound, "{pass:?} is beyond {bound}");
            self.strike_out(pass.next_dirty);
            if pass.is_done {
                break;
            }
        }
    }

    /// What a pass does that knows all keys below `covered`, said the slow way.
    fn strike_out(&mut self, covered: Offset) {
        let all = self.model.iter().flat_map(|batch| &batch.records).filter(|record| record.offset < covered);
        let newest: HashMap<Bytes, Offset> =
            all.map(|record| (record.record.key.clone().expect("a key"), record.offset)).collect();
        for batch in &mut self.model {
            let is_over = batch.horizon.is_some_and(|horizon| horizon <= self.now);
            batch.records.retain(|record| {
                let is_newest = newest.get(record.record.key.as_ref().expect("a key")) == Some(&record.offset);
                record.offset >= covered || is_newest && !(is_over && record.record.value.is_none())
            });
            let has_tombstone = batch.records.iter().any(|record| record.record.value.is_none());
            if has_tombstone && batch.header.next_offset() <= covered {
                batch.horizon.get_or_insert(self.now + compaction().delete_retention_ms);
            }
        }
    }

    /// The log holds what the model holds, and of each batch nothing but records is gone.
    fn agree(&self, log: &PartitionLog) {
        let start = log.marks().log_start;
        let expected: Vec<&RecordRef> =
            self.model.iter().flat_map(|batch| &batch.records).filter(|record| record.offset >= start).collect();
        let found = records(log, start.0);
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        for batch in batches(log, start.0, 1 << 20) {
            let found = *batch.header();
            let model = self.model.iter().find(|batch| batch.header.base_offset == found.base_offset);
            let model = model.expect("no batch is new");
            assert_eq!(found.delete_horizon().map(|horizon| horizon.0), model.horizon, "{found:?}");
            let unchanged = |header: BatchHeader| BatchHeader {
                size_bytes: 0,
                crc: 0,
                record_count: 0,
                attributes: header.attributes & !0x40,
                base_timestamp: Timestamp(0),
                ..header
            };
            assert_eq!(unchanged(found), unchanged(model.header));
        }
        assert_eq!(log.reader().damage(), []);
    }

    /// The last five batches of each producer are known, wherever their records are.
    fn knows_repeats(&self, log: &mut PartitionLog) {
        for id in self.sequences.keys() {
            let id = Some(ProducerId((*id).into()));
            let of_id = self.model.iter().rev().filter(|batch| batch.header.producer_id == id).take(5);
            for batch in of_id {
                let header = batch.header;
                let producer = id.map(|id| (id, ProducerEpoch(0), header.base_sequence));
                let mut builder = BatchBuilder::new(NewBatch { producer, ..NewBatch::default() }, 0);
                (0..=header.last_offset_delta).for_each(|_| builder.push(Timestamp(0), &Record::default()));
                let batch = builder.finish().expect("no codec");
                let append = Append { batch, check: SequenceCheck::Producer, expected_offset: None };
                let appended = log.stage(append, LeaderEpoch(9), Timestamp(self.now)).expect("is known");
                let is_known =
                    matches!(appended, Appended::Duplicate { base_offset, .. } if base_offset == header.base_offset);
                assert!(is_known, "{header:?} is stored again");
            }
        }
    }
}

fn new_records() -> impl Strategy<Value = NewRecords> {
    let compression = prop_oneof![
        3 => Just(Compression::None),
        1 => Just(Compression::Lz4),
        1 => Just(Compression::Zstd),
        1 => Just(Compression::Snappy),
        1 => Just(Compression::Gzip)
    ];
    let record = (0..12_u8, prop::option::weighted(0.8, 0..90_u8));
    let records = prop::collection::vec(record, 1..6);
    let producer = prop::option::weighted(0.4, 0..3_u8);
    (compression, producer, prop::bool::weighted(0.2), records).prop_map(
        |(compression, producer, append_time, records)| NewRecords { compression, producer, append_time, records },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let memory_bytes = prop_oneof![Just(0_usize), 100..1_000_usize, Just(1 << 20)];
    let bound = prop_oneof![3 => Just(255_u8), 1 => any::<u8>()];
    let step = prop_oneof![
        12 => new_records().prop_map(Step::Append),
        1 => Just(Step::NextEpoch),
        1 => Just(Step::Roll),
        1 => (0..1_500_i64).prop_map(Step::Wait),
        3 => (memory_bytes, bound).prop_map(|(memory_bytes, bound)| Step::Compact { memory_bytes, bound }),
        1 => (0..128_u8).prop_map(Step::Truncate),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn of_each_key_the_newest_record_stays_where_it_was_and_nothing_else_changes(steps in steps()) {
        let mut life = Life::new();
        for step in &steps {
            life.step(step);
            life.agree(&life.log);
        }
        // Once more: what is clean stays as it is.
        life.compact(1 << 20, 255);
        life.agree(&life.log);
        let before = records(&life.log, life.log.marks().log_start.0);
        if let Some(plan) = life.log.plan_compaction(Timestamp(life.now), life.log.marks().log_end, true).expect("plans") {
            let compacted = plan.run(&AtomicBool::new(false)).expect("runs");
            let pass = life.log.install_compacted(compacted).expect("installs").expect("is current");
            prop_assert_eq!(pass.before_records, pass.after_records);
            prop_assert!(pass.after_bytes <= pass.before_bytes);
        }
        prop_assert_eq!(records(&life.log, life.log.marks().log_start.0), before);
        // All that is derived may be lost.
        let disk = life.disk.restart();
        for path in disk.paths() {
            if [".index", ".snapshot"].iter().any(|kind| path.ends_with(kind)) {
                disk.remove(&path);
            }
        }
        let mut log = open(&disk, options());
        prop_assert_eq!(log.marks(), life.log.marks());
        life.agree(&log);
        if log.marks().log_start == Offset(0) {
            life.knows_repeats(&mut log);
        }
    }
}
