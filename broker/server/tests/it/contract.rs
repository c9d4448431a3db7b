//! The contract: every answer is what `openapi/v1.json` says, the document is what the code says, and whatever it lists
//! really happens.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use http::{HeaderMap, Method, StatusCode, header};
use serde_json::{Value, json};

use crate::harness::{Harness, read_json};
use crate::scenarios;

/// The committed document, and what was hit of it.
pub(crate) struct Contract {
    document: Value,
    hits: Mutex<BTreeSet<Hit>>,
    validators: Mutex<BTreeMap<String, Arc<jsonschema::Validator>>>,
}

/// Path template, method in lower case, status.
type Hit = (String, String, String);

fn document_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/v1.json")
}

impl Contract {
    /// Reads the committed document.
    pub(crate) fn load() -> Self {
        let text = std::fs::read(document_path()).expect("openapi/v1.json is committed");
        let mut document: Value = serde_json::from_slice(&text).expect("JSON");
        close_schemas(&mut document);
        Self { document, hits: Mutex::default(), validators: Mutex::default() }
    }

    /// Panics where an answer is not what the document says. What the document does not list at all is refused with a
    /// problem.
    pub(crate) fn check(
        &self,
        method: &Method,
        path: &str,
        status: StatusCode,
        headers: &HeaderMap,
        body: Option<&[u8]>,
    ) {
        let what = || format!("{method} {path} → {status} {:?}", body.map(String::from_utf8_lossy));
        assert!(headers.contains_key("x-request-id"), "every answer has an id: {}", what());
        assert!(headers.contains_key("x-content-type-options"), "{}", what());
        let media = media_type(headers);
        // HEAD is answered as GET is, without the body.
        let (name, body) =
            if *method == Method::HEAD { ("get".to_owned(), None) } else { (method.as_str().to_lowercase(), body) };
        let Some((template, operation)) = self.operation(path, &name) else {
            if status.is_client_error() || status.is_server_error() {
                assert_eq!(media, "application/problem+json", "{}", what());
                let schema = json!({ "$ref": "#/components/schemas/Problem" });
                self.validate("problem", &schema, body.unwrap_or(b"{}"), body.is_some(), &what);
            }
            return;
        };
        let listed = &operation["responses"][status.as_str()];
        assert!(listed.is_object(), "the document does not list the status: {}", what());
        self.hits.lock().expect("no panic").insert((template.clone(), name.clone(), status.as_str().to_owned()));
        match listed["content"].as_object() {
            None => assert!(body.is_none_or(<[u8]>::is_empty), "a body that is not listed: {}", what()),
            Some(contents) => {
                let content = contents.get(&media).or(contents.get("*/*"));
                let content = content.unwrap_or_else(|| panic!("media type {media:?} is not listed: {}", what()));
                let key = format!("{template} {name} {} {media}", status.as_str());
                self.check_body(&key, &media, &content["schema"], body, &what);
            }
        }
    }

