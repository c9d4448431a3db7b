//! The document of a processor, read strictly. What belongs to windows is refused at its place.

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::strict::{Object, objects, whole_if_there};

/// Records of topics through steps into a topic.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"sources": [{"topic": "orders", "start": "earliest"}],
    "steps": [{"filter": {"json": "/status", "equals": "APPROVED"}}, {"transform": {"module": "enrich", "config": {}}}],
    "sink": {"topic": "orders-approved"}, "on_error": {"attempts": 3, "then": "dead_letter"}}))]
pub struct ProcessorDocument {
    /// The topics that it reads, each once.
    #[serde(deserialize_with = "objects")]
    #[schema(min_items = 1)]
    pub sources: Vec<ProcessorSource>,
    /// The time of a record: its own (the default), or what stands in its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub timestamp: Option<ProcessorTime>,
    /// What becomes of each record, in order.
    #[serde(default)]
    pub steps: Vec<ProcessorStep>,
    /// Where records go.
    #[serde(deserialize_with = "object")]
    pub sink: ProcessorSink,
    /// What becomes of records that fail; where it is not there: three attempts, then a dead letter.
    #[serde(default, deserialize_with = "object_if_there", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub on_error: Option<OnError>,
    /// What it promises; `exactly-once` where it is not there.
    #[serde(default)]
    pub guarantee: GuaranteeWord,
    /// How often positions are committed at least; 100 where it is not there.
    #[serde(default, deserialize_with = "whole_if_there", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub commit_interval_ms: Option<u64>,
    /// Of a trial: where it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub from: Option<String>,
    /// Of a trial: most records to read.
    #[serde(default, deserialize_with = "whole_if_there", skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub max_records: Option<u64>,
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    #[expect(dead_code, reason = "it is here to be refused in words")]
    group_by: NotYet,
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    #[expect(dead_code, reason = "it is here to be refused in words")]
    window: NotYet,
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    #[expect(dead_code, reason = "it is here to be refused in words")]
    aggregate: NotYet,
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    #[expect(dead_code, reason = "it is here to be refused in words")]
    emit: NotYet,
    #[serde(default, skip_serializing)]
    #[schema(ignore)]
    #[expect(dead_code, reason = "it is here to be refused in words")]
    idle_ms: NotYet,
}

/// A document to try, and on what.
#[derive(Clone, Debug, ToSchema)]
pub struct DryRunProcessor {
    /// The document.
    #[serde(flatten)]
    pub document: ProcessorDocument,
    /// Where to begin in each partition: `earliest` (the default), `latest`, `time:MS` or `tail:N`.
    #[schema(nullable = false)]
    pub from: Option<String>,
    /// Most records to read; 1000 where it is not there, and cut to 10000.
    #[schema(nullable = false, minimum = 1)]
    pub max_records: Option<u64>,
}

/// A topic that is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessorSource {
    /// The topic.
    pub topic: String,
    /// Where it begins in partitions of which nothing was processed: `earliest` (the default), `latest`, `time:MS` or
    /// `tail:N`.
    #[serde(default = "earliest")]
    #[schema(default = "earliest")]
    pub start: String,
}

/// Whose time is a record's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case", untagged)]
pub enum ProcessorTime {
    /// The record's own: the word `record`.
    #[schema(value_type = String)]
    Record(RecordWord),
    /// What stands at this JSON pointer of its value, in milliseconds since 1970.
    Json {
        /// The pointer.
        json: String,
    },
}

/// The word `record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecordWord {
    /// It.
    Record,
}

/// A step; each record that it lets pass goes on to the next.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessorStep {
    /// Lets pass what fulfils a test.
    #[serde(deserialize_with = "object")]
    Filter(FilterStep),
    /// A module of the world `transform`.
    #[serde(deserialize_with = "object")]
    Transform(TransformStep),
}

/// Records pass in whose value all tests hold at one place; there is at least one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterStep {
    /// The place, a JSON pointer; the empty one is the whole value.
    pub json: String,
    /// It is this.
    #[serde(default, deserialize_with = "there", skip_serializing_if = "Option::is_none")]
    pub equals: Option<Value>,
    /// It is not this, or is not there.
    #[serde(default, deserialize_with = "there", skip_serializing_if = "Option::is_none")]
    pub not_equals: Option<Value>,
    /// It is a number below this number, or a text before this text.
    #[serde(default, deserialize_with = "there", skip_serializing_if = "Option::is_none")]
    pub less: Option<Value>,
    /// It is a number above this number, or a text behind this text.
    #[serde(default, deserialize_with = "there", skip_serializing_if = "Option::is_none")]
    pub greater: Option<Value>,
    /// It is there (also null), or is not.
    #[serde(default, deserialize_with = "flag", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub exists: Option<bool>,
    /// It is a text with this text in it, or an array with this among its elements.
    #[serde(default, deserialize_with = "there", skip_serializing_if = "Option::is_none")]
    pub contains: Option<Value>,
}

/// A module with its config.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TransformStep {
    /// `NAME` (the version that is active at each moment) or `NAME@2`.
    pub module: String,
    /// Its config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Object>)]
    pub config: Option<Box<RawValue>>,
}

/// Where records go, each to the partition of its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessorSink {
    /// The topic.
    pub topic: String,
}

/// What becomes of records that fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OnError {
    /// How often a record is tried; 3 where it is not there.
    #[serde(default, deserialize_with = "whole_if_there", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub attempts: Option<u32>,
    /// And then.
    #[serde(default)]
    pub then: ThenWord,
    /// Of dead letters: their topic; where it is not there: `TOPIC.dead-letter` of the record's own. Topics of dead letters
    /// are created with the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub topic: Option<String>,
}

