//! A version of a module: name and number → digest, size, worlds, schema, time. The key is the name, a zero byte and the
//! number (32 bits, big-endian), so that the versions of a module lie together and in order.

use levada_model::ModuleName;

use crate::metadata::ModuleVersionImage;

/// The stored key.
pub(crate) fn key(name: &ModuleName, number: u32) -> Vec<u8> {
    let mut key = name.as_str().as_bytes().to_vec();
    key.push(0);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The stored key and value.
pub(crate) fn encode(name: &ModuleName, number: u32, version: &ModuleVersionImage) -> (Vec<u8>, Vec<u8>) {
    (key(name, number), super::encode(version))
}

/// Reads the stored key and value.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<(ModuleName, u32, ModuleVersionImage), String> {
    let (name, number) = key.split_last_chunk().ok_or("the key is short")?;
    let [name @ .., 0] = name else { return Err("the key has no zero byte".to_owned()) };
    let name = std::str::from_utf8(name).map_err(|error| error.to_string())?;
    let name = ModuleName::new(name).map_err(|error| error.to_string())?;
    Ok((name, u32::from_be_bytes(*number), super::decode(value)?))
}

#[cfg(test)]
mod tests {
    use levada_extension::{ModuleDigest, ModuleWorld};
    use levada_model::Timestamp;
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
    use serde_json::json;

    use super::*;

    fn world() -> impl Strategy<Value = ModuleWorld> {
        prop_oneof![
            Just(ModuleWorld::Partitioner),
            Just(ModuleWorld::Assignor),
            Just(ModuleWorld::Transform),
            Just(ModuleWorld::Aggregator)
        ]
    }

    proptest! {
        #[test]
        fn what_is_stored_comes_back(
            name in "[a-zA-Z0-9_-]{1,249}",
            number: u32,
            digest: [u8; 32],
            size_bytes: u64,
            worlds in proptest::collection::vec(world(), 1..4),
            schema in proptest::option::of(any::<i64>()),
            time: i64,
        ) {
            let name = ModuleName::new(&name).expect("within the rule");
            let version = ModuleVersionImage {
                digest: ModuleDigest(digest),
                size_bytes,
                worlds,
                config_schema: schema.map(|minimum| json!({ "minimum": minimum })),
                created_at: Timestamp(time),
            };
            let (key, value) = encode(&name, number, &version);
            assert_eq!(decode(&key, &value), Ok((name, number, version)));
        }
    }
}
