//! Topics on the wire: what is sent to create, change and truncate them, and what comes back.

use std::collections::BTreeMap;

use levada_model::ConfigKey;
use levada_model::limits::JSON_INTEGER_MAX;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, SchemaType, Type};

use crate::strict::{objects, unique_names, whole, whole_if_there};

/// A topic to create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "orders", "partitions": 3, "config": {"retention.ms": 604800000}}))]
pub struct CreateTopic {
    /// 1 to 249 of `a-z A-Z 0-9 . _ -`, not `.` or `..`.
    #[schema(pattern = "^[a-zA-Z0-9._-]{1,249}$")]
    pub name: String,
    /// How many partitions.
    #[serde(default = "one", deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 10000, default = 1)]
    pub partitions: u32,
    /// Settings that differ from the defaults.
    #[serde(default, deserialize_with = "unique_names")]
    #[schema(schema_with = settings)]
    pub config: BTreeMap<String, Value>,
}

fn one() -> u32 {
    1
}

/// A change of a topic; what is absent stays as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"partitions": 6, "config": {"retention.ms": null}}))]
pub struct AlterTopic {
    /// How many active partitions there shall be. More are added at once; surplus ones retire.
    #[serde(default, deserialize_with = "whole_if_there", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 10000)]
    pub partitions: Option<u32>,
    /// Settings to set, or (null) to put back to their default.
    #[serde(default, deserialize_with = "unique_names", skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(schema_with = changed_settings)]
    pub config: BTreeMap<String, Option<Value>>,
}

/// Log starts to move up.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TruncateTopic {
    /// One place a partition.
    #[serde(deserialize_with = "objects")]
    pub offsets: Vec<TruncateBefore>,
}

/// Where one partition shall begin.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TruncateBefore {
    /// The partition.
    #[serde(deserialize_with = "whole")]
    pub partition: u32,
    /// Records before this offset go for good.
    #[serde(deserialize_with = "whole")]
    pub before: u64,
}

/// What a truncation left.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TruncatedTopic {
    /// The partitions that were named.
    pub partitions: Vec<TruncatedPartition>,
}

/// One partition after a truncation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TruncatedPartition {
    /// The partition.
    pub partition: u32,
    /// Its first offset now.
    pub log_start_offset: u64,
}

/// What came of a forced compaction: the partitions that are done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompactedTopic {
    /// By number.
    pub partitions: Vec<CompactedPartition>,
}

/// One partition after a forced compaction. Counted are the segments that the pass looked at: all that there were, but
/// for those that `min.compaction.lag.ms` keeps from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompactedPartition {
    /// The partition.
    pub partition: u32,
    /// Bytes of segments before.
    pub before_bytes: u64,
    /// Bytes of segments after.
    pub after_bytes: u64,
    /// Records before.
    pub before_records: u64,
    /// Records after.
    pub after_records: u64,
}

/// A page of topics, by name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TopicList {
    /// The topics.
    pub topics: Vec<Topic>,
    /// Where the next page begins; null on the last.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// A topic as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its identity; a topic created anew under the same name has another.
    #[schema(format = Uuid)]
    pub id: String,
    /// Whether it is the broker's own.
    pub internal: bool,
    /// Active partitions.
    pub partition_count: u32,
    /// All partitions, also retiring ones, by number.
    pub partitions: Vec<Partition>,
    /// What was set.
    #[schema(schema_with = settings)]
    pub config: BTreeMap<String, Value>,
    /// All that holds.
    #[schema(schema_with = all_settings)]
    pub effective_config: BTreeMap<String, Value>,
    /// That murmur2 stood in for the module that is the partitioner; not there if it never did since the broker's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub partitioner_fallbacks: Option<PartitionerFallbacks>,
}

/// How murmur2 stood in for a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartitionerFallbacks {
    /// For how many requests.
    pub count: u64,
    /// Why, the last time.
    pub reason: String,
}

/// A partition as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Partition {
    /// Its number.
    pub partition: u32,
    /// The node that leads it.
    pub leader: u32,
    /// The leader's term.
    pub leader_epoch: i32,
    /// Nodes that hold it.
    pub replicas: Vec<u32>,
    /// Those that are in sync.
    pub isr: Vec<u32>,
    /// First offset there is.
    pub log_start_offset: u64,
    /// Readers read what lies before it.
    pub high_watermark: u64,
    /// `read_committed` readers read what lies before it.
    pub last_stable_offset: u64,
    /// Bytes of log segments, without indexes.
    pub size_bytes: u64,
    /// Whether it takes writes.
    pub state: PartitionState,
    /// How far it is compacted; not there if the topic is not compacted, and not in a list of topics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub compaction: Option<Compaction>,
}

