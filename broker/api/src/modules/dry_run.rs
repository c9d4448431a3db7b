//! Trials of modules: on what, and what they gave. Nothing of a trial is stored.

use levada_model::limits::PARTITIONS_MAX;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{ModuleLogLine, WorldWord};
use crate::groups::GroupPartition;
use crate::record_schema::{ProduceRecord, ReadRecord};
use crate::strict::{whole_if_there, whole_within};

/// A trial of a version on records: one of `records` and `topic` is there. An assignor is tried on `members` and `topics`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"world": "transform", "version": 2, "config": {}, "records": [{"value": {"n": 1}}]}))]
pub struct DryRunModule {
    /// Which of its worlds.
    pub world: WorldWord,
    /// Which version; the active one where none is named.
    #[serde(default, deserialize_with = "version", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub version: Option<u32>,
    /// Its config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Object>)]
    pub config: Option<Box<RawValue>>,
    /// Records, as they are produced. One without a timestamp is of 1970, so that the same trial always is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<Vec<ProduceRecord>>)]
    pub records: Option<Box<RawValue>>,
    /// A topic whose stored records are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub topic: Option<String>,
    /// From where in each partition: `earliest` (the default), `time:MS` or `tail:N`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub from: Option<String>,
    /// Most stored records; 10000, which is also the most, where it is not there.
    #[serde(default, deserialize_with = "whole_if_there", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub max_records: Option<u64>,
    /// Of a partitioner: how many partitions there are; those of the topic, or 12, where it is not there.
    #[serde(default, deserialize_with = "whole_if_there", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub partition_count: Option<u32>,
    /// Of an assignor: the members of the group, each once, at most 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub members: Option<Vec<DryRunMember>>,
    /// Of an assignor: the topics that members read, each once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub topics: Option<Vec<DryRunTopic>>,
    /// Another version, on the same records.
    #[serde(default, deserialize_with = "version", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    pub compare_with: Option<u32>,
}

/// A member that an assignor is tried with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DryRunMember {
    /// Who it is.
    pub member_id: String,
    /// An identity that it keeps over restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// What it reads; all topics of the trial where it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topics: Option<Vec<String>>,
    /// What it says it holds.
    #[serde(default)]
    pub owned: Vec<GroupPartition>,
}

/// A topic that an assignor is tried with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DryRunTopic {
    /// Its name; there need not be such a topic.
    pub topic: String,
    /// How many partitions it has.
    #[serde(deserialize_with = "partitions")]
    #[schema(minimum = 1)]
    pub partitions: u32,
    /// What is left to read of each partition; not known of those that are not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lags: Vec<u64>,
}

/// What a trial gave.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ModuleDryRun {
    /// Which world was tried.
    pub world: WorldWord,
    /// How many records, or members, were given.
    pub inputs: u64,
    /// Which version was tried.
    pub version: u32,
    /// What came out of it.
    pub outputs: Vec<DryRunOutput>,
    /// Of a transform: what became of each record, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub verdicts: Option<Vec<DryRunVerdict>>,
    /// Why it gave no answer; null where it did.
    #[schema(required = true)]
    pub fault: Option<String>,
    /// What it logged.
    pub logs: Vec<ModuleLogLine>,
    /// Instructions used, the same every time.
    pub instructions: u64,
    /// Most memory of an instance.
    pub memory_peak_bytes: u64,
    /// How long it took here, in microseconds.
    pub elapsed_us: u64,
    /// What the version that it was compared with did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub compared: Option<DryRunSide>,
    /// Records, or members, of which they made different things.
    pub differences: Vec<DryRunDifference>,
}

/// What another version did with the same records; the fields are those of the trial.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DryRunSide {
    /// Which version.
    pub version: u32,
    /// What came out of it.
    pub outputs: Vec<DryRunOutput>,
    /// Of a transform: what became of each record, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub verdicts: Option<Vec<DryRunVerdict>>,
    /// Why it gave no answer; null where it did.
    #[schema(required = true)]
    pub fault: Option<String>,
    /// What it logged.
    pub logs: Vec<ModuleLogLine>,
    /// Instructions used.
    pub instructions: u64,
    /// Most memory of an instance.
    pub memory_peak_bytes: u64,
    /// How long it took here, in microseconds.
    pub elapsed_us: u64,
}

