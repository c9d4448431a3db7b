//! A topic that was deleted and whose directories may still be there: topic id → name.

use levada_model::{TopicId, TopicName};
use uuid::Uuid;

/// The stored key and value.
pub(crate) fn encode(id: TopicId, name: &TopicName) -> (Vec<u8>, Vec<u8>) {
    (id.0.as_bytes().to_vec(), super::encode(name))
}

/// Reads the stored key and value.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<(TopicId, TopicName), String> {
    let id = Uuid::from_slice(key).map_err(|error| error.to_string())?;
    Ok((TopicId(id), super::decode(value)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::*;

    proptest! {
        #[test]
        fn what_is_stored_comes_back(id: u128, name in "[a-zA-Z0-9_-]{1,249}") {
            let (id, name) = (TopicId(Uuid::from_u128(id)), TopicName::new(&name).expect("within the rule"));
            let (key, value) = encode(id, &name);
            assert_eq!(decode(&key, &value), Ok((id, name)));
        }
    }
}
