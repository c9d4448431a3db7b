//! From a data directory to running topics: the clean-shutdown marker, deletions that were under way, logs opened in
//! parallel. And the marker's return at the end.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use levada_log::{Storage, StorageError};
use levada_model::{PartitionIndex, TopicConfig, TopicName};
use parking_lot::Mutex;

use crate::OpenError;
use crate::catalog::{Catalog, Topic, TopicState};
use crate::directory::Directory;
use crate::metadata::{Command, Metadata, Stage, TopicImage};
use crate::partition::{Partition, PartitionSpec, Shut};

/// Says that every log was closed cleanly. It is gone before any log is opened.
const CLEAN_MARKER: &str = "clean-shutdown";

/// What a data directory looked like.
pub(crate) struct Start {
    /// Whether the last run ended cleanly.
    pub(crate) clean: bool,
    /// Whether there is nothing yet, so that metadata may be new.
    pub(crate) may_be_new: bool,
    topic_dirs: Vec<String>,
}

/// Makes the directories where there are none, and consumes the clean-shutdown marker.
pub(crate) fn prepare(storage: &dyn Storage, data_dir: &Path, directory: &Directory) -> Result<Start, OpenError> {
    create_dir(storage, data_dir)?;
    let logs_dir = directory.logs_dir();
    create_dir(storage, &logs_dir)?;
    let clean = list(storage, data_dir)?.iter().any(|name| name == CLEAN_MARKER);
    if clean {
        let marker = data_dir.join(CLEAN_MARKER);
        storage.remove_file(&marker).map_err(|source| failed("remove", &marker, source))?;
        sync_dir(storage, data_dir)?;
    }
    let topic_dirs = list(storage, &logs_dir)?;
    Ok(Start { clean, may_be_new: topic_dirs.is_empty(), topic_dirs })
}

/// Opens all topics that metadata knows, and finishes deletions that were under way. Directories that metadata does not
/// know are reported and left alone: only a person can tell what they are.
pub(crate) fn open_topics(
    directory: &Arc<Directory>,
    metadata: &dyn Metadata,
    start: &Start,
) -> Result<Catalog, OpenError> {
    let image = metadata.image();
    for (id, name) in &image.deletions {
        tracing::info!(topic = %name, id = %id, "finishing the deletion of a topic");
        if start.topic_dirs.contains(&id.to_string()) {
            remove_dir(&**directory.storage(), &directory.topic_dir(*id))?;
        }
        metadata.propose(&Command::ForgetDeletion { id: *id }).map_err(|error| OpenError::Metadata {
            path: directory.logs_dir().display().to_string(),
            detail: error.to_string(),
        })?;
    }
    let known: BTreeSet<_> = image
        .topics
        .values()
        .map(|topic| topic.id)
        .chain(image.deletions.keys().copied())
        .map(|id| id.to_string())
        .collect();
    for unknown in start.topic_dirs.iter().filter(|name| !known.contains(*name)) {
        tracing::warn!(directory = %unknown, "no topic of this id is known; the directory is left alone");
    }
    let mut configs = Vec::new();
    for (name, topic) in &image.topics {
        let config = TopicConfig::new(&topic.config).map_err(|error| OpenError::Metadata {
            path: format!("the settings of topic {name}"),
            detail: error.to_string(),
        })?;
        make_dirs(directory, topic)?;
        if topic.partitions.iter().any(|slot| slot.stage == Stage::Dropped) {
            remove_dropped(directory, topic)?;
        }
        configs.push((name, topic, config));
    }
    let specs: Vec<_> = configs.iter().flat_map(|(_, topic, config)| specs(topic, config, 0, start.clean)).collect();
    let mut opened = in_parallel(specs, |spec| Partition::open(directory, &spec)).into_iter();
    let catalog = Catalog::default();
    for (name, image, config) in configs {
        let slots = image.partitions.iter().map(|partition| match partition.stage {
            Stage::Dropped => Ok(None),
            _ => opened.next().expect("one for each partition that is there").map(Some),
        });
        let partitions = slots.collect::<Result<Vec<_>, _>>()?;
        catalog.insert(running(name, image, config, partitions));
    }
    Ok(catalog)
}

/// A topic with its partitions, those that retire already shut.
pub(crate) fn running(
    name: &TopicName,
    image: &Arc<TopicImage>,
    config: TopicConfig,
    partitions: Vec<Option<Arc<Partition>>>,
) -> Arc<Topic> {
    for (slot, partition) in image.partitions.iter().zip(&partitions) {
        if let (Stage::Retiring, Some(partition)) = (slot.stage, partition) {
            partition.shut(Shut::Retiring);
        }
    }
    Arc::new(Topic::new(name.clone(), TopicState::new(image.clone(), config, partitions)))
}

