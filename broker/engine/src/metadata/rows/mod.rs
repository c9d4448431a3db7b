//! The rows that the metadata store keeps, one kind a file, each with encode and decode. Values are JSON with a format
//! number, so that a person can read them and a later version can tell them apart.

pub(crate) mod cluster;
pub(crate) mod deletion;
pub(crate) mod module;
pub(crate) mod module_version;
pub(crate) mod processor;
pub(crate) mod topic;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The format that this version writes, and the only one that it reads.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row<T> {
    format: u32,
    row: T,
}

fn encode<T: Serialize>(row: T) -> Vec<u8> {
    serde_json::to_vec(&Row { format: FORMAT, row }).expect("plain data has a JSON form")
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let row: Row<T> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if row.format == FORMAT { Ok(row.row) } else { Err(format!("format {} is not known here", row.format)) }
}
