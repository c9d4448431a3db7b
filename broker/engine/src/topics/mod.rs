//! Topics as users see them: create, list, describe, alter, delete, truncate. Each change is a command to the metadata.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_model::{
    ConfigError, ConfigKey, Offset, Operation, PartitionIndex, Principal, Resource, TopicConfig, TopicId, TopicName,
    limits,
};
use parking_lot::MutexGuard;
use serde_json::Value;
use uuid::Uuid;

mod switch;
mod terms;

pub use terms::{
    AlterTopic, CreateTopic, PartitionDescription, PartitionState, TopicDescription, TopicError, TopicPage, Truncated,
};

use crate::catalog::{Topic, TopicState};
use crate::engine::{Core, NODE};
use crate::metadata::{Applied, Command, MetadataError, Refusal, Stage, TopicImage};
use crate::modules::{CheckedModules, PARTITIONER, VALIDATOR};
use crate::partition::{Partition, Shut, blocking};
use crate::{Engine, ModuleError, start};

impl Engine {
    /// Creates a topic, durably.
    ///
    /// # Errors
    /// See [`TopicError`].
    pub async fn create_topic(&self, who: &Principal, new: CreateTopic) -> Result<TopicDescription, TopicError> {
        self.core.authorize(who, Operation::Create, Resource::Topic(&new.name))?;
        if new.name.is_internal() {
            return Err(TopicError::Reserved(new.name));
        }
        let core = self.core.clone();
        let topic = blocking(move || core.create_topic(new)).await?;
        Ok(describe(&topic))
    }

    /// At most `limit` topics whose names come after `after`. Internal topics are among them, marked; those that `who`
    /// may not see are left out.
    ///
    /// # Errors
    /// See [`TopicError`].
    pub fn list_topics(
        &self,
        who: &Principal,
        after: Option<&TopicName>,
        limit: usize,
    ) -> Result<TopicPage, TopicError> {
        let all = self.core.catalog.topics();
        let visible =
            |topic: &&Arc<Topic>| self.core.authorize(who, Operation::Describe, Resource::Topic(topic.name())).is_ok();
        let mut rest = all.after(after).filter(visible);
        let topics: Vec<_> = rest.by_ref().take(limit).map(|topic| describe(topic)).collect();
        let next_after = rest.next().and(topics.last()).map(|last| last.name.clone());
        Ok(TopicPage { topics, next_after })
    }

    /// A topic as it is.
    ///
    /// # Errors
    /// See [`TopicError`].
    pub fn describe_topic(&self, who: &Principal, name: &TopicName) -> Result<TopicDescription, TopicError> {
        self.core.authorize(who, Operation::Describe, Resource::Topic(name))?;
        let topic = self.core.catalog.get(name).ok_or_else(|| TopicError::NotFound(name.clone()))?;
        Ok(describe(&topic))
    }

    /// The name of a topic; none if there is no such topic (any more), or `who` may not see it.
    #[must_use]
    pub fn topic_name(&self, who: &Principal, id: TopicId) -> Option<TopicName> {
        let topic = self.core.catalog.topics().by_id(id).cloned()?;
        let may_see = self.core.authorize(who, Operation::Describe, Resource::Topic(topic.name())).is_ok();
        may_see.then(|| topic.name().clone())
    }

    /// Changes a topic, durably.
    ///
    /// # Errors
    /// See [`TopicError`].
    pub async fn alter_topic(
        &self,
        who: &Principal,
        name: &TopicName,
        change: AlterTopic,
    ) -> Result<TopicDescription, TopicError> {
        self.core.authorize(who, Operation::Alter, Resource::Topic(name))?;
        refuse_internal(name)?;
        let (core, name) = (self.core.clone(), name.clone());
        let turn = core.switch_turn(&name, &change).await;
        let alter = move || {
            // Also where nobody waits for the change any more.
            let _turn = turn;
            core.alter_topic(&name, change)
        };
        let topic = blocking(alter).await?;
        Ok(describe(&topic))
    }

    /// Deletes a topic with all its records.
    ///
    /// # Errors
    /// See [`TopicError`].
    pub async fn delete_topic(&self, who: &Principal, name: &TopicName) -> Result<(), TopicError> {
        self.core.authorize(who, Operation::Delete, Resource::Topic(name))?;
        refuse_internal(name)?;
        let (core, name) = (self.core.clone(), name.clone());
        blocking(move || core.delete_topic(&name)).await
    }

    /// Moves log starts up: records before the named offsets are gone for good.
    ///
    /// # Errors
    /// See [`TopicError`]; checked for all partitions before any is touched.
    pub async fn truncate_topic(
        &self,
        who: &Principal,
        name: &TopicName,
        offsets: Vec<(PartitionIndex, Offset)>,
    ) -> Result<Vec<Truncated>, TopicError> {
        self.core.authorize(who, Operation::Alter, Resource::Topic(name))?;
        refuse_internal(name)?;
        let (core, name) = (self.core.clone(), name.clone());
        blocking(move || core.truncate_topic(&name, &offsets)).await
    }
}

