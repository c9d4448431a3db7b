//! The key of a committed offset in `__consumer_offsets`: group, topic id, partition. See
//! `broker/docs/formats/consumer-offsets.md`.

use bytes::{Buf, BufMut, Bytes};
use levada_model::{GroupName, PartitionIndex, TopicId};
use uuid::Uuid;

const VERSION: u8 = 1;

/// Whose offset of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OffsetKey {
    pub(crate) group: GroupName,
    pub(crate) topic: TopicId,
    pub(crate) partition: PartitionIndex,
}

impl OffsetKey {
    /// The stored form.
    pub(crate) fn encode(&self) -> Bytes {
        let group = self.group.as_str().as_bytes();
        let mut bytes = Vec::with_capacity(1 + 2 + group.len() + 16 + 4);
        bytes.put_u8(VERSION);
        bytes.put_u16(u16::try_from(group.len()).expect("names are short"));
        bytes.put_slice(group);
        bytes.put_slice(self.topic.0.as_bytes());
        bytes.put_u32(self.partition.0);
        bytes.into()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, String> {
        let cut = |_| "the key is cut off".to_owned();
        let version = bytes.try_get_u8().map_err(cut)?;
        if version != VERSION {
            return Err(format!("key version {version} is not known here"));
        }
        let len = bytes.try_get_u16().map_err(cut)?;
        let (group, mut rest) = bytes.split_at_checked(len.into()).ok_or("the key is cut off")?;
        let group = std::str::from_utf8(group).map_err(|error| error.to_string())?;
        let group = GroupName::new(group).map_err(|error| error.to_string())?;
        let topic = TopicId(Uuid::from_u128(rest.try_get_u128().map_err(cut)?));
        let partition = PartitionIndex(rest.try_get_u32().map_err(cut)?);
        if rest.is_empty() { Ok(Self { group, topic, partition }) } else { Err("bytes lie behind the key".to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    proptest! {
        #[test]
        fn what_is_stored_comes_back(group in "[a-zA-Z0-9_-]{1,249}", topic: u128, partition: u32) {
            let group = GroupName::new(&group).expect("within the rule");
            let topic = TopicId(Uuid::from_u128(topic));
            let key = OffsetKey { group, topic, partition: PartitionIndex(partition) };
            assert_eq!(OffsetKey::decode(&key.encode()), Ok(key));
        }

        #[test]
        fn no_bytes_stop_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            drop(OffsetKey::decode(&bytes));
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format_document() {
        let group = GroupName::new("g").expect("within the rule");
        let key = OffsetKey { group, topic: TopicId(Uuid::from_u128(0x0102)), partition: PartitionIndex(3) };
        let expected = [1, 0, 1, b'g', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3];
        assert_eq!(&key.encode()[..], expected);
    }
}
