//! Uploads, activations and deletions: checked, made durable on the disk, then said in the metadata.
//!
//! What uses follow is asked of the modules without any lock, since modules take their time; then the change is made if the
//! uses are still those that were asked for, and else all of it is done again.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use levada_extension::{ModuleConfigError, ModuleDescription, ModuleDigest, ModuleRefusal, ModuleVersion};
use levada_model::{ModuleName, ModuleRef, Principal, TopicConfig, TopicModule, limits};

use super::registry::refused;
use super::terms::{ModuleError, ModuleInfo, ModuleUse, ModuleVersionInfo, PutModule};
use super::uses::{Follower, followers, used_by};
use crate::engine::Core;
use crate::groups::AssignorVote;
use crate::metadata::{Applied, Command, Image, MetadataError, ModuleImage, ModuleVersionImage, Refusal};
use crate::partition::blocking;
use crate::{GroupError, TopicError};

/// A change of what a module's name means.
#[derive(Clone)]
struct Change {
    name: ModuleName,
    /// The version that it is to mean, and its number; none if that stays as it is.
    active: Option<(Arc<dyn ModuleVersion>, u32)>,
    /// Bytes to keep with it.
    wasm: Option<(ModuleDigest, Bytes)>,
    command: Command,
}

/// Modules that a topic's settings name, as they were when they were asked.
pub(crate) struct CheckedModules {
    /// The partitioner and the validator, with their configs.
    settings: [Option<TopicModule>; 2],
    digests: Vec<(ModuleRef, ModuleDigest)>,
}

impl CheckedModules {
    /// Whether these are the settings that were asked for.
    pub(crate) fn is_of(&self, config: &TopicConfig) -> bool {
        let [partitioner, validator] = &self.settings;
        *partitioner == config.partitioner && *validator == config.validator
    }

    /// What each name meant.
    pub(crate) fn digests(&self) -> &[(ModuleRef, ModuleDigest)] {
        &self.digests
    }
}

impl Core {
    /// Puts a version.
    pub(super) async fn put_module(
        self: &Arc<Self>,
        who: Principal,
        name: ModuleName,
        wasm: Bytes,
        activate: bool,
    ) -> Result<PutModule, ModuleError> {
        let (core, named, bytes) = (self.clone(), name.clone(), wasm.clone());
        let version = blocking(move || core.compile_module(&named, &bytes)).await?;
        let digest = version.describe().digest;
        let put = self.keep_module(who, name, wasm, version, activate).await;
        // Who knows what the metadata hold; the next start does.
        if !matches!(put, Ok(_) | Err(ModuleError::Fenced { possible: true, .. })) {
            let modules = self.modules.clone();
            let forget = move || {
                let _blobs = modules.blobs.lock();
                modules.forget(std::iter::once(digest));
            };
            blocking(forget).await;
        }
        put
    }

    /// A version of these bytes. Blocks for its compilation.
    fn compile_module(&self, name: &ModuleName, wasm: &Bytes) -> Result<Arc<dyn ModuleVersion>, ModuleError> {
        let host = self.modules.host()?;
        let digest = ModuleDigest::of(wasm);
        let is_known = self.metadata.image().modules.get(name).is_some_and(|it| it.number_of(digest).is_some());
        match is_known.then(|| self.modules.load(digest)) {
            Some(Ok(version)) => Ok(version),
            // What was lost of it is mended so.
            Some(Err(_)) | None => host.compile(wasm).map_err(refused),
        }
    }

    /// Makes a compiled version durable and says so in the metadata.
    async fn keep_module(
        self: &Arc<Self>,
        who: Principal,
        name: ModuleName,
        wasm: Bytes,
        version: Arc<dyn ModuleVersion>,
        activate: bool,
    ) -> Result<PutModule, ModuleError> {
        let new = version_image(version.describe(), self.directory.now())?;
        let digest = new.digest;
        let image = self.metadata.image();
        let there = image.modules.get(&name);
        let known = there.and_then(|module| module.number_of(digest));
        let number = known.unwrap_or_else(|| there.map_or(0, |module| module.versions.len() as u32) + 1);
        let change = Change {
            name: name.clone(),
            active: activate.then(|| (version.clone(), number)),
            wasm: Some((digest, wasm)),
            command: Command::PutModule { name: name.clone(), owner: who, version: new, activate },
        };
        let module = self.change_module(change).await?;
        self.modules.put_loaded(digest, version);
        let number = module.number_of(digest).expect("it was put");
        Ok(PutModule { module: self.module_info(&name, &module), version: number, created: known.is_none() })
    }

