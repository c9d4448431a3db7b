//! Transactions as a kind of coordinators: their machine, their topic, and the markers that it asks for.

use std::sync::Arc;

use levada_coordinator::{
    Now, TransactionCoordinator, TransactionCounts, TransactionOptions, TransactionStep, WriteMarkers,
};
use levada_model::{ProducerEpoch, ProducerId, Tick, TopicName, TransactionalId, limits};

use super::markers::{MarkerSender, Sent};
use super::participants::Known;
use crate::catalog::Catalog;
use crate::coordinators::{CoordinatorFault, CoordinatorHandle, Coordinators, Entry, Kind, Parts, Place, Stored};
use crate::directory::Directory;
use crate::partition::Partition;

/// The kind of the coordinators of transactions.
pub(crate) struct TransactionKind {
    markers: Arc<dyn MarkerSender>,
    pub(super) known: Known,
}

/// The coordinators of transactions.
pub(crate) type Transactions = Coordinators<TransactionKind>;

/// A handle to one of them.
pub(super) type TransactionsCoordinator = CoordinatorHandle<TransactionKind>;

impl Kind for TransactionKind {
    type Machine = TransactionCoordinator;
    type Step<T> = TransactionStep<T>;
    type Watched = TransactionalId;
    type Effects = (Vec<WriteMarkers>, TransactionCounts);

    const WHAT: &'static str = "transactions";
    const PARTITIONS: u32 = limits::TRANSACTION_STATE_PARTITIONS;
    const FOLLOWS_TOPICS: bool = false;

    fn topic() -> TopicName {
        TopicName::new("__transaction_state").expect("the name keeps the rule")
    }

    fn machine(&self, partition: &Partition) -> TransactionCoordinator {
        TransactionCoordinator::new(TransactionOptions {
            partition: partition.index(),
            coordinator_epoch: partition.leader_epoch().0,
            id_expiration_ms: limits::TRANSACTIONAL_ID_EXPIRATION_MS,
            execute_answer_ms: limits::EXECUTE_ANSWER_MS,
            marker_retry_ms: limits::MARKER_RETRY_MS,
        })
    }

    fn replay(machine: &mut TransactionCoordinator, stored: Stored<'_>) -> Result<(), String> {
        match stored {
            Stored::Record { transaction: None, key, value, .. } => machine.replay(key, value),
            Stored::Record { .. } | Stored::Marker { .. } => {
                Err("what is known of transactions is not part of one".to_owned())
            }
        }
    }

    fn loaded(machine: &mut TransactionCoordinator, now: Now) -> TransactionStep<()> {
        machine.loaded(now)
    }

    fn next_due(machine: &TransactionCoordinator) -> Option<Tick> {
        machine.next_due()
    }

    fn tick(machine: &mut TransactionCoordinator, now: Now, _: &Catalog) -> TransactionStep<()> {
        machine.tick(now)
    }

    fn parts<T>(step: TransactionStep<T>) -> Parts<T, Self> {
        let TransactionStep { answer, records, markers, completed, counts } = step;
        Parts {
            answer,
            entry: (!records.is_empty()).then_some(Entry::Records(records)),
            news: completed,
            effects: (markers, counts),
        }
    }

    fn follow(place: &Place<'_, Self>, (markers, counts): Self::Effects) {
        let counters = place.coordinators().counters();
        counters.transactions_begun.add(counts.begun);
        counters.transactions_committed.add(counts.committed);
        counters.transactions_aborted.add(counts.aborted);
        counters.transactions_timed_out.add(counts.timed_out);
        for markers in markers {
            place.coordinators().kind().known.forget(markers.transaction);
            send(place, markers);
        }
    }
}

impl Transactions {
    /// The coordinators of all transactions.
    pub(crate) fn of(markers: Arc<dyn MarkerSender>, catalog: Arc<Catalog>, directory: Arc<Directory>) -> Self {
        Self::new(TransactionKind { markers, known: Known::default() }, catalog, directory)
    }

    /// The coordinator that knows a producer, if one does.
    pub(super) async fn coordinator_of_producer(
        self: &Arc<Self>,
        id: ProducerId,
    ) -> Result<Option<TransactionsCoordinator>, CoordinatorFault> {
        let coordinators = self.all();
        let knows = |machine: &TransactionCoordinator| machine.knows_producer(id);
        if let Some(known) = coordinators.iter().find(|coordinator| coordinator.peek(knows) == Some(true)) {
            return Ok(Some(known.clone()));
        }
        // It may be in one that is not loaded, or was not a moment ago. One that cannot be loaded need not be the one.
        let mut fault = None;
        for coordinator in coordinators {
            match coordinator.glance(knows).await {
                Ok(true) => return Ok(Some(coordinator)),
                Ok(false) => {}
                Err(error) => fault = Some(error),
            }
        }
        fault.map_or(Ok(None), Err)
    }

