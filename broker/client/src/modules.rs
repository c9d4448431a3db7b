//! Modules: put, list, describe, activate, delete, their bytes, logs and numbers, and trials.

use bytes::Bytes;
use levada_api::media::WASM;
use levada_api::{DryRunModule, Module, ModuleDryRun, ModuleList, ModuleLog, ModuleStats, PutModule};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, StatusCode};

use crate::{Client, ClientError};

const MODULES: &str = "modules";

impl Client {
    /// Puts a version of a module; with `activate` it is the active one from then on. The same bytes again are the same
    /// version. Answers whether it is new.
    ///
    /// # Errors
    /// See [`ClientError`]; `invalid-module` in the words of who refuses it.
    pub async fn put_module(&self, name: &str, wasm: Bytes, activate: bool) -> Result<(PutModule, bool), ClientError> {
        let request = self.compiling(Method::PUT, &["v1", MODULES, name])?;
        let request = request.query(&[("activate", activate)]).header(CONTENT_TYPE, WASM).body(wasm);
        let response = self.send(request).await?;
        let is_new = response.status() == StatusCode::CREATED;
        Ok((self.read_json(response).await?, is_new))
    }

    /// All modules by name, page by page.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn modules(&self) -> Result<Vec<Module>, ClientError> {
        self.pages(&["v1", MODULES], |page: ModuleList| (page.modules, page.next_cursor)).await
    }

    /// One module.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn module(&self, name: &str) -> Result<Module, ClientError> {
        self.send_for_json(self.request(Method::GET, &["v1", MODULES, name])?).await
    }

    /// Makes a version the active one; also an earlier one.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn activate_module(&self, name: &str, version: u32) -> Result<Module, ClientError> {
        let version = version.to_string();
        let path = ["v1", MODULES, name, "versions", &version, "activate"];
        self.send_for_json(self.compiling(Method::POST, &path)?).await
    }

    /// Deletes a module that nothing uses.
    ///
    /// # Errors
    /// See [`ClientError`]; `module-in-use`, whose problem names by whom.
    pub async fn delete_module(&self, name: &str) -> Result<(), ClientError> {
        self.send(self.request(Method::DELETE, &["v1", MODULES, name])?).await.map(drop)
    }

    /// The bytes of a version as they were put.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn module_wasm(&self, name: &str, version: u32) -> Result<Bytes, ClientError> {
        let version = version.to_string();
        let response = self.send(self.request(Method::GET, &["v1", MODULES, name, "versions", &version, "wasm"])?);
        response.await?.bytes().await.map_err(|error| self.failure(error))
    }

    /// Lines of a version's log (none: of the active one) from number `from` on.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn module_logs(&self, name: &str, version: Option<u32>, from: u64) -> Result<ModuleLog, ClientError> {
        let mut request = self.request(Method::GET, &["v1", MODULES, name, "logs"])?.query(&[("from", from)]);
        if let Some(version) = version {
            request = request.query(&[("version", version)]);
        }
        self.send_for_json(request).await
    }

    /// The numbers of a version (none: of the active one).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn module_stats(&self, name: &str, version: Option<u32>) -> Result<ModuleStats, ClientError> {
        let mut request = self.request(Method::GET, &["v1", MODULES, name, "stats"])?;
        if let Some(version) = version {
            request = request.query(&[("version", version)]);
        }
        self.send_for_json(request).await
    }

    /// Tries a version; nothing is stored.
    ///
    /// # Errors
    /// See [`ClientError`]. A version that gives no answer is no error: the answer has its fault.
    pub async fn dry_run_module(&self, name: &str, trial: &DryRunModule) -> Result<ModuleDryRun, ClientError> {
        let request = self.compiling(Method::POST, &["v1", MODULES, name, "dry-run"])?;
        self.send_for_json(request.json(trial)).await
    }
}
