//! Joining a group.

use std::fmt;

use levada_model::limits::{
    ASSIGNOR_CONFIG_BYTES_MAX, GROUP_TOPICS_MAX, MAX_POLL_INTERVAL_MS, REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::{GroupPartition, GroupStart, MemberState};
use crate::strict::whole_within;

const SESSION_TIMEOUT_MS_DEFAULT: u64 = 45_000;
const REBALANCE_TIMEOUT_MS_DEFAULT: u64 = 60_000;
const MAX_POLL_INTERVAL_MS_DEFAULT: u64 = 300_000;

/// A new member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"topics": ["orders"], "assignor": "cooperative-sticky", "session_timeout_ms": 45000,
    "rebalance_timeout_ms": 60000, "max_poll_interval_ms": 300_000, "start": "earliest", "instance_id": null}))]
pub struct JoinGroup {
    /// What it reads: at least one topic, each once.
    #[schema(schema_with = topics)]
    pub topics: Vec<String>,
    /// How the group's partitions shall be shared; where members differ, most win.
    #[serde(default)]
    pub assignor: AssignorWord,
    /// The config of an assignor that is a module, and part of what members differ in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Object>)]
    pub assignor_config: Option<AssignorConfig>,
    /// Silence longer than this removes it.
    #[serde(default = "session_timeout_ms", deserialize_with = "read_session_timeout_ms")]
    #[schema(default = 45_000, minimum = 100, maximum = 1_800_000)]
    pub session_timeout_ms: u64,
    /// How long it may take to give up partitions.
    #[serde(default = "rebalance_timeout_ms", deserialize_with = "read_rebalance_timeout_ms")]
    #[schema(default = 60_000, minimum = 100, maximum = 3_600_000)]
    pub rebalance_timeout_ms: u64,
    /// Heartbeats alone for longer than this remove it.
    #[serde(default = "max_poll_interval_ms", deserialize_with = "read_max_poll_interval_ms")]
    #[schema(default = 300_000, minimum = 100, maximum = 86_400_000)]
    pub max_poll_interval_ms: u64,
    /// Where it begins in partitions of which the group has committed nothing.
    #[serde(default)]
    pub start: GroupStart,
    /// An identity that it keeps over restarts: who joins with it again takes the place of who had it.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 255)]
    pub instance_id: Option<String>,
}

impl JoinGroup {
    /// A member that reads these topics, with every default.
    #[must_use]
    pub fn new(topics: Vec<String>) -> Self {
        Self {
            topics,
            assignor: AssignorWord::default(),
            assignor_config: None,
            session_timeout_ms: SESSION_TIMEOUT_MS_DEFAULT,
            rebalance_timeout_ms: REBALANCE_TIMEOUT_MS_DEFAULT,
            max_poll_interval_ms: MAX_POLL_INTERVAL_MS_DEFAULT,
            start: GroupStart::default(),
            instance_id: None,
        }
    }
}

/// How partitions are shared among members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AssignorWord {
    /// Topic by topic, neighbouring partitions to one member.
    Range,
    /// All partitions in turn.
    RoundRobin,
    /// Evenly, and as much as can be stays where it is.
    Sticky,
    /// As `sticky`.
    #[default]
    CooperativeSticky,
    /// By a Wasm module of this name.
    Module(String),
}

/// The config of an assignor that is a module: a JSON object, equal to another of the same text.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct AssignorConfig(Box<RawValue>);

impl AssignorConfig {
    /// A config that is this JSON text.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn new(json: &str) -> Result<Self, String> {
        Self::of(RawValue::from_string(json.to_owned()).map_err(|error| error.to_string())?)
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    fn of(json: Box<RawValue>) -> Result<Self, String> {
        if !json.get().starts_with('{') {
            return Err("a config is a JSON object".to_owned());
        }
        if json.get().len() > ASSIGNOR_CONFIG_BYTES_MAX {
            return Err(format!("the config of an assignor has at most {ASSIGNOR_CONFIG_BYTES_MAX} bytes"));
        }
        Ok(Self(json))
    }
}

impl PartialEq for AssignorConfig {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for AssignorConfig {}

impl std::str::FromStr for AssignorConfig {
    type Err = String;

    fn from_str(json: &str) -> Result<Self, String> {
        Self::new(json)
    }
}

impl<'de> Deserialize<'de> for AssignorConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::of(Box::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// A text that names no assignor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an assignor is one of range, round-robin, sticky, cooperative-sticky and module:NAME")]
pub struct UnknownAssignor;

impl TryFrom<String> for AssignorWord {
    type Error = UnknownAssignor;

    fn try_from(text: String) -> Result<Self, UnknownAssignor> {
        match (text.as_str(), text.strip_prefix("module:")) {
            ("range", _) => Ok(Self::Range),
            ("round-robin", _) => Ok(Self::RoundRobin),
            ("sticky", _) => Ok(Self::Sticky),
            ("cooperative-sticky", _) => Ok(Self::CooperativeSticky),
            (_, Some(name)) if !name.is_empty() => Ok(Self::Module(name.to_owned())),
            _ => Err(UnknownAssignor),
        }
    }
}

impl std::str::FromStr for AssignorWord {
    type Err = UnknownAssignor;

    fn from_str(text: &str) -> Result<Self, UnknownAssignor> {
        Self::try_from(text.to_owned())
    }
}

impl fmt::Display for AssignorWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range => f.write_str("range"),
            Self::RoundRobin => f.write_str("round-robin"),
            Self::Sticky => f.write_str("sticky"),
            Self::CooperativeSticky => f.write_str("cooperative-sticky"),
            Self::Module(name) => write!(f, "module:{name}"),
        }
    }
}