/// How far a partition is compacted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Compaction {
    /// Bytes that a pass could clean now.
    pub dirty_bytes: u64,
    /// Their part of what is clean or could be cleaned, from 0 to 1.
    #[schema(minimum = 0, maximum = 1)]
    pub dirty_ratio: f64,
    /// Below this offset each key's newest record alone is left.
    pub cleaned_to: u64,
    /// What is not compacted yet and why, in order, up to the end of the partition.
    pub uncompacted: Vec<Uncompacted>,
    /// That the last pass failed; not there if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub error: Option<CompactionError>,
}

/// Offsets that are not compacted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Uncompacted {
    /// The first.
    pub from: u64,
    /// Behind the last.
    pub to: u64,
    /// What they wait for.
    pub waiting_for: WaitingFor,
}

/// What compaction waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WaitingFor {
    /// Nothing: the next pass takes it.
    Pass,
    /// More than `min.cleanable.dirty.ratio` to be dirty.
    DirtyRatio,
    /// To be older than `min.compaction.lag.ms`, or what lies before it to be.
    MinLag,
    /// A transaction to be decided.
    Undecided,
    /// The segment that is written to, to be rolled.
    ActiveSegment,
}

/// A pass of compaction that failed. The partition's log is as it was; other topics are compacted all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompactionError {
    /// What happened.
    pub reason: String,
    /// When it happened first, without a pass that succeeded since.
    pub since: i64,
    /// When it is tried again.
    pub retry_at: i64,
}

/// Whether a partition takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionState {
    /// It does.
    Active,
    /// It does not; it is dropped when retention has emptied it.
    Retiring,
}

/// The settings as an object's properties.
fn settings_with(nullable: bool, all: bool) -> ObjectBuilder {
    let mut object = ObjectBuilder::new().additional_properties(Some(AdditionalProperties::FreeForm(false)));
    for key in ConfigKey::all() {
        object = object.property(key.name, setting(key, nullable));
        if all {
            object = object.required(key.name);
        }
    }
    object
}

/// One setting: an integer, a number, an object, a word or a module as its default and its rule say, bounded by the rule.
fn setting(key: &ConfigKey, nullable: bool) -> ObjectBuilder {
    let default = key.default_value();
    let kind = match &default {
        Value::Number(number) if number.is_f64() => Type::Number,
        Value::Number(_) => Type::Integer,
        Value::Object(_) => Type::Object,
        _ => Type::String,
    };
    let schema = ObjectBuilder::new()
        .description(Some(format!("{}; takes {}", key.effect, key.rule)))
        .schema_type(if nullable { SchemaType::from_iter([kind.clone(), Type::Null]) } else { SchemaType::new(kind) })
        .default(Some(default.clone()));
    if default.is_number() {
        let (least, most) = bounds(key.rule);
        return schema.minimum(Some(least)).maximum(Some(most));
    }
    if default.is_object() {
        return schema.additional_properties(Some(AdditionalProperties::FreeForm(true)));
    }
    // In a rule every word that is taken stands between quotation marks.
    let words = key.rule.split('"').skip(1).step_by(2);
    if let Some(word) = words.clone().next().filter(|_| words.clone().any(|word| word.starts_with("module:"))) {
        return schema.pattern(Some(format!("^({word}|module:[a-zA-Z0-9._-]{{1,249}}(@[1-9][0-9]*)?)$")));
    }
    let words = words.map(Value::from);
    schema.enum_values(Some(words.chain(nullable.then_some(Value::Null))))
}

/// The least and the largest number that a rule such as `-1 (for ever) or an integer from 0 to 2^53 - 1` names.
fn bounds(rule: &str) -> (i64, i64) {
    let range = rule.split(", ").next().unwrap_or(rule);
    let (least, most) = range.split_once("from ").and_then(|(_, range)| range.split_once(" to ")).expect("a range");
    let least = if rule.starts_with("-1 ") { -1 } else { least.parse().expect("a number") };
    let most = if most == "2^53 - 1" { JSON_INTEGER_MAX.cast_signed() } else { most.parse().expect("a number") };
    (least, most)
}

fn settings() -> ObjectBuilder {
    settings_with(false, false)
}

fn all_settings() -> ObjectBuilder {
    settings_with(false, true)
}

