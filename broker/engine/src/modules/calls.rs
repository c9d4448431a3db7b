//! The calls of authors and operators.

use std::sync::Arc;

use bytes::Bytes;
use levada_extension::{HostUsage, LogPage, ModuleStats, ModuleVersion};
use levada_model::{ModuleName, ModuleRef, Operation, Principal, Resource, limits};

use super::Extension;
use super::terms::{DryRun, DryRunReport, ModuleError, ModuleInfo, PutModule, RecordFilter};
use crate::Engine;
use crate::partition::{blocking, to_the_end};

impl Engine {
    /// Puts a version of a module: checked, compiled, stored, and active if it is the first or `activate`. The same bytes
    /// again are the same version.
    ///
    /// # Errors
    /// See [`ModuleError`]; the version in force stays. One that uses take which follow the active version is not activated
    /// if it is not what they expect.
    pub async fn put_module(
        &self,
        who: &Principal,
        name: &ModuleName,
        wasm: Bytes,
        activate: bool,
    ) -> Result<PutModule, ModuleError> {
        let is_new = !self.core.metadata.image().modules.contains_key(name);
        let operation = if is_new { Operation::Create } else { Operation::Alter };
        self.core.authorize(who, operation, Resource::Module(name))?;
        if wasm.len() > limits::MODULE_BYTES_MAX {
            return Err(ModuleError::TooLarge { limit: limits::MODULE_BYTES_MAX });
        }
        self.check_open()?;
        let Ok(upload) = self.core.modules.uploads.clone().try_acquire_owned() else {
            let reason = format!("{} uploads are on their way already", limits::MODULE_UPLOADS_MAX);
            return Err(ModuleError::Busy(reason));
        };
        let (core, who, name) = (self.core.clone(), who.clone(), name.clone());
        let put = async move {
            let _upload = upload;
            core.put_module(who, name, wasm, activate).await
        };
        to_the_end(put).await
    }

    /// All modules by name; those that `who` may not see are left out.
    ///
    /// # Errors
    /// [`ModuleError::Denied`].
    pub fn modules(&self, who: &Principal) -> Result<Vec<ModuleInfo>, ModuleError> {
        let image = self.core.metadata.image();
        let visible = |name: &ModuleName| self.core.authorize(who, Operation::Describe, Resource::Module(name)).is_ok();
        let modules = image.modules.iter().filter(|(name, _)| visible(name));
        let votes = self.core.groups.known_votes();
        Ok(modules.map(|(name, module)| self.core.module_info_among(&votes, name, module)).collect())
    }

    /// One module.
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub fn module(&self, who: &Principal, name: &ModuleName) -> Result<ModuleInfo, ModuleError> {
        self.core.authorize(who, Operation::Describe, Resource::Module(name))?;
        let image = self.core.metadata.image();
        let module = image.modules.get(name).ok_or_else(|| ModuleError::NotFound(name.clone()))?;
        Ok(self.core.module_info(name, module))
    }

    /// Makes a version the one that the name means; also an earlier one.
    ///
    /// # Errors
    /// See [`ModuleError`]; also when uses follow the active version and this one is not what they expect.
    pub async fn activate_module(
        &self,
        who: &Principal,
        name: &ModuleName,
        version: u32,
    ) -> Result<ModuleInfo, ModuleError> {
        self.core.authorize(who, Operation::Alter, Resource::Module(name))?;
        let (core, name) = (self.core.clone(), name.clone());
        to_the_end(async move { core.activate_module(name, version).await }).await
    }

    /// Deletes a module that nothing uses, with all its versions.
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub async fn delete_module(&self, who: &Principal, name: &ModuleName) -> Result<(), ModuleError> {
        self.core.authorize(who, Operation::Delete, Resource::Module(name))?;
        let (core, name) = (self.core.clone(), name.clone());
        to_the_end(async move { core.delete_module(name).await }).await
    }

    /// The bytes of a version as they were put.
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub async fn module_wasm(&self, who: &Principal, name: &ModuleName, version: u32) -> Result<Bytes, ModuleError> {
        self.core.authorize(who, Operation::Read, Resource::Module(name))?;
        let modules = self.core.modules.clone();
        let (_, digest) = modules.resolve(&ModuleRef { name: name.clone(), version: Some(version) })?;
        Ok(blocking(move || modules.wasm(digest)).await?)
    }

    /// Lines of a version's log (none: of the active one) from number `from` on.
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub async fn module_logs(
        &self,
        who: &Principal,
        module: &ModuleRef,
        from: u64,
        lines_max: usize,
    ) -> Result<LogPage, ModuleError> {
        Ok(self.described(who, module).await?.logs(from, lines_max))
    }

    /// How a version (none: the active one) fares since it was loaded.
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub async fn module_stats(&self, who: &Principal, module: &ModuleRef) -> Result<ModuleStats, ModuleError> {
        Ok(self.described(who, module).await?.stats())
    }

    /// What all modules together use now; none where this broker runs none.
    #[must_use]
    pub fn module_usage(&self) -> Option<HostUsage> {
        self.core.modules.usage()
    }

    /// Tries a version on records, without any effect. The same trial gives the same outputs, logs and instructions.
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub async fn dry_run_module(
        &self,
        who: &Principal,
        name: &ModuleName,
        trial: DryRun,
    ) -> Result<DryRunReport, ModuleError> {
        self.core.authorize(who, Operation::Read, Resource::Module(name))?;
        self.try_module(who, name, trial).await
    }

    /// A filter for reads. `config` is JSON text.
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub async fn record_filter(
        &self,
        who: &Principal,
        module: &ModuleRef,
        config: &str,
    ) -> Result<RecordFilter, ModuleError> {
        self.core.authorize(who, Operation::Read, Resource::Module(&module.name))?;
        if config.len() > limits::MODULE_CONFIG_BYTES_MAX {
            return Err(ModuleError::ConfigTooLong { limit: limits::MODULE_CONFIG_BYTES_MAX });
        }
        let modules = self.core.modules.clone();
        let extension = Arc::new(Extension::new(module.clone(), config));
        extension.check(&modules).await?;
        let turns = modules.turns.of(&module.name);
        Ok(RecordFilter { module: module.clone(), extension, modules, turns })
    }

    /// A version that `who` may see, loaded.
    async fn described(&self, who: &Principal, module: &ModuleRef) -> Result<Arc<dyn ModuleVersion>, ModuleError> {
        self.core.authorize(who, Operation::Describe, Resource::Module(&module.name))?;
        self.core.modules.version(module).await
    }

    /// That changes are taken, before anything is compiled for one.
    fn check_open(&self) -> Result<(), ModuleError> {
        if self.core.is_closing() {
            return Err(ModuleError::Closing);
        }
        match self.core.directory.fenced() {
            Some(reason) => Err(ModuleError::Fenced { reason: reason.to_owned(), possible: false }),
            None => Ok(()),
        }
    }
}
