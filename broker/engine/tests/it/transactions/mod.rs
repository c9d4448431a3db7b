//! Transactions in partitions and groups: what is stored, who sees what of it, and how far readers come.

mod coordinator;
mod edges;
mod groups;
mod model;
mod power_cut;
mod produce;
mod reading;
mod stability;
mod undecided;

use levada_coordinator::{Outcome, Producer, TransactionHandle};
use levada_engine::Isolation::{ReadCommitted, ReadUncommitted};
use levada_engine::{Engine, Fetched, From, Isolation, Once, ProduceRecord, ProduceRequest, Produced};
use levada_model::{Sequence, TransactionalId};

use crate::support::{me, name, p, read_from, request, values};

const COMMIT: Outcome = Outcome::Commit;
const ABORT: Outcome = Outcome::Abort;

/// A producer of transactions, and the one that it has open.
struct Transactor {
    engine: Engine,
    producer: Producer,
    open: Option<TransactionHandle>,
}

impl Transactor {
    async fn start(engine: &Engine, id: &str) -> Self {
        let id = TransactionalId::new(id).expect("an id");
        let producer = engine.init_transactional_producer(&me(), &id, 60_000).await.expect("it starts");
        Self { engine: engine.clone(), producer, open: None }
    }

    /// The transaction that is open; one begins if there is none.
    async fn begin(&mut self) -> TransactionHandle {
        if self.open.is_none() {
            let begun = self.engine.begin_transaction(&me(), self.producer.id, self.producer.epoch).await;
            self.open = Some(begun.expect("it begins"));
        }
        self.open.expect("begun above")
    }

    /// Stores records in the transaction; the partitions give the sequences.
    async fn send(&mut self, topic: &str, records: Vec<ProduceRecord>) -> Produced {
        let once = Once::Transaction { transaction: self.begin().await, sequence: None };
        let request = ProduceRequest { once, ..request(records) };
        self.engine.produce(&me(), &name(topic), request).await.expect("the request is taken")
    }

    /// The same with a sequence.
    async fn send_at(&mut self, topic: &str, sequence: i32, records: Vec<ProduceRecord>) -> Produced {
        let once = Once::Transaction { transaction: self.begin().await, sequence: Some(Sequence(sequence)) };
        let request = ProduceRequest { once, ..request(records) };
        self.engine.produce(&me(), &name(topic), request).await.expect("the request is taken")
    }

    async fn end(&mut self, outcome: Outcome) {
        let open = self.open.take().expect("one is open");
        self.producer = self.engine.end_transaction(&me(), open, outcome).await.expect("it ends");
    }
}

/// One read of partition 0.
async fn read(engine: &Engine, topic: &str, from: From, isolation: Isolation) -> Fetched {
    let request = levada_engine::FetchRequest { isolation, ..read_from(from) };
    engine.fetch(&me(), &name(topic), p(0), request).await.expect("a read")
}

/// Values of all that one read of partition 0 from its start gives, where to go on, and the marks.
async fn seen(engine: &Engine, topic: &str, isolation: Isolation) -> (Vec<String>, u64) {
    let fetched = read(engine, topic, From::Earliest, isolation).await;
    (texts(&fetched), fetched.next_offset.0)
}

fn texts(fetched: &Fetched) -> Vec<String> {
    values(fetched).into_iter().map(|(_, value)| value).collect()
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Log start, last stable offset and high watermark of partition 0, each not beyond the next.
fn marks(engine: &Engine, topic: &str) -> (u64, u64, u64) {
    let described = engine.describe_topic(&me(), &name(topic)).expect("it is there");
    let partition = &described.partitions[0];
    let (start, stable, end) =
        (partition.log_start_offset.0, partition.last_stable_offset.0, partition.high_watermark.0);
    assert!(start <= stable && stable <= end, "{start}, {stable}, {end}");
    (start, stable, end)
}
