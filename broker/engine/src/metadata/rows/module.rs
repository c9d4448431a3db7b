//! A module: name → owner, active version. Its versions have rows of their own.

use levada_model::{ModuleName, Principal};
use serde::{Deserialize, Serialize};

/// The row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModuleRow {
    owner: String,
    active_version: u32,
}

/// The stored key and value.
pub(crate) fn encode(name: &ModuleName, owner: &Principal, active: u32) -> (Vec<u8>, Vec<u8>) {
    let row = ModuleRow { owner: owner.as_str().to_owned(), active_version: active };
    (name.as_str().as_bytes().to_vec(), super::encode(row))
}

/// Reads the stored key and value.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<(ModuleName, Principal, u32), String> {
    let name = std::str::from_utf8(key).map_err(|error| error.to_string())?;
    let name = ModuleName::new(name).map_err(|error| error.to_string())?;
    let row: ModuleRow = super::decode(value)?;
    Ok((name, Principal::named(&row.owner), row.active_version))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::*;

    proptest! {
        #[test]
        fn what_is_stored_comes_back(name in "[a-zA-Z0-9_-]{1,249}", owner in ".{0,20}", active: u32) {
            let (name, owner) = (ModuleName::new(&name).expect("within the rule"), Principal::named(&owner));
            let (key, value) = encode(&name, &owner, active);
            assert_eq!(decode(&key, &value), Ok((name, owner, active)));
        }
    }
}