/// What to open of a topic, from partition `first` on.
pub(crate) fn specs<'a>(
    topic: &'a TopicImage,
    config: &'a TopicConfig,
    first: usize,
    clean: bool,
) -> impl Iterator<Item = PartitionSpec<'a>> {
    let there = topic.partitions.iter().zip(0..).skip(first).filter(|(slot, _)| slot.stage != Stage::Dropped);
    there.map(move |(slot, index)| PartitionSpec {
        topic: topic.id,
        index: PartitionIndex(index),
        config,
        retiring: slot.stage == Stage::Retiring,
        leader_epoch: slot.leader_epoch,
        start_at: slot.start_at,
        clean,
    })
}

/// Makes the directories of a topic and its partitions where there are none, durably and with one sync for all.
pub(crate) fn make_dirs(directory: &Directory, topic: &TopicImage) -> Result<(), StorageError> {
    let storage = &**directory.storage();
    let path = directory.topic_dir(topic.id);
    let names: BTreeSet<_> = match storage.list(&path) {
        Ok(names) => names.into_iter().collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            create_dir(storage, &path)?;
            BTreeSet::new()
        }
        Err(error) => return Err(failed("list", &path, error)),
    };
    let there = topic.partitions.iter().zip(0_u32..).filter(|(slot, _)| slot.stage != Stage::Dropped);
    let missing: Vec<_> = there.map(|(_, index)| index).filter(|index| !names.contains(&index.to_string())).collect();
    for index in &missing {
        let path = directory.partition_dir(topic.id, PartitionIndex(*index));
        storage.create_dir(&path).map_err(|source| failed("create", &path, source))?;
    }
    if missing.is_empty() { Ok(()) } else { sync_dir(storage, &path) }
}

/// Removes what a crash has left of dropped partitions.
fn remove_dropped(directory: &Directory, topic: &TopicImage) -> Result<(), StorageError> {
    let storage = &**directory.storage();
    let names = list(storage, &directory.topic_dir(topic.id))?;
    for (slot, index) in topic.partitions.iter().zip(0_u32..) {
        if slot.stage == Stage::Dropped && names.contains(&index.to_string()) {
            remove_dir(storage, &directory.partition_dir(topic.id, PartitionIndex(index)))?;
        }
    }
    Ok(())
}

/// Leaves the marker that spares the next start the scan.
pub(crate) fn leave_clean_marker(storage: &dyn Storage, data_dir: &Path) -> Result<(), StorageError> {
    let marker = data_dir.join(CLEAN_MARKER);
    storage.open(&marker).map_err(|source| failed("create", &marker, source))?;
    sync_dir(storage, data_dir)
}

/// Removes a directory and all in it, durably.
pub(crate) fn remove_dir(storage: &dyn Storage, path: &Path) -> Result<(), StorageError> {
    storage.remove_dir_all(path).map_err(|source| failed("remove", path, source))?;
    sync_dir(storage, path.parent().expect("a directory of ours has a parent"))
}

/// Does the work for all items on a few threads; the answers come in the items' order.
pub(crate) fn in_parallel<I: Send, T: Send>(items: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    const THREADS_MAX: usize = 8;
    let threads = thread::available_parallelism().map_or(2, NonZero::get).clamp(2, THREADS_MAX).min(items.len());
    if threads < 2 {
        return items.into_iter().map(work).collect();
    }
    let count = items.len();
    let todo = Mutex::new(items.into_iter().enumerate());
    let done = Mutex::new(Vec::with_capacity(count));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = todo.lock().next();
                    let Some((place, item)) = next else { break };
                    let answer = work(item);
                    done.lock().push((place, answer));
                }
            });
        }
    });
    let mut done = done.into_inner();
    done.sort_unstable_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, answer)| answer).collect()
}

fn create_dir(storage: &dyn Storage, path: &Path) -> Result<(), StorageError> {
    storage.create_dir(path).map_err(|source| failed("create", path, source))?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(storage, parent),
        _ => sync_dir(storage, Path::new(".")),
    }
}

fn sync_dir(storage: &dyn Storage, path: &Path) -> Result<(), StorageError> {
    storage.sync_dir(path).map_err(|source| failed("sync", path, source))
}

fn list(storage: &dyn Storage, path: &Path) -> Result<Vec<String>, StorageError> {
    storage.list(path).map_err(|source| failed("list", path, source))
}

fn failed(operation: &'static str, path: &Path, source: std::io::Error) -> StorageError {
    StorageError { operation, path: path.display().to_string(), source }
}
