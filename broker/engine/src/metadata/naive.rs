//! The state machine against a naive model, and the store against the state machine: after any commands, also over
//! restarts, both say the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_extension::ModuleDigest;
use levada_log::SimStorage;
use levada_model::{
    ManualClock, ModuleName, ModuleRef, Offset, PartitionIndex, Principal, ProcessorName, Timestamp, TopicId,
    TopicName, limits,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Strategy, any, prop_oneof, proptest};
use proptest::test_runner::Config;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{Guarantee, OnError, ProcessorSpec, ProcessorStep, SourceSpec, Then};

use super::{Applied, Command, Image, Metadata, MetadataError, ModuleVersionImage, RedbMetadata, Refusal, Stage};

/// What a topic is to someone who thinks of partitions as sets.
#[derive(Clone, Debug, Default, PartialEq)]
struct NaiveTopic {
    id: u128,
    version: u64,
    config: BTreeMap<String, Value>,
    active: u32,
    retiring: BTreeSet<u32>,
    /// Ends of dropped partitions.
    ends: BTreeMap<u32, u64>,
    /// How often each partition came back.
    returns: BTreeMap<u32, i32>,
}

#[derive(Default)]
struct Naive {
    topics: BTreeMap<String, NaiveTopic>,
    deleted: BTreeSet<u128>,
    producer_ids: i64,
    /// By name: the active version, and the first byte of each version's digest.
    modules: BTreeMap<String, (u32, Vec<u8>)>,
    /// By name: version, whether it is paused, and the module of its one step.
    processors: BTreeMap<String, (u64, bool, String)>,
}

impl Naive {
    /// Whether the command is taken.
    fn apply(&mut self, command: &Command) -> bool {
        match command {
            Command::CreateTopic { name, id, partitions, config } => {
                let fits = (1..=limits::PARTITIONS_MAX).contains(partitions);
                if self.topics.contains_key(name.as_str()) || !fits || !self.has_modules_of(config) {
                    return false;
                }
                let topic = NaiveTopic {
                    id: id.0.as_u128(),
                    version: 1,
                    config: config.clone(),
                    active: *partitions,
                    ..NaiveTopic::default()
                };
                self.topics.insert(name.to_string(), topic);
                true
            }
            Command::AlterTopic { name, if_version, partitions, config } => {
                let Some(topic) = self.topics.get_mut(name.as_str()) else { return false };
                let count = partitions.unwrap_or(topic.active);
                if if_version.is_some_and(|version| version != topic.version) || count == 0 {
                    return false;
                }
                let old = topic.clone();
                let mut set = topic.config.clone();
                for (setting, value) in config {
                    match value {
                        Some(value) => drop(set.insert(setting.clone(), value.clone())),
                        None => drop(set.remove(setting)),
                    }
                }
                let modules = &self.modules;
                if !has_modules_of(modules, &set) {
                    return false;
                }
                topic.config = set;
                for partition in count..topic.active {
                    topic.retiring.insert(partition);
                }
                for partition in topic.active..count {
                    if topic.retiring.remove(&partition) || topic.ends.contains_key(&partition) {
                        *topic.returns.entry(partition).or_default() += 1;
                    }
                }
                topic.active = count;
                topic.version += u64::from(*topic != old);
                true
            }
            Command::DropPartitions { name, ends } => {
                let Some(topic) = self.topics.get_mut(name.as_str()) else { return false };
                let mut places: Vec<_> = ends.iter().map(|(partition, _)| partition.0).collect();
                places.dedup();
                if places.len() < ends.len() || !places.iter().all(|place| topic.retiring.contains(place)) {
                    return false;
                }
                for (partition, end) in ends {
                    topic.retiring.remove(&partition.0);
                    topic.ends.insert(partition.0, end.0);
                }
                topic.version += 1;
                true
            }
            Command::DeleteTopic { name } => {
                let deleted = self.topics.remove(name.as_str());
                self.deleted.extend(deleted.iter().map(|topic| topic.id));
                deleted.is_some()
            }
            Command::ForgetDeletion { id } => {
                self.deleted.remove(&id.0.as_u128());
                true
            }
            Command::TakeProducerIds { count } => {
                self.producer_ids += i64::from(*count);
                true
            }
            Command::PutModule { name, version, activate, .. } => {
                let (active, versions) = self.modules.entry(name.to_string()).or_insert((1, Vec::new()));
                let byte = version.digest.0[0];
                if !versions.contains(&byte) {
                    versions.push(byte);
                }
                if *activate {
                    let place = versions.iter().position(|version| *version == byte).expect("it is there");
                    *active = u32::try_from(place).expect("small") + 1;
                }
                true
            }
            Command::ActivateModule { name, version } => match self.modules.get_mut(name.as_str()) {
                Some((active, versions)) if (1..=versions.len()).contains(&(*version as usize)) => {
                    *active = *version;
                    true
                }
                _ => false,
            },
            Command::DeleteModule { name } => {
                let uses = |topic: &NaiveTopic| {
                    let named = topic.config.get("partitioner").and_then(Value::as_str);
                    named.is_some_and(|text| text.contains(&format!(":{name}")))
                };
                let steps = |(_, _, module): &(u64, bool, String)| module == name.as_str();
                let is_used = self.topics.values().any(uses) || self.processors.values().any(steps);
                !is_used && self.modules.remove(name.as_str()).is_some()
            }
            Command::PutProcessor { name, spec, .. } => {
                let module = spec.modules().next().expect("one step").name.to_string();
                if !self.modules.contains_key(&module) {
                    return false;
                }
                let processor = self.processors.entry(name.to_string()).or_default();
                if processor.2 != module {
                    *processor = (processor.0 + 1, processor.1, module);
                }
                true
            }
            Command::PauseProcessor { name, paused } => match self.processors.get_mut(name.as_str()) {
                Some(processor) => {
                    processor.1 = *paused;
                    true
                }
                None => false,
            },
            Command::DeleteProcessor { name } => self.processors.remove(name.as_str()).is_some(),
        }
    }

