//! Any interleaving of producers and readers, against a list of all that was ever stored.

use levada_engine::FetchRequest;
use levada_model::Offset;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop, proptest};
use proptest::prop_oneof;
use serde_json::json;
use tokio::runtime;

use super::*;
use crate::support::{Bench, create, offsets, produce, to};

const PRODUCERS: usize = 3;
const PARTITIONS: u32 = 2;

#[derive(Clone, Debug)]
enum Step {
    Plain { partition: u32, count: usize },
    Send { producer: usize, partitions: Vec<u32>, sequenced: bool },
    End { producer: usize, commits: bool },
    Read { partition: u32, from: u8, max_records: usize, max_bytes: usize, committed: bool },
    Restart { clean: bool },
}

/// What lies at an offset.
#[derive(Clone, Debug)]
struct Entry {
    /// None: a marker.
    value: Option<String>,
    /// Of which transaction it is.
    of: Option<usize>,
}

/// Everything, the naive way.
#[derive(Default)]
struct Model {
    partitions: Vec<Vec<Entry>>,
    /// Outcomes of transactions by number; none while they are open.
    outcomes: Vec<Option<Outcome>>,
}

impl Model {
    fn stable(&self, partition: u32) -> usize {
        let entries = &self.partitions[partition as usize];
        let is_open = |entry: &Entry| entry.value.is_some() && entry.of.is_some_and(|of| self.outcomes[of].is_none());
        entries.iter().position(is_open).unwrap_or(entries.len())
    }

    /// Offsets and values of what counts from an offset on, and the bound.
    fn counting(&self, partition: u32, from: usize, isolation: Isolation) -> (Vec<(u64, String)>, u64) {
        let entries = &self.partitions[partition as usize];
        let bound = if isolation == ReadCommitted { self.stable(partition) } else { entries.len() };
        let counts =
            |entry: &Entry| isolation == ReadUncommitted || entry.of.is_none_or(|of| self.outcomes[of] == Some(COMMIT));
        let found = entries.iter().enumerate().take(bound).skip(from).filter(|(_, entry)| counts(entry));
        let found = found.filter_map(|(offset, entry)| Some((offset as u64, entry.value.clone()?)));
        (found.collect(), bound as u64)
    }
}

/// A producer as its program knows it.
struct Program {
    producer: Producer,
    /// The transaction, its number, and the records that it has in each partition.
    open: Option<(TransactionHandle, usize, Vec<i32>)>,
}

struct Life {
    bench: Bench,
    disk: levada_log::SimStorage,
    engine: Option<Engine>,
    programs: Vec<Program>,
    model: Model,
    count: usize,
}

impl Life {
    async fn new(durability: &str) -> Self {
        let (bench, disk) = Bench::sim();
        let engine = bench.open();
        let config = [("durability", json!(durability)), ("segment.bytes", json!(1_024))];
        create(&engine, "t", PARTITIONS, &config).await;
        let mut programs = Vec::new();
        for id in 0..PRODUCERS {
            let id = TransactionalId::new(&id.to_string()).expect("an id");
            let producer = engine.init_transactional_producer(&me(), &id, 60_000).await.expect("it starts");
            programs.push(Program { producer, open: None });
        }
        let model = Model { partitions: vec![Vec::new(); PARTITIONS as usize], outcomes: Vec::new() };
        Self { bench, disk, engine: Some(engine), programs, model, count: 0 }
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("it runs")
    }

