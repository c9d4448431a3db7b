//! The answers layout.

use super::LAYOUT_VERSION;
use super::reader::{LayoutError, Reader, len_u32, put_nullable};

/// Writes answers, none for null.
pub(crate) fn encode_answers(answers: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut bytes = vec![LAYOUT_VERSION, 0, 0, 0];
    bytes.extend_from_slice(&len_u32(answers.len()).to_le_bytes());
    answers.iter().for_each(|answer| put_nullable(&mut bytes, answer.as_deref()));
    bytes
}

/// Reads answers back, for the tests.
pub(crate) fn decode_answers(bytes: &[u8]) -> Result<Vec<Option<Vec<u8>>>, LayoutError> {
    let mut reader = Reader::open(bytes)?;
    reader.array::<3>()?;
    let count = reader.u32()?;
    let mut answers = Vec::new();
    for _ in 0..count {
        answers.push(reader.nullable()?.map(<[u8]>::to_vec));
    }
    reader.close()?;
    Ok(answers)
}
