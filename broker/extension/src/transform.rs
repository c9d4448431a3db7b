//! What becomes of records: as a step of a processor, as a filter of a read, as a validator of what is produced.

mod json_filter;
mod outputs;

use bytes::Bytes;
use levada_model::{Header, Record, Timestamp};

use crate::{CallBatch, ModuleFault};

pub use json_filter::{JsonFilter, JsonTest};
pub use outputs::{OutputRoom, check_outputs};

/// Judges records.
///
/// Duties: an answer has a verdict for each record of the batch, in order; a record's verdict depends on nothing but the
/// record and the call's moment, since whoever asks forms batches as it likes and asks again in smaller ones; equal calls
/// have equal answers. Whoever asks checks the answer with [`check_verdicts`](crate::check_verdicts), and takes room for what
/// comes of it from an [`OutputRoom`] before it makes that.
pub trait Transform: Send + Sync {
    /// The verdicts.
    ///
    /// # Errors
    /// When there is no answer for the batch. One record may be the cause: smaller batches find it.
    fn transform(&self, batch: &CallBatch) -> Result<Verdicts, ModuleFault>;
}

/// What becomes of the records of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdicts {
    /// The places of those that pass, ascending; the others are dropped.
    Keep(Vec<u32>),
    /// One for each record.
    Each(Vec<Verdict>),
}

impl Verdicts {
    /// One by one, for a batch of this many records. The verdicts must be checked.
    #[must_use]
    pub fn into_each(self, count: usize) -> Vec<Verdict> {
        match self {
            Self::Each(each) => each,
            Self::Keep(places) => {
                let mut each = vec![Verdict::Drop; count];
                places.iter().for_each(|place| each[*place as usize] = Verdict::Pass);
                each
            }
        }
    }
}

/// What becomes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on as it is.
    Pass,
    /// It goes no further.
    Drop,
    /// These take its place, in order.
    Emit(Vec<EmittedRecord>),
    /// It is wrong, and why.
    Reject(String),
}

/// A record that takes the place of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmittedRecord {
    /// The key, or none.
    pub key: Part<Option<Bytes>>,
    /// The value; none is a tombstone.
    pub value: Part<Option<Bytes>>,
    /// Headers in order.
    pub headers: Part<Vec<Header>>,
    /// The time.
    pub timestamp: Part<Timestamp>,
}

/// Where a part of an emitted record comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<T> {
    /// It is that of the record whose place is taken.
    Input,
    /// It is new.
    Given(T),
}

impl EmittedRecord {
    /// The record itself, in the place of `input`.
    #[must_use]
    pub fn in_place_of(self, timestamp: Timestamp, input: &Record) -> (Timestamp, Record) {
        let record = Record {
            key: self.key.or_else(|| input.key.clone()),
            value: self.value.or_else(|| input.value.clone()),
            headers: self.headers.or_else(|| input.headers.clone()),
        };
        (self.timestamp.or_else(|| timestamp), record)
    }

    /// Bytes of the parts that are new, as [`Record::size_bytes`] counts them.
    #[must_use]
    pub fn given_bytes(&self) -> usize {
        let part = |part: &Part<Option<Bytes>>| match part {
            Part::Given(Some(bytes)) => bytes.len(),
            Part::Given(None) | Part::Input => 0,
        };
        let headers = match &self.headers {
            Part::Given(headers) => {
                headers.iter().map(|header| header.name.len() + header.value.as_ref().map_or(0, Bytes::len)).sum()
            }
            Part::Input => 0,
        };
        part(&self.key) + part(&self.value) + headers
    }
}

impl<T> Part<T> {
    fn as_ref(&self) -> Part<&T> {
        match self {
            Self::Input => Part::Input,
            Self::Given(part) => Part::Given(part),
        }
    }

    fn or_else(self, input: impl FnOnce() -> T) -> T {
        match self {
            Self::Input => input(),
            Self::Given(part) => part,
        }
    }
}
