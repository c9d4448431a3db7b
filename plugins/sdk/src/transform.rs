//! Filters, and transforms that do more.

use serde::Serialize;

use crate::{Module, Record};

/// Keeps records or drops them: as a step of a processor, or of a read or subscription.
pub trait Filter: Module {
    /// Whether the record is kept. The answer depends on nothing but the record and its [`call`](Record::call): the broker
    /// shows records in batches as it likes, and may show them again.
    fn keep(&self, record: &Record<'_>) -> bool;
}

/// Says what becomes of each record: as a step of a processor, or as a validator when records are produced.
pub trait Transform: Module {
    /// The verdict. It depends on nothing but the record and its [`call`](Record::call).
    fn transform(&self, record: &Record<'_>) -> Verdict;
}

/// What becomes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on as it is.
    Pass,
    /// It goes no further.
    Drop,
    /// This takes its place.
    Replace(Emitted),
    /// These take its place, in order; none is a drop. At most 100.
    Emit(Vec<Emitted>),
    /// It is wrong, and why (up to 1 KiB). A producer is refused with this; a processor does with it what its user said.
    Reject(String),
}

/// A record that takes the place of another. What is not said is as it was there, also parts that the module was not given.
///
/// ```
/// use levada_plugin::{Emitted, Verdict};
///
/// let counted = Emitted::new().key("user-7").json(&serde_json::json!({"n": 2}));
/// let verdict = Verdict::Emit(vec![counted, Emitted::new().tombstone()]);
/// # assert!(matches!(verdict, Verdict::Emit(records) if records.len() == 2));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emitted {
    pub(crate) key: Source<Option<Vec<u8>>>,
    pub(crate) value: Source<Option<Vec<u8>>>,
    pub(crate) headers: Source<Vec<(String, Option<Vec<u8>>)>>,
    pub(crate) timestamp_ms: Source<i64>,
}

/// Where a part comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Source<T> {
    /// The record whose place is taken.
    #[default]
    Input,
    /// The module.
    Given(T),
}

impl Emitted {
    /// The record as it was.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With this key.
    #[must_use]
    pub fn key(self, key: impl Into<Vec<u8>>) -> Self {
        Self { key: Source::Given(Some(key.into())), ..self }
    }

    /// Without a key.
    #[must_use]
    pub fn no_key(self) -> Self {
        Self { key: Source::Given(None), ..self }
    }

    /// With this value.
    #[must_use]
    pub fn value(self, value: impl Into<Vec<u8>>) -> Self {
        Self { value: Source::Given(Some(value.into())), ..self }
    }

    /// With this value, written as JSON.
    ///
    /// # Panics
    /// When the value has no JSON form, such as a map with keys that are not text.
    #[must_use]
    pub fn json<T: Serialize>(self, value: &T) -> Self {
        self.value(serde_json::to_vec(value).expect("the value has a JSON form"))
    }

    /// Without a value.
    #[must_use]
    pub fn tombstone(self) -> Self {
        Self { value: Source::Given(None), ..self }
    }

    /// With these headers and no others.
    #[must_use]
    pub fn headers(self, headers: Vec<(String, Option<Vec<u8>>)>) -> Self {
        Self { headers: Source::Given(headers), ..self }
    }

    /// With this time, in milliseconds since 1970 (UTC).
    #[must_use]
    pub fn timestamp_ms(self, timestamp_ms: i64) -> Self {
        Self { timestamp_ms: Source::Given(timestamp_ms), ..self }
    }
}
