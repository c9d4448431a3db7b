//! Places in the topics of a group: a partition, an offset in it, and where a member begins.

use std::fmt;
use std::str::FromStr;

use levada_model::limits::JSON_INTEGER_MAX;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::strict::whole;

/// A partition of one of the topics of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct GroupPartition {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
}

/// An offset in one of the topics of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"topic": "orders", "partition": 0, "offset": 10}))]
pub struct GroupPlace {
    /// The topic.
    pub topic: String,
    /// The partition.
    #[serde(deserialize_with = "whole")]
    pub partition: u32,
    /// The offset.
    #[serde(deserialize_with = "whole")]
    pub offset: u64,
}

/// Where a member begins in partitions of which nothing is committed: `earliest`, `latest` or `time:MS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GroupStart {
    /// At the log start.
    #[default]
    Earliest,
    /// At the end.
    Latest,
    /// At the first record of this time (milliseconds since 1970) or later.
    Time(i64),
}

/// A text that is no start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a start is \"earliest\", \"latest\" or \"time:MS\" (milliseconds since 1970)")]
pub struct UnknownStart;

impl FromStr for GroupStart {
    type Err = UnknownStart;

    fn from_str(text: &str) -> Result<Self, UnknownStart> {
        let time = |text: &str| text.parse().ok().filter(|time: &i64| time.unsigned_abs() <= JSON_INTEGER_MAX);
        match (text, text.strip_prefix("time:")) {
            ("earliest", _) => Ok(Self::Earliest),
            ("latest", _) => Ok(Self::Latest),
            (_, Some(ms)) => time(ms).map(Self::Time).ok_or(UnknownStart),
            _ => Err(UnknownStart),
        }
    }
}

impl fmt::Display for GroupStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Earliest => f.write_str("earliest"),
            Self::Latest => f.write_str("latest"),
            Self::Time(time) => write!(f, "time:{time}"),
        }
    }
}

impl TryFrom<String> for GroupStart {
    type Error = UnknownStart;

    fn try_from(text: String) -> Result<Self, UnknownStart> {
        text.parse()
    }
}

impl From<GroupStart> for String {
    fn from(start: GroupStart) -> Self {
        start.to_string()
    }
}

impl ToSchema for GroupStart {}

impl PartialSchema for GroupStart {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^(earliest|latest|time:-?[0-9]{1,16})$"))
            .description(Some("Where to begin in partitions of which nothing is committed"))
            .into()
    }
}
