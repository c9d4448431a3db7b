//! Committed offsets of consumer groups on the wire.

use std::fmt;

use levada_model::limits::JSON_INTEGER_MAX;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};

use super::GroupStart;
use crate::strict::{objects, whole};

/// Offsets that a group has committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupOffsets {
    /// The group.
    pub group: String,
    /// One entry a partition, by topic and partition.
    pub offsets: Vec<GroupOffset>,
}

/// Where a group stands in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupOffset {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// The offset to read next.
    pub committed: u64,
    /// The end of the partition.
    pub high_watermark: u64,
    /// Offsets between `committed` and the last stable offset.
    pub lag: u64,
    /// When it was committed, in milliseconds since 1970.
    pub committed_at: i64,
}

/// Offsets to commit for a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"offsets": [{"topic": "orders", "partition": 0, "offset": "earliest"}], "dry_run": true}))]
pub struct SetGroupOffsets {
    /// One entry a partition.
    #[serde(deserialize_with = "objects")]
    pub offsets: Vec<SetGroupOffset>,
    /// Only tell what would be committed.
    #[serde(default)]
    pub dry_run: bool,
}

/// The offset to commit for one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetGroupOffset {
    /// The topic.
    pub topic: String,
    /// The partition.
    #[serde(deserialize_with = "whole")]
    pub partition: u32,
    /// The offset to read next.
    #[schema(schema_with = offset_schema)]
    pub offset: OffsetPlace,
}

/// A place in a partition: a number, `earliest`, `latest` or `time:MS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetPlace {
    /// At this offset.
    At(u64),
    /// At the log start.
    Earliest,
    /// At the end.
    Latest,
    /// At the first record of this time (milliseconds since 1970) or later.
    Time(i64),
}

const PLACE_RULE: &str = "an integer from 0 to 9007199254740991, \"earliest\", \"latest\" or \"time:MS\"";

impl Serialize for OffsetPlace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::At(offset) => serializer.serialize_u64(*offset),
            Self::Earliest => serializer.serialize_str("earliest"),
            Self::Latest => serializer.serialize_str("latest"),
            Self::Time(time) => serializer.collect_str(&format_args!("time:{time}")),
        }
    }
}

impl<'de> Deserialize<'de> for OffsetPlace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Place;
        impl Visitor<'_> for Place {
            type Value = OffsetPlace;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(PLACE_RULE)
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<OffsetPlace, E> {
                let refused = || E::invalid_value(Unexpected::Unsigned(n), &self);
                if n > JSON_INTEGER_MAX { Err(refused()) } else { Ok(OffsetPlace::At(n)) }
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<OffsetPlace, E> {
                match text.parse() {
                    Ok(GroupStart::Earliest) => Ok(OffsetPlace::Earliest),
                    Ok(GroupStart::Latest) => Ok(OffsetPlace::Latest),
                    Ok(GroupStart::Time(time)) => Ok(OffsetPlace::Time(time)),
                    Err(_) => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }
        deserializer.deserialize_any(Place)
    }
}

fn offset_schema() -> OneOfBuilder {
    let number =
        ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).maximum(Some(JSON_INTEGER_MAX as f64));
    let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^(earliest|latest|time:-?[0-9]{1,16})$"));
    OneOfBuilder::new().item(number).item(text).description(Some(PLACE_RULE))
}

/// What was committed, or (`dry_run`) would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetGroupOffsetsResult {
    /// One entry a partition, in the order of the request.
    pub offsets: Vec<GroupOffset>,
    /// Whether nothing was changed.
    pub dry_run: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strict::from_json;

    #[test]
    fn places_are_numbers_or_words() {
        for (text, place) in [
            ("7", OffsetPlace::At(7)),
            ("\"earliest\"", OffsetPlace::Earliest),
            ("\"latest\"", OffsetPlace::Latest),
            ("\"time:1700000000123\"", OffsetPlace::Time(1_700_000_000_123)),
        ] {
            assert_eq!(serde_json::from_str::<OffsetPlace>(text).expect(text), place);
            assert_eq!(serde_json::to_string(&place).expect("plain"), text);
        }
        for bad in ["-1", "1.5", "9007199254740992", "\"7\"", "\"time:\"", "\"time:9007199254740992\"", "null", "{}"] {
            let error = serde_json::from_str::<OffsetPlace>(bad).expect_err(bad).to_string();
            assert!(error.contains("\"earliest\", \"latest\""), "{error}");
        }
    }

    #[test]
    fn a_wrong_place_is_named() {
        let body = br#"{"offsets":[{"topic":"t","partition":0,"offset":0},{"topic":"t","partition":1,"offset":"x"}]}"#;
        let problem = from_json::<SetGroupOffsets>(body).expect_err("x is no place");
        assert_eq!(problem.errors[0].pointer, "/offsets/1/offset");
    }
}
