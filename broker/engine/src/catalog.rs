//! The topics that run on this node: what metadata says of them, and their partitions. Readers look them up without a
//! lock; changes are made one after another by `topics`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use levada_coordinator::{TopicInfo, TopicsView};
use levada_extension::{ModuleFault, Murmur2, Partitioner, Transform};
use levada_model::{ModuleRef, PartitionIndex, TopicConfig, TopicId, TopicModule, TopicName};
use tokio::sync::{Mutex, Notify};
use uuid::Uuid;

use crate::metadata::TopicImage;
use crate::modules::{Extension, Made};
use crate::partition::{Partition, Waiters};

/// Partitions of a topic that is created by producing to it.
pub(crate) const TO_BE_PARTITIONS: u32 = 1;

/// All topics.
#[derive(Clone, Default)]
pub(crate) struct Topics {
    by_name: BTreeMap<TopicName, Arc<Topic>>,
    by_id: HashMap<TopicId, Arc<Topic>>,
}

/// The topics at this moment, replaced as a whole.
#[derive(Default)]
pub(crate) struct Catalog {
    topics: ArcSwap<Topics>,
    /// Counts changes of topics and partitions; moved behind each.
    version: AtomicU64,
    /// Notified of them.
    changed: Arc<Notify>,
}

/// A topic that runs.
pub(crate) struct Topic {
    name: TopicName,
    id: TopicId,
    state: ArcSwap<TopicState>,
    partitioner: Murmur2,
    fallbacks: Fallbacks,
    /// Readers of the whole topic, woken when partitions come or go.
    watchers: Arc<Waiters>,
    deleted: AtomicBool,
    /// Held by the change that looks through it for records without a key.
    switching: Arc<Mutex<()>>,
}

/// What changes of a topic, replaced as a whole.
pub(crate) struct TopicState {
    pub(crate) image: Arc<TopicImage>,
    pub(crate) config: TopicConfig,
    /// Active partitions; they are the first ones.
    pub(crate) active_count: u32,
    /// By number; none where it was dropped.
    pub(crate) partitions: Vec<Option<Arc<Partition>>>,
    /// The module that is its partitioner, if one is.
    pub(crate) partitioner: Option<Arc<Extension<dyn Partitioner>>>,
    /// Its validator, if it has one.
    pub(crate) validator: Option<Arc<Extension<dyn Transform>>>,
}

/// How often murmur2 stood in for a topic's partitioner.
#[derive(Default)]
pub(crate) struct Fallbacks {
    count: AtomicU64,
    last: parking_lot::Mutex<Option<String>>,
}

impl Catalog {
    /// All topics.
    pub(crate) fn topics(&self) -> Guard<Arc<Topics>> {
        self.topics.load()
    }

    /// The topic of this name.
    pub(crate) fn get(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.topics.load().by_name.get(name).cloned()
    }

    /// Puts a topic in. Changes come one after another.
    pub(crate) fn insert(&self, topic: Arc<Topic>) {
        let mut topics = Topics::clone(&self.topics.load());
        topics.by_id.insert(topic.id, topic.clone());
        topics.by_name.insert(topic.name.clone(), topic);
        self.topics.store(Arc::new(topics));
        self.note_change();
    }

    /// Takes a topic out. Changes come one after another.
    pub(crate) fn remove(&self, topic: &Topic) {
        let mut topics = Topics::clone(&self.topics.load());
        topics.by_id.remove(&topic.id);
        topics.by_name.remove(&topic.name);
        self.topics.store(Arc::new(topics));
        self.note_change();
    }
}

impl Catalog {
    /// Says that a topic's partitions came or went.
    pub(crate) fn note_change(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_one();
    }

    /// Notified of changes; for one task alone.
    pub(crate) fn changed(&self) -> &Arc<Notify> {
        &self.changed
    }
}

impl TopicsView for Catalog {
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn topic(&self, name: &TopicName) -> Option<TopicInfo> {
        let topic = self.get(name)?;
        let partitions = topic.state().partitions().map(|partition| partition.index()).collect();
        Some(TopicInfo { id: topic.id(), partitions })
    }

    fn has(&self, id: TopicId) -> bool {
        self.topics().by_id(id).is_some()
    }
}

