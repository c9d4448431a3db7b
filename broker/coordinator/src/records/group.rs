//! What belongs to a group as a whole.

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use levada_model::{GroupName, MemberId, Timestamp, limits};

use super::wire::{Reader, put_text};
use crate::terms::{AssignorFallback, Generation};

pub(super) const KEY_VERSION: u8 = 2;
const VERSION: u8 = 1;

const DUE: u8 = 1;
const EMPTY: u8 = 2;
const FALLBACK: u8 = 4;
const CLASSIC: u8 = 8;

/// A group; the default is one that never had a member, and is not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupRecord {
    pub(crate) generation: Generation,
    /// Whether something changed that the assignment in force knows nothing of.
    pub(crate) rebalance_due: bool,
    /// Since when it has no members; none while it has some, and if it never had one.
    pub(crate) empty_since: Option<Timestamp>,
    /// The assignor that the assignment in force was asked of.
    pub(crate) assignor: Option<Arc<str>>,
    /// Why the assignment in force is not that assignor's.
    pub(crate) fallback: Option<AssignorFallback>,
    /// What members of Kafka's classic protocol agreed on; none for the other kind.
    pub(crate) classic: Option<ClassicTerms>,
}

/// What the members of a classic group agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClassicTerms {
    pub(crate) protocol_type: String,
    /// The protocol of the generation in force.
    pub(crate) protocol: Option<String>,
    /// Who computes its assignment.
    pub(crate) leader: Option<MemberId>,
}

/// The stored form of a group's key.
fn encode_key(group: &GroupName) -> Bytes {
    let mut bytes = vec![KEY_VERSION];
    put_text(&mut bytes, group.as_str());
    bytes.into()
}

pub(super) fn decode_key(bytes: &[u8]) -> Result<GroupName, String> {
    let mut reader = Reader::open(bytes, KEY_VERSION)?;
    let group = reader.name(GroupName::new)?;
    reader.end()?;
    Ok(group)
}

impl GroupRecord {
    /// The stored form of the key.
    pub(crate) fn key(group: &GroupName) -> Bytes {
        encode_key(group)
    }

    /// The stored form.
    pub(crate) fn encode(&self) -> Bytes {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(self.rebalance_due, DUE)
            | flag(self.empty_since.is_some(), EMPTY)
            | flag(self.fallback.is_some(), FALLBACK)
            | flag(self.classic.is_some(), CLASSIC);
        let mut bytes = vec![VERSION, flags];
        bytes.put_u32(self.generation.0);
        bytes.put_i64(self.empty_since.unwrap_or_default().0);
        put_text(&mut bytes, self.assignor.as_deref().unwrap_or_default());
        if let Some(fallback) = &self.fallback {
            bytes.put_u32(fallback.generation.0);
            put_text(&mut bytes, &fallback.assignor);
            put_text(&mut bytes, &fallback.reason);
        }
        if let Some(terms) = &self.classic {
            put_text(&mut bytes, &terms.protocol_type);
            put_text(&mut bytes, terms.protocol.as_deref().unwrap_or_default());
            put_text(&mut bytes, terms.leader.as_ref().map_or("", MemberId::as_str));
        }
        bytes.into()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader::open(bytes, VERSION)?;
        let flags = reader.u8()?;
        if flags & !(DUE | EMPTY | FALLBACK | CLASSIC) != 0 {
            return Err(format!("flags {flags} are not known here"));
        }
        let generation = Generation(reader.u32()?);
        let empty_since = Timestamp(reader.i64()?);
        let assignor = reader.text()?;
        let fallback = (flags & FALLBACK != 0).then(|| fallback(&mut reader)).transpose()?;
        let classic = (flags & CLASSIC != 0).then(|| classic(&mut reader)).transpose()?;
        let record = Self {
            generation,
            rebalance_due: flags & DUE != 0,
            empty_since: (flags & EMPTY != 0).then_some(empty_since),
            assignor: (!assignor.is_empty()).then(|| assignor.into()),
            fallback,
            classic,
        };
        reader.end()?;
        Ok(record)
    }
}

fn fallback(reader: &mut Reader<'_>) -> Result<AssignorFallback, String> {
    let generation = Generation(reader.u32()?);
    let assignor = reader.text()?.into();
    let reason: String = reader.text()?.chars().take(limits::DETAIL_CHARS_MAX).collect();
    Ok(AssignorFallback { generation, assignor, reason })
}

fn classic(reader: &mut Reader<'_>) -> Result<ClassicTerms, String> {
    let protocol_type = reader.text()?.to_owned();
    let protocol = reader.text()?;
    let leader = reader.optional_name(MemberId::new)?;
    Ok(ClassicTerms { protocol_type, protocol: (!protocol.is_empty()).then(|| protocol.to_owned()), leader })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    proptest! {
        #[test]
        fn what_is_stored_comes_back(
            generation: u32, rebalance_due: bool, empty_since: Option<i64>, assignor in "[a-z:-]{0,20}",
            fallback: Option<u32>, reason in ".{0,40}", leader: Option<bool>,
        ) {
            let record = GroupRecord {
                generation: Generation(generation),
                rebalance_due,
                empty_since: empty_since.map(Timestamp),
                assignor: (!assignor.is_empty()).then(|| assignor.as_str().into()),
                fallback: fallback.map(|generation| AssignorFallback {
                    generation: Generation(generation),
                    assignor: assignor.as_str().into(),
                    reason,
                }),
                classic: leader.map(|leader| ClassicTerms {
                    protocol_type: "consumer".to_owned(),
                    protocol: leader.then(|| "range".to_owned()),
                    leader: leader.then(|| MemberId::new("m").expect("within the rule")),
                }),
            };
            assert_eq!(GroupRecord::decode(&record.encode()), Ok(record));
        }

        #[test]
        fn no_bytes_stop_the_reader(
            version in 0u8..4, flags in 0u8..32, bytes in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let bytes = [&[version, flags], &bytes[..]].concat();
            drop(decode_key(&bytes));
            drop(GroupRecord::decode(&bytes));
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format_document() {
        let group = GroupName::new("g").expect("within the rule");
        assert_eq!(&GroupRecord::key(&group)[..], [2, 0, 1, b'g']);
        let fallback = AssignorFallback { generation: Generation(4), assignor: "m".into(), reason: "no".to_owned() };
        let record = GroupRecord {
            generation: Generation(5),
            rebalance_due: true,
            empty_since: Some(Timestamp(258)),
            assignor: Some("range".into()),
            fallback: Some(fallback),
            classic: Some(ClassicTerms {
                protocol_type: "c".to_owned(),
                protocol: Some("p".to_owned()),
                leader: Some(MemberId::new("m").expect("within the rule")),
            }),
        };
        let start = [1, 15, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 1, 2, 0, 5, b'r', b'a', b'n', b'g', b'e'];
        let fallback = [0, 0, 0, 4, 0, 1, b'm', 0, 2, b'n', b'o'];
        let classic = [0, 1, b'c', 0, 1, b'p', 0, 1, b'm'];
        assert_eq!(record.encode(), [&start[..], &fallback, &classic].concat());
    }
}
