//! `PUT /v1/modules/{module}`: a version of a module comes.

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use http::StatusCode;
use levada_api::PutModule;

use super::refusal::refuse;
use super::words::{config_schema, worlds};
use crate::AppState;
use crate::extract::{ModuleBytes, ModulePath, Params};
use crate::refusal::Refusal;
use crate::state::{Caller, OpenEngine};

/// Put a version of a module
///
/// A WebAssembly component, or a core module as the SDKs build it. The first version is active at once, later ones when they
/// are activated. The same bytes again are the same version. A module that is refused leaves everything as it was.
#[utoipa::path(put, path = "/v1/modules/{module}", operation_id = "put_module", tag = "Modules",
    params(
        ("module" = String, Path, description = "The module's name; the same rule as for topics"),
        ("activate" = Option<bool>, Query, description = "Make this version the active one"),
    ),
    request_body(content = Vec<u8>, content_type = "application/wasm"),
    responses(
        (status = 200, description = "These bytes are a version already", body = PutModule),
        (status = 201, description = "A new version, durably", body = PutModule),
        (status = 409, description = "`modules-full`: as many modules or versions as there may be; `modules-off`"),
        (status = 422, description = "`invalid-module`: no usable module, and why; `invalid-module-config`: it was to be \
            activated, and is not what those who use it expect"),
    ))]
pub(super) async fn put(
    State(state): State<AppState>,
    OpenEngine(engine): OpenEngine,
    Caller(who): Caller,
    ModulePath(name): ModulePath,
    mut params: Params,
    request: Request,
) -> Result<(StatusCode, Json<PutModule>), Refusal> {
    let activate = params.flag("activate")?;
    params.finish()?;
    let ModuleBytes(wasm) = ModuleBytes::from_request(request, &state).await?;
    let put = engine.put_module(&who, &name, wasm, activate).await.map_err(refuse)?;
    let version = put.module.versions.into_iter().find(|version| version.version == put.version);
    let version = version.expect("it was put just now");
    let told = PutModule {
        name: put.module.name.into(),
        version: version.version,
        digest: version.digest.to_string(),
        worlds: worlds(&version.worlds),
        config_schema: config_schema(version.config_schema),
        size_bytes: version.size_bytes,
        active_version: put.module.active_version,
    };
    Ok((if put.created { StatusCode::CREATED } else { StatusCode::OK }, Json(told)))
}
