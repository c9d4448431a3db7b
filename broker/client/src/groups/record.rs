//! A record as a group's member reads it: with its topic.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::Record;

/// A record with its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// Its topic.
    pub topic: String,
    /// The record itself; its `wire` names the topic too.
    pub record: Record,
}

impl<'de> Deserialize<'de> for GroupRecord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Place {
            topic: String,
        }
        let wire = Box::<RawValue>::deserialize(deserializer)?;
        let Place { topic } = serde_json::from_str(wire.get()).map_err(D::Error::custom)?;
        Ok(Self { topic, record: Record::from_wire(wire.get()).map_err(D::Error::custom)? })
    }
}
