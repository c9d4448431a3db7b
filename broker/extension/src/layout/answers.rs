//! The answers layout: accumulators and values of aggregators.

use bytes::Bytes;

use super::reader::Reader;
use super::{AnswerError, AnswerLimits};

/// Reads `expected` accumulators.
///
/// # Errors
/// What is wrong first.
pub fn decode_accumulators(answer: Bytes, expected: usize, limits: &AnswerLimits) -> Result<Vec<Bytes>, AnswerError> {
    let items = decode(answer, expected, limits, "accumulator", limits.accumulator_bytes_max)?;
    items.into_iter().enumerate().map(|(item, bytes)| bytes.ok_or(AnswerError::Null { item })).collect()
}

/// Reads `expected` values, none where there is no row, and checks that each is JSON.
///
/// # Errors
/// What is wrong first.
pub fn decode_values(answer: Bytes, expected: usize, limits: &AnswerLimits) -> Result<Vec<Option<Bytes>>, AnswerError> {
    let items = decode(answer, expected, limits, "value", limits.record_bytes_max)?;
    for (item, bytes) in items.iter().enumerate() {
        if let Some(bytes) = bytes
            && let Err(error) = serde_json::from_slice::<&serde_json::value::RawValue>(bytes)
        {
            return Err(AnswerError::json(format!("value {item}: {error}")));
        }
    }
    Ok(items)
}

fn decode(
    answer: Bytes,
    expected: usize,
    limits: &AnswerLimits,
    part: &'static str,
    bytes_max: usize,
) -> Result<Vec<Option<Bytes>>, AnswerError> {
    let mut reader = Reader::open(answer, expected, limits)?;
    let mut items = Vec::with_capacity(expected);
    for item in 0..expected {
        reader.item = item;
        let bytes = reader.nullable(part)?;
        let got = bytes.as_ref().map_or(0, Bytes::len);
        if got > bytes_max {
            return Err(AnswerError::TooMany { item, part: "bytes", got, max: bytes_max });
        }
        items.push(bytes);
    }
    reader.close()?;
    Ok(items)
}
