//! The groups layout: what aggregators are given.

use super::{LAYOUT_VERSION, len_u32, put_bytes};
use crate::Groups;

impl Groups {
    /// The groups as a module is given them.
    ///
    /// # Panics
    /// When there are more than `u32::MAX` groups, accumulators or records, or an accumulator is larger than 4 GiB.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![LAYOUT_VERSION, 0, 0, 0];
        bytes.extend_from_slice(&len_u32(self.groups.len()).to_le_bytes());
        bytes.extend_from_slice(&self.moment.time.0.to_le_bytes());
        bytes.extend_from_slice(&self.moment.seed.to_le_bytes());
        for group in &self.groups {
            bytes.push(group.window.is_some().into());
            put_bytes(&mut bytes, group.key.as_bytes());
            if let Some(window) = group.window {
                bytes.extend_from_slice(&window.start.0.to_le_bytes());
                bytes.extend_from_slice(&window.end.0.to_le_bytes());
            }
            bytes.extend_from_slice(&len_u32(group.accumulators.len()).to_le_bytes());
            group.accumulators.iter().for_each(|accumulator| put_bytes(&mut bytes, accumulator));
            bytes.extend_from_slice(&len_u32(group.records.len()).to_le_bytes());
            group.records.iter().for_each(|place| bytes.extend_from_slice(&place.to_le_bytes()));
        }
        bytes
    }
}
