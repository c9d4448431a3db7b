//! A stand-in for the coordinators, until they are there: it knows no transaction, and ends those that partitions have.

use std::sync::Arc;

use levada_coordinator::{Outcome, Producer, TransactionHandle};
use levada_extension::TopicPartition;
use levada_log::{CoordinatorEpoch, Marker, SequenceCheck, TransactionEnd};
use levada_model::ProducerEpoch;

use super::TransactionError;
use crate::engine::Core;
use crate::partition::{NewAppend, Partition};

#[derive(Default)]
pub(crate) struct Transactions;

impl Transactions {
    pub(crate) async fn add_partitions(
        &self,
        _: TransactionHandle,
        _: &[TopicPartition],
    ) -> Result<(), TransactionError> {
        Ok(())
    }
}

/// Ends a transaction wherever it is open.
pub(super) async fn end(core: &Core, transaction: TransactionHandle, outcome: Outcome) -> Producer {
    let next = ProducerEpoch(transaction.producer_epoch.0 + 1);
    let end = match outcome {
        Outcome::Commit => TransactionEnd::Commit,
        Outcome::Abort => TransactionEnd::Abort,
    };
    let topics: Vec<_> = core.catalog.topics().iter().cloned().collect();
    let states: Vec<_> = topics.iter().map(|topic| topic.state_full()).collect();
    let partitions: Vec<Arc<Partition>> = states.iter().flat_map(|state| state.partitions().cloned()).collect();
    for partition in partitions.iter().filter(|partition| partition.has_open(transaction.producer_id)) {
        let marker = Marker { end, coordinator_epoch: CoordinatorEpoch(0) };
        let batches = vec![marker.batch(transaction.producer_id, next, core.directory.now())];
        let append = NewAppend { batches, check: SequenceCheck::Marker, expected_offset: None, keyless: false };
        let answer = partition.push(append).expect("taken");
        crate::produce::landing(answer).await.expect("stored");
    }
    Producer { id: transaction.producer_id, epoch: next }
}
