//! The cursor of a whole topic as text: base64url of version, topic id, positions and a check.
//!
//! Layout: version 1 (one byte) | topic id (16 bytes) | for each partition, in order of number: its number less the one
//! before it less 1 (for the first: its number), and its next offset, both LEB128 | the first 4 bytes of the SHA-256 of
//! all before. The check tells a cursor that was mangled on its way; it guards nothing, since a cursor grants nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use levada_engine::Positions;
use levada_model::limits::{JSON_INTEGER_MAX, PARTITIONS_MAX};
use levada_model::{Offset, PartitionIndex, TopicId};
use sha2::{Digest, Sha256};
use uuid::Uuid;

const VERSION: u8 = 1;
const ID_END: usize = 17;
const CHECK_BYTES: usize = 4;

/// The cursor of these positions, whose partitions are in order of number.
pub(super) fn encode(positions: &Positions) -> String {
    let mut bytes = Vec::with_capacity(ID_END + positions.next.len() * 4 + CHECK_BYTES);
    bytes.push(VERSION);
    bytes.extend_from_slice(positions.topic_id.0.as_bytes());
    let mut least = 0_u64;
    for (partition, offset) in &positions.next {
        let number = u64::from(partition.0);
        assert!(number >= least, "partitions are in order and named once");
        put_number(&mut bytes, number - least);
        put_number(&mut bytes, offset.0);
        least = number + 1;
    }
    let check = check(&bytes);
    bytes.extend_from_slice(&check);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The positions of a cursor; none if it is not one that [`encode`] makes.
pub(super) fn decode(text: &str) -> Option<Positions> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (body, found) = bytes.split_at_checked(bytes.len().checked_sub(CHECK_BYTES)?)?;
    if body.len() < ID_END || body[0] != VERSION || check(body) != found {
        return None;
    }
    let topic_id = TopicId(Uuid::from_slice(&body[1..ID_END]).ok()?);
    let mut rest = &body[ID_END..];
    let mut next = Vec::new();
    let mut least = 0_u64;
    while !rest.is_empty() {
        let number = least.checked_add(take_number(&mut rest)?)?;
        let offset = take_number(&mut rest)?;
        if number >= u64::from(PARTITIONS_MAX) || offset > JSON_INTEGER_MAX {
            return None;
        }
        next.push((PartitionIndex(u32::try_from(number).ok()?), Offset(offset)));
        least = number + 1;
    }
    Some(Positions { topic_id, next })
}

fn check(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let digest = Sha256::digest(bytes);
    [digest[0], digest[1], digest[2], digest[3]]
}

fn put_number(bytes: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        bytes.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0_u64;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_positions() -> impl Strategy<Value = Positions> {
        let next = prop::collection::btree_map(0..PARTITIONS_MAX, 0..=JSON_INTEGER_MAX, 0..20);
        (any::<u128>(), next).prop_map(|(id, next)| Positions {
            topic_id: TopicId(Uuid::from_u128(id)),
            next: next.into_iter().map(|(partition, offset)| (PartitionIndex(partition), Offset(offset))).collect(),
        })
    }

    proptest! {
        #[test]
        fn a_cursor_gives_back_its_positions_and_is_safe_in_addresses(positions in any_positions()) {
            let text = encode(&positions);
            prop_assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
            prop_assert_eq!(decode(&text), Some(positions));
        }

        #[test]
        fn a_mangled_cursor_is_told(positions in any_positions(), at: prop::sample::Index, with in "[A-Za-z0-9_-]") {
            let mut text = encode(&positions);
            let at = at.index(text.len());
            prop_assume!(text[at..=at] != with);
            text.replace_range(at..=at, &with);
            prop_assert_eq!(decode(&text), None);
        }

        #[test]
        fn any_text_is_a_cursor_or_not_and_never_panics(text in "[A-Za-z0-9_-]{0,80}") {
            _ = decode(&text);
        }
    }
}
