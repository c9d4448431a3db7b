//! How much may come of one call's records. An answer that names its input costs a module a byte and the broker the whole
//! record, so what comes of an answer is counted here before it is made, and nobody makes records of verdicts without it.

use bytes::Bytes;
use levada_model::{Header, Record, Timestamp, limits};

use super::{EmittedRecord, Verdict};
use crate::{AnswerError, CallBatch, ModuleFault};

/// What a record takes beside its parts: itself, its place and its time.
const RECORD_BYTES: usize = size_of::<(Record, [Timestamp; 4])>();
/// What a header takes beside its name and value: itself, and its name's place in memory.
const HEADER_BYTES: usize = size_of::<Header>() + 16;

/// The room that is left for what comes of one call's records, counted as it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputRoom {
    records: usize,
    bytes: usize,
}

impl OutputRoom {
    /// Takes room for what comes of `input`, the record in place `item` of the call. Nothing is taken where that fails.
    ///
    /// # Errors
    /// [`AnswerError::TooMany`] when there is not so much room.
    pub fn take(&mut self, item: usize, input: &Record, verdict: &Verdict) -> Result<(), AnswerError> {
        let (records, bytes) = match verdict {
            Verdict::Drop | Verdict::Reject(_) => (0, 0),
            Verdict::Pass => (1, held_bytes(input)),
            Verdict::Emit(emitted) => (emitted.len(), emitted.iter().map(|emitted| held_instead(emitted, input)).sum()),
        };
        let left = |left: usize, wanted: usize, max: usize, part| {
            let got = (max - left).saturating_add(wanted);
            left.checked_sub(wanted).ok_or(AnswerError::TooMany { item, part, got, max })
        };
        let max = Self::default();
        *self = Self {
            records: left(self.records, records, max.records, "records in all")?,
            bytes: left(self.bytes, bytes, max.bytes, "bytes of records in all")?,
        };
        Ok(())
    }
}

impl Default for OutputRoom {
    /// What one call may have.
    fn default() -> Self {
        Self { records: limits::REQUEST_RECORDS_MAX, bytes: limits::MODULE_OUTPUT_BYTES_MAX }
    }
}

/// That what comes of all records of a call has room.
///
/// # Errors
/// At the first record for which there is none, or that is malformed.
pub fn check_outputs(batch: &CallBatch, verdicts: &[Verdict]) -> Result<(), ModuleFault> {
    let mut room = OutputRoom::default();
    for (item, (record, verdict)) in batch.records().zip(verdicts).enumerate() {
        room.take(item, &record?.to_record()?, verdict)?;
    }
    Ok(())
}

fn held_bytes(Record { key, value, headers }: &Record) -> usize {
    held(key.as_ref(), value.as_ref(), headers)
}

fn held_instead(emitted: &EmittedRecord, input: &Record) -> usize {
    let (key, value) = (emitted.key.as_ref().or_else(|| &input.key), emitted.value.as_ref().or_else(|| &input.value));
    held(key.as_ref(), value.as_ref(), emitted.headers.as_ref().or_else(|| &input.headers))
}

fn held(key: Option<&Bytes>, value: Option<&Bytes>, headers: &[Header]) -> usize {
    let header = |header: &Header| HEADER_BYTES + header.name.len() + header.value.as_ref().map_or(0, Bytes::len);
    RECORD_BYTES + key.map_or(0, Bytes::len) + value.map_or(0, Bytes::len) + headers.iter().map(header).sum::<usize>()
}
