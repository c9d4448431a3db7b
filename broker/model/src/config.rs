//! A topic's configuration: Kafka's names where Kafka has one, each with its rule, default and effect in one table.
//!
//! What was set is kept as it was sent; what holds is computed from it and the defaults. A name appears here only when
//! it has an effect.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use thiserror::Error;

use crate::{ModuleRef, limits};

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// No such name.
    #[error("there is no topic setting {name:?}; the settings are {known}")]
    Unknown {
        /// The name that was sent.
        name: String,
        /// All names, for the reader.
        known: String,
    },
    /// The value breaks the setting's rule.
    #[error("{name} takes {rule}; {value} is not")]
    Invalid {
        /// The setting.
        name: &'static str,
        /// What it takes, in words.
        rule: String,
        /// What was sent, as JSON text.
        value: String,
    },
}

impl ConfigError {
    /// The name of the setting that was wrong, as it was sent.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Unknown { name, .. } => name,
            Self::Invalid { name, .. } => name,
        }
    }
}

/// What an acknowledgement means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On the disk.
    Fsync,
    /// In the kernel's page cache: survives the process, not the machine.
    PageCache,
}

/// What happens to old records (`cleanup.policy`); at least one of both holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Of each key only the newest record stays.
    pub compact: bool,
    /// `retention.ms` and `retention.bytes` remove whole segments.
    pub delete: bool,
}

/// Whose time a record carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    CreateTime,
    /// The broker's at the append.
    LogAppendTime,
}

/// How the broker compresses the batches that it builds itself. Batches that come built are stored as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy in Kafka's (xerial's) framing.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// A module that a setting names, with the config that another setting holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicModule {
    /// Which.
    pub module: ModuleRef,
    /// Its config as JSON text, an object.
    pub config: String,
}

