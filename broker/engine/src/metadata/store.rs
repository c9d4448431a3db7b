//! Metadata on one node: the image in memory, each command's result in redb (quick repair, immediate durability).
//!
//! A file that cannot be read stops the start; it is never replaced by an empty one, because that would turn every
//! topic into an orphan.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use levada_log::{Storage, StorageError};
use levada_model::{ClusterId, ModuleName, ProcessorName, ProducerId};
use parking_lot::Mutex;
use redb::{
    Builder, Database, Durability, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableError,
    WriteTransaction,
};
use uuid::Uuid;

use super::backend::FileBackend;
use super::rows::{cluster, deletion, module, module_version, processor, topic};
use super::{Applied, Command, Image, Metadata, MetadataError, ModuleImage, ProcessorImage};
use crate::OpenError;

const FILE: &str = "metadata.redb";
/// The file while it is being made for the first time.
const NEW_FILE: &str = "metadata.redb.new";
/// Metadata is small and read from the image; redb needs little memory.
const CACHE_BYTES: usize = 1 << 20;

const CLUSTER: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("cluster");
const TOPICS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("topics");
const DELETIONS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("deletions");
/// Not in files that were made before there were modules.
const MODULES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("modules");
/// Likewise.
const MODULE_VERSIONS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("module_versions");
/// Likewise.
const PROCESSORS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("processors");

/// The metadata of a single node.
pub(crate) struct RedbMetadata {
    /// None once it is closed.
    database: Mutex<Option<Database>>,
    image: ArcSwap<Image>,
    /// Set by the first write that failed: what is on the disk is not known from then on.
    failed: AtomicBool,
}

impl RedbMetadata {
    /// Opens the metadata in `data_dir`, or makes new ones if there are none and `may_be_new`.
    ///
    /// # Errors
    /// When there is something that cannot be read, or nothing where there should be.
    pub(crate) fn open(storage: &dyn Storage, data_dir: &Path, may_be_new: bool) -> Result<Self, OpenError> {
        let names = storage.list(data_dir).map_err(StorageError::at("list", data_dir))?;
        if !names.iter().any(|name| name == FILE) {
            if !may_be_new {
                let detail = "the file is missing, but there are topics' logs; put it back from a backup, or move the \
                              logs elsewhere to start anew";
                return Err(metadata(data_dir, detail));
            }
            create(storage, data_dir)?;
        }
        let path = data_dir.join(FILE);
        let file = storage.open_existing(&path).map_err(StorageError::at("open", &path))?;
        let explain = |detail: String| {
            let detail = format!("{detail}; nothing was changed; put the file back from a backup");
            metadata(data_dir, &detail)
        };
        if file.len().map_err(|error| explain(error.to_string()))? == 0 {
            return Err(explain("the file is empty".to_owned()));
        }
        let database = database(FileBackend(file)).map_err(|error| explain(error.to_string()))?;
        let image = load(&database).map_err(explain)?;
        Ok(Self {
            database: Mutex::new(Some(database)),
            image: ArcSwap::from_pointee(image),
            failed: AtomicBool::new(false),
        })
    }
}

impl Metadata for RedbMetadata {
    fn propose(&self, command: &Command) -> Result<Applied, MetadataError> {
        let database = self.database.lock();
        if self.failed.load(Ordering::Acquire) {
            let reason = "an earlier change of the metadata failed".to_owned();
            return Err(MetadataError::Unavailable { reason, possible: false });
        }
        let Some(database) = &*database else {
            let reason = "the metadata are closed".to_owned();
            return Err(MetadataError::Unavailable { reason, possible: false });
        };
        let old = self.image.load_full();
        let mut new = Image::clone(&old);
        let applied = new.apply(command)?;
        if new != *old {
            persist(database, &old, &new).map_err(|error| {
                self.failed.store(true, Ordering::Release);
                let reason = format!("the metadata could not be written: {error}");
                MetadataError::Unavailable { reason, possible: true }
            })?;
            self.image.store(Arc::new(new));
        }
        Ok(applied)
    }

    fn image(&self) -> Arc<Image> {
        self.image.load_full()
    }

    fn close(&self) {
        drop(self.database.lock().take());
    }
}

fn metadata(data_dir: &Path, detail: &str) -> OpenError {
    OpenError::Metadata { path: data_dir.join(FILE).display().to_string(), detail: detail.to_owned() }
}

