//! A member of Kafka's classic group protocol.

use bytes::{BufMut, Bytes};
use levada_model::{GroupName, InstanceId, MemberId};

use super::wire::{Reader, put_text};
use crate::classic::ClassicProtocol;

pub(super) const KEY_VERSION: u8 = 4;
const VERSION: u8 = 1;

/// Who of which group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassicMemberKey {
    pub(crate) group: GroupName,
    pub(crate) member: MemberId,
}

/// A classic member: what it said when it joined, and its assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassicMemberRecord {
    pub(crate) instance_id: Option<InstanceId>,
    pub(crate) client: String,
    pub(crate) session_timeout_ms: u64,
    pub(crate) rebalance_timeout_ms: u64,
    /// The preferred one first.
    pub(crate) protocols: Vec<ClassicProtocol>,
    pub(crate) assignment: Bytes,
}

impl ClassicMemberKey {
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

impl ClassicMemberRecord {
    /// The stored form.
    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = vec![VERSION];
        put_text(&mut bytes, self.instance_id.as_ref().map_or("", InstanceId::as_str));
        put_text(&mut bytes, &self.client);
        bytes.put_u64(self.session_timeout_ms);
        bytes.put_u64(self.rebalance_timeout_ms);
        bytes.put_u16(u16::try_from(self.protocols.len()).expect("the edge bounds them"));
        for protocol in &self.protocols {
            put_text(&mut bytes, &protocol.name);
            put_blob(&mut bytes, &protocol.metadata);
        }
        put_blob(&mut bytes, &self.assignment);
        bytes.into()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader::open(bytes, VERSION)?;
        let instance_id = reader.optional_name(InstanceId::new)?;
        let client = reader.text()?.to_owned();
        let session_timeout_ms = reader.u64()?;
        let rebalance_timeout_ms = reader.u64()?;
        let protocol = |reader: &mut Reader<'_>| {
            Ok::<_, String>(ClassicProtocol { name: reader.text()?.to_owned(), metadata: blob(reader)? })
        };
        let protocols = (0..reader.u16()?).map(|_| protocol(&mut reader)).collect::<Result<_, _>>()?;
        let assignment = blob(&mut reader)?;
        reader.end()?;
        Ok(Self { instance_id, client, session_timeout_ms, rebalance_timeout_ms, protocols, assignment })
    }

    /// What it says for a protocol, if it speaks it.
    pub(crate) fn metadata(&self, protocol: &str) -> Option<&Bytes> {
        self.protocols.iter().find(|spoken| spoken.name == protocol).map(|spoken| &spoken.metadata)
    }
}

fn put_blob(bytes: &mut Vec<u8>, blob: &[u8]) {
    bytes.put_u32(u32::try_from(blob.len()).expect("the edge bounds it"));
    bytes.put_slice(blob);
}

fn blob(reader: &mut Reader<'_>) -> Result<Bytes, String> {
    let len = reader.u32()? as usize;
    Ok(Bytes::copy_from_slice(reader.bytes(len)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    proptest! {
        #[test]
        fn what_is_stored_comes_back(
            group in "[a-zA-Z0-9_-]{1,249}", member in "[a-z0-9-]{1,36}", instance in "[a-z/]{0,9}", client in ".{0,40}",
            names in proptest::collection::vec("[a-z]{1,9}", 0..4), times: [u64; 2],
            blob in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let member = MemberId::new(&member).expect("within the rule");
            let blob = Bytes::from(blob);
            let protocol = |name: &String| ClassicProtocol { name: name.clone(), metadata: blob.clone() };
            let record = ClassicMemberRecord {
                instance_id: InstanceId::new(&instance).ok(),
                client,
                session_timeout_ms: times[0],
                rebalance_timeout_ms: times[1],
                protocols: names.iter().map(protocol).collect(),
                assignment: blob.clone(),
            };
            assert_eq!(ClassicMemberRecord::decode(&record.encode()), Ok(record));
            let key = ClassicMemberKey { group: GroupName::new(&group).expect("within the rule"), member };
            assert_eq!(ClassicMemberKey::decode(&key.encode()), Ok(key));
        }

        #[test]
        fn no_bytes_stop_the_reader(version in 0u8..5, bytes in proptest::collection::vec(0u8..9, 0..100)) {
            let bytes = [&[version], &bytes[..]].concat();
            drop(ClassicMemberKey::decode(&bytes));
            drop(ClassicMemberRecord::decode(&bytes));
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format_document() {
        let member = MemberId::new("m").expect("within the rule");
        let key = ClassicMemberKey { group: GroupName::new("g").expect("within the rule"), member };
        assert_eq!(&key.encode()[..], [4, 0, 1, b'g', 0, 1, b'm']);
        let record = ClassicMemberRecord {
            instance_id: Some(InstanceId::new("i").expect("within the rule")),
            client: "c".to_owned(),
            session_timeout_ms: 1,
            rebalance_timeout_ms: 2,
            protocols: vec![ClassicProtocol { name: "p".to_owned(), metadata: Bytes::from_static(&[7]) }],
            assignment: Bytes::from_static(&[8, 9]),
        };
        let texts = [1, 0, 1, b'i', 0, 1, b'c'];
        let times = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
        let rest = [0, 1, 0, 1, b'p', 0, 0, 0, 1, 7, 0, 0, 0, 2, 8, 9];
        assert_eq!(record.encode(), [&texts[..], &times, &rest].concat());
    }
}
