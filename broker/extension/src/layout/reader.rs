//! Reads an answer from its start to its end.

use bytes::Bytes;

use super::{AnswerError, AnswerLimits, LAYOUT_VERSION};

const HEAD_BYTES: usize = 8;

/// What is left of an answer. Parts share the answer's bytes.
pub(super) struct Reader {
    answer: Bytes,
    at: usize,
    /// The item that is being read, for errors.
    pub(super) item: usize,
}

impl Reader {
    /// Reads the head, whose count must be `expected`.
    pub(super) fn open(answer: Bytes, expected: usize, limits: &AnswerLimits) -> Result<Self, AnswerError> {
        if answer.len() > limits.answer_bytes_max {
            return Err(AnswerError::TooLarge { bytes: answer.len(), bytes_max: limits.answer_bytes_max });
        }
        let Some((head, _)) = answer.split_first_chunk::<HEAD_BYTES>() else {
            return Err(AnswerError::CutOff { item: 0, part: "head" });
        };
        let [version, reserved @ .., a, b, c, d] = *head;
        if version != LAYOUT_VERSION {
            return Err(AnswerError::Version { got: version });
        }
        if reserved != [0; 3] {
            return Err(AnswerError::Reserved);
        }
        let got = u32::from_le_bytes([a, b, c, d]) as usize;
        if got != expected {
            return Err(AnswerError::Count { expected, got });
        }
        Ok(Self { answer, at: HEAD_BYTES, item: 0 })
    }

    /// That nothing is left.
    pub(super) fn close(self) -> Result<(), AnswerError> {
        match self.answer.len() - self.at {
            0 => Ok(()),
            bytes => Err(AnswerError::Trailing { bytes }),
        }
    }

    pub(super) fn byte(&mut self, part: &'static str) -> Result<u8, AnswerError> {
        self.array(part).map(|[byte]| byte)
    }

    pub(super) fn count(&mut self, part: &'static str) -> Result<usize, AnswerError> {
        self.array(part).map(|bytes| u32::from_le_bytes(bytes) as usize)
    }

    pub(super) fn i64(&mut self, part: &'static str) -> Result<i64, AnswerError> {
        self.array(part).map(i64::from_le_bytes)
    }

    /// Bytes behind a u32 length.
    pub(super) fn bytes(&mut self, part: &'static str) -> Result<Bytes, AnswerError> {
        let length = self.count(part)?;
        self.take(length, part)
    }

    /// Bytes behind an i32 length, of which -1 is null.
    pub(super) fn nullable(&mut self, part: &'static str) -> Result<Option<Bytes>, AnswerError> {
        match self.array(part).map(i32::from_le_bytes)? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => self.take(length, part).map(Some),
                Err(_) => Err(AnswerError::Length { item: self.item, part, length }),
            },
        }
    }

    /// Text behind a u32 length.
    pub(super) fn text(&mut self, part: &'static str) -> Result<String, AnswerError> {
        let bytes = self.bytes(part)?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(AnswerError::Utf8 { item: self.item, part }),
        }
    }

    fn take(&mut self, length: usize, part: &'static str) -> Result<Bytes, AnswerError> {
        if length > self.answer.len() - self.at {
            return Err(AnswerError::CutOff { item: self.item, part });
        }
        let taken = self.answer.slice(self.at..self.at + length);
        self.at += length;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], AnswerError> {
        let Some(array) = self.answer[self.at..].first_chunk::<N>() else {
            return Err(AnswerError::CutOff { item: self.item, part });
        };
        self.at += N;
        Ok(*array)
    }
}