/// What becomes of a record that failed as often as it may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThenWord {
    /// It goes to a topic of dead letters.
    #[default]
    DeadLetter,
    /// It is passed over, and counted.
    Skip,
    /// The processor stands still and says why.
    Pause,
}

/// What a processor promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuaranteeWord {
    /// Outputs and positions commit as one transaction.
    #[default]
    ExactlyOnce,
    /// Outputs, then positions: after a crash some outputs may come again.
    AtLeastOnce,
}

/// A field that belongs to windows.
#[derive(Clone, Copy, Debug, Default)]
struct NotYet;

impl<'de> Deserialize<'de> for NotYet {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom("this broker has no windows and aggregates yet"))
    }
}

impl<'de> Deserialize<'de> for ProcessorTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimeVisitor;
        impl<'de> Visitor<'de> for TimeVisitor {
            type Value = ProcessorTime;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"record\" or {\"json\": a pointer}")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<ProcessorTime, E> {
                let wrong = || E::invalid_value(serde::de::Unexpected::Str(text), &self);
                (text == "record").then_some(ProcessorTime::Record(RecordWord::Record)).ok_or_else(wrong)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ProcessorTime, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Json {
                    json: String,
                }
                let Json { json } = Json::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(ProcessorTime::Json { json })
            }
        }
        deserializer.deserialize_any(TimeVisitor)
    }
}

fn earliest() -> String {
    "earliest".to_owned()
}

fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|Object(read)| read)
}

fn object_if_there<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    object(deserializer).map(Some)
}

/// A JSON value, also null.
fn there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    bool::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strict::from_json;

    #[test]
    fn a_document_is_read_with_its_defaults() {
        let body = br#"{"sources":[{"topic":"a"}],"sink":{"topic":"b"}}"#;
        let read: ProcessorDocument = from_json(body).expect("valid");
        assert_eq!((read.sources[0].start.as_str(), read.guarantee), ("earliest", GuaranteeWord::ExactlyOnce));
        assert!(read.steps.is_empty() && read.on_error.is_none() && read.timestamp.is_none());

        let body = br#"{"sources":[{"topic":"a","start":"latest"}],"timestamp":{"json":"/at"},"steps":[
            {"filter":{"json":"/n","greater":1,"not_equals":null}},{"transform":{"module":"m@2","config":{"a": 1}}}],
            "sink":{"topic":"b"},"on_error":{"attempts":2,"then":"skip"},"guarantee":"at-least-once",
            "commit_interval_ms":50}"#;
        let read: ProcessorDocument = from_json(body).expect("valid");
        assert_eq!(read.timestamp, Some(ProcessorTime::Json { json: "/at".to_owned() }));
        let [ProcessorStep::Filter(filter), ProcessorStep::Transform(transform)] = &read.steps[..] else {
            panic!("{read:?}")
        };
        assert_eq!((&filter.greater, &filter.not_equals), (&Some(Value::from(1)), &Some(Value::Null)));
        assert_eq!(transform.config.as_ref().map(|raw| raw.get()), Some("{\"a\": 1}"));
    }

    #[test]
    fn what_is_not_taken_is_named_by_its_place() {
        let with = |more: &str| format!(r#"{{"sources":[{{"topic":"a"}}],"sink":{{"topic":"b"}}{more}}}"#);
        for (more, pointer) in [
            (r#","group_by":"key""#, "/group_by"),
            (r#","steps":[{}]"#, "/steps/0"),
            (r#","steps":[1]"#, "/steps/0"),
            (r#","steps":[null]"#, "/steps/0"),
            (r#","guarantee":null"#, "/guarantee"),
            (r#","guarantee":{}"#, "/guarantee"),
            (r#","steps":[{"filter":{"json":"","equals":1e999}}]"#, "/steps/0/filter/equals"),
            (r#","window":{"tumbling":{"size_ms":1,"grace_ms":0}}"#, "/window"),
            (r#","aggregate":{"count":{}}"#, "/aggregate"),
            (r#","emit":"changes""#, "/emit"),
            (r#","idle_ms":1"#, "/idle_ms"),
            (r#","colour":1"#, "/colour"),
            (r#","timestamp":"now""#, "/timestamp"),
            (r#","timestamp":{"yaml":""}"#, "/timestamp/yaml"),
            (r#","steps":[{"filter":{"json":"","like":1}}]"#, "/steps/0/filter/like"),
            (r#","steps":[{"filter":["",1]}]"#, "/steps/0/filter"),
            (r#","steps":[{"transform":{"config":{}}}]"#, "/steps/0/transform"),
            (r#","on_error":{"attempts":-1}"#, "/on_error/attempts"),
            (r#","on_error":{"then":"retry"}"#, "/on_error/then"),
            (r#","guarantee":"maybe""#, "/guarantee"),
        ] {
            let problem = from_json::<ProcessorDocument>(with(more).as_bytes()).expect_err(more);
            assert_eq!((problem.status, problem.errors[0].pointer.as_str()), (422, pointer), "{problem:?}");
            assert_ne!(problem.errors[0].detail, "expected value", "it is said in words");
        }
        let problem = from_json::<ProcessorDocument>(b"{\"sources\":[[\"a\"]],\"sink\":{}}").expect_err("no object");
        assert_eq!(problem.errors[0].pointer, "/sources/0");
    }
}