fn changed_settings() -> ObjectBuilder {
    settings_with(true, false)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use levada_model::{ConfigKey, TopicConfig};
    use serde_json::{Value, json};

    use super::setting;
    use crate::strict::from_json;
    use crate::{CreateTopic, ErrorCode, TruncateTopic};

    /// Whether the rule takes the value, and whether its schema does.
    fn takes(key: &ConfigKey, schema: &Value, value: &Value) -> (bool, bool) {
        let by_rule = TopicConfig::new(&BTreeMap::from([(key.name.to_owned(), value.clone())])).is_ok();
        let by_schema = match value.as_f64() {
            Some(n) => schema["minimum"].as_f64() <= Some(n) && Some(n) <= schema["maximum"].as_f64(),
            None if schema["type"] == "object" => value.is_object(),
            None => match (schema["enum"].as_array(), schema["pattern"].as_str(), value.as_str()) {
                (Some(words), ..) => words.contains(value),
                (None, Some(pattern), Some(text)) => {
                    let (word, _) = pattern["^(".len()..].split_once('|').expect("a word or a module");
                    text == word || text.starts_with("module:")
                }
                _ => false,
            },
        };
        (by_rule, by_schema)
    }

    #[test]
    fn the_schema_of_a_setting_takes_what_its_rule_takes() {
        for key in ConfigKey::all() {
            let schema = serde_json::to_value(setting(key, false).build()).expect("plain data");
            let mut values = vec![key.default_value()];
            match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
                (Some(least), Some(most)) => values.extend([least - 1, least, most, most + 1].map(Value::from)),
                _ if schema["type"] == "object" => values.extend([json!({"a": 1}), json!([]), json!("other")]),
                _ if schema["pattern"].is_string() => {
                    values.extend(["module:m", "module:m@2", "other"].map(Value::from))
                }
                _ => values.extend(schema["enum"].as_array().expect("words").iter().cloned().chain([json!("other")])),
            }
            for value in values {
                let (by_rule, by_schema) = takes(key, &schema, &value);
                assert_eq!(by_rule, by_schema, "{}: {value}", key.name);
            }
        }
    }

    #[test]
    fn absent_fields_have_their_defaults() {
        let topic: CreateTopic = from_json(br#"{"name":"a"}"#).expect("valid");
        assert_eq!((topic.partitions, topic.config.len()), (1, 0));
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_place() {
        for (body, pointer, word) in [
            (r#"{"name":"a","nmae":"b"}"#, "/nmae", "nmae"),
            (r#"{"name":"a","name":"b"}"#, "/name", "duplicate"),
            (r#"{"partitions":1}"#, "", "name"),
            (r#"["a",1,{}]"#, "", "an object"),
            ("null", "", "an object"),
            (r#"{"name":"a","partitions":-1}"#, "/partitions", "0 to 4294967295"),
            (r#"{"name":"a","partitions":1.5}"#, "/partitions", "an integer"),
            (r#"{"name":"a","partitions":null}"#, "/partitions", "an integer"),
            (r#"{"name":"a","config":{"x":1,"x":2}}"#, "/config/x", "duplicate field `x`"),
        ] {
            let problem = from_json::<CreateTopic>(body.as_bytes()).expect_err(body);
            assert_eq!(problem.code, ErrorCode::InvalidField, "{body}");
            assert_eq!(problem.errors[0].pointer, pointer, "{body}: {problem:?}");
            assert!(problem.errors[0].detail.contains(word), "{body}: {problem:?}");
        }
    }

    #[test]
    fn nested_objects_and_large_integers_are_held_to_the_same_rules() {
        for (body, pointer) in [
            (r#"{"offsets":[[0,1]]}"#, "/offsets/0"),
            (r#"{"offsets":[{"partition":0,"before":9007199254740992}]}"#, "/offsets/0/before"),
            (r#"{"offsets":[{"partition":0,"before":1e400}]}"#, "/offsets/0/before"),
            (r#"{"offsets":[{"partition":0,"before":1,"x":1}]}"#, "/offsets/0/x"),
        ] {
            let problem = from_json::<TruncateTopic>(body.as_bytes()).expect_err(body);
            let place = problem.errors.first().map(|error| error.pointer.as_str());
            assert!(place == Some(pointer) || problem.code == ErrorCode::InvalidJson, "{body}: {problem:?}");
        }
        assert!(from_json::<TruncateTopic>(br#"{"offsets":[{"partition":0,"before":9007199254740991}]}"#).is_ok());
    }

    #[test]
    fn text_that_is_no_json_is_another_error() {
        for body in ["", " ", "{", r#"{"name":"a"} x"#, "{\"name\":\"\u{1}\"}"] {
            assert_eq!(from_json::<CreateTopic>(body.as_bytes()).expect_err(body).code, ErrorCode::InvalidJson);
        }
        let deep = [b"{\"name\":\"a\",\"config\":{\"x\":".as_slice(), "[".repeat(100_000).as_bytes()].concat();
        assert_eq!(from_json::<CreateTopic>(&deep).expect_err("deep").code, ErrorCode::InvalidJson);
        assert_eq!(from_json::<CreateTopic>(b"{\"name\":\"\xff\"}").expect_err("utf-8").code, ErrorCode::InvalidJson);
    }
}
