//! Modules as they are: list, describe, activate, delete, and their bytes.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use levada_api::media::WASM;
use levada_api::{Module, ModuleList};
use levada_model::ModuleName;

use super::refusal::refuse;
use super::words::module;
use crate::extract::{ModulePath, NoParams, Params, VersionPath};
use crate::listing::Page;
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// List modules, by name
#[utoipa::path(get, path = "/v1/modules", operation_id = "list_modules", tag = "Modules",
    params(
        ("limit" = Option<u32>, Query, description = "Most modules; 100 by default, cut to 1000", minimum = 1),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before", min_length = 1),
    ),
    responses((status = 200, description = "A page of modules", body = ModuleList)))]
pub(super) async fn list(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    mut params: Params,
) -> Result<Json<ModuleList>, Refusal> {
    let page = Page::<ModuleName>::read(&mut params)?;
    params.finish()?;
    let (modules, next_cursor) = page.cut(engine.modules(&who).map_err(refuse)?, |info| &info.name, module);
    Ok(Json(ModuleList { modules, next_cursor }))
}

/// Describe a module: its versions, and who uses it
#[utoipa::path(get, path = "/v1/modules/{module}", operation_id = "describe_module", tag = "Modules",
    params(("module" = String, Path, description = "The module's name")),
    responses(
        (status = 200, description = "The module", body = Module),
        (status = 404, description = "`module-not-found`"),
    ))]
pub(super) async fn describe(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    ModulePath(name): ModulePath,
    _: NoParams,
) -> Result<Json<Module>, Refusal> {
    Ok(Json(module(engine.module(&who, &name).map_err(refuse)?)))
}

/// Make a version the active one
///
/// Any version, also an earlier one. Whoever names the module alone uses it from the next call on.
#[utoipa::path(post, path = "/v1/modules/{module}/versions/{version}/activate", operation_id = "activate_module", tag = "Modules",
    params(
        ("module" = String, Path, description = "The module's name"),
        ("version" = u32, Path, description = "The version"),
    ),
    responses(
        (status = 200, description = "It is active, durably", body = Module),
        (status = 404, description = "`module-not-found`: no such module or version"),
        (status = 422, description = "`invalid-module-config`: it is not what those who use the module expect"),
    ))]
pub(super) async fn activate(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    VersionPath(name, version): VersionPath,
    _: NoParams,
) -> Result<Json<Module>, Refusal> {
    Ok(Json(module(engine.activate_module(&who, &name, version).await.map_err(refuse)?)))
}

/// Delete a module with all its versions
#[utoipa::path(delete, path = "/v1/modules/{module}", operation_id = "delete_module", tag = "Modules",
    params(("module" = String, Path, description = "The module's name")),
    responses(
        (status = 204, description = "Deleted, durably"),
        (status = 404, description = "`module-not-found`"),
        (status = 409, description = "`module-in-use`, with `used_by`"),
    ))]
pub(super) async fn delete(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    ModulePath(name): ModulePath,
    _: NoParams,
) -> Result<StatusCode, Refusal> {
    engine.delete_module(&who, &name).await.map_err(refuse)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Download a version: its bytes as they were put
#[utoipa::path(get, path = "/v1/modules/{module}/versions/{version}/wasm", operation_id = "module_wasm", tag = "Modules",
    params(
        ("module" = String, Path, description = "The module's name"),
        ("version" = u32, Path, description = "The version"),
    ),
    responses(
        (status = 200, description = "The bytes", body = Vec<u8>, content_type = "application/wasm"),
        (status = 404, description = "`module-not-found`: no such module or version"),
    ))]
pub(super) async fn wasm(
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    VersionPath(name, version): VersionPath,
    _: NoParams,
) -> Result<Response, Refusal> {
    let wasm = engine.module_wasm(&who, &name, version).await.map_err(refuse)?;
    Ok(([(header::CONTENT_TYPE, WASM)], wasm).into_response())
}
