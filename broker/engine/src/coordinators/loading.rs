//! Reading a coordinator's state from its partition, with bounded memory, and the outcome for all who wait for it.

use std::sync::Arc;

use levada_coordinator::Producer;
use levada_log::{Batch, BatchHeader, ReadError, StorageError};
use levada_model::Offset;
use tokio::sync::watch;

use super::fault::CoordinatorFault;
use super::kind::{Kind, Stored};
use crate::partition::Partition;
use crate::{AppendFault, Isolation};

/// Stored bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Why a coordinator was not loaded.
#[derive(Clone, Debug)]
pub(super) enum LoadFault {
    /// Its log cannot be read.
    Storage(Arc<StorageError>),
    /// Its first records were not taken.
    Append(Arc<AppendFault>),
    /// The engine is gone.
    Closing,
}

impl From<LoadFault> for CoordinatorFault {
    fn from(fault: LoadFault) -> Self {
        match fault {
            LoadFault::Storage(error) => Self::Storage(StorageError {
                operation: error.operation,
                path: error.path.clone(),
                source: error.source.kind().into(),
            }),
            LoadFault::Append(fault) => Self::from(&*fault),
            LoadFault::Closing => Self::Closing,
        }
    }
}

/// A load that is under way, or has failed.
#[derive(Clone)]
pub(super) struct Loading(watch::Receiver<Option<Result<(), LoadFault>>>);

/// Whoever loads says here what came of it.
pub(super) struct Outcome(watch::Sender<Option<Result<(), LoadFault>>>);

/// A load that begins now.
pub(super) fn begin() -> (Outcome, Loading) {
    let (sender, receiver) = watch::channel(None);
    (Outcome(sender), Loading(receiver))
}

impl Outcome {
    pub(super) fn send(self, outcome: Result<(), LoadFault>) {
        if let Err(fault) = &outcome {
            tracing::warn!(?fault, "a coordinator could not be loaded; the next request tries again");
        }
        self.0.send_replace(Some(outcome));
    }
}

impl Loading {
    /// Comes back when the load is over.
    pub(super) async fn outcome(&mut self) -> Result<(), LoadFault> {
        match self.0.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().expect("waited for"),
            // The task is gone with its runtime, or has panicked.
            Err(_) => Err(LoadFault::Closing),
        }
    }

    /// Whether it is over and the coordinator is not there.
    pub(super) fn has_failed(&self) -> bool {
        self.0.borrow().is_some() || self.0.has_changed().is_err()
    }
}

/// Lets the machine take in the whole partition, up to its high watermark: also what is part of a transaction that has not
/// ended yet. Answers where that ended. What cannot be read is reported and left out.
pub(super) async fn replay<K: Kind>(partition: &Arc<Partition>, machine: &mut K::Machine) -> Result<Offset, LoadFault> {
    let end = partition.high_watermark();
    let mut from = partition.log_start();
    while from < end {
        let chunk = partition.read(from, READ_BYTES, end, Isolation::ReadUncommitted).await;
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(ReadError::Storage(error)) => return Err(LoadFault::Storage(Arc::new(error))),
            // The log start has moved meanwhile.
            Err(ReadError::BelowStart { log_start, .. }) => {
                from = log_start;
                continue;
            }
            Err(ReadError::BeyondEnd { .. }) => unreachable!("the end is the partition's own mark"),
        };
        for gap in &chunk.gaps {
            tracing::warn!(?gap, partition = %partition.index(), "states of {} were lost to damage", K::WHAT);
        }
        for batch in &chunk.batches {
            if let Err(error) = take::<K>(machine, partition, batch) {
                tracing::warn!(%error, partition = %partition.index(), "a batch of {} cannot be read", K::WHAT);
            }
        }
        from = chunk.next_offset;
    }
    Ok(end)
}

/// Lets the machine take in one batch.
fn take<K: Kind>(machine: &mut K::Machine, partition: &Partition, batch: &Batch) -> Result<(), String> {
    let header = batch.header();
    if header.is_control() {
        let (producer, marker) =
            producer(header).zip(batch.control()).ok_or("it is a control batch of an unknown kind")?;
        return K::replay(machine, Stored::Marker { producer, marker });
    }
    let transaction = producer(header).filter(|_| header.is_transactional());
    for record in batch.records().map_err(|error| error.to_string())? {
        let taken = record.map_err(|error| error.to_string()).and_then(|record| {
            let record = record.record;
            let key = record.key.as_deref().unwrap_or_default();
            K::replay(machine, Stored::Record { transaction, key, value: record.value.as_deref() })
        });
        if let Err(error) = taken {
            tracing::warn!(%error, partition = %partition.index(), "a state of {} cannot be read", K::WHAT);
        }
    }
    Ok(())
}

fn producer(header: &BatchHeader) -> Option<Producer> {
    header.producer_id.map(|id| Producer { id, epoch: header.producer_epoch })
}