    /// Activates a version.
    pub(super) async fn activate_module(
        self: &Arc<Self>,
        name: ModuleName,
        number: u32,
    ) -> Result<ModuleInfo, ModuleError> {
        let version = self.modules.version(&ModuleRef { name: name.clone(), version: Some(number) }).await?;
        let command = Command::ActivateModule { name: name.clone(), version: number };
        let change = Change { name: name.clone(), active: Some((version, number)), wasm: None, command };
        let module = self.change_module(change).await?;
        Ok(self.module_info(&name, &module))
    }

    /// Deletes a module.
    pub(super) async fn delete_module(self: &Arc<Self>, name: ModuleName) -> Result<(), ModuleError> {
        let settled = self.modules.joins.clone().write_owned().await;
        let votes = self.votes().await?;
        if votes.iter().any(|vote| vote.module.name == name) {
            let by = used_by(&self.metadata.image(), &votes, &name);
            return Err(ModuleError::InUse { by, name });
        }
        let core = self.clone();
        let delete = move || {
            let _settled = settled;
            let _blobs = core.modules.blobs.lock();
            let command = Command::DeleteModule { name };
            let module = core.propose_module(&command, |_| true)?.expect("nothing was asked for before");
            core.modules.forget(module.versions.iter().map(|version| version.digest));
            Ok(())
        };
        blocking(delete).await
    }

    /// Makes a change, once those who follow the name can follow it.
    async fn change_module(self: &Arc<Self>, change: Change) -> Result<Arc<ModuleImage>, ModuleError> {
        loop {
            let asked = match &change.active {
                Some(active) => self.ask_followers(&change.name, active.clone()).await?,
                None => BTreeSet::new(),
            };
            let (settled, votes) = match &change.active {
                Some(_) => (Some(self.modules.joins.clone().write_owned().await), self.votes().await?),
                None => (None, Vec::new()),
            };
            let (core, change) = (self.clone(), change.clone());
            let make = move || {
                let _settled = settled;
                core.make_change(&change, &asked, &votes)
            };
            if let Some(module) = blocking(make).await? {
                return Ok(module);
            }
        }
    }

    /// Makes a change if those who follow the name are those who were asked; none if they are not. Blocks for the disk.
    fn make_change(
        &self,
        change: &Change,
        asked: &BTreeSet<Follower>,
        votes: &[AssignorVote],
    ) -> Result<Option<Arc<ModuleImage>>, ModuleError> {
        let is_asked = |image: &Image| change.active.is_none() || followers(image, votes, &change.name) == *asked;
        let _blobs = self.modules.blobs.lock();
        if let Some((digest, wasm)) = &change.wasm {
            self.modules.blobs_on_disk().keep(*digest, wasm)?;
        }
        self.propose_module(&change.command, is_asked)
    }

    /// That a version is what those expect who name the module alone; answers who these are.
    async fn ask_followers(
        self: &Arc<Self>,
        name: &ModuleName,
        (version, number): (Arc<dyn ModuleVersion>, u32),
    ) -> Result<BTreeSet<Follower>, ModuleError> {
        let asked = followers(&self.metadata.image(), &self.votes().await?, name);
        let module = ModuleRef { name: name.clone(), version: Some(number) };
        let ask = move || {
            for follower in &asked {
                follow(follower, &*version).map_err(|error| config_error(module.clone(), error))?;
            }
            Ok(asked)
        };
        blocking(ask).await
    }

    async fn votes(&self) -> Result<Vec<AssignorVote>, ModuleError> {
        self.groups.votes().await.map_err(|error| match error {
            GroupError::Closing => ModuleError::Closing,
            GroupError::Storage(error) => ModuleError::Storage(error),
            error => ModuleError::Busy(format!("the groups that use modules are not known now: {error}")),
        })
    }

    /// A module as users see it. Groups that are not loaded yet are not among its users.
    pub(super) fn module_info(&self, name: &ModuleName, module: &ModuleImage) -> ModuleInfo {
        self.module_info_among(&self.groups.known_votes(), name, module)
    }

    /// The same, where it is known what the groups' members ask for.
    pub(super) fn module_info_among(
        &self,
        votes: &[AssignorVote],
        name: &ModuleName,
        module: &ModuleImage,
    ) -> ModuleInfo {
        let version = |(number, version): (u32, &Arc<ModuleVersionImage>)| ModuleVersionInfo {
            version: number,
            digest: version.digest,
            size_bytes: version.size_bytes,
            worlds: version.worlds.clone(),
            config_schema: version.config_schema.clone(),
            created_at: version.created_at,
        };
        ModuleInfo {
            name: name.clone(),
            owner: module.owner.clone(),
            active_version: module.active,
            versions: (1..).zip(&module.versions).map(version).collect(),
            used_by: used_by(&self.metadata.image(), votes, name),
        }
    }