    fn value(&mut self) -> String {
        self.count += 1;
        self.count.to_string()
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Plain { partition, count } => {
                let values: Vec<String> = (0..*count).map(|_| self.value()).collect();
                let records = values.iter().map(|value| to(*partition, value)).collect();
                produce(self.engine(), "t", records).await;
                let entries = values.into_iter().map(|value| Entry { value: Some(value), of: None });
                self.model.partitions[*partition as usize].extend(entries);
            }
            Step::Send { producer, partitions, sequenced } => self.send(*producer, partitions, *sequenced).await,
            Step::End { producer, commits } => self.end(*producer, if *commits { COMMIT } else { ABORT }).await,
            Step::Read { partition, from, max_records, max_bytes, committed } => {
                let isolation = if *committed { ReadCommitted } else { ReadUncommitted };
                let end = self.model.partitions[*partition as usize].len();
                let from = end * usize::from(*from) / 255;
                self.read(*partition, from, *max_records, *max_bytes, isolation).await;
            }
            Step::Restart { clean } => {
                if *clean {
                    self.engine().close().await.expect("closed");
                }
                self.engine = None;
                self.disk = self.disk.restart();
                self.bench = self.bench.with(self.disk.clone());
                self.engine = Some(self.bench.open());
            }
        }
        for partition in 0..PARTITIONS {
            let described = self.engine().describe_topic(&me(), &name("t")).expect("there");
            let marks = &described.partitions[partition as usize];
            let (stable, end) = (marks.last_stable_offset.0, marks.high_watermark.0);
            let entries = &self.model.partitions[partition as usize];
            assert_eq!((stable, end), (self.model.stable(partition) as u64, entries.len() as u64), "{step:?}");
        }
    }

    async fn send(&mut self, producer: usize, partitions: &[u32], sequenced: bool) {
        let values: Vec<_> = partitions.iter().map(|partition| (*partition, self.value())).collect();
        let engine = self.engine().clone();
        let program = &mut self.programs[producer];
        if program.open.is_none() {
            let begun = engine.begin_transaction(&me(), program.producer.id, program.producer.epoch).await;
            let number = self.model.outcomes.len();
            self.model.outcomes.push(None);
            program.open = Some((begun.expect("it begins"), number, vec![0; PARTITIONS as usize]));
        }
        let (transaction, number, counts) = program.open.as_mut().expect("begun above");
        let is_one = partitions.iter().all(|partition| *partition == partitions[0]);
        let sequence = (sequenced && is_one).then(|| Sequence(counts[partitions[0] as usize]));
        let once = Once::Transaction { transaction: *transaction, sequence };
        let records = values.iter().map(|(partition, value)| to(*partition, value)).collect();
        let request = ProduceRequest { once, ..request(records) };
        let produced = engine.produce(&me(), &name("t"), request.clone()).await.expect("taken");
        assert!(!produced.duplicate);
        if sequence.is_some() {
            let again = engine.produce(&me(), &name("t"), request).await.expect("taken");
            assert!(again.duplicate && offsets(&again) == offsets(&produced));
        }
        for (offset, (partition, value)) in offsets(&produced).into_iter().zip(values) {
            counts[partition as usize] += 1;
            let entries = &mut self.model.partitions[partition as usize];
            assert_eq!(offset, entries.len() as u64);
            entries.push(Entry { value: Some(value), of: Some(*number) });
        }
    }

    async fn end(&mut self, producer: usize, outcome: Outcome) {
        let engine = self.engine().clone();
        let program = &mut self.programs[producer];
        let Some((transaction, number, counts)) = program.open.take() else { return };
        program.producer = engine.end_transaction(&me(), transaction, outcome).await.expect("it ends");
        self.model.outcomes[number] = Some(outcome);
        for (entries, _) in self.model.partitions.iter_mut().zip(counts).filter(|(_, count)| *count > 0) {
            entries.push(Entry { value: None, of: Some(number) });
        }
        // The same end again changes nothing.
        engine.end_transaction(&me(), transaction, outcome).await.expect("it has ended so");
    }

    /// Reads from an offset to the end, in answers of some size.
    async fn read(&self, partition: u32, from: usize, max_records: usize, max_bytes: usize, isolation: Isolation) {
        let (expected, bound) = self.model.counting(partition, from, isolation);
        let (mut next, mut found) = (from as u64, Vec::new());
        while next < bound {
            let from = From::Offset(Offset(next));
            let request = FetchRequest { max_records, max_bytes, isolation, ..read_from(from) };
            let fetched = self.engine().fetch(&me(), &name("t"), p(partition), request).await.expect("a read");
            let records = values(&fetched);
            assert!(records.len() <= max_records && fetched.next_offset.0 > next);
            assert!(records.iter().all(|(offset, _)| (next..fetched.next_offset.0).contains(offset)));
            assert!(!records.is_empty() || fetched.next_offset.0 == bound, "it was asked for what there is");
            found.extend(records);
            next = fetched.next_offset.0;
        }
        assert_eq!((found, next.max(bound)), (expected, next), "{isolation:?} of {partition} from {from}");
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let partition = 0..PARTITIONS;
    let producer = 0..PRODUCERS;
    let plain = (partition.clone(), 1..4_usize).prop_map(|(partition, count)| Step::Plain { partition, count });
    let send = (producer.clone(), prop::collection::vec(partition.clone(), 1..4), any::<bool>())
        .prop_map(|(producer, partitions, sequenced)| Step::Send { producer, partitions, sequenced });
    let end = (producer, any::<bool>()).prop_map(|(producer, commits)| Step::End { producer, commits });
    let max_records = prop_oneof![Just(1_usize), 1..5_usize, Just(500)];
    let max_bytes = prop_oneof![Just(1_usize), 80..400_usize, Just(1 << 20)];
    let read = (partition, any::<u8>(), max_records, max_bytes, prop::bool::weighted(0.7)).prop_map(
        |(partition, from, max_records, max_bytes, committed)| Step::Read {
            partition,
            from,
            max_records,
            max_bytes,
            committed,
        },
    );
    let restart = any::<bool>().prop_map(|clean| Step::Restart { clean });
    prop::collection::vec(prop_oneof![3 => plain, 10 => send, 6 => end, 8 => read, 1 => restart], 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn readers_see_what_all_that_was_stored_says(steps in steps(), page_cache in any::<bool>()) {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut life = Life::new(if page_cache { "page-cache" } else { "fsync" }).await;
            for step in &steps {
                life.step(step).await;
            }
            for (partition, isolation) in [(0, ReadCommitted), (1, ReadCommitted), (0, ReadUncommitted)] {
                life.read(partition, 0, 500, 1 << 20, isolation).await;
            }
        });
    }
}
