//! Commands and what they do to the image. Everything random or time-like comes in the command, so that applying it
//! again, or elsewhere, gives the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_model::{
    LeaderEpoch, ModuleName, ModuleRef, Offset, PartitionIndex, Principal, ProcessorName, ProducerId, TopicId,
    TopicName, limits,
};
use serde_json::Value;
use thiserror::Error;

use super::{Image, ModuleImage, ModuleVersionImage, PartitionImage, ProcessorImage, Stage, TopicImage};
use crate::ProcessorSpec;
use crate::modules::{module_uses, topic_modules};

/// A change of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    /// A new topic with active partitions.
    CreateTopic {
        /// Its name; none of that name may exist.
        name: TopicName,
        /// Its identity, drawn by the proposer; never used before.
        id: TopicId,
        /// How many partitions.
        partitions: u32,
        /// What is set; checked by the proposer.
        config: BTreeMap<String, Value>,
    },
    /// Other settings, more or fewer active partitions.
    AlterTopic {
        /// Which.
        name: TopicName,
        /// Only if it is at this version.
        if_version: Option<u64>,
        /// Active partitions there shall be.
        partitions: Option<u32>,
        /// Settings to set or (none) to put back.
        config: BTreeMap<String, Option<Value>>,
    },
    /// Retiring partitions are empty and go.
    DropPartitions {
        /// Which topic.
        name: TopicName,
        /// Which partitions, and the offset behind the last that each held.
        ends: Vec<(PartitionIndex, Offset)>,
    },
    /// The topic goes; its identity is kept until its directories are gone.
    DeleteTopic {
        /// Which.
        name: TopicName,
    },
    /// The directories of a deleted topic are gone.
    ForgetDeletion {
        /// Which.
        id: TopicId,
    },
    /// Producer ids to give out.
    TakeProducerIds {
        /// How many.
        count: u32,
    },
    /// A version of a module, and the module itself if it is its first. Bytes that it has already are no new version.
    PutModule {
        /// Its name.
        name: ModuleName,
        /// Who puts it; the owner, if it is the first.
        owner: Principal,
        /// The version, whose bytes are on the disk.
        version: ModuleVersionImage,
        /// Whether it is active from now on; the first always is.
        activate: bool,
    },
    /// Another version is the one that the name means.
    ActivateModule {
        /// Which module.
        name: ModuleName,
        /// Which version.
        version: u32,
    },
    /// A module that nothing uses goes, with all its versions.
    DeleteModule {
        /// Which.
        name: ModuleName,
    },
    /// A processor, new or with another document. The same document again changes nothing.
    PutProcessor {
        /// Its name.
        name: ProcessorName,
        /// Who puts it; the owner, if it is new.
        owner: Principal,
        /// What it does; checked by the proposer.
        spec: Arc<ProcessorSpec>,
    },
    /// A processor stands still, or goes on.
    PauseProcessor {
        /// Which.
        name: ProcessorName,
        /// Whether it stands still.
        paused: bool,
    },
    /// A processor goes.
    DeleteProcessor {
        /// Which.
        name: ProcessorName,
    },
}

/// What a command did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Applied {
    /// The topic as it is now.
    Topic(Arc<TopicImage>),
    /// The first of the producer ids taken.
    ProducerIds(ProducerId),
    /// The topic that is gone.
    Deleted(TopicId),
    /// The module as it is now, or was when it was deleted.
    Module(Arc<ModuleImage>),
    /// The processor as it is now, or was when it was deleted; and whether it is new.
    Processor(Arc<ProcessorImage>, bool),
    /// Done.
    Done,
}

/// Why the state does not allow a command.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    /// There is one of that name.
    #[error("topic {0} exists")]
    Exists(TopicName),
    /// There is none of that name.
    #[error("there is no topic {0}")]
    NotFound(TopicName),
    /// It is at another version.
    #[error("topic {name} is at version {version}")]
    VersionMismatch {
        /// The topic.
        name: TopicName,
        /// Its version.
        version: u64,
    },
    /// Too few or too many partitions.
    #[error("a topic has 1 to {max} partitions, not {got}", max = limits::PARTITIONS_MAX)]
    PartitionCount {
        /// What was asked for.
        got: u32,
    },
    /// Only a retiring partition can be dropped.
    #[error("partition {0} is not retiring")]
    NotRetiring(PartitionIndex),
    /// There is no module of that name.
    #[error("there is no module {0}")]
    NoModule(ModuleName),
    /// The module has no such version.
    #[error("there is no version {0} of this module")]
    NoModuleVersion(ModuleRef),
    /// A topic's setting, or a step of a processor, names a module that is not there.
    #[error("{setting} names module {module}, which is not there")]
    MissingModule {
        /// The setting.
        setting: &'static str,
        /// What it names.
        module: ModuleRef,
    },
    /// Something uses the module.
    #[error("module {0} is in use")]
    ModuleInUse(ModuleName),
    /// There are as many modules as there may be.
    #[error("at most {} modules", limits::MODULES_MAX)]
    TooManyModules,
    /// There is no processor of that name.
    #[error("there is no processor {0}")]
    NoProcessor(ProcessorName),
    /// There are as many processors as there may be.
    #[error("at most {} processors", limits::PROCESSORS_MAX)]
    TooManyProcessors,
    /// The module has as many versions as it may.
    #[error("at most {} versions of a module", limits::MODULE_VERSIONS_MAX)]
    TooManyModuleVersions,
}