    fn has_modules_of(&self, config: &BTreeMap<String, Value>) -> bool {
        has_modules_of(&self.modules, config)
    }

    fn check(&self, image: &Image) {
        assert_eq!(image.next_producer_id.0, self.producer_ids);
        assert_eq!(image.deletions.keys().map(|id| id.0.as_u128()).collect::<BTreeSet<_>>(), self.deleted);
        let modules = image.modules.iter().map(|(name, module)| {
            let versions = module.versions.iter().map(|version| version.digest.0[0]).collect();
            (name.to_string(), (module.active, versions))
        });
        assert_eq!(modules.collect::<BTreeMap<_, _>>(), self.modules);
        let processors = image.processors.iter().map(|(name, processor)| {
            let module = processor.spec.modules().next().expect("one step").name.to_string();
            (name.to_string(), (processor.version, processor.paused, module))
        });
        assert_eq!(processors.collect::<BTreeMap<_, _>>(), self.processors);
        let names: Vec<_> = image.topics.keys().map(|name| name.to_string()).collect();
        assert_eq!(names, self.topics.keys().cloned().collect::<Vec<_>>());
        for (topic, naive) in image.topics.values().zip(self.topics.values()) {
            assert_eq!((topic.id.0.as_u128(), topic.version), (naive.id, naive.version));
            assert_eq!((&topic.config, topic.active_count()), (&naive.config, naive.active));
            for (slot, index) in topic.partitions.iter().zip(0..) {
                let stage = match index {
                    index if index < naive.active => Stage::Active,
                    index if naive.retiring.contains(&index) => Stage::Retiring,
                    _ => Stage::Dropped,
                };
                assert_eq!(slot.stage, stage, "partition {index}");
                assert_eq!(slot.leader_epoch.0, naive.returns.get(&index).copied().unwrap_or(0));
                assert_eq!(slot.start_at.0, naive.ends.get(&index).copied().unwrap_or(0));
            }
        }
    }
}