    /// How many transactions are open or being ended; those whose coordinator is being loaded are not among them.
    pub(crate) fn open_count(&self) -> u64 {
        self.peek(TransactionCoordinator::open_count).map(|count| count as u64).sum()
    }
}

/// Has markers written once the outcome is durable that they tell, and the machine told what became of them.
fn send(place: &Place<'_, TransactionKind>, markers: WriteMarkers) {
    let coordinators = Arc::downgrade(place.coordinators());
    let (receipt, machine) = (place.receipt(), place.same_machine());
    place.runtime().spawn(async move {
        // Where it is not durable the coordinator is loaded anew, and goes by what its log says.
        if receipt.durable().await.is_err() {
            return;
        }
        let Some(sender) = coordinators.upgrade().map(|coordinators| coordinators.kind().markers.clone()) else {
            return;
        };
        let (transaction, goes_on) = (markers.transaction, markers.producer_epoch < ProducerEpoch(i16::MAX));
        let sending = sender.send(markers);
        drop(sender);
        let Sent { written, failed } = sending.await;
        if !written.is_empty() {
            // That it has ended follows from its outcome and its markers, which are durable. But a new producer id is known
            // by its record alone.
            let written = |machine: &mut TransactionCoordinator, now, _: &Catalog| {
                machine.markers_written(now, transaction, &written)
            };
            if goes_on {
                machine.step_deferred(written).await;
            } else {
                machine.step(written).await;
            }
        }
        if !failed.is_empty() {
            machine.step(|machine, now, _| machine.markers_failed(now, transaction, &failed)).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use std::future::{Future, ready};
    use std::pin::Pin;

    use levada_coordinator::{Outcome, Participants, Progress, TransactionHandle};
    use levada_extension::TopicPartition;
    use levada_log::SimStorage;
    use levada_model::{ManualClock, PartitionIndex, Principal, Timestamp, TopicId};
    use parking_lot::Mutex;
    use uuid::Uuid;

    use super::*;
    use crate::{Engine, TransactionError, testing};

    /// Takes down what it is given, and writes what it may.
    #[derive(Default)]
    struct Planted {
        given: Mutex<Vec<WriteMarkers>>,
        refused: Mutex<Participants>,
    }

    impl MarkerSender for Planted {
        fn send(&self, markers: WriteMarkers) -> Pin<Box<dyn Future<Output = Sent> + Send>> {
            let refused = self.refused.lock().partitions.clone();
            let mut sent = Sent::default();
            for partition in &markers.participants.partitions {
                let participants = if refused.contains(partition) { &mut sent.failed } else { &mut sent.written };
                participants.partitions.insert(*partition);
            }
            self.given.lock().push(markers);
            Box::pin(ready(sent))
        }
    }

    fn open() -> (Engine, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp(1)));
        (open_on(&SimStorage::new(clock.clone()), &clock), clock)
    }

    fn open_on(disk: &SimStorage, clock: &Arc<ManualClock>) -> Engine {
        testing::open_on(Arc::new(disk.clone()), clock.clone())
    }

    fn at(partition: u32) -> TopicPartition {
        TopicPartition { topic: TopicId(Uuid::nil()), partition: PartitionIndex(partition) }
    }

    /// A transaction of an id with some partitions, of coordinators with a sender of the test's.
    async fn begun(
        engine: &Engine,
        id: &TransactionalId,
        planted: &Arc<Planted>,
    ) -> (Arc<Transactions>, TransactionsCoordinator, TransactionHandle) {
        let core = &engine.core;
        // The engine's own have nothing loaded, so these are alone in the log.
        let transactions = Arc::new(Transactions::of(planted.clone(), core.catalog.clone(), core.directory.clone()));
        let topic = core.ensure_coordinators::<TransactionKind>().await.expect("created");
        let coordinator = transactions.by_key_in(&topic, id.as_str());
        let started = coordinator.step(|machine, now, _| machine.init(now, id, 10_000, Some(ProducerId(5))));
        let Ok(Progress::Done(producer)) = started.await.expect("durable") else { panic!("it starts") };
        let begun = coordinator.step(|machine, now, _| machine.begin(now, producer.id, producer.epoch, None));
        let transaction = begun.await.expect("durable").expect("it begins");
        let partitions = [at(0), at(1), at(2)];
        let added = coordinator.step(|machine, now, _| machine.add_partitions(now, transaction, &partitions));
        added.await.expect("durable").expect("added");
        (transactions, coordinator, transaction)
    }

    async fn until(holds: impl Fn() -> bool) {
        while !holds() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn markers_carry_the_coordinators_epoch_and_come_again_to_those_who_have_none() {
        let (engine, clock) = open();
        let planted = Arc::new(Planted::default());
        let id = TransactionalId::new("a").expect("an id");
        let (transactions, coordinator, transaction) = begun(&engine, &id, &planted).await;
        planted.refused.lock().partitions.insert(at(1));
        assert!(planted.given.lock().is_empty());

        let ended = coordinator.step(|machine, now, _| machine.end(now, transaction, Outcome::Commit));
        assert!(matches!(ended.await.expect("durable"), Ok(Progress::Wait(_))));
        let missing = || coordinator.peek(|machine| machine.transaction(&id, 10)?.markers_missing).flatten();
        until(|| missing() == Some(1)).await;
        let given = std::mem::take(&mut *planted.given.lock());
        assert_eq!(given.len(), 1);
        let topic = engine.core.catalog.get(&TransactionKind::topic()).expect("created");
        let epoch = topic.state().partition(transaction.coordinator).expect("there").leader_epoch();
        assert_eq!((given[0].outcome, given[0].coordinator_epoch), (Outcome::Commit, epoch.0));
        assert_eq!((given[0].transaction, given[0].participants.partitions.len()), (transaction, 3));

        for _ in 0..3 {
            clock.advance(limits::MARKER_RETRY_MS.cast_signed() - 1);
            transactions.tick();
            tokio::task::yield_now().await;
            assert!(planted.given.lock().is_empty(), "too early");
            clock.advance(1);
            until(|| {
                transactions.tick();
                !planted.given.lock().is_empty()
            })
            .await;
            let given = std::mem::take(&mut *planted.given.lock());
            assert_eq!(given[0].participants.partitions, [at(1)].into());
            until(|| {
                coordinator
                    .peek(TransactionCoordinator::next_due)
                    .flatten()
                    .is_some_and(|due| due.0 == transactions.now().tick.0 + limits::MARKER_RETRY_MS)
            })
            .await;
        }
        planted.refused.lock().partitions.clear();
        clock.advance(limits::MARKER_RETRY_MS.cast_signed());
        transactions.tick();
        until(|| transactions.open_count() == 0).await;
        let ended = coordinator.step(|machine, now, _| machine.end(now, transaction, Outcome::Commit));
        assert!(matches!(ended.await.expect("durable"), Ok(Progress::Done(_))));
    }
    #[tokio::test]
    async fn a_coordinator_that_cannot_be_loaded_hides_only_what_it_keeps() {
        let clock = Arc::new(ManualClock::at(Timestamp(1)));
        let (disk, who) = (SimStorage::new(clock.clone()), Principal::anonymous());
        let engine = open_on(&disk, &clock);
        let mut open = Vec::new();
        for number in 0.. {
            let id = TransactionalId::new(&format!("p{number}")).expect("an id");
            let producer = engine.init_transactional_producer(&who, &id, 10_000).await.expect("it starts");
            let transaction = engine.begin_transaction(&who, producer.id, producer.epoch).await.expect("it begins");
            engine.core.transactions.add_partitions(transaction, &[at(0)]).await.expect("added");
            open.push((transaction, producer));
            if open.iter().any(|(other, _)| other.coordinator != transaction.coordinator) {
                break;
            }
        }
        // What was written a moment ago is not read from the disk.
        drop(engine);
        let engine = open_on(&disk, &clock);
        let list = async || engine.transactions(&who, None, 10).await;
        let whole = list().await.expect("a list");
        assert_eq!((whole.transactions.len(), whole.unread), (open.len(), 0));

        disk.fail_reads(true);
        let (lost, of_lost) = open.pop().expect("two at least");
        let broken = engine.core.transactions.by_index(lost.coordinator).expect("the topic is there");
        let breaks =
            tokio::spawn(
                async move { broken.step(|_, _, _| -> TransactionStep<()> { panic!("a planted bug") }).await },
            );
        assert!(breaks.await.expect_err("it panics").is_panic());
        let partial = list().await.expect("a list");
        assert_eq!((partial.transactions.len(), partial.unread), (open.len(), 1));
        // Nor does it keep the others' producers from what they do.
        for (transaction, producer) in &open {
            let again = engine.begin_transaction(&who, producer.id, producer.epoch).await;
            assert_eq!(again.expect("it is known"), *transaction);
        }
        let unknown = engine.begin_transaction(&who, of_lost.id, of_lost.epoch).await;
        assert!(matches!(unknown, Err(TransactionError::Storage(_))), "it may be there: {unknown:?}");
        disk.fail_reads(false);
        assert_eq!(list().await.expect("a list").unread, 0);
        engine.begin_transaction(&who, of_lost.id, of_lost.epoch).await.expect("it is there");
    }
}
