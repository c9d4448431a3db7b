//! The state that commands build: plain data, cheap to clone by sharing.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_extension::{ModuleDigest, ModuleWorld};
use levada_model::{
    ClusterId, LeaderEpoch, ModuleName, Offset, Principal, ProcessorName, ProducerId, Timestamp, TopicId, TopicName,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ProcessorSpec;

/// All metadata at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Image {
    /// The cluster's identity.
    pub(crate) cluster_id: ClusterId,
    /// The first producer id that no block holds yet.
    pub(crate) next_producer_id: ProducerId,
    /// Topics by name.
    pub(crate) topics: BTreeMap<TopicName, Arc<TopicImage>>,
    /// Deleted topics whose directories may still be there.
    pub(crate) deletions: BTreeMap<TopicId, TopicName>,
    /// Modules by name.
    pub(crate) modules: BTreeMap<ModuleName, Arc<ModuleImage>>,
    /// Processors by name.
    pub(crate) processors: BTreeMap<ProcessorName, Arc<ProcessorImage>>,
}

/// A processor as metadata knows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProcessorImage {
    /// Who put it first, on whose behalf it reads and writes.
    pub(crate) owner: Principal,
    /// Counts its documents from 1.
    pub(crate) version: u64,
    /// Whether somebody has it stand still.
    pub(crate) paused: bool,
    /// What it does.
    pub(crate) spec: Arc<ProcessorSpec>,
}

/// A module as metadata knows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModuleImage {
    /// Who put its first version.
    pub(crate) owner: Principal,
    /// The version that its name alone means.
    pub(crate) active: u32,
    /// Never empty; the first is version 1. Versions are added and never changed.
    pub(crate) versions: Vec<Arc<ModuleVersionImage>>,
}

/// A version of a module as metadata knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModuleVersionImage {
    /// Of its bytes.
    pub(crate) digest: ModuleDigest,
    /// Of its bytes.
    pub(crate) size_bytes: u64,
    /// What it can be.
    pub(crate) worlds: Vec<ModuleWorld>,
    /// A JSON Schema of its config.
    pub(crate) config_schema: Option<Value>,
    /// When it was put.
    pub(crate) created_at: Timestamp,
}

/// A topic as metadata knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopicImage {
    /// Its identity.
    pub(crate) id: TopicId,
    /// Counts its changes from 1.
    pub(crate) version: u64,
    /// What was set.
    pub(crate) config: BTreeMap<String, Value>,
    /// All partitions that ever were, by number; the active ones come first.
    pub(crate) partitions: Vec<PartitionImage>,
}

/// A partition as metadata knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionImage {
    /// Whether it takes writes, or is there at all.
    pub(crate) stage: Stage,
    /// The leader's term.
    pub(crate) leader_epoch: LeaderEpoch,
    /// Where a log begins that is created anew: behind all that a dropped one of this number held.
    pub(crate) start_at: Offset,
}

/// The stages of a partition's life; it may come back from the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    /// Takes writes.
    Active,
    /// Is read only, until retention has emptied it.
    Retiring,
    /// Its log is gone.
    Dropped,
}

impl ModuleImage {
    /// The version of this number.
    pub(crate) fn version(&self, number: u32) -> Option<&Arc<ModuleVersionImage>> {
        self.versions.get((number as usize).checked_sub(1)?)
    }

    /// The number of the version that has these bytes.
    pub(crate) fn number_of(&self, digest: ModuleDigest) -> Option<u32> {
        (1..).zip(&self.versions).find(|(_, version)| version.digest == digest).map(|(number, _)| number)
    }
}

impl TopicImage {
    /// Active partitions; they are the first ones.
    pub(crate) fn active_count(&self) -> u32 {
        let active = self.partitions.iter().take_while(|partition| partition.stage == Stage::Active).count();
        u32::try_from(active).expect("at most PARTITIONS_MAX")
    }
}
