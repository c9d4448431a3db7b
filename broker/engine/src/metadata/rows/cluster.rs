//! The one row about the cluster as a whole.

use levada_model::{ClusterId, ProducerId};
use serde::{Deserialize, Serialize};

/// The row's key.
pub(crate) const KEY: &[u8] = b"cluster";

/// The row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterRow {
    /// The cluster's identity.
    pub(crate) cluster_id: ClusterId,
    /// The first producer id that no block holds yet.
    pub(crate) next_producer_id: ProducerId,
}

/// The stored form.
pub(crate) fn encode(row: ClusterRow) -> Vec<u8> {
    super::encode(row)
}

/// Reads the stored form.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn decode(value: &[u8]) -> Result<ClusterRow, String> {
    super::decode(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    proptest! {
        #[test]
        fn what_is_stored_comes_back(id: u128, next in any::<i64>()) {
            let row = ClusterRow { cluster_id: ClusterId(uuid::Uuid::from_u128(id)), next_producer_id: ProducerId(next) };
            assert_eq!(decode(&encode(row)), Ok(row));
        }
    }
}