impl Topics {
    /// All, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_name.values()
    }

    /// Those whose names come after `after`.
    pub(crate) fn after(&self, after: Option<&TopicName>) -> impl Iterator<Item = &Arc<Topic>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.by_name.range::<TopicName, _>((from, Unbounded)).map(|(_, topic)| topic)
    }

    /// The topic of this name.
    pub(crate) fn by_name(&self, name: &TopicName) -> Option<&Arc<Topic>> {
        self.by_name.get(name)
    }

    /// The topic with this identity.
    pub(crate) fn by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }
}

impl Topic {
    pub(crate) fn new(name: TopicName, state: TopicState) -> Self {
        Self {
            name,
            id: state.image.id,
            state: ArcSwap::from_pointee(state),
            partitioner: Murmur2::default(),
            fallbacks: Fallbacks::default(),
            watchers: Arc::default(),
            deleted: AtomicBool::new(false),
            switching: Arc::default(),
        }
    }

    pub(crate) fn name(&self) -> &TopicName {
        &self.name
    }

    pub(crate) fn id(&self) -> TopicId {
        self.id
    }

    pub(crate) fn partitioner(&self) -> &Murmur2 {
        &self.partitioner
    }

    pub(crate) fn fallbacks(&self) -> &Fallbacks {
        &self.fallbacks
    }

    /// What holds now, for a look that does not await.
    pub(crate) fn state(&self) -> Guard<Arc<TopicState>> {
        self.state.load()
    }

    /// What holds now, to keep.
    pub(crate) fn state_full(&self) -> Arc<TopicState> {
        self.state.load_full()
    }

    /// Replaces what holds, and lets readers of the whole topic look again.
    pub(crate) fn set_state(&self, state: TopicState) {
        self.state.store(Arc::new(state));
        self.watchers.wake_all();
    }

    pub(crate) fn watchers(&self) -> &Arc<Waiters> {
        &self.watchers
    }

    /// To be held while it is looked through for records without a key.
    pub(crate) fn switching(&self) -> &Arc<Mutex<()>> {
        &self.switching
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    /// From now on it is gone for everyone who still holds it.
    pub(crate) fn mark_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
    }

    /// Wakes everyone who waits for it.
    pub(crate) fn wake_all(&self) {
        self.watchers.wake_all();
        for partition in self.state().partitions() {
            partition.waiters().wake_all();
        }
    }
}

impl Fallbacks {
    /// Notes that the module had no usable answer.
    pub(crate) fn note(&self, module: &ModuleRef, fault: &ModuleFault) {
        self.count.fetch_add(1, Ordering::Relaxed);
        *self.last.lock() = Some(format!("module {module}: {fault}"));
    }

    /// How often, and why the last time.
    pub(crate) fn seen(&self) -> (u64, Option<String>) {
        (self.count.load(Ordering::Relaxed), self.last.lock().clone())
    }
}

fn extension<E: Made + ?Sized>(named: &TopicModule) -> Arc<Extension<E>> {
    Arc::new(Extension::new(named.module.clone(), &named.config))
}

impl TopicState {
    /// A topic as producing to it would create it, to check a request against before that is done.
    pub(crate) fn to_be() -> Self {
        let image =
            TopicImage { id: TopicId(Uuid::nil()), version: 0, config: BTreeMap::new(), partitions: Vec::new() };
        let config = TopicConfig::new(&image.config).expect("the defaults are settings that may be");
        Self { active_count: TO_BE_PARTITIONS, ..Self::new(Arc::new(image), config, Vec::new()) }
    }

    /// What metadata says, with the partitions that run.
    pub(crate) fn new(image: Arc<TopicImage>, config: TopicConfig, partitions: Vec<Option<Arc<Partition>>>) -> Self {
        let partitioner = config.partitioner.as_ref().map(extension);
        let validator = config.validator.as_ref().map(extension);
        Self { active_count: image.active_count(), image, config, partitions, partitioner, validator }
    }

    /// Those that there are, by number.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.partitions.iter().flatten()
    }

    /// The partition of this number.
    pub(crate) fn partition(&self, index: PartitionIndex) -> Option<&Arc<Partition>> {
        self.partitions.get(index.0 as usize)?.as_ref()
    }
}
