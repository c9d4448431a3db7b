//! The cursor of a group's member.
//!
//! Body: the group's name with its length before it | for each topic, in order of id: its id (16 bytes) | how many runs of
//! neighbouring partitions of one assignment epoch follow | for each run: the number of its first partition, how many
//! follow it, the epoch, and of each partition its next offset less that of the partition before (of the topic's first: its
//! next offset). A member may hold all of a topic's partitions, and the cursor has to fit into an address.

use levada_engine::{AssignmentEpoch, GroupCursor, GroupPosition};
use levada_model::{GroupName, Offset};

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
        text.number(of_topic.chunk_by(is_neighbour).count() as u64);
        let (mut least, mut before) = (0, Offset(0));
        for run in of_topic.chunk_by(is_neighbour) {
            text.partition(run[0].partition, &mut least);
            text.number(run.len() as u64 - 1);
            text.number(run[0].epoch.0.into());
            for position in run {
                text.offset_from(before, position.next);
                before = position.next;
            }
            least += run.len() as u64 - 1;
        }
    }
    text.finish()
}

fn is_neighbour(a: &GroupPosition, b: &GroupPosition) -> bool {
    a.epoch == b.epoch && a.partition.0.checked_add(1) == Some(b.partition.0)
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
        let (runs, mut least, mut next) = (cursor.number()?, 0, Offset(0));
        for _ in 0..runs {
            let mut partition = cursor.partition(&mut least)?;
            let more = cursor.number()?;
            let epoch = AssignmentEpoch(u32::try_from(cursor.number()?).ok()?);
            next = cursor.offset_from(next)?;
            positions.push(GroupPosition { topic, partition, epoch, next });
            for _ in 0..more {
                partition = cursor.neighbour(&mut least)?;
                next = cursor.offset_from(next)?;
                positions.push(GroupPosition { topic, partition, epoch, next });
            }
        }
        if positions.last().is_none_or(|last| last.topic != topic) {
            return None;
        }
    }
    Some(GroupCursor { group, positions })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use levada_model::limits::{JSON_INTEGER_MAX, PARTITIONS_MAX};
    use levada_model::{PartitionIndex, TopicId};
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::cursor::envelope::tests::{comes_back, forged, is_told_where_mangled};

    fn any_cursor() -> impl Strategy<Value = GroupCursor> {
        let place = (0..3_u128, 0..PARTITIONS_MAX);
        // Neighbours of one epoch, and others.
        let place = prop_oneof![place, (0..2_u128, 0..6_u32)];
        let epoch = prop_oneof![any::<u32>(), 7..9_u32];
        let positions = prop::collection::btree_map(place, (epoch, 0..=JSON_INTEGER_MAX), 0..20);
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

    #[test]
    fn a_cursor_of_ten_thousand_partitions_fits_into_an_address() {
        let position = |partition: u32| GroupPosition {
            topic: TopicId(Uuid::nil()),
            partition: PartitionIndex(partition),
            epoch: AssignmentEpoch(1_000),
            next: Offset(5_000_000 + u64::from(partition) * 7_919 % 8_000),
        };
        let positions = (0..PARTITIONS_MAX).map(position).collect();
        let group = GroupName::new("billing").expect("within the rule");
        let text = encode_group(&GroupCursor { group, positions });
        assert!(text.len() < 28 << 10, "{}", text.len());
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
        fn a_forged_cursor_is_none_or_names_each_partition_once_and_in_order(
            topics in prop::collection::vec((any::<[u8; 16]>(), prop::collection::vec(0..200_u8, 0..12)), 0..3),
        ) {
            let topics = topics.iter().flat_map(|(id, rest)| id.iter().chain(rest)).copied();
            let body: Vec<u8> = [1, b'g'].into_iter().chain(topics).collect();
            if let Some(cursor) = decode_group(&forged(VERSION, &body)) {
                prop_assert!(cursor.positions.is_sorted_by_key(|position| (position.topic, position.partition)));
                let places: BTreeSet<_> = cursor.positions.iter().map(|p| (p.topic, p.partition)).collect();
                prop_assert_eq!(places.len(), cursor.positions.len());
                comes_back(&cursor, encode_group, decode_group);
            }
        }

        #[test]
        fn any_text_is_a_cursor_or_not_and_never_panics(text in "[A-Za-z0-9_-]{0,80}") {
            _ = decode_group(&text);
        }
    }
}
