//! What a step has stored: its forms, and the batch that it becomes.

use levada_coordinator::{CoordinatorRecord, Producer};
use levada_log::{BatchBuf, BatchBuilder, Marker, NewBatch, SequenceCheck};
use levada_model::{Record, Sequence, Timestamp};

/// What one step has stored, as one batch: all of it holds or none does.
///
/// The machine has judged it, and knows of each producer what the log does: it has read the same batches, and remembers them
/// for at least as long. If the log refuses one all the same, or has it already, whoever asked is told so, the machine is
/// forgotten, and the next one has read what the log went by. So nothing is refused for ever as long as nobody has the
/// machine take by itself, at each load, what the log refuses.
#[derive(Debug)]
pub(crate) enum Entry {
    /// Records that hold at once.
    Records(Vec<CoordinatorRecord>),
    /// Records that hold once their transaction is committed; the log gives them their sequence.
    Transactional {
        /// The transaction's producer id and epoch.
        producer: Producer,
        /// At least one.
        records: Vec<CoordinatorRecord>,
    },
    /// The end of a transaction here.
    Marker {
        /// The transaction's producer id with the epoch of the marker.
        producer: Producer,
        /// How it ended, and who says so.
        marker: Marker,
    },
}

impl Entry {
    /// It as a batch, and how the log is to judge that.
    pub(super) fn batch(self, now: Timestamp) -> (BatchBuf, SequenceCheck) {
        let (new, check, records) = match self {
            Self::Marker { producer: Producer { id, epoch }, marker } => {
                return (marker.batch(id, epoch, now), SequenceCheck::Marker);
            }
            Self::Records(records) => (NewBatch::default(), SequenceCheck::Producer, records),
            Self::Transactional { producer: Producer { id, epoch }, records } => {
                let new =
                    NewBatch { producer: Some((id, epoch, Sequence(0))), transactional: true, ..NewBatch::default() };
                (new, SequenceCheck::Assigned, records)
            }
        };
        let mut builder = BatchBuilder::new(new, 0);
        for CoordinatorRecord { key, value } in records {
            builder.push(now, &Record { key: Some(key), value, headers: Vec::new() });
        }
        (builder.finish().expect("compressing nothing does not fail"), check)
    }
}
