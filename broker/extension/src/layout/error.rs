//! What may be wrong with a module's answer, and the caps that it is held to.

use levada_model::limits;
use thiserror::Error;

/// What is wrong with a module's answer. The answer is refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// Larger than an answer may be.
    #[error("the answer has {bytes} bytes, and {bytes_max} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The cap.
        bytes_max: usize,
    },
    /// Of a version of the layouts that was not asked for.
    #[error("the answer has layout version {got}, and {} was declared", super::LAYOUT_VERSION)]
    Version {
        /// Its first byte.
        got: u8,
    },
    /// Bytes that must be 0 are not.
    #[error("bytes of the answer's head that must be 0 are not")]
    Reserved,
    /// It ends too early: a length or a count goes beyond its end.
    #[error("item {item} of the answer: it ends in its {part}")]
    CutOff {
        /// Place of the item in which it ends; the number of items, if they ended in front.
        item: usize,
        /// In which part of it.
        part: &'static str,
    },
    /// Something follows the last item.
    #[error("{bytes} bytes lie behind the answer's last item")]
    Trailing {
        /// How much.
        bytes: usize,
    },
    /// Not as many items as were asked for.
    #[error("the answer has {got} items for {expected}")]
    Count {
        /// How many were asked for.
        expected: usize,
        /// How many it has, or claims.
        got: usize,
    },
    /// A place that is not above the one before it.
    #[error("item {item} of the answer keeps record {place}, which does not come after record {before}")]
    Order {
        /// Place in the answer.
        item: usize,
        /// What it names.
        place: u32,
        /// What the item before it names.
        before: u32,
    },
    /// A place that no record has.
    #[error("item {item} of the answer keeps record {place} of {records}")]
    OutOfRange {
        /// Place in the answer.
        item: usize,
        /// What it names.
        place: u32,
        /// Records there are.
        records: usize,
    },
    /// A kind or a source that does not exist.
    #[error("item {item} of the answer: there is no {part} {code}")]
    Unknown {
        /// Place in the answer.
        item: usize,
        /// A kind of what.
        part: &'static str,
        /// What is written there.
        code: u8,
    },
    /// A length that is negative and not -1.
    #[error("item {item} of the answer: the length of its {part} is {length}")]
    Length {
        /// Place in the answer.
        item: usize,
        /// Of what.
        part: &'static str,
        /// What is written there.
        length: i32,
    },
    /// Null where there is no null.
    #[error("item {item} of the answer is null")]
    Null {
        /// Place in the answer.
        item: usize,
    },
    /// Text that is not UTF-8.
    #[error("item {item} of the answer: its {part} is not UTF-8")]
    Utf8 {
        /// Place in the answer.
        item: usize,
        /// Which text.
        part: &'static str,
    },
    /// More of something than is allowed.
    #[error("item {item} of the answer: {got} {part}, and {max} are allowed")]
    TooMany {
        /// Place in the answer.
        item: usize,
        /// Of what, with its unit.
        part: &'static str,
        /// How much.
        got: usize,
        /// The cap.
        max: usize,
    },
    /// An answer in JSON that is not what it must be.
    #[error("the answer is not what it must be: {detail}")]
    Json {
        /// What is wrong, and where; at most [`MODULE_REASON_BYTES_MAX`](limits::MODULE_REASON_BYTES_MAX) bytes.
        detail: String,
    },
}

impl AnswerError {
    /// One of JSON, which may repeat what the guest wrote, cut as any reason is.
    pub(super) fn json(mut detail: String) -> Self {
        detail.truncate(detail.floor_char_boundary(limits::MODULE_REASON_BYTES_MAX));
        Self::Json { detail }
    }
}

/// What an answer is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerLimits {
    /// Bytes of the whole answer.
    pub answer_bytes_max: usize,
    /// Records in place of one.
    pub emitted_records_max: usize,
    /// Records in place of others in the whole answer.
    pub emitted_in_all_max: usize,
    /// Bytes of the parts that the answer gives of one record, and of one value of an aggregator. What takes the record has
    /// a limit of its own on the whole.
    pub record_bytes_max: usize,
    /// Bytes of a reason.
    pub reason_bytes_max: usize,
    /// Bytes of an accumulator.
    pub accumulator_bytes_max: usize,
}

impl Default for AnswerLimits {
    fn default() -> Self {
        Self {
            answer_bytes_max: limits::MODULE_ANSWER_BYTES_MAX,
            emitted_records_max: limits::MODULE_EMITTED_RECORDS_MAX,
            emitted_in_all_max: limits::REQUEST_RECORDS_MAX,
            record_bytes_max: limits::MODULE_ANSWER_BYTES_MAX,
            reason_bytes_max: limits::MODULE_REASON_BYTES_MAX,
            accumulator_bytes_max: limits::MODULE_ACCUMULATOR_BYTES_MAX,
        }
    }
}
