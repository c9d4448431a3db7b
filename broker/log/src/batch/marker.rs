//! Control batches: the markers that end a transaction in a partition (KIP-98), built and read.
//!
//! One record. Its key says version i16 = 0 and type i16 (0 abort, 1 commit), its value version i16 = 0 and coordinator
//! epoch i32. Not here: who may append one and what it does to its producer.

use std::fmt;

use bytes::{Buf, BufMut};
use levada_model::{ProducerEpoch, ProducerId, Record, Sequence, Timestamp};

use super::records::Walk;
use super::{Batch, BatchBuf, BatchBuilder, BatchHeader, HEADER_BYTES, NewBatch};

const VERSION: i16 = 0;
const ABORT: i16 = 0;
const COMMIT: i16 = 1;
const KEY_BYTES: usize = 4;
const VALUE_BYTES: usize = 6;

/// The term of a transaction coordinator; a higher one fences the lower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoordinatorEpoch(pub i32);

impl fmt::Display for CoordinatorEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionEnd {
    /// Its records count.
    Commit,
    /// Its records do not count.
    Abort,
}

/// What a control batch says: its producer's transaction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Marker {
    /// How.
    pub end: TransactionEnd,
    /// The coordinator that wrote it.
    pub coordinator_epoch: CoordinatorEpoch,
}

impl Marker {
    /// The control batch that ends the transaction of `producer_id`. Under KIP-890 its epoch is higher than that of the
    /// transaction's batches.
    ///
    /// ```
    /// use levada_log::{CoordinatorEpoch, Marker, TransactionEnd};
    /// use levada_model::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};
    ///
    /// let marker = Marker { end: TransactionEnd::Commit, coordinator_epoch: CoordinatorEpoch(3) };
    /// let batch = marker.batch(ProducerId(7), ProducerEpoch(2), Timestamp(0)).stamp(Offset(40), LeaderEpoch(0));
    /// assert_eq!(batch.control(), Some(marker));
    /// ```
    #[must_use]
    pub fn batch(self, producer_id: ProducerId, producer_epoch: ProducerEpoch, timestamp: Timestamp) -> BatchBuf {
        let kind = match self.end {
            TransactionEnd::Abort => ABORT,
            TransactionEnd::Commit => COMMIT,
        };
        let (mut key, mut value) = (Vec::with_capacity(KEY_BYTES), Vec::with_capacity(VALUE_BYTES));
        key.put_i16(VERSION);
        key.put_i16(kind);
        value.put_i16(VERSION);
        value.put_i32(self.coordinator_epoch.0);
        let producer = Some((producer_id, producer_epoch, Sequence(-1)));
        let new = NewBatch { producer, transactional: true, control: true, ..NewBatch::default() };
        let mut builder = BatchBuilder::new(new, KEY_BYTES + VALUE_BYTES);
        builder.push(timestamp, &Record { key: Some(key.into()), value: Some(value.into()), headers: Vec::new() });
        builder.finish().expect("nothing is compressed")
    }
}

impl Batch {
    /// The marker in a control batch; none in another batch, and none in a control batch that is no end of a transaction
    /// (Kafka has others, and a newer version may have other forms).
    #[must_use]
    pub fn control(&self) -> Option<Marker> {
        marker(self.header(), &self.bytes()[HEADER_BYTES..])
    }
}

impl BatchBuf {
    /// As [`Batch::control`].
    #[must_use]
    pub fn control(&self) -> Option<Marker> {
        marker(self.header(), &self.bytes()[HEADER_BYTES..])
    }
}

fn marker(header: &BatchHeader, records: &[u8]) -> Option<Marker> {
    let is_marker = header.is_control() && header.is_transactional() && header.record_count == 1;
    // Markers are never packed.
    if !is_marker || header.compression() != levada_model::Compression::None {
        return None;
    }
    let parts = Walk::new(*header).next(records, |_, _| ())?.ok()?;
    let (mut key, mut value) = (records.get(parts.key?)?, records.get(parts.value?)?);
    let end = match (key.try_get_i16().ok()?, key.try_get_i16().ok()?) {
        (VERSION, ABORT) => TransactionEnd::Abort,
        (VERSION, COMMIT) => TransactionEnd::Commit,
        _ => return None,
    };
    // A later version begins as this one does.
    value.try_get_i16().ok().filter(|version| *version >= VERSION)?;
    Some(Marker { end, coordinator_epoch: CoordinatorEpoch(value.try_get_i32().ok()?) })
}
