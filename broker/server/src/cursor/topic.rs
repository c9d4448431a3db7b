//! The cursor of one whole topic.
//!
//! Body: topic id (16 bytes) | for each partition its number and its next offset.

use levada_engine::Positions;

use super::envelope::{Reader, Writer};

const VERSION: u8 = 1;

/// The cursor of these positions, whose partitions are in order of number.
pub(crate) fn encode_topic(positions: &Positions) -> String {
    let mut cursor = Writer::new(VERSION, 16 + positions.next.len() * 4);
    cursor.id(positions.topic_id);
    let mut least = 0;
    for (partition, offset) in &positions.next {
        cursor.partition(*partition, &mut least);
        cursor.number(offset.0);
    }
    cursor.finish()
}

/// The positions of a cursor; none if it is not one that [`encode_topic`] makes.
pub(crate) fn decode_topic(text: &str) -> Option<Positions> {
    let mut cursor = Reader::open(text, VERSION)?;
    let topic_id = cursor.id()?;
    let (mut next, mut least) = (Vec::new(), 0);
    while !cursor.is_at_end() {
        next.push((cursor.partition(&mut least)?, cursor.offset()?));
    }
    Some(Positions { topic_id, next })
}

#[cfg(test)]
pub(super) mod tests {
    use levada_model::limits::{JSON_INTEGER_MAX, PARTITIONS_MAX};
    use levada_model::{Offset, PartitionIndex, TopicId};
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::cursor::envelope::tests::{comes_back, is_told_where_mangled};

    pub(in crate::cursor) fn any_positions() -> impl Strategy<Value = Positions> {
        let next = prop::collection::btree_map(0..PARTITIONS_MAX, 0..=JSON_INTEGER_MAX, 0..20);
        (any::<u128>(), next).prop_map(|(id, next)| Positions {
            topic_id: TopicId(Uuid::from_u128(id)),
            next: next.into_iter().map(|(partition, offset)| (PartitionIndex(partition), Offset(offset))).collect(),
        })
    }

    proptest! {
        #[test]
        fn a_cursor_gives_back_its_positions_and_is_safe_in_addresses(positions in any_positions()) {
            comes_back(&positions, encode_topic, decode_topic);
        }

        #[test]
        fn a_mangled_cursor_is_told(positions in any_positions(), at: prop::sample::Index, with in "[A-Za-z0-9_-]") {
            is_told_where_mangled(&encode_topic(&positions), at, &with, decode_topic);
        }

        #[test]
        fn any_text_is_a_cursor_or_not_and_never_panics(text in "[A-Za-z0-9_-]{0,80}") {
            _ = decode_topic(&text);
        }
    }
}
