//! The cursor of a group's member.
//!
//! Body: the group's name with its length before it | for each topic, in order of id: its id (16 bytes) | how many
//! partitions follow | for each its number, the epoch of its assignment, and its next offset.

use levada_engine::{AssignmentEpoch, GroupCursor, GroupPosition};
use levada_model::GroupName;

use super::envelope::{Reader, Writer};

const VERSION: u8 = 3;

/// The cursor of these positions, in any order, each partition named once.
pub(crate) fn encode_group(cursor: &GroupCursor) -> String {
    let mut positions = cursor.positions.clone();
    positions.sort_unstable_by_key(|position| (position.topic, position.partition));
    let mut text = Writer::new(VERSION, cursor.group.as_str().len() + 20 + positions.len() * 6);
    text.text(cursor.group.as_str());
    for of_topic in positions.chunk_by(|a, b| a.topic == b.topic) {
        text.id(of_topic[0].topic);
        text.number(of_topic.len() as u64);
        let mut least = 0;
        for position in of_topic {
            text.partition(position.partition, &mut least);
            text.number(position.epoch.0.into());
            text.number(position.next.0);
        }
    }
    text.finish()
}

/// The positions of a cursor, by topic id and partition; none if it is not one that [`encode_group`] makes.
pub(crate) fn decode_group(text: &str) -> Option<GroupCursor> {
    let mut cursor = Reader::open(text, VERSION)?;
    let group = GroupName::new(cursor.text()?).ok()?;
    let mut positions: Vec<GroupPosition> = Vec::new();
    while !cursor.is_at_end() {
        let topic = cursor.id()?;
        if positions.last().is_some_and(|before| before.topic >= topic) {
            return None;
        }
        let (count, mut least) = (cursor.number()?, 0);
        if count == 0 {
            return None;
        }
        for _ in 0..count {
            let partition = cursor.partition(&mut least)?;
            let epoch = AssignmentEpoch(u32::try_from(cursor.number()?).ok()?);
            positions.push(GroupPosition { topic, partition, epoch, next: cursor.offset()? });
        }
    }
    Some(GroupCursor { group, positions })
}

#[cfg(test)]
mod tests {
    use levada_model::limits::{JSON_INTEGER_MAX, PARTITIONS_MAX};
    use levada_model::{Offset, PartitionIndex, TopicId};
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::cursor::envelope::tests::{comes_back, is_told_where_mangled};

    fn any_cursor() -> impl Strategy<Value = GroupCursor> {
        let place = (0..3_u128, 0..PARTITIONS_MAX);
        let positions = prop::collection::btree_map(place, (any::<u32>(), 0..=JSON_INTEGER_MAX), 0..20);
        ("[a-zA-Z0-9_-]{1,30}", positions).prop_map(|(group, positions)| GroupCursor {
            group: GroupName::new(&group).expect("within the rule"),
            positions: positions
                .into_iter()
                .map(|((topic, partition), (epoch, next))| GroupPosition {
                    topic: TopicId(Uuid::from_u128(topic)),
                    partition: PartitionIndex(partition),
                    epoch: AssignmentEpoch(epoch),
                    next: Offset(next),
                })
                .collect(),
        })
    }

    proptest! {
        #[test]
        fn a_cursor_gives_back_its_positions_and_is_safe_in_addresses(cursor in any_cursor()) {
            comes_back(&cursor, encode_group, decode_group);
        }

        #[test]
        fn the_order_of_positions_does_not_matter(cursor in any_cursor()) {
            let mut turned = cursor.clone();
            turned.positions.reverse();
            prop_assert_eq!(encode_group(&turned), encode_group(&cursor));
        }

        #[test]
        fn a_mangled_cursor_is_told(cursor in any_cursor(), at: prop::sample::Index, with in "[A-Za-z0-9_-]") {
            is_told_where_mangled(&encode_group(&cursor), at, &with, decode_group);
        }

        #[test]
        fn any_text_is_a_cursor_or_not_and_never_panics(text in "[A-Za-z0-9_-]{0,80}") {
            _ = decode_group(&text);
        }
    }
}