impl Core {
    /// The topic of this name, created if there is none.
    pub(crate) async fn ensure_topic(self: &Arc<Self>, new: CreateTopic) -> Result<Arc<Topic>, TopicError> {
        if let Some(topic) = self.catalog.get(&new.name) {
            return Ok(topic);
        }
        let (core, name) = (self.clone(), new.name.clone());
        match blocking(move || core.create_topic(new)).await {
            // Another request was first.
            Err(TopicError::Exists(_)) => self.catalog.get(&name).ok_or(TopicError::NotFound(name)),
            other => other,
        }
    }

    /// Creates a topic, also one of the broker's own.
    pub(crate) fn create_topic(&self, new: CreateTopic) -> Result<Arc<Topic>, TopicError> {
        let CreateTopic { name, partitions, config: set } = new;
        let config = TopicConfig::new(&set)?;
        let _changes = loop {
            let checked = self.check_topic_modules(&config)?;
            let changes = self.begin_change()?;
            if self.modules.are_meant(checked.digests()) {
                break changes;
            }
        };
        let id = TopicId(Uuid::new_v4());
        let image = self.propose_topic(&Command::CreateTopic { name: name.clone(), id, partitions, config: set })?;
        let opened = start::make_dirs(&self.directory, &image).map_err(levada_log::OpenError::from).and_then(|()| {
            let specs = start::specs(&image, &config, false).collect();
            start::in_parallel(specs, |spec| Partition::open(&self.directory, &spec)).into_iter().collect()
        });
        let partitions: Vec<_> = match opened {
            Ok(partitions) => partitions,
            Err(error) => {
                // What could not be made is taken back; if that fails too, the next start makes it.
                let is_taken_back = self.metadata.propose(&Command::DeleteTopic { name }).is_ok();
                return Err(match error {
                    levada_log::OpenError::Storage(error) if is_taken_back && error.is_out_of_files() => {
                        TopicError::OutOfFiles
                    }
                    error => self.fenced(&error, !is_taken_back),
                });
            }
        };
        let topic = start::running(&name, &image, config, partitions.into_iter().map(Some).collect());
        self.catalog.insert(topic.clone());
        Ok(topic)
    }

    fn alter_topic(&self, name: &TopicName, change: AlterTopic) -> Result<Arc<Topic>, TopicError> {
        let looked_through = self.look_for_keys(name, &change)?;
        let (_changes, topic, config) = loop {
            let checked = self.check_altered_modules(name, &change)?;
            let changes = self.begin_change()?;
            let topic = self.catalog.get(name).ok_or_else(|| TopicError::NotFound(name.clone()))?;
            let config = changed(&topic.state(), &change)?;
            if checked.is_none_or(|checked| checked.is_of(&config) && self.modules.are_meant(checked.digests())) {
                break (changes, topic, config);
            }
        };
        let switch = self.require_keys(&topic, &config, &looked_through)?;
        let image = self.propose_topic(&Command::AlterTopic {
            name: name.clone(),
            if_version: change.if_version,
            partitions: change.partitions,
            config: change.config,
        })?;
        switch.keep();
        self.apply_image(&topic, image, config)?;
        // The change holds whatever becomes of the partitions that it lets go: housekeeping looks again.
        if let Err(error) = self.drop_empty(&topic) {
            tracing::warn!(topic = %topic.name(), %error, "its empty partitions could not be dropped");
        }
        Ok(topic)
    }

