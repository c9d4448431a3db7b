//! The OpenAPI document: what the handlers say, completed by what holds for all of them, and the page to read it on.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderValue, header};
use levada_api::media::{JSON, PROBLEM};
use levada_api::{ErrorCode, Problem};
use levada_model::limits::JSON_INTEGER_MAX;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::AppState;

/// What the page may load: its own files, and styles and images that its scripts make.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
    img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// The rule of names as a pattern, but for `.` and `..`, which no URL can hold as a segment anyway.
const NAME_PATTERN: &str = "^[a-zA-Z0-9._-]{1,249}$";

/// The same for processors, whose names are shorter.
const PROCESSOR_PATTERN: &str = "^[a-zA-Z0-9._-]{1,200}$";

/// What every document begins with; the paths come from the handlers.
#[derive(OpenApi)]
#[openapi(
    info(title = "Levada", version = "1", license(name = "Apache-2.0", identifier = "Apache-2.0")),
    components(schemas(Problem))
)]
struct Skeleton;

/// The document before the handlers have said what they do.
pub(crate) fn skeleton() -> utoipa::openapi::OpenApi {
    let mut document = Skeleton::openapi();
    document.info.description = Some(description());
    document
}

fn description() -> String {
    let mut text = "A durable partitioned log over HTTP.\n\nNames are snake_case, times are milliseconds since 1970 \
        (UTC), integers are below 2^53. Unknown or repeated fields and query parameters are refused by name.\n\n\
        Every answer of status 400 and above is `application/problem+json` (RFC 9457); its `code` is one of these:\n\n\
        | code | status | meaning | retry |\n|---|---|---|---|\n"
        .to_owned();
    for code in ErrorCode::ALL {
        let retry = if code.retryable() { "yes" } else { "no" };
        text.push_str(&format!("| `{code}` | {} | {} | {retry} |\n", code.status(), code.title()));
    }
    text
}

/// Completes the document by what holds for all handlers.
pub(crate) fn complete(document: &utoipa::openapi::OpenApi) -> Value {
    let mut document = serde_json::to_value(document).expect("a document is plain data");
    let paths = document["paths"].as_object_mut().expect("a document has paths");
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().expect("a path has operations") {
            if operation.get("responses").is_some() {
                complete_responses(path, method, operation);
                complete_names(operation);
            }
        }
    }
    bound_integers(&mut document);
    document
}

fn complete_responses(path: &str, method: &str, operation: &mut Value) {
    let takes_body = operation.get("requestBody").is_some();
    let responses = operation["responses"].as_object_mut().expect("responses are an object");
    let mut common = vec![
        ("400", "Malformed: a parameter, name, header or body"),
        ("421", "`misdirected-request`"),
        ("431", "`headers-too-large`"),
    ];
    if path.starts_with("/v1/") {
        common.push(("503", "`starting`, `shutting-down`, `log-fenced`, `overloaded` or the like"));
    }
    if !matches!(method, "get" | "head") {
        common.push(("403", "`cross-site`"));
    }
    if takes_body {
        common.push(("408", "`request-timeout`"));
        common.push(("413", "`body-too-large`, or another limit that is named"));
        common.push(("415", "`unsupported-media-type`, `unsupported-encoding`"));
    }
    if answers_only_json(responses) {
        common.push(("406", "`not-acceptable`"));
    }
    for (status, description) in common {
        responses.entry(status).or_insert_with(|| json!({ "description": description }));
    }
    for (status, response) in responses {
        if status.as_str() >= "400" && response.get("content").is_none() {
            let schema = json!({ "schema": { "$ref": "#/components/schemas/Problem" } });
            response["content"] = json!({ PROBLEM: schema });
        }
    }
}

/// Topics, groups, modules and processors in a path have the rule of names.
fn complete_names(operation: &mut Value) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let pattern = match parameter["name"].as_str() {
            Some("topic" | "group" | "module") => NAME_PATTERN,
            Some("processor") => PROCESSOR_PATTERN,
            _ => continue,
        };
        if parameter["in"] == "path" {
            parameter["schema"]["pattern"] = json!(pattern);
        }
    }
}

fn answers_only_json(responses: &Map<String, Value>) -> bool {
    let successes = responses.iter().filter(|(status, _)| status.starts_with('2'));
    let contents = successes.filter_map(|(_, response)| response["content"].as_object());
    contents.flat_map(Map::keys).any(|media| media == JSON)
}

/// Integers are below 2^53 on the wire, whatever width they have inside.
fn bound_integers(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if object.get("format").is_some_and(|format| format == "int64") {
                object.entry("maximum").or_insert_with(|| json!(JSON_INTEGER_MAX));
                object.entry("minimum").or_insert_with(|| json!(-JSON_INTEGER_MAX.cast_signed()));
            }
            object.values_mut().for_each(bound_integers);
        }
        Value::Array(array) => array.iter_mut().for_each(bound_integers),
        _ => {}
    }
}

/// The document at `/openapi.json`, and the page that shows it at `/docs`; both work offline.
pub(crate) fn routes(document: &Value) -> Router<AppState> {
    let text = bytes::Bytes::from(serde_json::to_vec(document).expect("a document is plain data"));
    let json = [(header::CONTENT_TYPE, JSON)];
    let page: Router<AppState> = SwaggerUi::new("/docs").config(Config::from("/openapi.json")).into();
    page.layer(middleware::from_fn(with_policy)).route("/openapi.json", get(move || async move { (json, text) }))
}

async fn with_policy(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let policy = HeaderValue::from_static(CONTENT_SECURITY_POLICY);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}
