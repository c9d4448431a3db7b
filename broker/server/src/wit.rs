//! `GET /v1/wit`: the contract that modules are written against, as the broker was built with it.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use levada_api::media::{JSON, TEXT};
use levada_api::{ErrorCode, Problem, WitFile, WitPackage, echo};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;
use crate::extract::{FilePath, NoParams, accepts};
use crate::refusal::Refusal;
use crate::state::OpenEngine;

const PACKAGE: &str = "levada:plugin@0.1.0";
const PLAIN: &str = "text/plain; charset=utf-8";

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../../plugins/wit/0.1.0/", $name)))),+]
    };
}

/// The files of the package. The first one declares it; the others follow it, so that all of them together are one file of
/// WIT as well.
const WIT: [(&str, &str); 7] = files![
    "types.wit",
    "module.wit",
    "transform.wit",
    "partitioner.wit",
    "assignor.wit",
    "aggregator.wit",
    "worlds.wit",
];

/// What WIT cannot say: the bytes, and examples of them.
const BESIDE: [(&str, &str); 6] = files![
    "layouts.md",
    "vectors/answers.json",
    "vectors/batch.json",
    "vectors/groups.json",
    "vectors/keys.json",
    "vectors/verdicts.json",
];

/// The routes of this file.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(package)).routes(routes!(file))
}

/// Read the contract of modules
///
/// As text: the whole WIT package in one file, ready for `wit-bindgen` and its like
/// (`curl http://127.0.0.1:8080/v1/wit > levada.wit`). As `application/json`: its files one by one, with the layouts of the
/// bytes that cross and test vectors for them.
#[utoipa::path(get, path = "/v1/wit", operation_id = "wit", tag = "Modules",
    responses((status = 200, description = "The contract", content(
        (String = "text/plain"),
        (WitPackage = "application/json"),
    ))))]
async fn package(_: OpenEngine, _: NoParams, headers: HeaderMap) -> Result<Response, Refusal> {
    if accepts(&headers, &[TEXT, JSON])? == TEXT {
        let texts: Vec<&str> = WIT.iter().map(|(_, text)| *text).collect();
        return Ok(plain(texts.join("\n")));
    }
    let told = |(name, text): &(&str, &str)| WitFile {
        name: (*name).to_owned(),
        path: format!("/v1/wit/{}", served_as(name)),
        text: (*text).to_owned(),
    };
    let files = WIT.iter().chain(&BESIDE).map(told).collect();
    Ok(Json(WitPackage { package: PACKAGE.to_owned(), files }).into_response())
}

/// Read one file of the contract
#[utoipa::path(get, path = "/v1/wit/{file}", operation_id = "wit_file", tag = "Modules",
    params(("file" = String, Path, description = "The end of its `path`, such as `types.wit` or `layouts.md`")),
    responses(
        (status = 200, description = "The file", body = String, content_type = "text/plain"),
        (status = 404, description = "`not-found`: the contract has no such file"),
    ))]
async fn file(_: OpenEngine, FilePath(wanted): FilePath, _: NoParams) -> Result<Response, Refusal> {
    let found = WIT.iter().chain(&BESIDE).find(|(name, _)| served_as(name) == wanted);
    let (_, text) = found.ok_or_else(|| {
        let detail = format!("the contract has no file {:?}; GET /v1/wit lists them", echo(&wanted));
        Problem::new(ErrorCode::NotFound, detail)
    })?;
    Ok(plain((*text).to_owned()))
}

/// The name of a file without its folder.
fn served_as(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn plain(text: String) -> Response {
    ([(header::CONTENT_TYPE, PLAIN)], text).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn all_files_of_the_contract_are_served_under_names_of_their_own() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/wit/0.1.0");
        let mut there = BTreeSet::new();
        for entry in std::fs::read_dir(&folder)
            .expect("the folder")
            .chain(std::fs::read_dir(folder.join("vectors")).expect("the folder"))
        {
            let path = entry.expect("an entry").path();
            if path.is_file() {
                there.insert(path.file_name().expect("a name").to_str().expect("text").to_owned());
            }
        }
        let served: Vec<_> = WIT.iter().chain(&BESIDE).map(|(name, _)| served_as(name).to_owned()).collect();
        assert_eq!(served.iter().cloned().collect::<BTreeSet<_>>(), there);
        assert_eq!(served.len(), there.len(), "no name comes twice");
    }

    #[test]
    fn the_first_file_alone_declares_the_package() {
        let declares = |text: &str| text.contains(&format!("package {PACKAGE};"));
        assert_eq!(WIT.iter().filter(|(_, text)| declares(text)).count(), 1);
        assert!(declares(WIT[0].1));
    }
}
