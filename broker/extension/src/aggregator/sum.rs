//! The sum and the mean of numbers. Integers and doubles are added up apart, so that a sum of integers is exact, and becomes
//! an integer again when its last double is taken out.
//!
//! Accumulator, little-endian: i128 sum of the integers, u64 how many, f64 sum of the doubles, u64 how many.

use bytes::Bytes;

use super::native::Fold;
use crate::json::JsonNumber;
use crate::{CallRecord, JsonPointer};

pub(super) struct Sum {
    pub(super) pointer: JsonPointer,
    pub(super) worth: Worth,
}

/// What the numbers are worth.
pub(super) enum Worth {
    Total,
    Mean,
}

#[derive(Clone, Copy)]
pub(super) struct Sums {
    integers: i128,
    integer_count: u64,
    doubles: f64,
    double_count: u64,
}

impl Fold for Sum {
    type State = Sums;

    fn empty(&self) -> Sums {
        Sums { integers: 0, integer_count: 0, doubles: 0.0, double_count: 0 }
    }

    fn read(&self, bytes: &[u8]) -> Option<Sums> {
        let (integers, rest) = bytes.split_first_chunk()?;
        let (integer_count, rest) = rest.split_first_chunk()?;
        let (doubles, rest) = rest.split_first_chunk()?;
        Some(Sums {
            integers: i128::from_le_bytes(*integers),
            integer_count: u64::from_le_bytes(*integer_count),
            doubles: f64::from_le_bytes(*doubles),
            double_count: u64::from_le_bytes(rest.try_into().ok()?),
        })
    }

    fn write(&self, state: &Sums) -> Bytes {
        let mut bytes = Vec::with_capacity(40);
        bytes.extend_from_slice(&state.integers.to_le_bytes());
        bytes.extend_from_slice(&state.integer_count.to_le_bytes());
        bytes.extend_from_slice(&state.doubles.to_le_bytes());
        bytes.extend_from_slice(&state.double_count.to_le_bytes());
        bytes.into()
    }

    fn add(&self, state: &mut Sums, record: &CallRecord<'_>) {
        match self.number(record) {
            Some(JsonNumber::Integer(integer)) => {
                state.integers = state.integers.saturating_add(integer);
                state.integer_count = state.integer_count.saturating_add(1);
            }
            Some(JsonNumber::Double(double)) => {
                state.doubles += double;
                state.double_count = state.double_count.saturating_add(1);
            }
            None => (),
        }
    }

    fn remove(&self, state: &mut Sums, record: &CallRecord<'_>) -> Option<()> {
        match self.number(record) {
            Some(JsonNumber::Integer(integer)) => {
                state.integers = state.integers.saturating_sub(integer);
                state.integer_count = state.integer_count.saturating_sub(1);
            }
            Some(JsonNumber::Double(double)) => {
                state.double_count = state.double_count.saturating_sub(1);
                // What rounding left behind goes with the last one.
                state.doubles = if state.double_count == 0 { 0.0 } else { state.doubles - double };
            }
            None => (),
        }
        Some(())
    }

    fn merge(&self, state: &mut Sums, later: Sums) {
        state.integers = state.integers.saturating_add(later.integers);
        state.integer_count = state.integer_count.saturating_add(later.integer_count);
        state.doubles += later.doubles;
        state.double_count = state.double_count.saturating_add(later.double_count);
    }

    fn value(&self, state: &Sums) -> String {
        let count = state.integer_count.saturating_add(state.double_count);
        match self.worth {
            Worth::Total if state.double_count == 0 => state.integers.to_string(),
            Worth::Total => double_text(state.integers as f64 + state.doubles),
            Worth::Mean if count == 0 => "null".to_owned(),
            Worth::Mean => double_text((state.integers as f64 + state.doubles) / count as f64),
        }
    }
}

impl Sum {
    /// The number of a record. One beyond the range of doubles cannot be added to.
    fn number(&self, record: &CallRecord<'_>) -> Option<JsonNumber> {
        let number = JsonNumber::parse(self.pointer.find(record.value?)?)?;
        let infinite = matches!(number, JsonNumber::Double(double) if !double.is_finite());
        (!infinite).then_some(number)
    }
}

/// A double as JSON text; null where the sum went beyond their range.
fn double_text(double: f64) -> String {
    serde_json::Number::from_f64(double).map_or_else(|| "null".to_owned(), |number| number.to_string())
}