impl From<AssignorWord> for String {
    fn from(assignor: AssignorWord) -> Self {
        assignor.to_string()
    }
}

impl ToSchema for AssignorWord {}

impl PartialSchema for AssignorWord {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^(range|round-robin|sticky|cooperative-sticky|module:.+)$"))
            .description(Some("How partitions are shared among members"))
            .into()
    }
}

/// A member that has joined. Joining never waits, so its partitions come with its first fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"member_id": "0198c0de", "generation": 0, "assignment": [], "state": "assigning", "cursor": ""}))]
pub struct JoinedGroup {
    /// Who it is from now on.
    pub member_id: String,
    /// The group's generation.
    pub generation: u32,
    /// What it holds: something only if it came back under its instance id.
    pub assignment: Vec<GroupPartition>,
    /// How it stands.
    pub state: MemberState,
    /// For its first fetch: empty, which is at what is committed, or else at its start.
    pub cursor: String,
}

fn session_timeout_ms() -> u64 {
    SESSION_TIMEOUT_MS_DEFAULT
}

fn rebalance_timeout_ms() -> u64 {
    REBALANCE_TIMEOUT_MS_DEFAULT
}

fn max_poll_interval_ms() -> u64 {
    MAX_POLL_INTERVAL_MS_DEFAULT
}

fn read_session_timeout_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    whole_within(deserializer, SESSION_TIMEOUT_MS)
}

fn read_rebalance_timeout_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    whole_within(deserializer, REBALANCE_TIMEOUT_MS)
}

fn read_max_poll_interval_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    whole_within(deserializer, MAX_POLL_INTERVAL_MS)
}

fn topics() -> ArrayBuilder {
    let name = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[a-zA-Z0-9._-]{1,249}$"));
    ArrayBuilder::new()
        .items(name)
        .min_items(Some(1))
        .max_items(Some(GROUP_TOPICS_MAX))
        .unique_items(true)
        .description(Some("What it reads: at least one topic, each once"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strict::from_json;

    #[test]
    fn what_is_absent_has_its_default_and_all_is_written_as_it_is_read() {
        let join: JoinGroup = from_json(br#"{"topics":["orders"]}"#).expect("valid");
        assert_eq!(join, JoinGroup::new(vec!["orders".to_owned()]));
        let written = serde_json::to_string(&join).expect("plain");
        assert_eq!(
            written,
            r#"{"topics":["orders"],"assignor":"cooperative-sticky","session_timeout_ms":45000,"rebalance_timeout_ms":60000,"max_poll_interval_ms":300000,"start":"earliest","instance_id":null}"#
        );
        assert_eq!(from_json::<JoinGroup>(written.as_bytes()).expect("valid"), join);
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_place_and_what_is_taken() {
        for (field, pointer, words) in [
            (r#""assignor":"fair""#, "/assignor", "range, round-robin, sticky, cooperative-sticky and module:NAME"),
            (r#""assignor":"module:""#, "/assignor", "module:NAME"),
            (r#""session_timeout_ms":99"#, "/session_timeout_ms", "100 to 1800000"),
            (r#""rebalance_timeout_ms":3600001"#, "/rebalance_timeout_ms", "100 to 3600000"),
            (r#""max_poll_interval_ms":-1"#, "/max_poll_interval_ms", "100 to 86400000"),
            (r#""assignor_config":[]"#, "/assignor_config", "a JSON object"),
            (r#""start":"time:x""#, "/start", "\"earliest\", \"latest\" or \"time:MS\""),
            (r#""start":7"#, "/start", "a string"),
            (r#""topic":"orders""#, "/topic", "topic"),
        ] {
            let body = format!("{{\"topics\":[\"orders\"],{field}}}");
            let problem = from_json::<JoinGroup>(body.as_bytes()).expect_err(field);
            assert_eq!((problem.status, problem.errors[0].pointer.as_str()), (422, pointer), "{problem:?}");
            assert!(problem.errors[0].detail.contains(words), "{problem:?}");
        }
    }

    #[test]
    fn the_schema_bounds_times_as_they_are_bounded() {
        let schema = serde_json::to_value(JoinGroup::schema()).expect("plain");
        for (name, range, default) in [
            ("session_timeout_ms", SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS_DEFAULT),
            ("rebalance_timeout_ms", REBALANCE_TIMEOUT_MS, REBALANCE_TIMEOUT_MS_DEFAULT),
            ("max_poll_interval_ms", MAX_POLL_INTERVAL_MS, MAX_POLL_INTERVAL_MS_DEFAULT),
        ] {
            let time = &schema["properties"][name];
            assert_eq!(time["minimum"].as_f64(), Some(*range.start() as f64), "{name}");
            assert_eq!(time["maximum"].as_f64(), Some(*range.end() as f64), "{name}");
            assert_eq!(time["default"].as_u64(), Some(default), "{name}");
        }
    }
}
