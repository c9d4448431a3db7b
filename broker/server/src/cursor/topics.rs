//! The cursor of several topics.
//!
//! Body: for each topic, in order of id: its id (16 bytes) | how many partitions follow | for each its number and its
//! next offset.

use levada_engine::Positions;

use super::envelope::{Reader, Writer};

const VERSION: u8 = 2;

/// The cursor of these topics in any order, each named once; the partitions of each are in order of number.
pub(crate) fn encode_topics(topics: &[Positions]) -> String {
    let mut topics: Vec<_> = topics.iter().collect();
    topics.sort_unstable_by_key(|positions| positions.topic_id);
    let mut cursor = Writer::new(VERSION, topics.iter().map(|positions| 18 + positions.next.len() * 4).sum());
    for positions in topics {
        cursor.id(positions.topic_id);
        cursor.number(positions.next.len() as u64);
        let mut least = 0;
        for (partition, offset) in &positions.next {
            cursor.partition(*partition, &mut least);
            cursor.number(offset.0);
        }
    }
    cursor.finish()
}

/// The topics of a cursor, by id; none if it is not one that [`encode_topics`] makes.
pub(crate) fn decode_topics(text: &str) -> Option<Vec<Positions>> {
    let mut cursor = Reader::open(text, VERSION)?;
    let mut topics: Vec<Positions> = Vec::new();
    while !cursor.is_at_end() {
        let topic_id = cursor.id()?;
        if topics.last().is_some_and(|before| before.topic_id >= topic_id) {
            return None;
        }
        let (mut next, mut least) = (Vec::new(), 0);
        for _ in 0..cursor.number()? {
            next.push((cursor.partition(&mut least)?, cursor.offset()?));
        }
        topics.push(Positions { topic_id, next });
    }
    Some(topics)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cursor::envelope::tests::{comes_back, is_told_where_mangled};
    use crate::cursor::topic::tests::any_positions;
    use crate::cursor::{decode_topic, encode_topic};

    fn any_topics() -> impl Strategy<Value = Vec<Positions>> {
        prop::collection::vec(any_positions(), 0..4).prop_map(|mut topics| {
            topics.sort_by_key(|positions| positions.topic_id);
            topics.dedup_by_key(|positions| positions.topic_id);
            topics
        })
    }

    proptest! {
        #[test]
        fn a_cursor_gives_back_its_topics_and_is_safe_in_addresses(topics in any_topics()) {
            comes_back(&topics, |topics| encode_topics(topics), decode_topics);
        }

        #[test]
        fn a_mangled_cursor_is_told(topics in any_topics(), at: prop::sample::Index, with in "[A-Za-z0-9_-]") {
            is_told_where_mangled(&encode_topics(&topics), at, &with, decode_topics);
        }

        #[test]
        fn any_text_is_a_cursor_or_not_and_never_panics(text in "[A-Za-z0-9_-]{0,80}") {
            _ = decode_topics(&text);
        }

        #[test]
        fn a_cursor_of_one_topic_is_none_of_several_and_the_other_way_round(topics in any_topics()) {
            prop_assert!(decode_topic(&encode_topics(&topics)).is_none());
            prop_assert!(topics.first().is_none_or(|one| decode_topics(&encode_topic(one)).is_none()));
        }
    }
}