/// A topic's settings in force, but those that have one value only.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    /// `cleanup.policy`.
    pub cleanup: CleanupPolicy,
    /// `compression.type`; Kafka's `producer` means none here, since a JSON producer compresses nothing.
    pub compression: Compression,
    /// `delete.retention.ms`: how long a tombstone stays after compaction first met it.
    pub delete_retention_ms: i64,
    /// `durability`.
    pub durability: Durability,
    /// `max.compaction.lag.ms`: a record is compacted at the latest when it is older; none is never for its age.
    pub max_compaction_lag_ms: Option<i64>,
    /// `max.message.bytes`: largest key, value and headers together, in bytes.
    pub max_message_bytes: usize,
    /// `message.timestamp.after.max.ms`: how far in the future a producer's timestamp may lie.
    pub timestamp_after_max_ms: i64,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `min.cleanable.dirty.ratio`: compaction waits until this part of a log is not compacted, from 0 to 1.
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`: a record is not compacted away while it is younger.
    pub min_compaction_lag_ms: i64,
    /// `min.insync.replicas`: fewer, and `acks=all` is refused.
    pub min_insync_replicas: u32,
    /// `partitioner` and `partitioner.config`; none is murmur2.
    pub partitioner: Option<TopicModule>,
    /// `retention.bytes` a partition; none is unbounded.
    pub retention_bytes: Option<u64>,
    /// `retention.ms`; none is for ever.
    pub retention_ms: Option<i64>,
    /// `segment.bytes`: the active segment is rolled before it grows beyond this.
    pub segment_bytes: u64,
    /// `segment.ms`: the active segment is rolled when its first append is older than this.
    pub segment_ms: i64,
    /// `validator` and `validator.config`; none takes every record.
    pub validator: Option<TopicModule>,
}

/// One row of the table of settings.
pub struct ConfigKey {
    /// The name.
    pub name: &'static str,
    /// What it takes, in words.
    pub rule: &'static str,
    /// What it does, in words.
    pub effect: &'static str,
    default: fn() -> Value,
    check: fn(&Value) -> bool,
}

const WEEKS_2_MS: i64 = 14 * 24 * 60 * 60 * 1000;
const WEEK_MS: i64 = 7 * 24 * 60 * 60 * 1000;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const HOUR_MS: i64 = 60 * 60 * 1000;

fn integer_in(value: &Value, least: i64, most: i64) -> bool {
    value.as_i64().is_some_and(|n| (least..=most).contains(&n))
}

fn one_of(value: &Value, words: &[&str]) -> bool {
    value.as_str().is_some_and(|text| words.contains(&text))
}

fn module(value: &Value) -> bool {
    value.as_str().is_some_and(|text| ModuleRef::in_setting(text).is_some())
}

fn module_config(value: &Value) -> bool {
    value.is_object() && value.to_string().len() <= limits::MODULE_CONFIG_BYTES_MAX
}

const JSON_MAX: i64 = limits::JSON_INTEGER_MAX.cast_signed();

/// All settings, in order of name.
static KEYS: [ConfigKey; 19] = [
    ConfigKey {
        name: "cleanup.policy",
        rule: "one of \"delete\", \"compact\", \"compact,delete\", \"delete,compact\"",
        effect: "what happens to old records: retention removes whole segments, compaction keeps each key's newest record",
        default: || json!("delete"),
        check: |v| one_of(v, &["delete", "compact", "compact,delete", "delete,compact"]),
    },
    ConfigKey {
        name: "compression.type",
        rule: "one of \"producer\", \"uncompressed\", \"gzip\", \"snappy\", \"lz4\", \"zstd\"",
        effect: "how batches that the broker builds from JSON and raw bodies are compressed",
        default: || json!("producer"),
        check: |v| one_of(v, &["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
    },
    ConfigKey {
        name: "delete.retention.ms",
        rule: "an integer from 0 to 2^53 - 1",
        effect: "how long a compacted topic keeps a tombstone after compaction first met it",
        default: || json!(DAY_MS),
        check: |v| integer_in(v, 0, JSON_MAX),
    },
    ConfigKey {
        name: "durability",
        rule: "\"fsync\" or \"page-cache\"",
        effect: "what an acknowledgement means: on the disk, or in the kernel's page cache",
        default: || json!("fsync"),
        check: |v| one_of(v, &["fsync", "page-cache"]),
    },
    ConfigKey {
        name: "max.compaction.lag.ms",
        rule: "an integer from 1 to 2^53 - 1, not below min.compaction.lag.ms",
        effect: "a record is compacted at the latest when it is older than this; the default is never for its age",
        default: || json!(JSON_MAX),
        check: |v| integer_in(v, 1, JSON_MAX),
    },
    ConfigKey {
        name: "max.message.bytes",
        rule: "an integer from 1 to 268435456",
        effect: "largest record, key, value and headers together",
        default: || json!(limits::MESSAGE_BYTES_MAX),
        check: |v| integer_in(v, 1, limits::MESSAGE_BYTES_CEILING as i64),
    },
    ConfigKey {
        name: "message.timestamp.after.max.ms",
        rule: "an integer from 0 to 2^53 - 1",
        effect: "how far in the future a record's timestamp may lie",
        default: || json!(HOUR_MS),
        check: |v| integer_in(v, 0, JSON_MAX),
    },
    ConfigKey {
        name: "message.timestamp.type",
        rule: "\"CreateTime\" or \"LogAppendTime\"",
        effect: "whether records keep the producer's time or get the broker's",
        default: || json!("CreateTime"),
        check: |v| one_of(v, &["CreateTime", "LogAppendTime"]),
    },
    ConfigKey {
        name: "min.cleanable.dirty.ratio",
        rule: "a number from 0 to 1",
        effect: "compaction waits until more than this part of a partition's log is not compacted",
        default: || json!(0.5),
        check: |v| v.as_f64().is_some_and(|ratio| (0.0..=1.0).contains(&ratio)),
    },
    ConfigKey {
        name: "min.compaction.lag.ms",
        rule: "an integer from 0 to 2^53 - 1",
        effect: "a record is not compacted away while it is younger than this",
        default: || json!(0),
        check: |v| integer_in(v, 0, JSON_MAX),
    },
    ConfigKey {
        name: "min.insync.replicas",
        rule: "an integer from 1 to 100",
        effect: "with fewer in-sync replicas, acks=all is refused",
        default: || json!(1),
        check: |v| integer_in(v, 1, 100),
    },
    ConfigKey {
        name: "partitioner",
        rule: "\"murmur2\", \"module:NAME\" or \"module:NAME@VERSION\"",
        effect: "what places records that name no partition",
        default: || json!("murmur2"),
        check: |v| one_of(v, &["murmur2"]) || module(v),
    },
    ConfigKey {
        name: "partitioner.config",
        rule: "a JSON object of at most 65536 bytes",
        effect: "what a module that is the partitioner is configured with",
        default: || json!({}),
        check: module_config,
    },
    ConfigKey {
        name: "retention.bytes",
        rule: "-1 (unbounded) or an integer from 0 to 2^53 - 1",
        effect: "oldest segments are removed while a partition's segments hold more than this",
        default: || json!(-1),
        check: |v| integer_in(v, -1, JSON_MAX),
    },
    ConfigKey {
        name: "retention.ms",
        rule: "-1 (for ever) or an integer from 0 to 2^53 - 1",
        effect: "a segment is removed when both its largest timestamp and its last append are older than this",
        default: || json!(WEEKS_2_MS),
        check: |v| integer_in(v, -1, JSON_MAX),
    },
    ConfigKey {
        name: "segment.bytes",
        rule: "an integer from 1024 to 1073741824",
        effect: "the active segment is rolled before it grows beyond this",
        default: || json!(limits::SEGMENT_BYTES_MAX),
        check: |v| integer_in(v, limits::SEGMENT_BYTES_MIN as i64, limits::SEGMENT_BYTES_MAX as i64),
    },
    ConfigKey {
        name: "segment.ms",
        rule: "an integer from 1 to 2^53 - 1",
        effect: "the active segment is rolled when its first append is older than this",
        default: || json!(WEEK_MS),
        check: |v| integer_in(v, 1, JSON_MAX),
    },
    ConfigKey {
        name: "validator",
        rule: "\"none\", \"module:NAME\" or \"module:NAME@VERSION\"",
        effect: "the module, a transform, that a record must pass to be stored",
        default: || json!("none"),
        check: |v| one_of(v, &["none"]) || module(v),
    },
    ConfigKey {
        name: "validator.config",
        rule: "a JSON object of at most 65536 bytes",
        effect: "what the validator is configured with",
        default: || json!({}),
        check: module_config,
    },
];

impl ConfigKey {
    /// All settings, in order of name.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &KEYS
    }

    /// The value in force when nothing is set.
    #[must_use]
    pub fn default_value(&self) -> Value {
        (self.default)()
    }
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self::new(&BTreeMap::new()).expect("the defaults keep their rules")
    }
}

impl TopicConfig {
    /// What holds when `set` is set and all else is at its default.
    ///
    /// # Errors
    /// An unknown name, or a value that breaks its rule.
    pub fn new(set: &BTreeMap<String, Value>) -> Result<Self, ConfigError> {
        for (name, value) in set {
            let Some(key) = KEYS.iter().find(|key| key.name == name) else {
                let known = KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ");
                return Err(ConfigError::Unknown { name: name.clone(), known });
            };
            if !(key.check)(value) {
                return Err(ConfigError::Invalid {
                    name: key.name,
                    rule: key.rule.to_owned(),
                    value: value.to_string(),
                });
            }
        }
        let config = Self::from_effective(&Self::effective(set));
        config.check_lags().map(|()| config)
    }

    /// A record cannot have to wait for longer than it may.
    fn check_lags(&self) -> Result<(), ConfigError> {
        match self.max_compaction_lag_ms {
            Some(max) if max < self.min_compaction_lag_ms => {
                let key = KEYS.iter().find(|key| key.name == "max.compaction.lag.ms").expect("it is in the table");
                let rule = format!("{}, which is {}", key.rule, self.min_compaction_lag_ms);
                Err(ConfigError::Invalid { name: key.name, rule, value: max.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// Every setting with its value in force.
    #[must_use]
    pub fn effective(set: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
        let value = |key: &ConfigKey| set.get(key.name).cloned().unwrap_or_else(|| key.default_value());
        KEYS.iter().map(|key| (key.name.to_owned(), value(key))).collect()
    }

    fn from_effective(all: &BTreeMap<String, Value>) -> Self {
        let number = |name: &str| all[name].as_i64().expect("checked to be an integer");
        let unless_negative = |name: &str| Some(number(name)).filter(|n| *n >= 0);
        let word = |name: &str| all[name].as_str().expect("checked to be a word").to_owned();
        let module = |name: &str, config: &str| {
            let module = ModuleRef::in_setting(&word(name))?;
            Some(TopicModule { module, config: all[config].to_string() })
        };
        Self {
            cleanup: {
                let policy = word("cleanup.policy");
                let names = |word| policy.split(',').any(|part| part == word);
                CleanupPolicy { compact: names("compact"), delete: names("delete") }
            },
            compression: match word("compression.type").as_str() {
                "gzip" => Compression::Gzip,
                "snappy" => Compression::Snappy,
                "lz4" => Compression::Lz4,
                "zstd" => Compression::Zstd,
                _ => Compression::None,
            },
            delete_retention_ms: number("delete.retention.ms"),
            durability: match word("durability").as_str() {
                "page-cache" => Durability::PageCache,
                _ => Durability::Fsync,
            },
            max_compaction_lag_ms: Some(number("max.compaction.lag.ms")).filter(|ms| *ms < JSON_MAX),
            max_message_bytes: usize::try_from(number("max.message.bytes")).expect("checked to be positive"),
            timestamp_after_max_ms: number("message.timestamp.after.max.ms"),
            timestamp_type: match word("message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            min_cleanable_dirty_ratio: all["min.cleanable.dirty.ratio"].as_f64().expect("checked to be a number"),
            min_compaction_lag_ms: number("min.compaction.lag.ms"),
            min_insync_replicas: u32::try_from(number("min.insync.replicas")).expect("checked to be small"),
            partitioner: module("partitioner", "partitioner.config"),
            retention_bytes: unless_negative("retention.bytes").map(i64::cast_unsigned),
            retention_ms: unless_negative("retention.ms"),
            segment_bytes: number("segment.bytes").cast_unsigned(),
            segment_ms: number("segment.ms"),
            validator: module("validator", "validator.config"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: Value) -> Result<TopicConfig, ConfigError> {
        TopicConfig::new(&BTreeMap::from([(name.to_owned(), value)]))
    }

    #[test]
    fn the_defaults_keep_two_weeks_and_sync() {
        let config = TopicConfig::default();
        assert_eq!(config.retention_ms, Some(WEEKS_2_MS));
        assert_eq!(config.durability, Durability::Fsync);
        assert_eq!(config.max_message_bytes, 1 << 20);
    }

    #[test]
    fn what_is_set_holds() {
        assert_eq!(set("retention.ms", json!(-1)).expect("valid").retention_ms, None);
        assert_eq!(set("segment.bytes", json!(4096)).expect("valid").segment_bytes, 4096);
        assert_eq!(set("compression.type", json!("zstd")).expect("valid").compression, Compression::Zstd);
    }

    #[test]
    fn unknown_names_and_bad_values_are_refused_by_name() {
        assert!(matches!(set("retention", json!(1)), Err(ConfigError::Unknown { .. })));
        for (name, bad) in [
            ("retention.ms", json!(-2)),
            ("retention.ms", json!("1")),
            ("retention.ms", json!(1.5)),
            ("segment.bytes", json!(10)),
            ("durability", json!("none")),
            ("message.timestamp.after.max.ms", json!(9_007_199_254_740_992_i64)),
            ("cleanup.policy", json!("compact,compact")),
            ("cleanup.policy", json!(["compact"])),
            ("min.cleanable.dirty.ratio", json!(1.1)),
            ("min.cleanable.dirty.ratio", json!(-0.1)),
            ("min.cleanable.dirty.ratio", json!("0.5")),
            ("min.compaction.lag.ms", json!(-1)),
            ("max.compaction.lag.ms", json!(0)),
            ("delete.retention.ms", json!(-5)),
        ] {
            let error = set(name, bad).expect_err(name);
            assert!(matches!(&error, ConfigError::Invalid { name: n, .. } if *n == name), "{error}");
        }
    }

    #[test]
    fn both_orders_of_the_cleanup_policy_mean_the_same() {
        let policy = |text: &str| set("cleanup.policy", json!(text)).expect("valid").cleanup;
        assert_eq!(policy("delete"), CleanupPolicy { compact: false, delete: true });
        assert_eq!(policy("compact"), CleanupPolicy { compact: true, delete: false });
        assert_eq!(policy("compact,delete"), CleanupPolicy { compact: true, delete: true });
        assert_eq!(policy("delete,compact"), policy("compact,delete"));
    }

    #[test]
    fn a_record_that_must_wait_longer_than_it_may_is_refused() {
        let lags = |min: i64, max: i64| {
            let set = [("min.compaction.lag.ms", min), ("max.compaction.lag.ms", max)];
            TopicConfig::new(&set.map(|(name, ms)| (name.to_owned(), json!(ms))).into())
        };
        assert_eq!(lags(5, 5).expect("valid").max_compaction_lag_ms, Some(5));
        assert_eq!(lags(5, JSON_MAX).expect("valid").max_compaction_lag_ms, None, "the default is never");
        let error = lags(6, 5).expect_err("the wrong way round");
        assert_eq!(
            (error.name(), error.to_string().contains("which is 6")),
            ("max.compaction.lag.ms", true),
            "{error}"
        );
    }

    #[test]
    fn the_effective_configuration_lists_every_setting() {
        let all = TopicConfig::effective(&BTreeMap::from([("retention.ms".to_owned(), json!(5))]));
        assert_eq!(all.len(), KEYS.len());
        assert_eq!(all["retention.ms"], json!(5));
        assert!(KEYS.is_sorted_by_key(|key| key.name));
    }
}
