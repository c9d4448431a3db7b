//! What all cursors are made of: base64url of a version (one byte), a body, and a check.
//!
//! The check is the first 4 bytes of the SHA-256 of all before. It tells a cursor that was mangled on its way; it guards
//! nothing, since a cursor grants nothing. Numbers in a body are LEB128. Partitions of one topic are in order of number,
//! each written less the one before it less 1 (the first: its number).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use levada_model::limits::{JSON_INTEGER_MAX, PARTITIONS_MAX};
use levada_model::{Offset, PartitionIndex, TopicId};
use sha2::{Digest, Sha256};
use uuid::Uuid;

const CHECK_BYTES: usize = 4;
const ID_BYTES: usize = 16;

/// A cursor that is being written.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(version: u8, bytes_about: usize) -> Self {
        let mut bytes = Vec::with_capacity(1 + bytes_about + CHECK_BYTES);
        bytes.push(version);
        Self(bytes)
    }

    pub(super) fn number(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push((n & 0x7f) as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    pub(super) fn id(&mut self, id: TopicId) {
        self.0.extend_from_slice(id.0.as_bytes());
    }

    /// Text with its length before it.
    pub(super) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    /// The next partition of a topic, of which `least` is the least that it can be.
    pub(super) fn partition(&mut self, partition: PartitionIndex, least: &mut u64) {
        let number = u64::from(partition.0);
        assert!(number >= *least, "partitions are in order and named once");
        self.number(number - *least);
        *least = number + 1;
    }

    /// An offset as the way to it from another one, in steps forward (even) or back (odd).
    pub(super) fn offset_from(&mut self, before: Offset, offset: Offset) {
        match offset.0.checked_sub(before.0) {
            Some(forward) => self.number(forward << 1),
            None => self.number(((before.0 - offset.0) << 1) - 1),
        }
    }

    pub(super) fn finish(mut self) -> String {
        let check = check(&self.0);
        self.0.extend_from_slice(&check);
        URL_SAFE_NO_PAD.encode(self.0)
    }
}

/// The body of a cursor that is being read. Everything gives none where the body has something else.
pub(super) struct Reader {
    body: Vec<u8>,
    at: usize,
}

impl Reader {
    /// The body of a cursor of this version; none if it is no such cursor, or was mangled.
    pub(super) fn open(text: &str, version: u8) -> Option<Self> {
        let mut body = URL_SAFE_NO_PAD.decode(text).ok()?;
        let found = body.split_off(body.len().checked_sub(CHECK_BYTES)?);
        (body.first() == Some(&version) && check(&body)[..] == found).then_some(Self { body, at: 1 })
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.body.len()
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut n = 0_u64;
        for shift in (0..63).step_by(7) {
            let byte = *self.body.get(self.at)?;
            self.at += 1;
            n |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(n);
            }
        }
        None
    }

    pub(super) fn id(&mut self) -> Option<TopicId> {
        Uuid::from_slice(self.bytes(ID_BYTES)?).ok().map(TopicId)
    }

    pub(super) fn text(&mut self) -> Option<&str> {
        let length = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.bytes(length)?).ok()
    }

    pub(super) fn partition(&mut self, least: &mut u64) -> Option<PartitionIndex> {
        let number = least.checked_add(self.number()?).filter(|number| *number < u64::from(PARTITIONS_MAX))?;
        *least = number + 1;
        u32::try_from(number).ok().map(PartitionIndex)
    }

    /// The partition behind the last one.
    pub(super) fn neighbour(&mut self, least: &mut u64) -> Option<PartitionIndex> {
        let number = Some(*least).filter(|number| *number < u64::from(PARTITIONS_MAX))?;
        *least = number + 1;
        u32::try_from(number).ok().map(PartitionIndex)
    }

    /// An offset that was written as the way from another one.
    pub(super) fn offset_from(&mut self, before: Offset) -> Option<Offset> {
        let way = self.number()?;
        let to = if way & 1 == 0 { before.0.checked_add(way >> 1) } else { before.0.checked_sub((way >> 1) + 1) };
        to.filter(|offset| *offset <= JSON_INTEGER_MAX).map(Offset)
    }

    pub(super) fn offset(&mut self) -> Option<Offset> {
        self.number().filter(|offset| *offset <= JSON_INTEGER_MAX).map(Offset)
    }

    fn bytes(&mut self, count: usize) -> Option<&[u8]> {
        let bytes = self.body.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(bytes)
    }
}

fn check(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let digest = Sha256::digest(bytes);
    [digest[0], digest[1], digest[2], digest[3]]
}

/// What holds for the cursors of every version.
#[cfg(test)]
pub(super) mod tests {
    use std::fmt::Debug;

    use super::Writer;

    /// A cursor with a right check around any body.
    pub(in crate::cursor) fn forged(version: u8, body: &[u8]) -> String {
        let mut cursor = Writer::new(version, body.len());
        cursor.0.extend_from_slice(body);
        cursor.finish()
    }

    /// A cursor gives back what it was made of, and can stand in an address.
    pub(in crate::cursor) fn comes_back<T: PartialEq + Debug>(
        value: &T,
        encode: impl Fn(&T) -> String,
        decode: impl Fn(&str) -> Option<T>,
    ) {
        let text = encode(value);
        assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{text}");
        assert_eq!(decode(&text).as_ref(), Some(value));
    }

    /// A cursor with another character in one place is none.
    pub(in crate::cursor) fn is_told_where_mangled<T: PartialEq + Debug>(
        text: &str,
        at: proptest::sample::Index,
        with: &str,
        decode: impl Fn(&str) -> Option<T>,
    ) {
        let at = at.index(text.len());
        let mut mangled = text.to_owned();
        mangled.replace_range(at..=at, with);
        assert!(mangled == text || decode(&mangled).is_none(), "{mangled}");
    }
}
