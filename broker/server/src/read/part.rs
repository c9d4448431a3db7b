//! A read of one partition on its way out: its records and the gaps between them, one after the other.

use std::collections::VecDeque;
use std::iter::Peekable;

use levada_api::Gap;
use levada_engine::{Fetched, FetchedRecords};
use levada_log::{RecordRef, RecordsError};
use levada_model::{Offset, PartitionIndex};

use super::rendering::gaps;

/// What is left of a read.
pub(crate) struct Part {
    /// The partition.
    pub(crate) partition: PartitionIndex,
    records: Peekable<FetchedRecords>,
    gaps: VecDeque<Gap>,
    /// Where it stands.
    at: Offset,
    next_offset: Offset,
}

/// What comes next of a read.
pub(crate) enum Front<'p> {
    /// A record.
    Record(&'p RecordRef),
    /// Offsets that cannot be read any more.
    Gap(&'p Gap),
    /// Nothing; holes may end it.
    End,
}

impl Part {
    pub(crate) fn new(mut fetched: Fetched) -> Self {
        let gaps: VecDeque<Gap> = gaps(&fetched).collect();
        let (partition, next_offset) = (fetched.partition, fetched.next_offset);
        let at = gaps.front().map_or(fetched.from, |gap| fetched.from.min(Offset(gap.from)));
        Self { partition, records: fetched.take_records().peekable(), gaps, at, next_offset }
    }

    /// What comes next.
    ///
    /// # Errors
    /// Where a stored batch cannot be taken apart.
    pub(crate) fn front(&mut self) -> Result<Front<'_>, RecordsError> {
        if let Some(Err(error)) = self.records.next_if(Result::is_err) {
            return Err(error);
        }
        let record = self.records.peek().and_then(|record| record.as_ref().ok());
        let until = record.map_or(self.next_offset, |record| record.offset);
        if let Some(gap) = self.gaps.front().filter(|gap| gap.to <= until.0) {
            return Ok(Front::Gap(gap));
        }
        Ok(record.map_or(Front::End, Front::Record))
    }

    /// Goes on behind what comes next, and tells where that is.
    pub(crate) fn pass(&mut self) -> Offset {
        let record = self.records.peek().and_then(|record| record.as_ref().ok());
        let until = record.map_or(self.next_offset, |record| record.offset);
        self.at = match self.gaps.pop_front_if(|gap| gap.to <= until.0) {
            Some(gap) => Offset(gap.to),
            None => self.records.next().map_or(until, |_| until.advance(1)),
        };
        self.at
    }

    /// Offsets that are left.
    pub(crate) fn left(&self) -> u64 {
        self.next_offset.0.saturating_sub(self.at.0)
    }
}
