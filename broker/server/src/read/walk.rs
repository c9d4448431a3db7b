//! The records of a read one by one, each batch unpacked only when its turn comes.

use std::vec;

use levada_engine::Fetched;
use levada_log::{Batch, RecordRef, RecordsError};
use levada_model::TimestampType;

/// Owns what was read, so that an answer can be written piece by piece for as long as its reader takes.
pub(super) struct Records {
    /// What was read, less its batches.
    marks: Fetched,
    batches: vec::IntoIter<Batch>,
    unpacked: vec::IntoIter<RecordRef>,
    timestamp_type: TimestampType,
}

impl Records {
    pub(super) fn new(mut fetched: Fetched) -> Self {
        let batches = std::mem::take(&mut fetched.batches).into_iter();
        let unpacked = Vec::new().into_iter();
        Self { marks: fetched, batches, unpacked, timestamp_type: TimestampType::CreateTime }
    }

    /// What was read besides records.
    pub(super) fn marks(&self) -> &Fetched {
        &self.marks
    }

    /// Unpacks the next batch; false at the end.
    fn unpack(&mut self) -> Result<bool, RecordsError> {
        if self.marks.max_records == 0 {
            return Ok(false);
        }
        let Some(batch) = self.batches.next() else { return Ok(false) };
        self.timestamp_type = batch.header().timestamp_type();
        let one = Fetched { batches: vec![batch], ..self.marks.clone() };
        let records = one.records().collect::<Result<Vec<_>, _>>()?;
        self.marks.max_records -= records.len();
        self.unpacked = records.into_iter();
        Ok(true)
    }
}

impl Iterator for Records {
    type Item = Result<(RecordRef, TimestampType), RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.unpacked.next() {
                return Some(Ok((record, self.timestamp_type)));
            }
            match self.unpack() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
