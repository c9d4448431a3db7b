//! A member of a group with the partitions that it has or waits for.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes};
use levada_extension::TopicPartition;
use levada_model::{GroupName, InstanceId, MemberId, PartitionIndex, Timestamp, TopicId, TopicName};
use uuid::Uuid;

use super::wire::{Reader, put_text};
use crate::terms::{AssignmentEpoch, Start};

pub(super) const KEY_VERSION: u8 = 3;
const VERSION: u8 = 1;

const EARLIEST: u8 = 0;
const LATEST: u8 = 1;
const TIME: u8 = 2;

const OWNED: u8 = 0;
const REVOKING: u8 = 1;
const PENDING: u8 = 2;

/// Who of which group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberKey {
    pub(crate) group: GroupName,
    pub(crate) member: MemberId,
}

/// A member: what it said when it joined, and its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberRecord {
    pub(crate) instance_id: Option<InstanceId>,
    /// Ids under which earlier processes had this instance id, the oldest first; bounded.
    pub(crate) replaced: Vec<MemberId>,
    pub(crate) client: String,
    pub(crate) topics: Vec<TopicName>,
    pub(crate) assignor: Arc<str>,
    pub(crate) session_timeout_ms: u64,
    pub(crate) rebalance_timeout_ms: u64,
    pub(crate) max_poll_interval_ms: u64,
    pub(crate) start: Start,
    pub(crate) places: BTreeMap<TopicPartition, Place>,
}

/// A partition of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The topic's name, so that it can be told at any time.
    pub(crate) topic: TopicName,
    pub(crate) hold: Hold,
}

/// How a member has a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It owns it.
    Owned(AssignmentEpoch),
    /// It owns it and is to give it up.
    Revoking(AssignmentEpoch),
    /// It is to own it as soon as another member has given it up.
    Pending,
}

impl Hold {
    /// The holding, unless it is yet to begin.
    pub(crate) fn epoch(self) -> Option<AssignmentEpoch> {
        match self {
            Self::Owned(epoch) | Self::Revoking(epoch) => Some(epoch),
            Self::Pending => None,
        }
    }
}

impl MemberKey {
    /// The stored form.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = vec![KEY_VERSION];
        put_text(&mut bytes, self.group.as_str());
        put_text(&mut bytes, self.member.as_str());
        bytes.into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader::open(bytes, KEY_VERSION)?;
        let group = reader.name(GroupName::new)?;
        let member = reader.name(MemberId::new)?;
        reader.end()?;
        Ok(Self { group, member })
    }
}

impl MemberRecord {
    /// The stored form.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = vec![VERSION];
        put_text(&mut bytes, self.instance_id.as_ref().map_or("", InstanceId::as_str));
        bytes.put_u8(u8::try_from(self.replaced.len()).expect("few are remembered"));
        self.replaced.iter().for_each(|id| put_text(&mut bytes, id.as_str()));
        put_text(&mut bytes, &self.client);
        bytes.put_u16(u16::try_from(self.topics.len()).expect("a subscription is bounded"));
        self.topics.iter().for_each(|topic| put_text(&mut bytes, topic.as_str()));
        put_text(&mut bytes, &self.assignor);
        bytes.put_u64(self.session_timeout_ms);
        bytes.put_u64(self.rebalance_timeout_ms);
        bytes.put_u64(self.max_poll_interval_ms);
        put_start(&mut bytes, self.start);
        put_places(&mut bytes, &self.places);
        bytes.into()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader::open(bytes, VERSION)?;
        let record = Self {
            instance_id: reader.optional_name(InstanceId::new)?,
            replaced: (0..reader.u8()?).map(|_| reader.name(MemberId::new)).collect::<Result<_, _>>()?,
            client: reader.text()?.to_owned(),
            topics: (0..reader.u16()?).map(|_| reader.name(TopicName::new)).collect::<Result<_, _>>()?,
            assignor: reader.text()?.into(),
            session_timeout_ms: reader.u64()?,
            rebalance_timeout_ms: reader.u64()?,
            max_poll_interval_ms: reader.u64()?,
            start: start(&mut reader)?,
            places: places(&mut reader)?,
        };
        reader.end()?;
        Ok(record)
    }
}

fn put_start(bytes: &mut Vec<u8>, start: Start) {
    let (kind, time) = match start {
        Start::Earliest => (EARLIEST, 0),
        Start::Latest => (LATEST, 0),
        Start::Time(time) => (TIME, time.0),
    };
    bytes.put_u8(kind);
    bytes.put_i64(time);
}

fn start(reader: &mut Reader<'_>) -> Result<Start, String> {
    let kind = reader.u8()?;
    let time = Timestamp(reader.i64()?);
    match kind {
        EARLIEST => Ok(Start::Earliest),
        LATEST => Ok(Start::Latest),
        TIME => Ok(Start::Time(time)),
        other => Err(format!("start {other} is not known here")),
    }
}

fn put_places(bytes: &mut Vec<u8>, places: &BTreeMap<TopicPartition, Place>) {
    let list: Vec<_> = places.iter().collect();
    let by_topic: Vec<_> = list.chunk_by(|a, b| a.0.topic == b.0.topic).collect();
    bytes.put_u16(u16::try_from(by_topic.len()).expect("a subscription is bounded"));
    for places in by_topic {
        let (first, place) = places[0];
        bytes.put_slice(first.topic.0.as_bytes());
        put_text(bytes, place.topic.as_str());
        bytes.put_u32(u32::try_from(places.len()).expect("partitions of a topic are bounded"));
        for (partition, place) in places {
            let (kind, epoch) = match place.hold {
                Hold::Owned(epoch) => (OWNED, epoch),
                Hold::Revoking(epoch) => (REVOKING, epoch),
                Hold::Pending => (PENDING, AssignmentEpoch::default()),
            };
            bytes.put_u32(partition.partition.0);
            bytes.put_u8(kind);
            bytes.put_u32(epoch.0);
        }
    }
}

