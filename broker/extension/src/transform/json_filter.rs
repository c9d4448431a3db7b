//! The filter that is built in: a place in a JSON value, and what must hold there.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Transform, Verdicts};
use crate::json::{JsonNumber, JsonPointer};
use crate::{CallBatch, ModuleFault};

/// Keeps the records in whose value all tests hold at one place.
///
/// Where the value is not JSON, is a tombstone, or has nothing at that place, only [`JsonTest::NotEquals`] and
/// [`JsonTest::Exists`]`(false)` hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JsonFilter {
    pointer: JsonPointer,
    tests: Vec<JsonTest>,
}

/// What must hold of the JSON at a place. Numbers compare by value (1 and 1.0 are equal, no digit of a 64-bit integer is
/// lost), texts by their UTF-8 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JsonTest {
    /// It is this.
    Equals(Value),
    /// It is not this, or is not there.
    NotEquals(Value),
    /// It is a number below this number, or a text before this text.
    Less(Value),
    /// It is a number above this number, or a text behind this text.
    Greater(Value),
    /// It is there (JSON's null is there), or is not.
    Exists(bool),
    /// It is a text with this text in it, or an array with this among its elements.
    Contains(Value),
}

impl JsonFilter {
    /// A filter by `tests`, all of which must hold.
    #[must_use]
    pub fn new(pointer: JsonPointer, tests: Vec<JsonTest>) -> Self {
        Self { pointer, tests }
    }

    /// Whether a record with this value is kept.
    #[must_use]
    pub fn keeps(&self, value: Option<&[u8]>) -> bool {
        let found = value.and_then(|value| self.pointer.find(value));
        self.tests.iter().all(|test| test.holds(found))
    }
}

impl Transform for JsonFilter {
    fn transform(&self, batch: &CallBatch) -> Result<Verdicts, ModuleFault> {
        let mut kept = Vec::new();
        for (place, record) in (0..).zip(batch.records()) {
            if self.keeps(record?.value) {
                kept.push(place);
            }
        }
        Ok(Verdicts::Keep(kept))
    }
}

impl JsonTest {
    /// Whether it holds of the JSON text found, if any was.
    fn holds(&self, found: Option<&str>) -> bool {
        match self {
            Self::Exists(wanted) => found.is_some() == *wanted,
            Self::Equals(operand) => found.is_some_and(|found| equals(found, operand)),
            Self::NotEquals(operand) => !found.is_some_and(|found| equals(found, operand)),
            Self::Less(operand) => found.and_then(|found| order(found, operand)) == Some(Ordering::Less),
            Self::Greater(operand) => found.and_then(|found| order(found, operand)) == Some(Ordering::Greater),
            Self::Contains(operand) => found.is_some_and(|found| contains(found, operand)),
        }
    }
}

fn equals(found: &str, operand: &Value) -> bool {
    match operand {
        Value::Number(_) | Value::String(_) => order(found, operand) == Some(Ordering::Equal),
        Value::Null => found == "null",
        Value::Bool(bool) => found == if *bool { "true" } else { "false" },
        Value::Array(_) | Value::Object(_) => {
            serde_json::from_str(found).is_ok_and(|found: Value| same(&found, operand))
        }
    }
}

/// Equality of whole documents, in which numbers compare by value too.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => JsonNumber::of(a).compare(JsonNumber::of(b)) == Ordering::Equal,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

/// How two numbers or two texts compare.
fn order(found: &str, operand: &Value) -> Option<Ordering> {
    match operand {
        Value::Number(operand) => JsonNumber::parse(found).map(|found| found.compare(JsonNumber::of(operand))),
        Value::String(operand) => Some(text(found)?.as_str().cmp(operand)),
        _ => None,
    }
}

fn contains(found: &str, operand: &Value) -> bool {
    match operand {
        Value::String(operand) if found.starts_with('"') => text(found).is_some_and(|found| found.contains(operand)),
        _ => serde_json::from_str(found).is_ok_and(|elements: Vec<Value>| elements.iter().any(|e| same(e, operand))),
    }
}

/// The text that JSON text says, if it is one.
fn text(found: &str) -> Option<String> {
    found.starts_with('"').then(|| serde_json::from_str(found).ok()).flatten()
}
