//! Zig-zag varints (Protocol Buffers' `sint32` and `sint64`), in which a record writes its numbers.

use std::ops::Range;

use bytes::{BufMut, BytesMut};

/// Reads numbers from `bytes`; every error says which one could not be read.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], position: usize) -> Self {
        Self { bytes, position }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn byte(&mut self, what: &str) -> Result<u8, String> {
        let byte = *self.bytes.get(self.position).ok_or_else(|| format!("it ends in its {what}"))?;
        self.position += 1;
        Ok(byte)
    }

    pub(super) fn varint_i32(&mut self, what: &str) -> Result<i32, String> {
        let raw = u32::try_from(self.varint(what)?).map_err(|_| format!("its {what} is out of range"))?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    pub(super) fn varint_i64(&mut self, what: &str) -> Result<i64, String> {
        let raw = self.varint(what)?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// Reads a length and steps over that many bytes, which must end at or before `end`; -1 stands for null.
    pub(super) fn length(&mut self, what: &str, end: usize) -> Result<Option<Range<usize>>, String> {
        let length = self.varint_i32(what)?;
        if length == -1 {
            return Ok(None);
        }
        let start = self.position;
        let left = end - start;
        let length = usize::try_from(length).ok().filter(|length| *length <= left);
        let length = length.ok_or_else(|| format!("its {what} does not fit the {left} bytes that are left"))?;
        self.position += length;
        Ok(Some(start..self.position))
    }

    #[inline]
    fn varint(&mut self, what: &str) -> Result<u64, String> {
        // Most numbers of a record take one byte.
        match self.bytes.get(self.position) {
            Some(byte) if byte & 0x80 == 0 => {
                self.position += 1;
                Ok((*byte).into())
            }
            _ => self.wide_varint(what),
        }
    }

    fn wide_varint(&mut self, what: &str) -> Result<u64, String> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(format!("its {what} is out of range"))
    }
}

/// Writes a number of 32 bits.
pub(super) fn put_i32(bytes: &mut BytesMut, number: i32) {
    put(bytes, zigzag(number.into()));
}

/// Writes a number of 64 bits.
pub(super) fn put_i64(bytes: &mut BytesMut, number: i64) {
    put(bytes, zigzag(number));
}

/// Bytes that `number` takes when it is written.
pub(super) fn size(number: i64) -> usize {
    // Seven bits a byte, and zero takes one.
    let bits = u64::BITS - (zigzag(number) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

fn put(bytes: &mut BytesMut, mut raw: u64) {
    while raw >= 0x80 {
        bytes.put_u8((raw & 0x7f) as u8 | 0x80);
        raw >>= 7;
    }
    bytes.put_u8(raw as u8);
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(number: i64) -> BytesMut {
        let mut bytes = BytesMut::new();
        put_i64(&mut bytes, number);
        bytes
    }

    #[test]
    fn numbers_are_written_as_protocol_buffers_document_them() {
        for (number, bytes) in [(0, &[0][..]), (-1, &[1]), (1, &[2]), (-2, &[3]), (63, &[126]), (64, &[128, 1])] {
            assert_eq!(&written(number)[..], bytes, "{number}");
        }
    }

    #[test]
    fn every_width_comes_back_and_its_size_is_foretold() {
        for shift in 0..63 {
            for number in [1_i64 << shift, -(1 << shift), (1 << shift) - 1] {
                let bytes = written(number);
                assert_eq!(bytes.len(), size(number), "{number}");
                assert_eq!(Cursor::new(&bytes, 0).varint_i64("number"), Ok(number));
            }
        }
        for number in [i64::MIN, i64::MAX] {
            assert_eq!(Cursor::new(&written(number), 0).varint_i64("number"), Ok(number));
            assert_eq!(size(number), 10);
        }
    }

    #[test]
    fn numbers_that_are_too_wide_or_cut_off_are_refused() {
        assert!(Cursor::new(&[0xff; 11], 0).varint_i64("number").is_err());
        assert!(
            Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], 0).varint_i64("number").is_err()
        );
        assert!(Cursor::new(&written(i64::from(i32::MAX) + 1), 0).varint_i32("number").is_err());
        assert!(Cursor::new(&[0x80], 0).varint_i32("number").is_err());
    }
}
