//! Appends that a partition's owner has accepted and not yet taken: bounded in number and bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use levada_log::{BatchBuf, SequenceCheck};
use levada_model::{Offset, PartitionIndex, Timestamp, limits};
use tokio::sync::oneshot;

use crate::AppendFault;

/// Batches that shall follow one another in one partition.
#[derive(Debug)]
pub(crate) struct NewAppend {
    /// At least one.
    pub(crate) batches: Vec<BatchBuf>,
    /// How to judge the sequences of those that have a producer id.
    pub(crate) check: SequenceCheck,
    /// Store the first only if this is the next offset.
    pub(crate) expected_offset: Option<Offset>,
    /// Whether one of the records has no key, so that a log that is compacted cannot take it.
    pub(crate) keyless: bool,
}

impl NewAppend {
    /// Whether it ends transactions.
    pub(super) fn is_end(&self) -> bool {
        self.check == SequenceCheck::Marker
    }
}

/// Where a batch landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Landed {
    /// Its first record's offset.
    pub(crate) base_offset: Offset,
    /// The broker's time of the append; of a duplicate, that of the first one.
    pub(crate) appended_at: Timestamp,
    /// Whether the broker's time is its records' time.
    pub(crate) append_time: bool,
    /// Whether it was there before.
    pub(crate) duplicate: bool,
}

/// One answer a batch. After the first that is refused none of the same append is stored.
pub(crate) type Landings = Vec<Result<Landed, Arc<AppendFault>>>;

/// An append that waits for its turn.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) append: NewAppend,
    pub(super) size_bytes: usize,
    /// How many offsets it takes.
    pub(super) offsets: u64,
    pub(super) reply: oneshot::Sender<Landings>,
}

impl Pending {
    pub(super) fn new(append: NewAppend) -> (Self, oneshot::Receiver<Landings>) {
        let (reply, answer) = oneshot::channel();
        let size_bytes = append.batches.iter().map(|batch| batch.header().size_bytes).sum();
        let offsets = append.batches.iter().map(|batch| u64::from(batch.header().last_offset_delta) + 1).sum();
        (Self { append, size_bytes, offsets, reply }, answer)
    }

    /// Answers every batch with the same fault. Nobody may be there to hear it.
    pub(super) fn refuse(self, fault: &Arc<AppendFault>) {
        let answer = vec![Err(fault.clone()); self.append.batches.len()];
        drop(self.reply.send(answer));
    }
}

/// What waits for one partition's owner, and who serves it.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Pending>,
    size_bytes: usize,
    offsets: u64,
    /// How many of them end transactions.
    ends: usize,
    /// Someone serves the queue, or is on the way to.
    pub(super) served: bool,
    /// Takes nothing more, and why.
    pub(super) shut: Option<Shut>,
}

/// Why a partition takes no more appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shut {
    /// The engine is closing.
    Closing,
    /// Its topic was deleted.
    Deleted,
    /// It is retiring: it takes the ends of transactions alone.
    Retiring,
    /// It is retiring, empty, and about to go.
    Dropping,
}

impl Shut {
    /// The answer to an append.
    pub(super) fn fault(self, partition: PartitionIndex) -> AppendFault {
        match self {
            Self::Closing => AppendFault::Closing,
            Self::Deleted => AppendFault::TopicDeleted,
            Self::Retiring | Self::Dropping => AppendFault::Retiring(partition),
        }
    }
}

impl Queue {
    /// Takes an append in, or gives it back when too much waits. One append always fits.
    pub(super) fn push(&mut self, pending: Pending) -> Result<(), Pending> {
        let full = self.waiting.len() >= limits::PARTITION_QUEUE_APPENDS_MAX
            || self.size_bytes + pending.size_bytes > limits::PARTITION_QUEUE_BYTES_MAX;
        if full && !self.waiting.is_empty() {
            return Err(pending);
        }
        self.size_bytes += pending.size_bytes;
        self.offsets += pending.offsets;
        self.ends += usize::from(pending.append.is_end());
        self.waiting.push_back(pending);
        Ok(())
    }

    /// Whether one more, of at most half of the bytes, will be taken.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < limits::PARTITION_QUEUE_APPENDS_MAX
            && self.size_bytes <= limits::PARTITION_QUEUE_BYTES_MAX / 2
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes and offsets of all that waits.
    pub(super) fn extent(&self) -> (usize, u64) {
        (self.size_bytes, self.offsets)
    }

    /// Whether something that waits ends a transaction.
    pub(super) fn has_end(&self) -> bool {
        self.ends > 0
    }

    /// All that waits; whoever serves the queue is released if it is nothing.
    pub(super) fn take_group(&mut self) -> Option<VecDeque<Pending>> {
        if self.waiting.is_empty() {
            self.served = false;
            return None;
        }
        (self.size_bytes, self.offsets, self.ends) = (0, 0, 0);
        Some(std::mem::take(&mut self.waiting))
    }

    /// Whether more waits; whoever serves the queue is released if not.
    pub(super) fn has_more(&mut self) -> bool {
        self.served = !self.waiting.is_empty();
        self.served
    }

    /// Whether everything that was accepted has been answered.
    pub(super) fn is_idle(&self) -> bool {
        !self.served && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(size_bytes: usize) -> Pending {
        let append =
            NewAppend { batches: Vec::new(), check: SequenceCheck::Producer, expected_offset: None, keyless: false };
        Pending { size_bytes, ..Pending::new(append).0 }
    }

    #[test]
    fn a_full_queue_gives_the_append_back() {
        let mut queue = Queue::default();
        for _ in 0..limits::PARTITION_QUEUE_APPENDS_MAX {
            assert!(queue.push(pending(1)).is_ok());
        }
        assert!(queue.push(pending(1)).is_err());
        assert_eq!(queue.take_group().expect("much waits").len(), limits::PARTITION_QUEUE_APPENDS_MAX);
        assert!(queue.push(pending(1)).is_ok());
    }

    #[test]
    fn one_append_always_fits_and_a_second_one_beyond_the_bytes_does_not() {
        let mut queue = Queue::default();
        assert!(queue.push(pending(limits::PARTITION_QUEUE_BYTES_MAX + 1)).is_ok());
        assert!(queue.push(pending(1)).is_err());
    }
}
