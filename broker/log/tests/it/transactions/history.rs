//! The naive model: a list of all batches that ever were. Whatever is asked is answered by a walk over all of it.

use std::collections::HashMap;

use bytes::Bytes;
use levada_log::{AbortedTransaction, Batch, BatchHeader, LogReader, Marker, PartitionLog, RecordRef, TransactionEnd};
use levada_model::{Offset, ProducerId, Sequence};

/// Batches that a partition remembers of a producer.
const REMEMBERED: usize = 5;

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) header: BatchHeader,
    pub(super) marker: Option<Marker>,
    /// Those that are left.
    pub(super) records: Vec<RecordRef>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct History(pub(super) Vec<Entry>);

/// What became of the records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Counts,
    Aborted,
    Open,
}

macro_rules! ensure {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err(format!($($words)+));
        }
    };
}

impl Entry {
    pub(super) fn of(batch: &Batch) -> Self {
        let records = match batch.header().is_control() {
            true => Vec::new(),
            false => batch.records().expect("unpacks").map(|record| record.expect("whole")).collect(),
        };
        Self { header: *batch.header(), marker: batch.control(), records }
    }
}

impl History {
    pub(super) fn push(&mut self, batch: &Batch) {
        self.0.push(Entry::of(batch));
    }

    pub(super) fn end(&self) -> Offset {
        self.0.last().map(|entry| entry.header.next_offset()).unwrap_or_default()
    }

    /// The batches below an offset.
    pub(super) fn until(&self, end: Offset) -> Self {
        Self(self.0.iter().filter(|entry| entry.header.base_offset < end).cloned().collect())
    }

    pub(super) fn fate(&self, index: usize) -> Fate {
        let header = &self.0[index].header;
        if !header.is_transactional() {
            return Fate::Counts;
        }
        let later = self.0[index..].iter().filter(|entry| entry.header.producer_id == header.producer_id);
        match later.filter_map(|entry| entry.marker).next().map(|marker| marker.end) {
            None => Fate::Open,
            Some(TransactionEnd::Commit) => Fate::Counts,
            Some(TransactionEnd::Abort) => Fate::Aborted,
        }
    }

    pub(super) fn last_stable(&self, log_start: Offset) -> Offset {
        let open = (0..self.0.len()).find(|index| self.0[*index].marker.is_none() && self.fate(*index) == Fate::Open);
        open.map_or(self.end(), |index| self.0[index].header.base_offset).max(log_start)
    }

    pub(super) fn aborted(&self) -> Vec<AbortedTransaction> {
        let (mut open, mut aborted) = (HashMap::new(), Vec::new());
        for Entry { header, marker, .. } in &self.0 {
            let Some(producer_id) = header.producer_id.filter(|_| header.is_transactional()) else { continue };
            match marker {
                None => {
                    open.entry(producer_id).or_insert(header.base_offset);
                }
                Some(marker) => {
                    let first = open.remove(&producer_id).filter(|_| marker.end == TransactionEnd::Abort);
                    let last_offset = header.base_offset;
                    aborted.extend(first.map(|first_offset| AbortedTransaction {
                        first_offset,
                        last_offset,
                        producer_id,
                    }));
                }
            }
        }
        aborted.sort_unstable();
        aborted
    }

