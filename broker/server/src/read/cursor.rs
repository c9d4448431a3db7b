//! The cursor of a whole topic, or of several, as text: base64url of version, topic ids, positions and a check.
//!
//! Layout: version 1 (one byte) | topic id (16 bytes) | for each partition, in order of number: its number less the one
//! before it less 1 (for the first: its number), and its next offset, both LEB128 | the first 4 bytes of the SHA-256 of
//! all before. Of several topics: version 3 | for each topic: topic id, number of partitions (LEB128), these as above |
//! the check. The check tells a cursor that was mangled on its way; it guards nothing, since a cursor grants nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use levada_engine::Positions;
use levada_model::limits::{JSON_INTEGER_MAX, PARTITIONS_MAX};
use levada_model::{Offset, PartitionIndex, TopicId};
use sha2::{Digest, Sha256};
use uuid::Uuid;

const VERSION: u8 = 1;
const VERSION_OF_SEVERAL: u8 = 3;
const ID_BYTES: usize = 16;
const CHECK_BYTES: usize = 4;

/// The cursor of these positions, whose partitions are in order of number.
pub(crate) fn encode(positions: &Positions) -> String {
    let mut bytes = Vec::with_capacity(1 + ID_BYTES + positions.next.len() * 4 + CHECK_BYTES);
    bytes.push(VERSION);
    bytes.extend_from_slice(positions.topic_id.0.as_bytes());
    put_places(&mut bytes, positions);
    finished(bytes)
}

/// The cursor of several topics; of one it is the same as [`encode`]'s.
pub(crate) fn encode_several<'p>(mut topics: impl ExactSizeIterator<Item = &'p Positions>) -> String {
    if topics.len() == 1 {
        return encode(topics.next().expect("there is one"));
    }
    let mut bytes = vec![VERSION_OF_SEVERAL];
    for positions in topics {
        bytes.extend_from_slice(positions.topic_id.0.as_bytes());
        put_number(&mut bytes, positions.next.len() as u64);
        put_places(&mut bytes, positions);
    }
    finished(bytes)
}

/// The positions of a cursor; none if it is not one that [`encode`] makes.
pub(crate) fn decode(text: &str) -> Option<Positions> {
    let bytes = checked(text)?;
    let (VERSION, mut rest) = bytes.split_first().map(|(version, rest)| (*version, rest))? else { return None };
    take_positions(&mut rest, None)
}

/// The positions of a cursor of one topic or several, each topic once.
pub(crate) fn decode_several(text: &str) -> Option<Vec<Positions>> {
    let bytes = checked(text)?;
    let (VERSION_OF_SEVERAL, mut rest) = bytes.split_first().map(|(version, rest)| (*version, rest))? else {
        return decode(text).map(|positions| vec![positions]);
    };
    let mut topics: Vec<Positions> = Vec::new();
    while !rest.is_empty() {
        let count = rest.get(ID_BYTES..).and_then(|mut behind| take_number(&mut behind))?;
        let positions = take_positions(&mut rest, Some(count))?;
        if topics.iter().any(|other| other.topic_id == positions.topic_id) {
            return None;
        }
        topics.push(positions);
    }
    Some(topics)
}

fn finished(mut bytes: Vec<u8>) -> String {
    let check = check(&bytes);
    bytes.extend_from_slice(&check);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The bytes of a cursor without its check.
fn checked(text: &str) -> Option<Vec<u8>> {
    let mut bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let end = bytes.len().checked_sub(CHECK_BYTES)?;
    let is_sound = check(&bytes[..end]) == bytes[end..];
    bytes.truncate(end);
    is_sound.then_some(bytes)
}

fn put_places(bytes: &mut Vec<u8>, positions: &Positions) {
    let mut least = 0_u64;
    for (partition, offset) in &positions.next {
        let number = u64::from(partition.0);
        assert!(number >= least, "partitions are in order and named once");
        put_number(bytes, number - least);
        put_number(bytes, offset.0);
        least = number + 1;
    }
}

/// Takes a topic's positions off the front: as many as its count says, or else all there are.
fn take_positions(rest: &mut &[u8], count: Option<u64>) -> Option<Positions> {
    let (id, mut places) = rest.split_at_checked(ID_BYTES)?;
    let topic_id = TopicId(Uuid::from_slice(id).ok()?);
    if count.is_some() {
        take_number(&mut places)?;
    }
    let mut next = Vec::new();
    let mut least = 0_u64;
    while count.map_or(!places.is_empty(), |count| (next.len() as u64) < count) {
        let number = least.checked_add(take_number(&mut places)?)?;
        let offset = take_number(&mut places)?;
        if number >= u64::from(PARTITIONS_MAX) || offset > JSON_INTEGER_MAX {
            return None;
        }
        next.push((PartitionIndex(u32::try_from(number).ok()?), Offset(offset)));
        least = number + 1;
    }
    *rest = places;
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
        fn a_cursor_of_several_topics_gives_them_back(topics in prop::collection::vec(any_positions(), 0..4)) {
            let mut topics = topics;
            topics.sort_by_key(|positions| positions.topic_id);
            topics.dedup_by_key(|positions| positions.topic_id);
            let text = encode_several(topics.iter());
            prop_assert_eq!(decode_several(&text), Some(topics.clone()));
            prop_assert_eq!(decode(&text), (topics.len() == 1).then(|| topics[0].clone()));
        }

        #[test]
        fn a_mangled_cursor_is_told(positions in any_positions(), at: prop::sample::Index, with in "[A-Za-z0-9_-]") {
            let mut text = encode(&positions);
            let at = at.index(text.len());
            prop_assume!(text[at..=at] != with);
            text.replace_range(at..=at, &with);
            prop_assert_eq!(decode(&text), None);
            prop_assert_eq!(decode_several(&text), None);
        }

        #[test]
        fn any_text_is_a_cursor_or_not_and_never_panics(text in "[A-Za-z0-9_-]{0,80}") {
            _ = decode(&text);
            _ = decode_several(&text);
        }
    }
}
