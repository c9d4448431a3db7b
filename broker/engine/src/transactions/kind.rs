//! Transactions as a kind of coordinators: their machine, their topic, and the markers that it asks for.

use std::sync::Arc;

use levada_coordinator::{
    Now, TransactionCoordinator, TransactionCounts, TransactionOptions, TransactionStep, WriteMarkers,
};
use levada_model::{ProducerId, Tick, TopicName, TransactionalId, limits};

use super::markers::{MarkerSender, Sent};
use crate::catalog::Catalog;
use crate::coordinators::{CoordinatorFault, CoordinatorHandle, Coordinators, Entry, Kind, Parts, Place, Stored};
use crate::directory::Directory;
use crate::partition::Partition;

/// The kind of the coordinators of transactions.
pub(crate) struct TransactionKind {
    markers: Arc<dyn MarkerSender>,
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
            send(place, markers);
        }
    }
}

impl Transactions {
    /// The coordinators of all transactions.
    pub(crate) fn of(markers: Arc<dyn MarkerSender>, catalog: Arc<Catalog>, directory: Arc<Directory>) -> Self {
        Self::new(TransactionKind { markers }, catalog, directory)
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
        // It may be in one that was not loaded then, and perhaps is by now.
        for coordinator in coordinators {
            let is_known = match coordinator.peek(knows) {
                Some(is_known) => is_known,
                None => coordinator.look(knows).await?,
            };
            if is_known {
                return Ok(Some(coordinator));
            }
        }
        Ok(None)
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
        let transaction = markers.transaction;
        let sending = sender.send(markers);
        drop(sender);
        let Sent { written, failed } = sending.await;
        if !written.is_empty() {
            machine.step(|machine, now, _| machine.markers_written(now, transaction, &written)).await;
        }
        if !failed.is_empty() {
            machine.step(|machine, now, _| machine.markers_failed(now, transaction, &failed)).await;
        }
    });
}
