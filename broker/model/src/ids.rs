//! Newtypes for what identifies or counts something, so that no two of them can be mixed up.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// The place of a record in its partition. Dense from 0, never given twice.
    Offset(u64)
}
number! {
    /// A partition's number within its topic.
    PartitionIndex(u32)
}
number! {
    /// The term of a partition's leader (KIP-101). Stamped into every batch.
    LeaderEpoch(i32)
}
number! {
    /// Who produced a batch: given out by the broker, or derived from an `Idempotency-Key`. Non-negative.
    ProducerId(i64)
}
number! {
    /// The term of a producer; a higher one fences the lower. Non-negative.
    ProducerEpoch(i16)
}
number! {
    /// The place of a batch's first record in its producer's stream to one partition; wraps after `i32::MAX` to 0.
    Sequence(i32)
}
number! {
    /// Milliseconds since 1970 (UTC).
    Timestamp(i64)
}
number! {
    /// Milliseconds on a clock that never goes back, from an origin of its own: for time-outs and leases, never stored.
    Tick(u64)
}
number! {
    /// A node of the cluster; 1 on a single node.
    NodeId(u32)
}

impl Offset {
    /// The offset `count` places on.
    #[must_use]
    pub fn advance(self, count: u64) -> Self {
        Self(self.0 + count)
    }
}

impl Sequence {
    /// The sequence `count` records on, wrapping as Kafka's does.
    #[must_use]
    pub fn advance(self, count: u32) -> Self {
        let modulus = i64::from(i32::MAX) + 1;
        let next = (i64::from(self.0) + i64::from(count)) % modulus;
        Self(i32::try_from(next).expect("below the modulus"))
    }
}

macro_rules! uuid {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
    };
}

uuid! {
    /// A topic's identity: a topic deleted and created anew has the same name and another id.
    TopicId
}
uuid! {
    /// The identity of the cluster, drawn when its first node starts.
    ClusterId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_wraps_to_zero_after_its_largest() {
        assert_eq!(Sequence(i32::MAX).advance(1), Sequence(0));
        assert_eq!(Sequence(i32::MAX - 1).advance(3), Sequence(1));
        assert_eq!(Sequence(0).advance(0), Sequence(0));
    }
}