/// Whether the module is there that `partitioner` names, by one letter and perhaps `@` and a digit.
fn has_modules_of(modules: &BTreeMap<String, (u32, Vec<u8>)>, config: &BTreeMap<String, Value>) -> bool {
    let Some(text) = config.get("partitioner").and_then(Value::as_str) else { return true };
    let Some((_, versions)) = modules.get(&text["module:".len()..="module:".len()]) else { return false };
    text.split_once('@').is_none_or(|(_, digit)| digit.parse::<usize>().expect("a digit") <= versions.len())
}

fn module() -> impl Strategy<Value = ModuleName> {
    "[mn]".prop_map(|name| ModuleName::new(&name).expect("within the rule"))
}

fn processor() -> impl Strategy<Value = ProcessorName> {
    "[qr]".prop_map(|name| ProcessorName::new(&name).expect("within the rule"))
}

/// A processor with one step.
fn spec(module: ModuleName) -> Arc<ProcessorSpec> {
    let topic = TopicName::new("a").expect("within the rule");
    let module = ModuleRef { name: module, version: None };
    Arc::new(ProcessorSpec {
        sources: vec![SourceSpec { topic: topic.clone(), start: crate::From::Earliest }],
        timestamp: None,
        steps: vec![ProcessorStep::Transform { module, config: "{}".to_owned() }],
        sink: topic,
        on_error: OnError { attempts: 1, then: Then::Skip },
        guarantee: Guarantee::ExactlyOnce,
        commit_interval_ms: 0,
        document: "{}".to_owned(),
    })
}

fn version() -> impl Strategy<Value = ModuleVersionImage> {
    (0..4_u8).prop_map(|byte| ModuleVersionImage {
        digest: ModuleDigest([byte; 32]),
        size_bytes: 1,
        worlds: Vec::new(),
        config_schema: None,
        created_at: Timestamp(0),
    })
}

fn setting() -> impl Strategy<Value = (String, Value)> {
    prop_oneof![
        ("[xy]", any::<u8>()).prop_map(|(name, n)| (name, json!(n))),
        "[mn]".prop_map(|module| ("partitioner".to_owned(), json!(format!("module:{module}")))),
        ("[mn]", 1..4).prop_map(|(module, v)| ("partitioner".to_owned(), json!(format!("module:{module}@{v}")))),
    ]
}

fn name() -> impl Strategy<Value = TopicName> {
    "[abc]".prop_map(|name| TopicName::new(&name).expect("within the rule"))
}

fn id() -> impl Strategy<Value = TopicId> {
    (0..4_u128).prop_map(|id| TopicId(Uuid::from_u128(id)))
}

fn command() -> impl Strategy<Value = Command> {
    let config = vec(setting(), 0..2).prop_map(|settings| settings.into_iter().collect());
    let change = (setting(), any::<bool>()).prop_map(|((name, value), sets)| (name, sets.then_some(value)));
    let change = vec(change, 0..2).prop_map(|settings| settings.into_iter().collect());
    let ends = vec((0..6_u32, 1..100_u64), 1..3);
    let ends = ends.prop_map(|ends| ends.into_iter().map(|(p, end)| (PartitionIndex(p), Offset(end))).collect());
    prop_oneof![
        (name(), any::<u128>(), 0..6_u32, config).prop_map(|(name, id, partitions, config)| Command::CreateTopic {
            name,
            id: TopicId(Uuid::from_u128(id)),
            partitions,
            config
        }),
        (name(), option::weighted(0.2, 1..5_u64), option::of(0..6_u32), change).prop_map(
            |(name, if_version, partitions, config)| Command::AlterTopic { name, if_version, partitions, config }
        ),
        (name(), ends).prop_map(|(name, ends)| Command::DropPartitions { name, ends }),
        name().prop_map(|name| Command::DeleteTopic { name }),
        id().prop_map(|id| Command::ForgetDeletion { id }),
        (1..5_u32).prop_map(|count| Command::TakeProducerIds { count }),
        (module(), version(), any::<bool>()).prop_map(|(name, version, activate)| {
            Command::PutModule { name, owner: Principal::anonymous(), version, activate }
        }),
        (module(), 0..4_u32).prop_map(|(name, version)| Command::ActivateModule { name, version }),
        module().prop_map(|name| Command::DeleteModule { name }),
        (processor(), module()).prop_map(|(name, module)| {
            Command::PutProcessor { name, owner: Principal::anonymous(), spec: spec(module) }
        }),
        (processor(), any::<bool>()).prop_map(|(name, paused)| Command::PauseProcessor { name, paused }),
        processor().prop_map(|name| Command::DeleteProcessor { name }),
    ]
}