    /// That the modules which a topic's settings name are there, can be what they are named for, and take their configs;
    /// answers what was asked. Blocks.
    pub(crate) fn check_topic_modules(&self, config: &TopicConfig) -> Result<CheckedModules, TopicError> {
        let settings = [config.partitioner.clone(), config.validator.clone()];
        let mut digests = Vec::new();
        for (setting, named) in [super::PARTITIONER, super::VALIDATOR].into_iter().zip(&settings) {
            let Some(named) = named else { continue };
            let checked = self.modules.version_blocking(&named.module).and_then(|version| {
                let made = make(setting, &*version, &named.config);
                made.map_err(|error| config_error(named.module.clone(), error))?;
                Ok(version.describe().digest)
            });
            let digest = checked.map_err(|error| TopicError::Module { setting, error: Box::new(error) })?;
            digests.push((named.module.clone(), digest));
        }
        Ok(CheckedModules { settings, digests })
    }

    /// Changes the metadata if `is_asked` holds for them; none if it does not.
    fn propose_module(
        &self,
        command: &Command,
        is_asked: impl FnOnce(&Image) -> bool,
    ) -> Result<Option<Arc<ModuleImage>>, ModuleError> {
        let _changes = self.begin_change().map_err(|error| match error {
            TopicError::Fenced { reason, possible } => ModuleError::Fenced { reason, possible },
            _ => ModuleError::Closing,
        })?;
        if !is_asked(&self.metadata.image()) {
            return Ok(None);
        }
        match self.metadata.propose(command) {
            Ok(Applied::Module(module)) => Ok(Some(module)),
            Ok(other) => unreachable!("a change of a module answers with the module, not {other:?}"),
            Err(MetadataError::Refused(refusal)) => Err(self.module_refusal(refusal)),
            Err(MetadataError::Unavailable { reason, possible }) => {
                Err(ModuleError::Fenced { reason: self.directory.fence(&reason).to_string(), possible })
            }
        }
    }

    fn module_refusal(&self, refusal: Refusal) -> ModuleError {
        match refusal {
            Refusal::NoModule(name) => ModuleError::NotFound(name),
            Refusal::NoModuleVersion(ModuleRef { name, version }) => {
                ModuleError::NoVersion { name, version: version.unwrap_or_default() }
            }
            Refusal::ModuleInUse(name) => {
                let by = used_by(&self.metadata.image(), &self.groups.known_votes(), &name);
                ModuleError::InUse { by, name }
            }
            Refusal::TooManyModules => ModuleError::TooMany { what: "modules", limit: limits::MODULES_MAX as u64 },
            Refusal::TooManyModuleVersions => {
                ModuleError::TooMany { what: "versions of a module", limit: limits::MODULE_VERSIONS_MAX as u64 }
            }
            Refusal::Exists(_)
            | Refusal::NotFound(_)
            | Refusal::VersionMismatch { .. }
            | Refusal::PartitionCount { .. }
            | Refusal::NotRetiring(_)
            | Refusal::MissingModule { .. }
            | Refusal::NoProcessor(_)
            | Refusal::TooManyProcessors => unreachable!("it is of topics or processors: {refusal}"),
        }
    }
}

/// A config, or the world, that a version does not take.
pub(super) fn config_error(module: ModuleRef, error: ModuleConfigError) -> ModuleError {
    match error {
        ModuleConfigError::Busy(busy) => ModuleError::Busy(busy.reason),
        error => ModuleError::Config { module, error },
    }
}

/// Makes a version what a use of it expects, to see whether it can be.
fn follow(Follower { by, config }: &Follower, version: &dyn ModuleVersion) -> Result<(), ModuleConfigError> {
    match by {
        ModuleUse::Partitioner(_) => version.partitioner(config).map(drop),
        ModuleUse::Validator(_) | ModuleUse::Processor(_) => version.transform(config).map(drop),
        ModuleUse::Assignor(_) => version.assignor("module", config).map(drop),
    }
}

/// Makes what a topic's setting names, to see whether it can be made.
fn make(setting: &str, version: &dyn ModuleVersion, config: &str) -> Result<(), ModuleConfigError> {
    if setting == super::PARTITIONER {
        version.partitioner(config).map(drop)
    } else {
        version.transform(config).map(drop)
    }
}

fn version_image(
    description: &ModuleDescription,
    now: levada_model::Timestamp,
) -> Result<ModuleVersionImage, ModuleError> {
    let schema = description.config_schema.as_deref().map(serde_json::from_str).transpose();
    let config_schema = schema.map_err(|error| {
        let detail = format!("its config schema is no JSON: {error}");
        ModuleError::Invalid(ModuleRefusal::Description { detail })
    })?;
    Ok(ModuleVersionImage {
        digest: description.digest,
        size_bytes: description.size_bytes,
        worlds: description.worlds.clone(),
        config_schema,
        created_at: now,
    })
}
