//! Reading a coordinator's state from its partition, with bounded memory, and the outcome for all who wait for it.

use std::sync::Arc;

use levada_coordinator::Coordinator;
use levada_log::{ReadError, StorageError};
use levada_model::Offset;
use tokio::sync::watch;

use super::slot::refused;
use super::terms::GroupError;
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

impl From<LoadFault> for GroupError {
    fn from(fault: LoadFault) -> Self {
        match fault {
            LoadFault::Storage(error) => Self::Storage(StorageError {
                operation: error.operation,
                path: error.path.clone(),
                source: error.source.kind().into(),
            }),
            LoadFault::Append(fault) => refused(&fault),
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
            tracing::warn!(?fault, "consumer groups could not be loaded; the next request tries again");
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

/// Lets the machine take in the whole partition; answers where that ended. What cannot be read is reported and left out.
pub(super) async fn replay(partition: &Arc<Partition>, machine: &mut Coordinator) -> Result<Offset, LoadFault> {
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
            tracing::warn!(?gap, partition = %partition.index(), "states of consumer groups were lost to damage");
        }
        for batch in &chunk.batches {
            match batch.records() {
                Ok(records) => records.for_each(|record| take(machine, partition, record)),
                Err(error) => {
                    tracing::warn!(%error, partition = %partition.index(), "a batch of group states cannot be read")
                }
            }
        }
        from = chunk.next_offset;
    }
    Ok(end)
}

fn take(
    machine: &mut Coordinator,
    partition: &Partition,
    record: Result<levada_log::RecordRef, levada_log::RecordsError>,
) {
    let taken = record.map_err(|error| error.to_string()).and_then(|record| {
        let record = record.record;
        machine.replay(record.key.as_deref().unwrap_or_default(), record.value.as_deref())
    });
    if let Err(error) = taken {
        tracing::warn!(%error, partition = %partition.index(), "a state of a consumer group cannot be read");
    }
}