    /// What is to become of a batch, in the words of [`super::word`].
    pub(super) fn judge(&self, new: &BatchHeader, marker: Option<Marker>) -> String {
        let stored = format!("stored at {}", self.end());
        let of_producer: Vec<&Entry> =
            self.0.iter().filter(|entry| entry.header.producer_id == new.producer_id).collect();
        let (Some(_), Some(last)) = (new.producer_id, of_producer.last()) else {
            let is_middle = new.is_transactional() && marker.is_none() && new.base_sequence.0 != 0;
            return if is_middle { "OutOfOrderSequence".to_owned() } else { stored };
        };
        let epoch = last.header.producer_epoch;
        if let Some(marker) = marker {
            if let Some(other) = of_producer.iter().rev().find(|entry| entry.marker.is_some()) {
                let known = other.marker.expect("has one");
                if marker.coordinator_epoch < known.coordinator_epoch {
                    return "CoordinatorFenced".to_owned();
                }
                if other.header.producer_epoch == new.producer_epoch {
                    let is_same = known.end == marker.end;
                    let duplicate = format!("duplicate of {}", other.header.base_offset);
                    return if is_same { duplicate } else { "TransactionEnded".to_owned() };
                }
            }
            return if new.producer_epoch > epoch { stored } else { "ProducerFenced".to_owned() };
        }
        if new.producer_epoch < epoch {
            return "ProducerFenced".to_owned();
        }
        let behind_marker = of_producer.iter().rev().take_while(|entry| entry.marker.is_none());
        let is_open = behind_marker.clone().any(|entry| entry.header.is_transactional());
        if is_open && (!new.is_transactional() || new.producer_epoch > epoch) {
            return "TransactionOpen".to_owned();
        }
        let of_epoch = behind_marker.filter(|entry| entry.header.producer_epoch == new.producer_epoch);
        let newest: Vec<&BatchHeader> = of_epoch.take(REMEMBERED).map(|entry| &entry.header).collect();
        let is_repeat = |old: &&&BatchHeader| {
            (old.base_sequence, old.last_offset_delta) == (new.base_sequence, new.last_offset_delta)
        };
        if let Some(old) = newest.iter().find(is_repeat) {
            return format!("duplicate of {}", old.base_offset);
        }
        let expected = newest.first().map_or(0, |old| old.base_sequence.advance(old.last_offset_delta + 1).0);
        if new.base_sequence.0 == expected { stored } else { "OutOfOrderSequence".to_owned() }
    }

    /// The sequence that a batch of this producer and epoch is to have.
    pub(super) fn next_sequence(&self, new: &BatchHeader) -> Sequence {
        let of_producer = self.0.iter().rev().filter(|entry| entry.header.producer_id == new.producer_id);
        let last = of_producer.take_while(|entry| entry.marker.is_none()).next().map(|entry| &entry.header);
        let last = last.filter(|last| last.producer_epoch == new.producer_epoch);
        last.map_or(Sequence(0), |last| last.base_sequence.advance(last.last_offset_delta + 1))
    }

    /// What a pass does that knows all keys below `covered`: records that count are never older than one of their key that
    /// counts. Those that do not count may go or not.
    pub(super) fn strike_out(&mut self, covered: Offset) {
        let fates: Vec<Fate> = (0..self.0.len()).map(|index| self.fate(index)).collect();
        let counting = self.0.iter().zip(&fates).filter(|(_, fate)| **fate == Fate::Counts);
        let records = counting.flat_map(|(entry, _)| &entry.records).filter(|record| record.offset < covered);
        let newest: HashMap<Bytes, Offset> =
            records.map(|record| (record.record.key.clone().expect("a key"), record.offset)).collect();
        for (entry, fate) in self.0.iter_mut().zip(fates) {
            let is_newest = |record: &RecordRef| newest.get(&record.record.key.clone().expect("a key"));
            entry.records.retain(|record| {
                fate != Fate::Counts || record.offset >= covered || is_newest(record) == Some(&record.offset)
            });
        }
    }

    /// The log is what the history says, by every way to look at it.
    pub(super) fn agrees(&self, log: &PartitionLog) -> Result<(), String> {
        let marks = log.marks();
        ensure!(marks.log_end == self.end(), "ends at {}, not {}", marks.log_end, self.end());
        let stable = self.last_stable(marks.log_start);
        ensure!(marks.last_stable == stable, "last stable {}, not {stable}", marks.last_stable);
        ensure!(marks.synced_stable <= stable, "synced stable {} beyond {stable}", marks.synced_stable);
        let reader = log.reader();
        let starts = [marks.log_start, Offset(marks.log_start.0.midpoint(stable.0))];
        for from in starts {
            for max_bytes in [1, 300, 1 << 20] {
                self.is_read(&reader, from, stable, max_bytes)?;
            }
        }
        self.is_listed(&reader, marks.log_start, marks.log_end)
    }

    /// The log lists the transactions that are open.
    pub(super) fn lists_open(&self, log: &PartitionLog) -> Result<(), String> {
        let open: Vec<(Offset, ProducerId)> =
            log.open_transactions().iter().map(|open| (open.first_offset, open.producer_id)).collect();
        let is_open = |index: &usize| self.0[*index].marker.is_none() && self.fate(*index) == Fate::Open;
        let mut expected: Vec<(Offset, ProducerId)> = Vec::new();
        for index in (0..self.0.len()).filter(is_open) {
            let header = self.0[index].header;
            let id = header.producer_id.expect("a transaction has one");
            if expected.iter().all(|(_, known)| *known != id) {
                expected.push((header.base_offset, id));
            }
        }
        ensure!(open == expected, "open are {open:?}, not {expected:?}");
        Ok(())
    }