fn places(reader: &mut Reader<'_>) -> Result<BTreeMap<TopicPartition, Place>, String> {
    let mut places = BTreeMap::new();
    for _ in 0..reader.u16()? {
        let id = TopicId(Uuid::from_u128(reader.u128()?));
        let topic = reader.name(TopicName::new)?;
        for _ in 0..reader.u32()? {
            let partition = TopicPartition { topic: id, partition: PartitionIndex(reader.u32()?) };
            let kind = reader.u8()?;
            let epoch = AssignmentEpoch(reader.u32()?);
            let hold = match kind {
                OWNED => Hold::Owned(epoch),
                REVOKING => Hold::Revoking(epoch),
                PENDING => Hold::Pending,
                other => return Err(format!("holding {other} is not known here")),
            };
            if places.insert(partition, Place { topic: topic.clone(), hold }).is_some() {
                return Err("a partition is named twice".to_owned());
            }
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop_oneof, proptest};

    use super::*;

    fn holds() -> impl Strategy<Value = Hold> {
        prop_oneof![
            any::<u32>().prop_map(|epoch| Hold::Owned(AssignmentEpoch(epoch))),
            any::<u32>().prop_map(|epoch| Hold::Revoking(AssignmentEpoch(epoch))),
            any::<bool>().prop_map(|_| Hold::Pending),
        ]
    }

    fn places_of_topics() -> impl Strategy<Value = BTreeMap<TopicPartition, Place>> {
        proptest::collection::btree_map((0u128..3, any::<u32>()), holds(), 0..12).prop_map(|holds| {
            let place = |((id, index), hold)| {
                let topic = TopicName::new(&format!("t{id}")).expect("within the rule");
                let partition =
                    TopicPartition { topic: TopicId(Uuid::from_u128(id)), partition: PartitionIndex(index) };
                (partition, Place { topic, hold })
            };
            holds.into_iter().map(place).collect()
        })
    }

    fn starts() -> impl Strategy<Value = Start> {
        (0u8..3, any::<i64>()).prop_map(|(kind, time)| match kind {
            0 => Start::Earliest,
            1 => Start::Latest,
            _ => Start::Time(Timestamp(time)),
        })
    }

    proptest! {
        #[test]
        fn what_is_stored_comes_back(
            group in "[a-zA-Z0-9_-]{1,249}", member in "[a-z0-9-]{1,36}", instance in "[a-z/]{0,9}",
            client in ".{0,40}", topics in proptest::collection::vec("[a-z]{1,9}", 0..4), times: [u64; 3],
            start in starts(), places in places_of_topics(),
        ) {
            let member = MemberId::new(&member).expect("within the rule");
            let record = MemberRecord {
                instance_id: InstanceId::new(&instance).ok(),
                replaced: vec![member.clone(); topics.len()],
                client,
                topics: topics.iter().map(|topic| TopicName::new(topic).expect("within the rule")).collect(),
                assignor: "range".into(),
                session_timeout_ms: times[0],
                rebalance_timeout_ms: times[1],
                max_poll_interval_ms: times[2],
                start,
                places,
            };
            assert_eq!(MemberRecord::decode(&record.encode()), Ok(record));
            let key = MemberKey { group: GroupName::new(&group).expect("within the rule"), member };
            assert_eq!(MemberKey::decode(&key.encode()), Ok(key));
        }

        #[test]
        fn no_bytes_stop_the_reader(version in 0u8..4, bytes in proptest::collection::vec(0u8..9, 0..200)) {
            let bytes = [&[version], &bytes[..]].concat();
            drop(MemberKey::decode(&bytes));
            drop(MemberRecord::decode(&bytes));
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format_document() {
        let name = |name| TopicName::new(name).expect("within the rule");
        let member = MemberId::new("m").expect("within the rule");
        let key = MemberKey { group: GroupName::new("g").expect("within the rule"), member: member.clone() };
        assert_eq!(&key.encode()[..], [3, 0, 1, b'g', 0, 1, b'm']);
        let place = |index, hold| {
            let partition = TopicPartition { topic: TopicId(Uuid::from_u128(258)), partition: PartitionIndex(index) };
            (partition, Place { topic: name("t"), hold })
        };
        let (owned, revoking) = (Hold::Owned(AssignmentEpoch(2)), Hold::Revoking(AssignmentEpoch(1)));
        let record = MemberRecord {
            instance_id: Some(InstanceId::new("i").expect("within the rule")),
            replaced: vec![member],
            client: "c".to_owned(),
            topics: vec![name("t")],
            assignor: "range".into(),
            session_timeout_ms: 1,
            rebalance_timeout_ms: 2,
            max_poll_interval_ms: 3,
            start: Start::Time(Timestamp(4)),
            places: BTreeMap::from([place(0, owned), place(1, revoking), place(2, Hold::Pending)]),
        };
        let texts = [1, 0, 1, b'i', 1, 0, 1, b'm', 0, 1, b'c', 0, 1, 0, 1, b't', 0, 5, b'r', b'a', b'n', b'g', b'e'];
        let times = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3];
        let start = [2, 0, 0, 0, 0, 0, 0, 0, 4];
        let topic = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 1, b't', 0, 0, 0, 3];
        let places = [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 2, 2, 0, 0, 0, 0];
        assert_eq!(record.encode(), [&texts[..], &times, &start, &topic, &places].concat());
    }
}
