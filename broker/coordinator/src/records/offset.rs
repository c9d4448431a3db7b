//! A committed offset of a group, or the mark that it has expired.

use bytes::{BufMut, Bytes};
use levada_extension::TopicPartition;
use levada_model::{GroupName, LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId};
use uuid::Uuid;

use super::wire::{Reader, put_text};
use crate::terms::Committed;

pub(super) const KEY_VERSION: u8 = 1;
const COMMITTED: u8 = 1;
const EXPIRED: u8 = 2;

/// Whose offset of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OffsetKey {
    pub(crate) group: GroupName,
    pub(crate) partition: TopicPartition,
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OffsetRecord {
    /// It stands.
    Committed(Committed),
    /// It stood until this time.
    Expired(Timestamp),
}

impl OffsetKey {
    /// The stored form.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = vec![KEY_VERSION];
        put_text(&mut bytes, self.group.as_str());
        bytes.put_slice(self.partition.topic.0.as_bytes());
        bytes.put_u32(self.partition.partition.0);
        bytes.into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader::open(bytes, KEY_VERSION)?;
        let group = reader.name(GroupName::new)?;
        let topic = TopicId(Uuid::from_u128(reader.u128()?));
        let partition = PartitionIndex(reader.u32()?);
        reader.end()?;
        Ok(Self { group, partition: TopicPartition { topic, partition } })
    }
}

impl OffsetRecord {
    /// The stored form.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = Vec::new();
        match self {
            Self::Committed(committed) => {
                bytes.put_u8(COMMITTED);
                bytes.put_u64(committed.offset.0);
                bytes.put_i32(committed.leader_epoch.0);
                bytes.put_i64(committed.committed_at.0);
                bytes.put_u32(u32::try_from(committed.metadata.len()).expect("bounded by the largest record"));
                bytes.put_slice(committed.metadata.as_bytes());
            }
            Self::Expired(at) => {
                bytes.put_u8(EXPIRED);
                bytes.put_i64(at.0);
            }
        }
        bytes.into()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.first() == Some(&EXPIRED) {
            let mut reader = Reader::open(bytes, EXPIRED)?;
            let at = Timestamp(reader.i64()?);
            reader.end()?;
            return Ok(Self::Expired(at));
        }
        let mut reader = Reader::open(bytes, COMMITTED)?;
        let offset = Offset(reader.u64()?);
        let leader_epoch = LeaderEpoch(reader.i32()?);
        let committed_at = Timestamp(reader.i64()?);
        let len = reader.u32()? as usize;
        let metadata = std::str::from_utf8(reader.bytes(len)?).map_err(|error| error.to_string())?.to_owned();
        reader.end()?;
        Ok(Self::Committed(Committed { offset, leader_epoch, committed_at, metadata }))
    }

    /// The commit that stands, if it does.
    pub(crate) fn committed(&self) -> Option<&Committed> {
        match self {
            Self::Committed(committed) => Some(committed),
            Self::Expired(_) => None,
        }
    }

    /// When it was written.
    pub(crate) fn written_at(&self) -> Timestamp {
        match self {
            Self::Committed(committed) => committed.committed_at,
            Self::Expired(at) => *at,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    proptest! {
        #[test]
        fn what_is_stored_comes_back(
            group in "[a-zA-Z0-9_-]{1,249}", topic: u128, partition: u32,
            offset: u64, epoch: i32, at: i64, metadata in ".{0,40}",
        ) {
            let group = GroupName::new(&group).expect("within the rule");
            let partition =
                TopicPartition { topic: TopicId(Uuid::from_u128(topic)), partition: PartitionIndex(partition) };
            let key = OffsetKey { group, partition };
            assert_eq!(OffsetKey::decode(&key.encode()), Ok(key));
            let committed = Committed {
                offset: Offset(offset),
                leader_epoch: LeaderEpoch(epoch),
                committed_at: Timestamp(at),
                metadata,
            };
            for value in [OffsetRecord::Committed(committed), OffsetRecord::Expired(Timestamp(at))] {
                assert_eq!(OffsetRecord::decode(&value.encode()), Ok(value));
            }
        }

        #[test]
        fn no_bytes_stop_the_reader(version in 0u8..4, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let bytes = [&[version], &bytes[..]].concat();
            drop(OffsetKey::decode(&bytes));
            drop(OffsetRecord::decode(&bytes));
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format_document() {
        let group = GroupName::new("g").expect("within the rule");
        let partition = TopicPartition { topic: TopicId(Uuid::from_u128(0x0102)), partition: PartitionIndex(3) };
        let key = OffsetKey { group, partition };
        let expected = [1, 0, 1, b'g', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3];
        assert_eq!(&key.encode()[..], expected);
        let committed = Committed {
            offset: Offset(10),
            leader_epoch: LeaderEpoch(-1),
            committed_at: Timestamp(258),
            metadata: "n".to_owned(),
        };
        let expected = [1, 0, 0, 0, 0, 0, 0, 0, 10, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, b'n'];
        assert_eq!(&OffsetRecord::Committed(committed).encode()[..], expected);
        assert_eq!(&OffsetRecord::Expired(Timestamp(258)).encode()[..], [2, 0, 0, 0, 0, 0, 0, 1, 2]);
    }
}