    /// Committed records are read as they are, both by who looks each batch up and by who follows the markers as Kafka's
    /// consumers do.
    fn is_read(&self, reader: &LogReader, from: Offset, stable: Offset, max_bytes: usize) -> Result<(), String> {
        let (mut looked_up, mut followed, mut at) = (Vec::new(), Vec::new(), from);
        while at < stable {
            let chunk = reader.read_committed(at, max_bytes, stable).map_err(|error| format!("read: {error}"))?;
            ensure!(chunk.next_offset > at, "a read of {at} below {stable} stands still");
            ensure!(chunk.gaps.is_empty(), "gaps: {:?}", chunk.gaps);
            ensure!(chunk.aborted.is_sorted(), "out of order: {:?}", chunk.aborted);
            let (mut begun, mut waiting) = (Vec::new(), chunk.aborted.as_slice());
            for batch in &chunk.batches {
                let header = batch.header();
                while let Some((first, rest)) =
                    waiting.split_first().filter(|(f, _)| f.first_offset <= header.last_offset())
                {
                    begun.push(first.producer_id);
                    waiting = rest;
                }
                let is_begun = header.producer_id.is_some_and(|id| begun.contains(&id));
                if let Some(marker) = batch.control() {
                    if marker.end == TransactionEnd::Abort {
                        begun.retain(|id| Some(*id) != header.producer_id);
                    }
                    continue;
                }
                let records = Entry::of(batch).records.into_iter().filter(|record| record.offset >= from);
                if !chunk.aborted.iter().any(|aborted| aborted.holds(header)) {
                    looked_up.extend(records.clone());
                }
                if !(header.is_transactional() && is_begun) {
                    followed.extend(records);
                }
            }
            at = chunk.next_offset;
        }
        let entries = self.0.iter().enumerate().filter(|(index, _)| self.fate(*index) == Fate::Counts);
        let expected = entries.flat_map(|(_, entry)| &entry.records);
        let expected: Vec<&RecordRef> =
            expected.filter(|record| from <= record.offset && record.offset < stable).collect();
        for (how, found) in [("looked up", looked_up), ("followed", followed)] {
            let offsets: Vec<u64> = found.iter().map(|record| record.offset.0).collect();
            let right: Vec<u64> = expected.iter().map(|record| record.offset.0).collect();
            ensure!(
                found.iter().collect::<Vec<_>>() == expected,
                "from {from} to {stable} by {max_bytes}, {how}: {offsets:?}, not {right:?}"
            );
        }
        Ok(())
    }

    /// Of any range the list has each transaction whose batches are still there, and no other.
    fn is_listed(&self, reader: &LogReader, start: Offset, end: Offset) -> Result<(), String> {
        let naive = self.aborted();
        let all = reader.read(start, usize::MAX, end).map_err(|error| format!("read: {error}"))?;
        for from in (start.0..end.0).step_by(3).map(Offset) {
            for to in [from.advance(1), from.advance(7), end] {
                let list = reader.aborted(from, to).map_err(|error| format!("aborted: {error}"))?;
                for found in &list {
                    let is_known = naive.iter().any(|known| {
                        (known.producer_id, known.last_offset) == (found.producer_id, found.last_offset)
                            && known.first_offset <= found.first_offset
                    });
                    let is_in = found.first_offset < to && found.last_offset >= from;
                    ensure!(is_known && is_in, "from {from} to {to}: {found:?} is none of {naive:?}");
                }
                let there = all.batches.iter().map(Batch::header).filter(|header| !header.is_control());
                for header in there.filter(|header| from <= header.base_offset && header.base_offset < to) {
                    let is_listed = list.iter().any(|aborted| aborted.holds(header));
                    let is_aborted = naive.iter().any(|aborted| aborted.holds(header));
                    ensure!(is_listed == is_aborted, "from {from} to {to}: {list:?} of {naive:?} for {header:?}");
                }
            }
        }
        Ok(())
    }
}