impl Image {
    /// Applies a command.
    ///
    /// # Errors
    /// When the state does not allow it; the image is as it was.
    pub(crate) fn apply(&mut self, command: &Command) -> Result<Applied, Refusal> {
        match command {
            Command::CreateTopic { name, id, partitions, config } => {
                if self.topics.contains_key(name) {
                    return Err(Refusal::Exists(name.clone()));
                }
                check_count(*partitions)?;
                self.check_modules(config)?;
                let mut topic = TopicImage { id: *id, version: 1, config: config.clone(), partitions: Vec::new() };
                topic.resize(*partitions);
                Ok(Applied::Topic(self.put(name, topic)))
            }
            Command::AlterTopic { name, if_version, partitions, config } => {
                self.alter(name, *if_version, *partitions, config)
            }
            Command::DropPartitions { name, ends } => self.drop_partitions(name, ends),
            Command::DeleteTopic { name } => {
                let topic = self.topics.remove(name).ok_or_else(|| Refusal::NotFound(name.clone()))?;
                self.deletions.insert(topic.id, name.clone());
                Ok(Applied::Deleted(topic.id))
            }
            Command::ForgetDeletion { id } => {
                self.deletions.remove(id);
                Ok(Applied::Done)
            }
            Command::TakeProducerIds { count } => {
                let first = self.next_producer_id;
                self.next_producer_id = ProducerId(first.0 + i64::from(*count));
                Ok(Applied::ProducerIds(first))
            }
            Command::PutModule { name, owner, version, activate } => self.put_module(name, owner, version, *activate),
            Command::ActivateModule { name, version } => {
                let mut module = ModuleImage::clone(&*self.module(name)?);
                if module.version(*version).is_none() {
                    let module = ModuleRef { name: name.clone(), version: Some(*version) };
                    return Err(Refusal::NoModuleVersion(module));
                }
                module.active = *version;
                Ok(Applied::Module(self.set_module(name, module)))
            }
            Command::DeleteModule { name } => {
                let module = self.module(name)?;
                if module_uses(self).any(|(used, _)| used.name == *name) {
                    return Err(Refusal::ModuleInUse(name.clone()));
                }
                self.modules.remove(name);
                Ok(Applied::Module(module))
            }
            Command::PutProcessor { name, owner, spec } => self.put_processor(name, owner, spec),
            Command::PauseProcessor { name, paused } => {
                let processor = self.processor(name)?;
                if processor.paused == *paused {
                    return Ok(Applied::Processor(processor, false));
                }
                let changed = ProcessorImage { paused: *paused, ..ProcessorImage::clone(&processor) };
                Ok(Applied::Processor(self.set_processor(name, changed), false))
            }
            Command::DeleteProcessor { name } => {
                let processor = self.processor(name)?;
                self.processors.remove(name);
                Ok(Applied::Processor(processor, false))
            }
        }
    }

    fn alter(
        &mut self,
        name: &TopicName,
        if_version: Option<u64>,
        partitions: Option<u32>,
        config: &BTreeMap<String, Option<Value>>,
    ) -> Result<Applied, Refusal> {
        let old = self.topic(name)?;
        if if_version.is_some_and(|version| version != old.version) {
            return Err(Refusal::VersionMismatch { name: name.clone(), version: old.version });
        }
        let mut topic = TopicImage::clone(&old);
        if let Some(count) = partitions {
            check_count(count)?;
            topic.resize(count);
        }
        for (setting, value) in config {
            match value {
                Some(value) => topic.config.insert(setting.clone(), value.clone()),
                None => topic.config.remove(setting),
            };
        }
        if topic == *old {
            return Ok(Applied::Topic(old));
        }
        self.check_modules(&topic.config)?;
        topic.version += 1;
        Ok(Applied::Topic(self.put(name, topic)))
    }

    fn drop_partitions(&mut self, name: &TopicName, ends: &[(PartitionIndex, Offset)]) -> Result<Applied, Refusal> {
        let mut topic = TopicImage::clone(&*self.topic(name)?);
        for (partition, end) in ends {
            let slot = topic.partitions.get_mut(partition.0 as usize).filter(|slot| slot.stage == Stage::Retiring);
            let slot = slot.ok_or(Refusal::NotRetiring(*partition))?;
            slot.stage = Stage::Dropped;
            slot.start_at = *end;
        }
        topic.version += 1;
        Ok(Applied::Topic(self.put(name, topic)))
    }

