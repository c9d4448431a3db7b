//! The versions that are loaded: found by name, loaded when they are asked for (and, those in use, after the start), let go
//! when nothing uses them.
//!
//! A module that cannot be loaded stops nobody but who needs it. Not here: commands (`changes`), and what a version is
//! asked (`extension`).

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use levada_extension::{HostUsage, ModuleDigest, ModuleHost, ModuleRefusal, ModuleVersion, Moment};
use levada_log::StorageError;
use levada_model::{ModuleRef, Tick, limits};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::ModuleError;
use super::blobs::Blobs;
use super::turns::AllTurns;
use super::uses::module_uses;
use crate::directory::Directory;
use crate::metadata::{Image, Metadata};
use crate::partition::blocking;

/// The modules of this node.
pub(crate) struct Modules {
    host: Option<Arc<dyn ModuleHost>>,
    directory: Arc<Directory>,
    data_dir: PathBuf,
    metadata: Arc<dyn Metadata>,
    slots: Mutex<HashMap<ModuleDigest, Arc<Slot>>>,
    /// Counts what was asked for, so that one can tell what was asked for longest ago.
    asked: AtomicU64,
    /// Seeds that calls are given.
    seeds: AtomicU64,
    closing: AtomicBool,
    /// Held from before bytes are written or removed until the metadata say so. Nothing of a module runs meanwhile.
    pub(super) blobs: Mutex<()>,
    pub(super) uploads: Arc<Semaphore>,
    /// Of the reads through each module.
    pub(super) turns: AllTurns,
    /// Held by members while they join with an assignor that is a module, and by who changes what the modules' names mean.
    pub(crate) joins: Arc<tokio::sync::RwLock<()>>,
}

/// One version, loaded or not.
#[derive(Default)]
struct Slot {
    version: RwLock<Option<Arc<dyn ModuleVersion>>>,
    /// Held while it is loaded; why that failed last.
    failed: Mutex<Option<(ModuleRefusal, Tick)>>,
    /// Where async callers wait for that, without a thread each.
    turn: tokio::sync::Mutex<()>,
    asked: AtomicU64,
}

impl Modules {
    pub(crate) fn new(
        host: Option<Arc<dyn ModuleHost>>,
        directory: Arc<Directory>,
        data_dir: PathBuf,
        metadata: Arc<dyn Metadata>,
    ) -> Self {
        let (first, second) = Uuid::new_v4().as_u64_pair();
        Self {
            host,
            directory,
            data_dir,
            metadata,
            slots: Mutex::default(),
            asked: AtomicU64::new(0),
            seeds: AtomicU64::new(first ^ second),
            closing: AtomicBool::new(false),
            blobs: Mutex::default(),
            uploads: Arc::new(Semaphore::new(limits::MODULE_UPLOADS_MAX)),
            turns: AllTurns::default(),
            joins: Arc::default(),
        }
    }

    /// Removes the bytes that no module has, and what was made of such, as a stop in the middle of an upload leaves them.
    /// Where that fails they stay.
    pub(crate) fn sweep(&self) {
        let known: BTreeSet<_> = digests(&self.metadata.image()).collect();
        let swept = self.blobs_on_disk().sweep(&known).unwrap_or_else(|error| {
            tracing::warn!(%error, "bytes that no module has may stay");
            Vec::new()
        });
        for digest in swept {
            tracing::info!(%digest, "bytes that no module has were removed");
        }
        // An upload is compiled before its bytes are kept, so more may have been made than there are bytes of.
        if let Some(host) = &self.host {
            host.keep_only(&known);
        }
    }

    /// Loads what is in use. Blocks; meant for a thread of its own.
    pub(crate) fn load_used(&self) {
        for digest in used(&self.metadata.image()) {
            if self.closing.load(Ordering::Acquire) || self.host.is_none() {
                return;
            }
            if let Err(error) = self.load(digest) {
                tracing::warn!(%digest, %error, "a module that is in use cannot be loaded");
            }
        }
    }

    /// Loads nothing more ahead of its time.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// What all modules use now; none where there is no host.
    pub(crate) fn usage(&self) -> Option<HostUsage> {
        self.host.as_ref().map(|host| host.usage())
    }