fn open(storage: &SimStorage) -> RedbMetadata {
    RedbMetadata::open(storage, "data".as_ref(), true).expect("the metadata open")
}

fn disk() -> SimStorage {
    let disk = SimStorage::new(Arc::new(ManualClock::at(Timestamp(0))));
    levada_log::Storage::create_dir(&disk, "data".as_ref()).expect("made");
    levada_log::Storage::sync_dir(&disk, "".as_ref()).expect("durable");
    disk
}

proptest! {
    #![proptest_config(Config { cases: 64, ..Config::default() })]

    #[test]
    fn commands_do_what_a_naive_model_does_also_over_power_cuts(commands in vec(command(), 1..40), cut in 0..40_usize) {
        let mut disk = disk();
        let mut metadata = open(&disk);
        let mut naive = Naive::default();
        for (place, command) in commands.iter().enumerate() {
            let taken = metadata.propose(command);
            assert_eq!(taken.is_ok(), naive.apply(command), "{command:?}: {taken:?}");
            naive.check(&metadata.image());
            if place == cut {
                disk = disk.crash(&levada_log::CrashPlan::all_lost());
                metadata = open(&disk);
                naive.check(&metadata.image());
            }
        }
        drop(metadata);
        naive.check(&open(&disk.restart()).image());
    }
}

#[test]
fn the_first_start_draws_an_identity_that_stays() {
    let disk = disk();
    let first = open(&disk).image().cluster_id;
    assert_eq!(open(&disk).image().cluster_id, first);
    assert_ne!(open(&self::disk()).image().cluster_id, first);
}

#[test]
fn producer_ids_are_answered_from_where_the_last_block_ended() {
    let metadata = open(&disk());
    for first in [0, 10, 20] {
        let applied = metadata.propose(&Command::TakeProducerIds { count: 10 });
        assert_eq!(applied, Ok(Applied::ProducerIds(levada_model::ProducerId(first))));
    }
}

#[test]
fn who_comes_after_the_close_changes_nothing() {
    let disk = disk();
    let metadata = open(&disk);
    metadata.close();
    let take = metadata.propose(&Command::TakeProducerIds { count: 10 });
    assert!(matches!(take, Err(MetadataError::Unavailable { possible: false, .. })), "{take:?}");
    assert_eq!(open(&disk.restart()).image().next_producer_id.0, 0);
}

#[test]
fn after_a_failed_write_nothing_more_is_taken() {
    let disk = disk();
    let metadata = open(&disk);
    disk.fail_sync(true);
    let create = Command::DeleteTopic { name: TopicName::new("a").expect("within the rule") };
    assert!(matches!(metadata.propose(&create), Err(MetadataError::Refused(Refusal::NotFound(_)))));
    let take = Command::TakeProducerIds { count: 1 };
    assert!(matches!(metadata.propose(&take), Err(MetadataError::Unavailable { possible: true, .. })));
    disk.fail_sync(false);
    assert!(
        matches!(metadata.propose(&take), Err(MetadataError::Unavailable { possible: false, .. })),
        "nobody knows what the disk holds"
    );
}
