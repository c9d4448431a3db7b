//! The calls of authors and operators.

use bytes::Bytes;
use levada_extension::{LogPage, ModuleStats};
use levada_model::{ModuleName, ModuleRef, Principal};

use super::terms::{DryRun, DryRunReport, ModuleError, ModuleInfo, PutModule, RecordFilter};
use crate::Engine;

impl Engine {
    /// Puts a version of a module: checked, compiled, stored, and active if it is the first or `activate`. The same bytes
    /// again are the same version.
    ///
    /// # Errors
    /// See [`ModuleError`]; the version in force stays.
    pub async fn put_module(
        &self,
        who: &Principal,
        name: &ModuleName,
        wasm: Bytes,
        activate: bool,
    ) -> Result<PutModule, ModuleError> {
        let _ = (who, name, wasm, activate);
        todo!()
    }

    /// All modules by name.
    ///
    /// # Errors
    /// [`ModuleError::Denied`].
    pub fn modules(&self, who: &Principal) -> Result<Vec<ModuleInfo>, ModuleError> {
        let _ = who;
        todo!()
    }

    /// One module.
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub fn module(&self, who: &Principal, name: &ModuleName) -> Result<ModuleInfo, ModuleError> {
        let _ = (who, name);
        todo!()
    }

    /// Makes a version the one that the name means; also an earlier one.
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub async fn activate_module(
        &self,
        who: &Principal,
        name: &ModuleName,
        version: u32,
    ) -> Result<ModuleInfo, ModuleError> {
        let _ = (who, name, version);
        todo!()
    }

    /// Deletes a module that nothing uses, with all its versions.
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub async fn delete_module(&self, who: &Principal, name: &ModuleName) -> Result<(), ModuleError> {
        let _ = (who, name);
        todo!()
    }

    /// The bytes of a version as they were put.
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub async fn module_wasm(&self, who: &Principal, name: &ModuleName, version: u32) -> Result<Bytes, ModuleError> {
        let _ = (who, name, version);
        todo!()
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
        let _ = (who, module, from, lines_max);
        todo!()
    }

    /// How a version (none: the active one) fares since it was loaded.
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub async fn module_stats(&self, who: &Principal, module: &ModuleRef) -> Result<ModuleStats, ModuleError> {
        let _ = (who, module);
        todo!()
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
        let _ = (who, name, trial);
        todo!()
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
        let _ = (who, module, config);
        todo!()
    }
}