/// Opens the file, checking all of it: it is small, and redb panics over damage that it meets later.
fn database(backend: FileBackend) -> Result<Database, redb::DatabaseError> {
    Builder::new().set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true).create_with_backend(backend)
}

/// Makes the file under another name and renames it, so that there is none or a whole one.
fn create(storage: &dyn Storage, data_dir: &Path) -> Result<(), OpenError> {
    let new = data_dir.join(NEW_FILE);
    let failed = |operation: &'static str| StorageError::at(operation, &new);
    let file = storage.open(&new).map_err(failed("create"))?;
    file.set_len(0).map_err(failed("truncate"))?;
    let image = Image {
        cluster_id: ClusterId(Uuid::new_v4()),
        next_producer_id: ProducerId(0),
        topics: BTreeMap::new(),
        deletions: BTreeMap::new(),
        modules: BTreeMap::new(),
        processors: BTreeMap::new(),
    };
    let nothing = Image { next_producer_id: ProducerId(-1), ..image.clone() };
    let written = database(FileBackend(file)).map_err(redb::Error::from);
    written
        .and_then(|database| persist(&database, &nothing, &image))
        .map_err(|error| metadata(data_dir, &format!("a new file could not be written: {error}")))?;
    storage.rename(&new, &data_dir.join(FILE)).map_err(failed("rename"))?;
    storage.sync_dir(data_dir).map_err(failed("sync the directory of"))?;
    Ok(())
}

fn load(database: &Database) -> Result<Image, String> {
    let read = database.begin_read().map_err(|error| error.to_string())?;
    let rows = |definition: TableDefinition<'_, &'static [u8], &'static [u8]>| {
        rows_of(read.open_table(definition)).map_err(|error| error.to_string())
    };
    let cluster =
        rows(CLUSTER)?.into_iter().find(|(key, _)| key == cluster::KEY).ok_or("the cluster's row is missing")?;
    let cluster = cluster::decode(&cluster.1)?;
    let topics = rows(TOPICS)?.into_iter().map(|(key, value)| {
        let (name, topic) = topic::decode(&key, &value)
            .map_err(|error| format!("the row of topic {:?}: {error}", String::from_utf8_lossy(&key)))?;
        Ok((name, Arc::new(topic)))
    });
    let topics = topics.collect::<Result<_, String>>()?;
    let deletions = rows(DELETIONS)?.into_iter().map(|(key, value)| deletion::decode(&key, &value));
    Ok(Image {
        cluster_id: cluster.cluster_id,
        next_producer_id: cluster.next_producer_id,
        topics,
        deletions: deletions.collect::<Result<_, _>>()?,
        modules: load_modules(&read)?,
        processors: load_processors(&read)?,
    })
}

fn load_processors(read: &ReadTransaction) -> Result<BTreeMap<ProcessorName, Arc<ProcessorImage>>, String> {
    let row = |(key, value): (Vec<u8>, Vec<u8>)| {
        let (name, processor) = processor::decode(&key, &value)
            .map_err(|error| format!("the row of processor {:?}: {error}", String::from_utf8_lossy(&key)))?;
        Ok((name, Arc::new(processor)))
    };
    later_rows(read, PROCESSORS)?.into_iter().map(row).collect()
}

/// The modules, each of which has its versions without a hole.
fn load_modules(read: &ReadTransaction) -> Result<BTreeMap<ModuleName, Arc<ModuleImage>>, String> {
    let mut modules = BTreeMap::new();
    for (key, value) in later_rows(read, MODULES)? {
        let (name, owner, active) = module::decode(&key, &value)
            .map_err(|error| format!("the row of module {:?}: {error}", String::from_utf8_lossy(&key)))?;
        modules.insert(name, ModuleImage { owner, active, versions: Vec::new() });
    }
    for (key, value) in later_rows(read, MODULE_VERSIONS)? {
        let wrong = |error: String| format!("the row of module version {:?}: {error}", String::from_utf8_lossy(&key));
        let (name, number, version) = module_version::decode(&key, &value).map_err(wrong)?;
        let module = modules.get_mut(&name).ok_or_else(|| wrong("its module has no row".to_owned()))?;
        module.versions.push(Arc::new(version));
        if module.versions.len() != number as usize {
            return Err(wrong("the version before it is missing".to_owned()));
        }
    }
    if let Some((name, _)) = modules.iter().find(|(_, module)| module.version(module.active).is_none()) {
        return Err(format!("the active version of module {name} is missing"));
    }
    Ok(modules.into_iter().map(|(name, module)| (name, Arc::new(module))).collect())
}