    fn check_body(&self, key: &str, media: &str, schema: &Value, body: Option<&[u8]>, what: &dyn Fn() -> String) {
        let Some(body) = body else { return };
        match media {
            "application/x-ndjson" => {
                for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    self.validate(key, schema, line, true, what);
                }
            }
            _ if media.ends_with("json") => self.validate(key, schema, body, true, what),
            _ => {}
        }
    }

    fn validate(&self, key: &str, schema: &Value, body: &[u8], there: bool, what: &dyn Fn() -> String) {
        if !there {
            return;
        }
        let value = read_json(body).unwrap_or_else(|error| panic!("{error}: {}", what()));
        let validator = {
            let mut validators = self.validators.lock().expect("no panic");
            let made = validators.entry(key.to_owned()).or_insert_with(|| {
                let mut whole = schema.clone();
                whole["components"] = self.document["components"].clone();
                Arc::new(jsonschema::draft202012::new(&whole).expect("a valid schema"))
            });
            Arc::clone(made)
        };
        if let Err(error) = validator.validate(&value) {
            panic!("at {}: {error}: {}", error.instance_path(), what());
        }
    }

    /// The operation that answers `path`, with its template; literal segments win over parameters.
    fn operation(&self, path: &str, method: &str) -> Option<(String, &Value)> {
        let paths = self.document["paths"].as_object().expect("paths");
        let fits = |template: &str| {
            let (wanted, given) = (template.split('/'), path.split('/'));
            wanted.clone().count() == given.clone().count()
                && wanted.zip(given).all(|(wanted, given)| wanted.starts_with('{') || wanted == given)
        };
        let mut found: Vec<_> = paths.iter().filter(|(template, _)| fits(template)).collect();
        found.sort_by_key(|(template, _)| template.matches('{').count());
        let (template, item) = found.first()?;
        item.get(method).map(|operation| ((*template).clone(), operation))
    }

    /// Everything that the document lists and nobody hit.
    fn misses(&self) -> Vec<String> {
        let hits = self.hits.lock().expect("no panic");
        let mut misses = Vec::new();
        for (path, method, operation) in self.operations() {
            for status in operation["responses"].as_object().expect("responses").keys() {
                if !hits.contains(&(path.to_owned(), method.to_owned(), status.clone())) {
                    misses.push(format!("{} {path} → {status}", method.to_uppercase()));
                }
            }
        }
        misses
    }

    /// All operations: path template, method in lower case, the operation.
    pub(crate) fn operations(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        let paths = self.document["paths"].as_object().expect("paths");
        paths.iter().flat_map(|(path, item)| {
            let methods = item.as_object().expect("a path item").iter();
            methods.map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
        })
    }
}

fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(header::CONTENT_TYPE).map_or("", |value| value.to_str().expect("text"));
    text.split(';').next().unwrap_or_default().trim().to_owned()
}

/// The document leaves answers open for members that come later; today's code may send only what is listed.
fn close_schemas(document: &mut Value) {
    let schemas = document["components"]["schemas"].as_object_mut().expect("schemas");
    for (name, schema) in schemas {
        let open = schema.get("additionalProperties").is_none() && schema.get("unevaluatedProperties").is_none();
        // The members of a problem are a part of it, not an object of their own.
        if name != "Members" && open && (schema.get("properties").is_some() || schema.get("allOf").is_some()) {
            schema["unevaluatedProperties"] = json!(false);
        }
    }
}

#[tokio::test]
async fn the_committed_document_is_what_the_code_says() {
    let harness = Harness::start(|_| {}).await;
    let live = harness.send(harness.request(Method::GET, "/openapi.json")).await.expect(200).json();
    let text = format!("{}\n", serde_json::to_string_pretty(&live).expect("plain data"));
    if std::env::var_os("LEVADA_BLESS").is_some() {
        #[expect(clippy::disallowed_methods, reason = "the document is no file of the broker")]
        std::fs::write(document_path(), &text).expect("it is written");
    }
    let committed = std::fs::read_to_string(document_path()).expect("openapi/v1.json is committed");
    assert!(committed == text, "openapi/v1.json is not up to date; run this test with LEVADA_BLESS=1 and commit it");
    let ids: Vec<_> = harness.contract.operations().map(|(_, _, operation)| operation["operationId"].clone()).collect();
    assert_eq!(ids.iter().map(Value::to_string).collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    let is_snake_case =
        |id: &Value| id.as_str().is_some_and(|id| id.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
    assert!(ids.iter().all(is_snake_case), "{ids:?}");
    assert!(live["openapi"].as_str().is_some_and(|version| version.starts_with("3.1.")));
}

#[tokio::test]
async fn whatever_the_document_lists_happens() {
    let contract = Arc::new(Contract::load());
    let harness = Harness::start_under(Arc::clone(&contract), |_| {}).await;
    scenarios::run_all(&harness).await;
    let misses = contract.misses();
    assert!(misses.is_empty(), "listed but never hit:\n{}", misses.join("\n"));
}
