//! The parts of a record that an extension reads, as it declares them.

use std::ops::BitOr;

/// A set of parts of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields(u8);

impl Fields {
    /// The key.
    pub const KEY: Self = Self(1);
    /// The value.
    pub const VALUE: Self = Self(1 << 1);
    /// The headers.
    pub const HEADERS: Self = Self(1 << 2);
    /// The timestamp.
    pub const TIMESTAMP: Self = Self(1 << 3);
    /// Topic, partition and offset.
    pub const PLACE: Self = Self(1 << 4);

    /// No part.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Whether all of `fields` are in the set.
    #[must_use]
    pub fn contains(self, fields: Self) -> bool {
        self.0 & fields.0 == fields.0
    }

    /// The set as the layouts write it: key, value, headers, timestamp, place, from the lowest bit.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The set that [`bits`](Self::bits) writes so; bits without a meaning count for nothing.
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        Self(bits & 0b1_1111)
    }

    /// Those that are in both sets.
    pub(crate) fn intersection(self, fields: Self) -> Self {
        Self(self.0 & fields.0)
    }
}

impl BitOr for Fields {
    type Output = Self;

    fn bitor(self, fields: Self) -> Self {
        Self(self.0 | fields.0)
    }
}