    /// Checks the modules of a change that names one or its config.
    fn check_altered_modules(
        &self,
        name: &TopicName,
        change: &AlterTopic,
    ) -> Result<Option<CheckedModules>, TopicError> {
        let of_modules = |setting: &String| [PARTITIONER, VALIDATOR].iter().any(|module| setting.starts_with(module));
        match self.catalog.get(name) {
            Some(topic) if change.config.keys().any(of_modules) => {
                self.check_topic_modules(&changed(&topic.state(), change)?).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Makes what runs what metadata says.
    fn apply_image(&self, topic: &Topic, image: Arc<TopicImage>, config: TopicConfig) -> Result<(), TopicError> {
        start::make_dirs(&self.directory, &image).map_err(|error| self.fenced(&error, true))?;
        let old = topic.state_full();
        let there = |index: u32| old.partition(PartitionIndex(index)).cloned();
        let missing = start::specs(&image, &config, false).filter(|spec| there(spec.index.0).is_none()).collect();
        let opened: Result<Vec<_>, _> =
            start::in_parallel(missing, |spec| Partition::open(&self.directory, &spec)).into_iter().collect();
        let mut opened = opened.map_err(|error| self.fenced(&error, true))?.into_iter();
        let mut partitions = Vec::with_capacity(image.partitions.len());
        for (slot, index) in image.partitions.iter().zip(0..) {
            let partition = match (slot.stage, there(index)) {
                (Stage::Dropped, _) => None,
                (_, None) => opened.next(),
                (stage, Some(partition)) => {
                    let retiring = stage == Stage::Retiring;
                    let changed = partition.reconfigure(&config, retiring, slot.leader_epoch);
                    changed.map_err(|error| self.fenced(&error, true))?;
                    Some(partition)
                }
            };
            partitions.push(partition);
        }
        let running = |state: &TopicState| state.partitions().map(|partition| partition.index()).collect::<Vec<_>>();
        let state = TopicState::new(image, config, partitions);
        let is_other = running(&state) != running(&old);
        topic.set_state(state);
        // Settings alone are no business of groups.
        if is_other {
            self.catalog.note_change();
        }
        Ok(())
    }

    /// Drops those retiring partitions that hold nothing. The caller holds `changes`.
    pub(crate) fn drop_empty(&self, topic: &Topic) -> Result<(), TopicError> {
        let state = topic.state_full();
        let retiring = state.partitions().filter(|partition| partition.index().0 >= state.active_count);
        let empty: Vec<_> = retiring
            .filter(|partition| {
                let is_empty = |shut| {
                    partition.shut(shut);
                    partition.log_start() == partition.high_watermark()
                };
                // The end of a transaction may still come until it takes nothing at all.
                if !is_empty(Shut::Retiring) {
                    return false;
                }
                let is_left = is_empty(Shut::Dropping);
                if !is_left {
                    partition.shut(Shut::Retiring);
                }
                is_left
            })
            .cloned()
            .collect();
        if empty.is_empty() || self.directory.fenced().is_some() {
            return Ok(());
        }
        let ends = empty.iter().map(|partition| (partition.index(), partition.high_watermark())).collect();
        let image = self.propose_topic(&Command::DropPartitions { name: topic.name().clone(), ends })?;
        self.apply_image(topic, image, state.config.clone())?;
        for partition in empty {
            partition.stop_cleaning();
            partition.abandon();
            let removed = start::remove_dir(&**self.directory.storage(), partition.path());
            removed.map_err(|error| self.fenced(&error, true))?;
        }
        Ok(())
    }

    fn delete_topic(&self, name: &TopicName) -> Result<(), TopicError> {
        let _changes = self.begin_change()?;
        let topic = self.catalog.get(name).ok_or_else(|| TopicError::NotFound(name.clone()))?;
        self.propose(&Command::DeleteTopic { name: name.clone() })?;
        topic.mark_deleted();
        self.catalog.remove(&topic);
        for partition in topic.state().partitions() {
            partition.stop_cleaning();
            partition.shut(Shut::Deleted);
            partition.abandon();
        }
        topic.wake_all();
        // The topic is gone whatever comes of its directory: the next start finishes what fails here.
        let removed = start::remove_dir(&**self.directory.storage(), &self.directory.topic_dir(topic.id()));
        if let Err(error) = removed {
            tracing::warn!(topic = %name, %error, "its directory stays until the next start");
        } else if let Err(error) = self.propose(&Command::ForgetDeletion { id: topic.id() }) {
            tracing::warn!(topic = %name, %error, "its deletion is finished at the next start");
        }
        Ok(())
    }

    fn truncate_topic(
        &self,
        name: &TopicName,
        offsets: &[(PartitionIndex, Offset)],
    ) -> Result<Vec<Truncated>, TopicError> {
        let _changes = self.begin_change()?;
        let topic = self.catalog.get(name).ok_or_else(|| TopicError::NotFound(name.clone()))?;
        let state = topic.state();
        let mut wanted = Vec::with_capacity(offsets.len());
        for (place, (index, before)) in offsets.iter().enumerate() {
            let missing = || TopicError::NoPartition { topic: name.clone(), partition: *index };
            let partition = state.partition(*index).ok_or_else(missing)?;
            if offsets[..place].iter().any(|(other, _)| other == index) {
                return Err(TopicError::Repeated(*index));
            }
            let high_watermark = partition.high_watermark();
            if *before > high_watermark {
                return Err(TopicError::BeyondEnd { partition: *index, before: *before, high_watermark });
            }
            wanted.push((partition, *before));
        }
        let truncated = wanted.into_iter().map(|(partition, before)| {
            let log_start_offset = partition.truncate_front(before).map_err(|error| match error {
                error if error.is_out_of_files() => TopicError::OutOfFiles,
                error => self.fenced(&error, true),
            })?;
            Ok(Truncated { partition: partition.index(), log_start_offset })
        });
        truncated.collect()
    }

    /// Waits for its turn to change topics.
    pub(crate) fn begin_change(&self) -> Result<MutexGuard<'_, ()>, TopicError> {
        let changes = self.changes.lock();
        if self.is_closing() {
            return Err(TopicError::Closing);
        }
        match self.directory.fenced() {
            Some(reason) => Err(TopicError::Fenced { reason: reason.to_owned(), possible: false }),
            None => Ok(changes),
        }
    }

    fn propose_topic(&self, command: &Command) -> Result<Arc<TopicImage>, TopicError> {
        match self.propose(command)? {
            Applied::Topic(image) => Ok(image),
            other => unreachable!("a change of a topic answers with the topic, not {other:?}"),
        }
    }

    fn propose(&self, command: &Command) -> Result<Applied, TopicError> {
        self.metadata.propose(command).map_err(|error| match error {
            MetadataError::Refused(Refusal::Exists(name)) => TopicError::Exists(name),
            MetadataError::Refused(Refusal::NotFound(name)) => TopicError::NotFound(name),
            MetadataError::Refused(Refusal::VersionMismatch { name, version }) => {
                TopicError::VersionMismatch { name, version }
            }
            MetadataError::Refused(Refusal::PartitionCount { got }) => {
                TopicError::PartitionCount { got, max: limits::PARTITIONS_MAX }
            }
            // It was there when the change was checked.
            MetadataError::Refused(Refusal::MissingModule { setting, module }) => {
                TopicError::Module { setting, error: Box::new(ModuleError::NotFound(module.name)) }
            }
            MetadataError::Refused(
                refusal @ (Refusal::NotRetiring(_)
                | Refusal::NoModule(_)
                | Refusal::NoModuleVersion(_)
                | Refusal::ModuleInUse(_)
                | Refusal::TooManyModules
                | Refusal::TooManyModuleVersions
                | Refusal::NoProcessor(_)
                | Refusal::TooManyProcessors),
            ) => unreachable!("changes are serial, and this is no topic's: {refusal}"),
            MetadataError::Unavailable { reason, possible } => self.fenced(&reason, possible),
        })
    }

    /// A disk that fails for one thing is not trusted with the next.
    fn fenced(&self, error: &dyn std::fmt::Display, possible: bool) -> TopicError {
        TopicError::Fenced { reason: self.directory.fence(error).to_string(), possible }
    }
}

/// The settings that hold after a change.
fn changed(state: &TopicState, change: &AlterTopic) -> Result<TopicConfig, TopicError> {
    let mut set = state.image.config.clone();
    for (setting, value) in &change.config {
        match value {
            Some(value) => set.insert(setting.clone(), value.clone()),
            None => set.remove(setting),
        };
    }
    let config = TopicConfig::new(&set)?;
    check_names(change.config.keys())?;
    Ok(config)
}

pub(crate) fn refuse_internal(name: &TopicName) -> Result<(), TopicError> {
    if name.is_internal() { Err(TopicError::Internal(name.clone())) } else { Ok(()) }
}

/// A setting that is put back to its default must be one, too.
fn check_names<'a>(mut names: impl Iterator<Item = &'a String>) -> Result<(), ConfigError> {
    match names.find(|name| ConfigKey::all().iter().all(|key| key.name != name.as_str())) {
        Some(unknown) => TopicConfig::new(&BTreeMap::from([(unknown.clone(), Value::Null)])).map(drop),
        None => Ok(()),
    }
}

fn describe(topic: &Topic) -> TopicDescription {
    let state = topic.state();
    let partition = |partition: &Arc<Partition>| PartitionDescription {
        // First, so that it is not beyond the high watermark.
        last_stable_offset: partition.last_stable_offset(),
        partition: partition.index(),
        leader: NODE,
        leader_epoch: partition.leader_epoch(),
        replicas: vec![NODE],
        isr: vec![NODE],
        log_start_offset: partition.log_start(),
        high_watermark: partition.high_watermark(),
        size_bytes: partition.size_bytes(),
        state: if partition.index().0 < state.active_count { PartitionState::Active } else { PartitionState::Retiring },
    };
    let (partitioner_fallbacks, partitioner_fault) = topic.fallbacks().seen();
    TopicDescription {
        name: topic.name().clone(),
        id: topic.id(),
        internal: topic.name().is_internal(),
        version: state.image.version,
        partition_count: state.active_count,
        partitions: state.partitions().map(partition).collect(),
        config: state.image.config.clone(),
        effective_config: TopicConfig::effective(&state.image.config),
        partitioner_fallbacks,
        partitioner_fault,
    }
}