/// Keys and values.
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// All rows of a table that is not in files of earlier versions, by key.
fn later_rows(
    read: &ReadTransaction,
    definition: TableDefinition<'_, &'static [u8], &'static [u8]>,
) -> Result<Rows, String> {
    match read.open_table(definition) {
        Err(TableError::TableDoesNotExist(_)) => Ok(Vec::new()),
        table => rows_of(table).map_err(|error| error.to_string()),
    }
}

/// All rows of a table, by key.
fn rows_of(table: Result<redb::ReadOnlyTable<&'static [u8], &'static [u8]>, TableError>) -> Result<Rows, redb::Error> {
    let table = table?;
    let rows = table.iter()?.map(|row| row.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())));
    Ok(rows.collect::<Result<Vec<_>, _>>()?)
}

/// Writes what differs between two images in one transaction.
fn persist(database: &Database, old: &Image, new: &Image) -> Result<(), redb::Error> {
    let mut write = database.begin_write()?;
    write.set_durability(Durability::Immediate)?;
    write.set_quick_repair(true);
    {
        let mut cluster = write.open_table(CLUSTER)?;
        if old.next_producer_id != new.next_producer_id {
            let row = cluster::ClusterRow { cluster_id: new.cluster_id, next_producer_id: new.next_producer_id };
            cluster.insert(cluster::KEY, &*cluster::encode(row))?;
        }
        let mut topics = write.open_table(TOPICS)?;
        for (name, image) in &new.topics {
            if old.topics.get(name).is_none_or(|was| !Arc::ptr_eq(was, image)) {
                let (key, value) = topic::encode(name, image);
                topics.insert(&*key, &*value)?;
            }
        }
        for name in old.topics.keys().filter(|name| !new.topics.contains_key(*name)) {
            topics.remove(name.as_str().as_bytes())?;
        }
        let mut deletions = write.open_table(DELETIONS)?;
        for (id, name) in new.deletions.iter().filter(|(id, _)| !old.deletions.contains_key(*id)) {
            let (key, value) = deletion::encode(*id, name);
            deletions.insert(&*key, &*value)?;
        }
        for id in old.deletions.keys().filter(|id| !new.deletions.contains_key(*id)) {
            deletions.remove(&id.0.as_bytes()[..])?;
        }
    }
    persist_modules(&write, old, new)?;
    persist_processors(&write, old, new)?;
    write.commit()?;
    Ok(())
}

fn persist_processors(write: &WriteTransaction, old: &Image, new: &Image) -> Result<(), redb::Error> {
    let mut processors = write.open_table(PROCESSORS)?;
    for (name, image) in &new.processors {
        if old.processors.get(name).is_none_or(|was| !Arc::ptr_eq(was, image)) {
            let (key, value) = processor::encode(name, image);
            processors.insert(&*key, &*value)?;
        }
    }
    for name in old.processors.keys().filter(|name| !new.processors.contains_key(*name)) {
        processors.remove(name.as_str().as_bytes())?;
    }
    Ok(())
}

/// Writes what differs in modules. Of one that was there, versions were added alone.
fn persist_modules(write: &WriteTransaction, old: &Image, new: &Image) -> Result<(), redb::Error> {
    let mut modules = write.open_table(MODULES)?;
    let mut versions = write.open_table(MODULE_VERSIONS)?;
    for (name, image) in &new.modules {
        let was = old.modules.get(name);
        if was.is_some_and(|was| Arc::ptr_eq(was, image)) {
            continue;
        }
        let (key, value) = module::encode(name, &image.owner, image.active);
        modules.insert(&*key, &*value)?;
        let there = was.map_or(0, |was| was.versions.len());
        for (number, version) in (1..).zip(&image.versions).skip(there) {
            let (key, value) = module_version::encode(name, number, version);
            versions.insert(&*key, &*value)?;
        }
    }
    for (name, image) in old.modules.iter().filter(|(name, _)| !new.modules.contains_key(*name)) {
        modules.remove(name.as_str().as_bytes())?;
        for (number, _) in (1..).zip(&image.versions) {
            versions.remove(&*module_version::key(name, number))?;
        }
    }
    Ok(())
}