    pub(super) fn host(&self) -> Result<&Arc<dyn ModuleHost>, ModuleError> {
        self.host.as_ref().ok_or(ModuleError::NoHost)
    }

    pub(super) fn blobs_on_disk(&self) -> Blobs<'_> {
        Blobs { storage: &**self.directory.storage(), data_dir: &self.data_dir }
    }

    /// The number and the digest of the version that is meant now.
    pub(crate) fn resolve(&self, module: &ModuleRef) -> Result<(u32, ModuleDigest), ModuleError> {
        let image = self.metadata.image();
        let there = image.modules.get(&module.name).ok_or_else(|| ModuleError::NotFound(module.name.clone()))?;
        let number = module.version.unwrap_or(there.active);
        match there.version(number) {
            Some(version) => Ok((number, version.digest)),
            None => Err(ModuleError::NoVersion { name: module.name.clone(), version: number }),
        }
    }

    /// Whether each name means these bytes still. It does for as long as the caller holds `changes`, or `joins`.
    pub(crate) fn are_meant(&self, digests: &[(ModuleRef, ModuleDigest)]) -> bool {
        digests.iter().all(|(module, digest)| self.resolve(module).is_ok_and(|(_, meant)| meant == *digest))
    }

    /// The version that is meant now, loaded.
    pub(crate) async fn version(self: &Arc<Self>, module: &ModuleRef) -> Result<Arc<dyn ModuleVersion>, ModuleError> {
        let (_, digest) = self.resolve(module)?;
        if let Some(version) = self.loaded(digest) {
            return Ok(version);
        }
        let slot = self.slot(digest);
        let _turn = slot.turn.lock().await;
        if let Some(version) = self.loaded(digest) {
            return Ok(version);
        }
        let this = self.clone();
        let loaded = blocking(move || this.load(digest)).await;
        // It may have been deleted meanwhile, and its bytes with it.
        loaded.map_err(|error| self.resolve(module).err().unwrap_or(error))
    }

    /// The version that is meant now, loaded. Blocks.
    pub(crate) fn version_blocking(&self, module: &ModuleRef) -> Result<Arc<dyn ModuleVersion>, ModuleError> {
        let (_, digest) = self.resolve(module)?;
        self.load(digest)
    }

    /// Loads a version, if it is not. Who comes while it is loaded waits for that. Blocks.
    pub(super) fn load(&self, digest: ModuleDigest) -> Result<Arc<dyn ModuleVersion>, ModuleError> {
        let host = self.host()?;
        let slot = self.slot(digest);
        let mut failed = slot.failed.lock();
        if let Some(version) = &*slot.version.read() {
            return Ok(version.clone());
        }
        let now = self.directory.tick();
        if let Some((refusal, at)) = &*failed
            && now.0.saturating_sub(at.0) < limits::MODULE_LOAD_RETRY_MS
        {
            return Err(refused(refusal.clone()));
        }
        let read = || self.blobs_on_disk().read(digest).map_err(|error| io::Error::new(error.source.kind(), error));
        match host.load(digest, &read) {
            Ok(version) => {
                *failed = None;
                *slot.version.write() = Some(version.clone());
                drop(failed);
                self.trim();
                Ok(version)
            }
            Err(refusal) => {
                *failed = Some((refusal.clone(), now));
                Err(refused(refusal))
            }
        }
    }

    /// A twin of a version for one dry run. What the host has lost of it is made anew of its bytes. Blocks.
    pub(crate) fn twin(&self, version: &dyn ModuleVersion) -> Result<Arc<dyn ModuleVersion>, ModuleRefusal> {
        let lost = match version.dry_run() {
            Err(lost @ ModuleRefusal::Host { .. }) => lost,
            twin => return twin,
        };
        let (Some(host), digest) = (&self.host, version.describe().digest) else { return Err(lost) };
        let wasm = self.wasm(digest).map_err(|error| ModuleRefusal::Host { reason: error.to_string() })?;
        host.compile(&wasm)?;
        let twin = version.dry_run();
        // In case that it was deleted meanwhile.
        let _blobs = self.blobs.lock();
        self.forget(std::iter::once(digest));
        twin
    }

    /// Puts in a version that was just compiled.
    pub(super) fn put_loaded(&self, digest: ModuleDigest, version: Arc<dyn ModuleVersion>) {
        let slot = self.slot(digest);
        *slot.failed.lock() = None;
        *slot.version.write() = Some(version);
        self.trim();
    }

    /// Lets go of versions that no module has any more, with all that was kept of them on the disk.
    pub(super) fn forget(&self, gone: impl Iterator<Item = ModuleDigest>) {
        let left: BTreeSet<_> = digests(&self.metadata.image()).collect();
        for digest in gone.filter(|digest| !left.contains(digest)) {
            self.slots.lock().remove(&digest);
            if let Err(error) = self.blobs_on_disk().remove(digest) {
                tracing::warn!(%digest, %error, "the bytes of a deleted module stay until the next start");
            }
            if let Some(host) = &self.host {
                host.forget(digest);
            }
        }
    }

    /// A version's bytes. Blocks.
    pub(super) fn wasm(&self, digest: ModuleDigest) -> Result<Bytes, StorageError> {
        self.blobs_on_disk().read(digest)
    }

    /// The clock and the randomness of a call; with `of` the same seed for the same text.
    pub(crate) fn moment(&self, of: Option<&[u8]>) -> Moment {
        let seed = match of {
            Some(text) => {
                let [a, b, c, d, e, f, g, h, ..] = ModuleDigest::of(text).0;
                u64::from_be_bytes([a, b, c, d, e, f, g, h])
            }
            // Steps of Weyl's sequence: all of them differ, and no two that follow are near each other.
            None => self.seeds.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed),
        };
        Moment { time: self.directory.now(), seed }
    }

    fn loaded(&self, digest: ModuleDigest) -> Option<Arc<dyn ModuleVersion>> {
        let slots = self.slots.lock();
        let slot = slots.get(&digest)?;
        slot.asked.store(self.asked.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        slot.version.try_read()?.clone()
    }

    fn slot(&self, digest: ModuleDigest) -> Arc<Slot> {
        let slot = self.slots.lock().entry(digest).or_default().clone();
        slot.asked.store(self.asked.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        slot
    }

    /// Lets go of the versions that nothing uses and that were asked for longest ago, if there are many.
    fn trim(&self) {
        let mut slots = self.slots.lock();
        if slots.len() <= limits::MODULES_LOADED_UNUSED_MAX {
            return;
        }
        let used = used(&self.metadata.image());
        let mut unused: Vec<_> = slots.iter().filter(|(digest, _)| !used.contains(digest)).collect();
        unused.sort_by_key(|(_, slot)| slot.asked.load(Ordering::Relaxed));
        let surplus = unused.len().saturating_sub(limits::MODULES_LOADED_UNUSED_MAX);
        let surplus: Vec<_> = unused.into_iter().take(surplus).map(|(digest, _)| *digest).collect();
        surplus.iter().for_each(|digest| drop(slots.remove(digest)));
    }
}

/// Has the modules that are in use loaded, if there is a runtime; else each is when it is asked for.
pub(crate) fn start(modules: &Arc<Modules>) {
    if let Ok(runtime) = Handle::try_current() {
        let modules = modules.clone();
        runtime.spawn_blocking(move || modules.load_used());
    }
}

/// A refusal of what was taken before is the host's or the disk's.
pub(super) fn refused(refusal: ModuleRefusal) -> ModuleError {
    match refusal {
        ModuleRefusal::Host { reason } => ModuleError::Busy(reason),
        refusal => ModuleError::Invalid(refusal),
    }
}

/// The digests of all versions of all modules.
fn digests(image: &Image) -> impl Iterator<Item = ModuleDigest> {
    image.modules.values().flat_map(|module| module.versions.iter().map(|version| version.digest))
}

/// The digests of the versions that are active or that something names.
fn used(image: &Image) -> BTreeSet<ModuleDigest> {
    let active = image.modules.values().filter_map(|module| module.version(module.active));
    let named = module_uses(image).filter_map(|(module, _)| image.modules.get(&module.name)?.version(module.version?));
    let named: Vec<_> = named.collect();
    active.chain(named).map(|version| version.digest).collect()
}
