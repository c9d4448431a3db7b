//! The groups layout.

use super::LAYOUT_VERSION;
use super::reader::{LayoutError, Reader, len_u32, put_bytes};
use crate::{Call, Group, Window};

/// The groups of one call.
#[derive(Clone, Debug)]
pub(crate) struct Groups<'a> {
    pub(crate) groups: Vec<GroupRef<'a>>,
}

/// A group with its accumulators and the places of its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupRef<'a> {
    pub(crate) group: Group<'a>,
    pub(crate) accumulators: Vec<&'a [u8]>,
    pub(crate) places: Vec<u32>,
}

impl<'a> Groups<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let mut reader = Reader::open(bytes)?;
        reader.array::<3>()?;
        let count = reader.u32()?;
        let call = Call { time_ms: reader.i64()?, seed: reader.u64()? };
        let mut groups = Vec::new();
        for _ in 0..count {
            groups.push(group(&mut reader, call)?);
        }
        reader.close()?;
        Ok(Self { groups })
    }

    /// The head of groups, behind which each is written.
    pub(crate) fn head(call: Call, count: usize) -> Vec<u8> {
        let mut bytes = vec![LAYOUT_VERSION, 0, 0, 0];
        bytes.extend_from_slice(&len_u32(count).to_le_bytes());
        bytes.extend_from_slice(&call.time_ms.to_le_bytes());
        bytes.extend_from_slice(&call.seed.to_le_bytes());
        bytes
    }
}

fn group<'a>(reader: &mut Reader<'a>, call: Call) -> Result<GroupRef<'a>, LayoutError> {
    let [kind] = reader.array()?;
    if kind > 1 {
        return Err(reader.error("an unknown kind of group"));
    }
    let length = reader.u32()? as usize;
    let key = reader.text(length)?;
    let window = match kind {
        1 => Some(Window { start_ms: reader.i64()?, end_ms: reader.i64()? }),
        _ => None,
    };
    let mut accumulators = Vec::new();
    for _ in 0..reader.u32()? {
        accumulators.push(reader.bytes()?);
    }
    let mut places = Vec::new();
    for _ in 0..reader.u32()? {
        places.push(reader.u32()?);
    }
    Ok(GroupRef { group: Group { key, window, call }, accumulators, places })
}

/// Writes a group, for the tests.
pub(crate) fn put_group(bytes: &mut Vec<u8>, group: &GroupRef<'_>) {
    bytes.push(group.group.window.is_some().into());
    put_bytes(bytes, group.group.key.as_bytes());
    if let Some(window) = group.group.window {
        bytes.extend_from_slice(&window.start_ms.to_le_bytes());
        bytes.extend_from_slice(&window.end_ms.to_le_bytes());
    }
    bytes.extend_from_slice(&len_u32(group.accumulators.len()).to_le_bytes());
    group.accumulators.iter().for_each(|accumulator| put_bytes(bytes, accumulator));
    bytes.extend_from_slice(&len_u32(group.places.len()).to_le_bytes());
    group.places.iter().for_each(|place| bytes.extend_from_slice(&place.to_le_bytes()));
}
