//! The records of `__consumer_offsets`, each kind in a file of its own; see `broker/docs/formats/consumer-offsets.md`.

mod classic_member;
mod group;
mod member;
mod offset;
pub(crate) mod wire;

use levada_model::GroupName;

pub(crate) use classic_member::{ClassicMemberKey, ClassicMemberRecord};
pub(crate) use group::{ClassicTerms, GroupRecord};
pub(crate) use member::{Hold, MemberKey, MemberRecord, Place};
pub(crate) use offset::{OffsetKey, OffsetRecord};

/// A key of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Offset(OffsetKey),
    Group(GroupName),
    Member(MemberKey),
    ClassicMember(ClassicMemberKey),
}

impl Key {
    /// Reads the stored form.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        match bytes.first() {
            Some(&offset::KEY_VERSION) => OffsetKey::decode(bytes).map(Self::Offset),
            Some(&group::KEY_VERSION) => group::decode_key(bytes).map(Self::Group),
            Some(&member::KEY_VERSION) => MemberKey::decode(bytes).map(Self::Member),
            Some(&classic_member::KEY_VERSION) => ClassicMemberKey::decode(bytes).map(Self::ClassicMember),
            Some(version) => Err(format!("key version {version} is not known here")),
            None => Err("the key is empty".to_owned()),
        }
    }
}
