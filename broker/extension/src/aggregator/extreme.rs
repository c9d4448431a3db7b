//! The least or the largest number. Accumulator: its JSON text as it was produced; empty without numbers. Of equal numbers
//! the first stays. Nothing can be taken out again.

use std::cmp::Ordering;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::native::Fold;
use crate::json::JsonNumber;
use crate::{CallRecord, JsonPointer};

pub(super) struct Extreme {
    pub(super) pointer: JsonPointer,
    pub(super) side: Side,
}

pub(super) enum Side {
    Least,
    Largest,
}

/// A number and its text.
#[derive(Clone)]
pub(super) struct Number {
    text: String,
    number: JsonNumber,
}

impl Fold for Extreme {
    type State = Option<Number>;

    fn empty(&self) -> Option<Number> {
        None
    }

    fn read(&self, bytes: &[u8]) -> Option<Option<Number>> {
        if bytes.is_empty() {
            return Some(None);
        }
        // Checked as JSON, since it goes out as such.
        let raw: &RawValue = serde_json::from_slice(bytes).ok()?;
        Number::parse(raw.get()).map(Some)
    }

    fn write(&self, state: &Option<Number>) -> Bytes {
        state.as_ref().map(|number| Bytes::copy_from_slice(number.text.as_bytes())).unwrap_or_default()
    }

    fn add(&self, state: &mut Option<Number>, record: &CallRecord<'_>) {
        if let Some(number) = record.value.and_then(|value| self.pointer.find(value)).and_then(Number::parse) {
            self.merge(state, Some(number));
        }
    }

    fn remove(&self, _: &mut Option<Number>, _: &CallRecord<'_>) -> Option<()> {
        None
    }

    fn merge(&self, state: &mut Option<Number>, later: Option<Number>) {
        let wanted = match self.side {
            Side::Least => Ordering::Less,
            Side::Largest => Ordering::Greater,
        };
        let Some(later) = later else { return };
        if state.as_ref().is_none_or(|state| later.number.compare(state.number) == wanted) {
            *state = Some(later);
        }
    }

    fn value(&self, state: &Option<Number>) -> String {
        state.as_ref().map_or_else(|| "null".to_owned(), |number| number.text.clone())
    }
}

impl Number {
    fn parse(text: &str) -> Option<Self> {
        Some(Self { text: text.to_owned(), number: JsonNumber::parse(text)? })
    }
}