/// Something that came out of a trial.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DryRunOutput {
    /// The record, or member, that it is of, by its place among those given; not of an aggregator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub input: Option<u64>,
    /// Of a transform: the record. It has the place of the one that it came from; records that were not stored are counted
    /// in partition 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<ReadRecord>)]
    pub record: Option<Box<RawValue>>,
    /// Of a partitioner: the partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub partition: Option<u32>,
    /// Of an assignor: the partitions of the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub assignment: Option<Vec<GroupPartition>>,
    /// Of an aggregator: the value of all records of a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Option<DryRunGroup>)]
    pub group: Option<Box<RawValue>>,
}

/// The value of all records of a key, worded as those of records.
#[derive(Debug, ToSchema)]
pub struct DryRunGroup {
    /// The key, if it is text; null: records without a key.
    pub key: Option<String>,
    /// The key, if it is not text.
    #[schema(nullable = false)]
    pub key_base64: Option<String>,
    /// The value, if it is JSON; null: none.
    pub value: Option<serde_json::Value>,
    /// The value, if it is other text.
    #[schema(nullable = false)]
    pub value_text: Option<String>,
    /// The value, if it is not text.
    #[schema(nullable = false)]
    pub value_base64: Option<String>,
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DryRunVerdict {
    /// Its place among those given.
    pub input: u64,
    /// Its partition, if it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub partition: Option<u32>,
    /// Its offset, if it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub offset: Option<u64>,
    /// What became of it.
    pub verdict: VerdictWord,
    /// Why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
}

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictWord {
    /// It goes on as it is.
    Pass,
    /// It goes no further.
    Drop,
    /// Others take its place.
    Emit,
    /// It is wrong.
    Reject,
}

/// A record of which two versions made different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DryRunDifference {
    /// Its place among those given.
    pub input: u64,
    /// Its partition, if it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub partition: Option<u32>,
    /// Its offset, if it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub offset: Option<u64>,
}

impl VerdictWord {
    /// The word as it is sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Drop => "drop",
            Self::Emit => "emit",
            Self::Reject => "reject",
        }
    }
}

fn partitions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = whole_within(deserializer, 1..=u64::from(PARTITIONS_MAX))?;
    Ok(u32::try_from(number).expect("it is within the bounds"))
}

/// A number of a version: from 1.
fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let version = whole_within(deserializer, 1..=u64::from(u32::MAX))?;
    Ok(Some(u32::try_from(version).expect("it is within the bounds")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strict::from_json;

    #[test]
    fn a_trial_names_a_world_and_keeps_config_and_records_as_they_are() {
        let body =
            br#"{"world":"transform","version":2,"config":{"a": 1},"records":[{"value": 1.0}],"compare_with":1}"#;
        let trial: DryRunModule = from_json(body).expect("valid");
        assert_eq!((trial.world, trial.version, trial.compare_with), (WorldWord::Transform, Some(2), Some(1)));
        assert_eq!(trial.config.map(|raw| raw.get().to_owned()).as_deref(), Some("{\"a\": 1}"));
        assert_eq!(trial.records.map(|raw| raw.get().to_owned()).as_deref(), Some("[{\"value\": 1.0}]"));
        for (body, pointer) in [
            ("{}", ""),
            (r#"{"world":"transformer"}"#, "/world"),
            (r#"{"world":"transform","version":0}"#, "/version"),
            (r#"{"world":"transform","compare_with":"1"}"#, "/compare_with"),
            (r#"{"world":"transform","wasm":""}"#, "/wasm"),
            (r#"{"world":"assignor","members":[{"id":"a"}]}"#, "/members/0/id"),
            (r#"{"world":"assignor","topics":[{"topic":"a","partitions":0}]}"#, "/topics/0/partitions"),
            (r#"{"world":"transform","topic":"a","topic":"b"}"#, "/topic"),
        ] {
            let problem = from_json::<DryRunModule>(body.as_bytes()).expect_err(body);
            assert_eq!((problem.status, problem.errors[0].pointer.as_str()), (422, pointer), "{problem:?}");
        }
    }

    #[test]
    fn verdicts_are_the_words_that_serde_writes() {
        for word in [VerdictWord::Pass, VerdictWord::Drop, VerdictWord::Emit, VerdictWord::Reject] {
            assert_eq!(serde_json::to_value(word).expect("a word"), word.as_str());
        }
    }
}
