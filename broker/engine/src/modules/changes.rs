//! Uploads, activations and deletions: checked, made durable on the disk, then said in the metadata.

use std::sync::Arc;

use bytes::Bytes;
use levada_extension::{ModuleConfigError, ModuleDescription, ModuleDigest, ModuleRefusal, ModuleVersion};
use levada_model::{ModuleName, ModuleRef, Principal, TopicConfig, TopicName, limits};

use super::registry::refused;
use super::terms::{ModuleError, ModuleInfo, ModuleUse, ModuleVersionInfo, PutModule};
use super::uses::module_uses;
use crate::TopicError;
use crate::engine::Core;
use crate::metadata::{Applied, Command, Image, MetadataError, ModuleImage, ModuleVersionImage, Refusal};

impl Core {
    /// Puts a version. Blocks for its compilation and the disk.
    pub(super) fn put_module(
        &self,
        who: &Principal,
        name: &ModuleName,
        wasm: &Bytes,
        activate: bool,
    ) -> Result<PutModule, ModuleError> {
        let host = self.modules.host()?;
        let digest = ModuleDigest::of(wasm);
        let is_known = self.metadata.image().modules.get(name).is_some_and(|it| it.number_of(digest).is_some());
        let version = match is_known.then(|| self.modules.load(digest)) {
            Some(Ok(version)) => version,
            // What was lost of it is mended so.
            Some(Err(_)) | None => host.compile(wasm).map_err(refused)?,
        };
        let _blobs = self.modules.blobs.lock();
        let put = self.keep_module(who, name, wasm, version, activate);
        match &put {
            // Who knows what the metadata hold; the next start does.
            Ok(_) | Err(ModuleError::Fenced { possible: true, .. }) => (),
            Err(_) => self.modules.forget(std::iter::once(digest)),
        }
        put
    }

    /// Makes a compiled version durable and says so in the metadata. The caller holds `blobs`.
    fn keep_module(
        &self,
        who: &Principal,
        name: &ModuleName,
        wasm: &Bytes,
        version: Arc<dyn ModuleVersion>,
        activate: bool,
    ) -> Result<PutModule, ModuleError> {
        let new = version_image(version.describe(), self.directory.now())?;
        let digest = new.digest;
        let image = self.metadata.image();
        let there = image.modules.get(name);
        let known = there.and_then(|module| module.number_of(digest));
        if activate && let Some(there) = there {
            let next = there.versions.len() as u32 + 1;
            check_uses(&image, name, known.unwrap_or(next), &*version)?;
        }
        self.modules.blobs_on_disk().keep(digest, wasm)?;
        let command = Command::PutModule { name: name.clone(), owner: who.clone(), version: new, activate };
        let module = self.propose_module(&command)?;
        self.modules.put_loaded(digest, version);
        let number = module.number_of(digest).expect("it was put");
        Ok(PutModule { module: self.module_info(name, &module), version: number, created: known.is_none() })
    }

    /// Activates a version. Blocks.
    pub(super) fn activate_module(&self, name: &ModuleName, number: u32) -> Result<ModuleInfo, ModuleError> {
        let version = self.modules.version_blocking(&ModuleRef { name: name.clone(), version: Some(number) })?;
        check_uses(&self.metadata.image(), name, number, &*version)?;
        let module = self.propose_module(&Command::ActivateModule { name: name.clone(), version: number })?;
        Ok(self.module_info(name, &module))
    }

    /// Deletes a module. Blocks.
    pub(super) fn delete_module(&self, name: &ModuleName) -> Result<(), ModuleError> {
        let _blobs = self.modules.blobs.lock();
        let module = self.propose_module(&Command::DeleteModule { name: name.clone() })?;
        self.modules.forget(module.versions.iter().map(|version| version.digest));
        Ok(())
    }

    /// A module as users see it.
    pub(super) fn module_info(&self, name: &ModuleName, module: &ModuleImage) -> ModuleInfo {
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
            used_by: used_by(&self.metadata.image(), name),
        }
    }

    /// That the modules which a topic's settings name are there, can be what they are named for, and take their configs.
    /// Blocks.
    pub(crate) fn check_topic_modules(&self, config: &TopicConfig) -> Result<(), TopicError> {
        let named = [(super::PARTITIONER, &config.partitioner), (super::VALIDATOR, &config.validator)];
        for (setting, named) in named {
            let Some(named) = named else { continue };
            let checked = self.modules.version_blocking(&named.module).and_then(|version| {
                let made = make(setting, &*version, &named.config);
                made.map_err(|error| config_error(named.module.clone(), error))
            });
            checked.map_err(|error| TopicError::Module { setting, error: Box::new(error) })?;
        }
        Ok(())
    }

    fn propose_module(&self, command: &Command) -> Result<Arc<ModuleImage>, ModuleError> {
        let _changes = self.begin_change().map_err(|error| match error {
            TopicError::Fenced { reason, possible } => ModuleError::Fenced { reason, possible },
            _ => ModuleError::Closing,
        })?;
        match self.metadata.propose(command) {
            Ok(Applied::Module(module)) => Ok(module),
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
            Refusal::ModuleInUse(name) => ModuleError::InUse { by: used_by(&self.metadata.image(), &name), name },
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

/// That a version is what those expect who name the module alone.
fn check_uses(image: &Image, name: &ModuleName, number: u32, version: &dyn ModuleVersion) -> Result<(), ModuleError> {
    let follows =
        |(module, used): (ModuleRef, ModuleUse)| (module.name == *name && module.version.is_none()).then_some(used);
    for used in module_uses(image).filter_map(follows) {
        let module = || ModuleRef { name: name.clone(), version: Some(number) };
        let setting = match &used {
            ModuleUse::Partitioner(topic) => topic_setting(image, topic, super::PARTITIONER),
            ModuleUse::Validator(topic) => topic_setting(image, topic, super::VALIDATOR),
            ModuleUse::Processor(processor) => {
                for config in image.processors.get(processor).into_iter().flat_map(|it| it.spec.configs_of(name)) {
                    version.transform(config).map_err(|error| config_error(module(), error))?;
                }
                None
            }
        };
        if let Some((setting, config)) = setting {
            make(setting, version, &config).map_err(|error| config_error(module(), error))?;
        }
    }
    Ok(())
}

/// The setting of a topic that names a module, and the module's config.
fn topic_setting(image: &Image, topic: &TopicName, setting: &'static str) -> Option<(&'static str, String)> {
    let config = TopicConfig::new(&image.topics.get(topic)?.config).ok()?;
    let named = if setting == super::PARTITIONER { config.partitioner } else { config.validator };
    Some((setting, named?.config))
}

/// Makes what a topic's setting names, to see whether it can be made.
fn make(setting: &str, version: &dyn ModuleVersion, config: &str) -> Result<(), ModuleConfigError> {
    if setting == super::PARTITIONER {
        version.partitioner(config).map(drop)
    } else {
        version.transform(config).map(drop)
    }
}

fn used_by(image: &Image, name: &ModuleName) -> Vec<ModuleUse> {
    let mut by: Vec<_> = module_uses(image).filter(|(used, _)| used.name == *name).map(|(_, by)| by).collect();
    by.sort();
    by
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