    fn put_module(
        &mut self,
        name: &ModuleName,
        owner: &Principal,
        version: &ModuleVersionImage,
        activate: bool,
    ) -> Result<Applied, Refusal> {
        let mut module = match self.modules.get(name) {
            Some(module) => ModuleImage::clone(module),
            None if self.modules.len() >= limits::MODULES_MAX => return Err(Refusal::TooManyModules),
            None => ModuleImage { owner: owner.clone(), active: 1, versions: Vec::new() },
        };
        let number = match module.number_of(version.digest) {
            Some(number) => number,
            None if module.versions.len() >= limits::MODULE_VERSIONS_MAX => return Err(Refusal::TooManyModuleVersions),
            None => {
                module.versions.push(Arc::new(version.clone()));
                u32::try_from(module.versions.len()).expect("at most MODULE_VERSIONS_MAX")
            }
        };
        if activate {
            module.active = number;
        }
        Ok(Applied::Module(self.set_module(name, module)))
    }

    fn put_processor(
        &mut self,
        name: &ProcessorName,
        owner: &Principal,
        spec: &Arc<ProcessorSpec>,
    ) -> Result<Applied, Refusal> {
        let there = self.processors.get(name).cloned();
        if there.is_none() && self.processors.len() >= limits::PROCESSORS_MAX {
            return Err(Refusal::TooManyProcessors);
        }
        if let Some(module) = spec.modules().find(|module| !self.has_module(module)) {
            return Err(Refusal::MissingModule { setting: "a step", module: module.clone() });
        }
        let new = match there {
            Some(there) if there.spec == *spec => return Ok(Applied::Processor(there, false)),
            Some(there) => {
                let there = ProcessorImage::clone(&there);
                ProcessorImage { version: there.version + 1, spec: spec.clone(), ..there }
            }
            None => ProcessorImage { owner: owner.clone(), version: 1, paused: false, spec: spec.clone() },
        };
        let is_new = new.version == 1;
        Ok(Applied::Processor(self.set_processor(name, new), is_new))
    }

    /// That every module is there which a topic's settings name.
    fn check_modules(&self, config: &BTreeMap<String, Value>) -> Result<(), Refusal> {
        match topic_modules(config).find(|(_, module)| !self.has_module(module)) {
            Some((setting, module)) => Err(Refusal::MissingModule { setting, module }),
            None => Ok(()),
        }
    }

    fn has_module(&self, module: &ModuleRef) -> bool {
        let image = self.modules.get(&module.name);
        image.is_some_and(|image| module.version.is_none_or(|number| image.version(number).is_some()))
    }

    fn processor(&self, name: &ProcessorName) -> Result<Arc<ProcessorImage>, Refusal> {
        self.processors.get(name).cloned().ok_or_else(|| Refusal::NoProcessor(name.clone()))
    }

    fn set_processor(&mut self, name: &ProcessorName, processor: ProcessorImage) -> Arc<ProcessorImage> {
        let processor = Arc::new(processor);
        self.processors.insert(name.clone(), processor.clone());
        processor
    }

    fn module(&self, name: &ModuleName) -> Result<Arc<ModuleImage>, Refusal> {
        self.modules.get(name).cloned().ok_or_else(|| Refusal::NoModule(name.clone()))
    }

    fn set_module(&mut self, name: &ModuleName, module: ModuleImage) -> Arc<ModuleImage> {
        let module = Arc::new(module);
        self.modules.insert(name.clone(), module.clone());
        module
    }

    fn topic(&self, name: &TopicName) -> Result<Arc<TopicImage>, Refusal> {
        self.topics.get(name).cloned().ok_or_else(|| Refusal::NotFound(name.clone()))
    }

    fn put(&mut self, name: &TopicName, topic: TopicImage) -> Arc<TopicImage> {
        let topic = Arc::new(topic);
        self.topics.insert(name.clone(), topic.clone());
        topic
    }
}

impl TopicImage {
    /// Makes the first `count` partitions active and all others retire. One that comes back starts a new term.
    fn resize(&mut self, count: u32) {
        let count = count as usize;
        for slot in self.partitions.iter_mut().take(count).filter(|slot| slot.stage != Stage::Active) {
            slot.stage = Stage::Active;
            slot.leader_epoch = LeaderEpoch(slot.leader_epoch.0 + 1);
        }
        for slot in self.partitions.iter_mut().skip(count).filter(|slot| slot.stage == Stage::Active) {
            slot.stage = Stage::Retiring;
        }
        let new = PartitionImage { stage: Stage::Active, leader_epoch: LeaderEpoch(0), start_at: Offset(0) };
        let len = self.partitions.len().max(count);
        self.partitions.resize(len, new);
    }
}

fn check_count(count: u32) -> Result<(), Refusal> {
    if (1..=limits::PARTITIONS_MAX).contains(&count) { Ok(()) } else { Err(Refusal::PartitionCount { got: count }) }
}
