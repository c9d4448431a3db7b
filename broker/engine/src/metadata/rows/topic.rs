//! A topic: name → identity, version, settings, partitions.

use levada_model::TopicName;

use crate::metadata::TopicImage;

/// The stored key and value.
pub(crate) fn encode(name: &TopicName, topic: &TopicImage) -> (Vec<u8>, Vec<u8>) {
    (name.as_str().as_bytes().to_vec(), super::encode(topic))
}

/// Reads the stored key and value.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<(TopicName, TopicImage), String> {
    let name = std::str::from_utf8(key).map_err(|error| error.to_string())?;
    let name = TopicName::new(name).map_err(|error| error.to_string())?;
    let topic: TopicImage = super::decode(value)?;
    Ok((name, topic))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use levada_model::{LeaderEpoch, Offset, TopicId};
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
    use serde_json::json;

    use super::*;
    use crate::metadata::{PartitionImage, Stage};

    fn partition() -> impl Strategy<Value = PartitionImage> {
        let stage = prop_oneof![Just(Stage::Active), Just(Stage::Retiring), Just(Stage::Dropped)];
        (stage, any::<i32>(), any::<u64>()).prop_map(|(stage, epoch, start)| PartitionImage {
            stage,
            leader_epoch: LeaderEpoch(epoch),
            start_at: Offset(start),
        })
    }

    proptest! {
        #[test]
        fn what_is_stored_comes_back(
            name in "[a-zA-Z0-9_-]{1,249}",
            id: u128,
            version: u64,
            config in proptest::collection::btree_map("[a-z.]{1,20}", any::<i64>(), 0..4),
            partitions in proptest::collection::vec(partition(), 0..5),
        ) {
            let name = TopicName::new(&name).expect("within the rule");
            let config: BTreeMap<_, _> = config.into_iter().map(|(key, value)| (key, json!(value))).collect();
            let topic = TopicImage { id: TopicId(uuid::Uuid::from_u128(id)), version, config, partitions };
            let (key, value) = encode(&name, &topic);
            assert_eq!(decode(&key, &value), Ok((name, topic)));
        }
    }
}
