//! CORS: off by default, an exact list, the same on preflight, success and error (PC-09).

use http::{HeaderMap, Method};
use levada_server::StartError;
use serde_json::json;

use crate::harness::{Answer, Harness, options};

const APP: &str = "http://app.example.test";
const OTHER: &str = "http://other.example.test";

async fn with_app() -> Harness {
    Harness::start(|options| options.allowed_origins = vec![APP.to_owned()]).await
}

fn cors_headers(headers: &HeaderMap) -> Vec<&str> {
    headers.keys().map(|name| name.as_str()).filter(|name| name.starts_with("access-control-")).collect()
}

async fn preflight(harness: &Harness, origin: &str, method: &str) -> Answer {
    let request = harness.request(Method::OPTIONS, "/v1/topics/t/records").header("origin", origin);
    let request = request.header("access-control-request-method", method);
    harness.send(request.header("access-control-request-headers", "content-type,record-header-a")).await
}

#[tokio::test]
async fn a_preflight_allows_every_method_and_the_headers_that_are_asked_for() {
    let harness = with_app().await;
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
        let answer = preflight(&harness, APP, method).await.expect(200);
        assert_eq!(answer.header("access-control-allow-origin"), APP);
        let allowed: Vec<_> = answer.header("access-control-allow-methods").split(',').map(str::trim).collect();
        assert!(allowed.contains(&method), "{allowed:?}");
        assert_eq!(answer.header("access-control-allow-headers"), "content-type,record-header-a");
        assert!(!answer.headers.contains_key("access-control-allow-credentials"));
    }
}

#[tokio::test]
async fn success_and_every_refusal_carry_the_headers_for_the_allowed_origin_and_none_for_others() {
    let harness = Harness::start(|options| {
        options.allowed_origins = vec![APP.to_owned()];
        options.max_body_bytes = 64;
    })
    .await;
    for (method, path, body, status) in [
        (Method::GET, "/v1/topics", "", 200),
        (Method::GET, "/healthz", "", 200),
        (Method::POST, "/v1/topics", r#"{"name":"a","partitions":0}"#, 422),
        (Method::POST, "/v1/topics", "{", 400),
        (Method::GET, "/v1/topics/none", "", 404),
        (Method::GET, "/nowhere", "", 404),
        (Method::PUT, "/v1/topics", "", 405),
        (Method::POST, "/v1/topics", &" ".repeat(65), 413),
    ] {
        let request = || {
            let request = harness.request(method.clone(), path).header("content-type", "application/json");
            request.body(body.to_owned())
        };
        let answer = harness.send(request().header("origin", APP)).await.expect(status);
        assert_eq!(answer.header("access-control-allow-origin"), APP, "{method} {path}");
        assert!(answer.header("access-control-expose-headers").contains("x-request-id"), "{method} {path}");
        let misdirected = request().header("origin", APP).header("host", "evil.example.net");
        assert_eq!(harness.send(misdirected).await.expect(421).header("access-control-allow-origin"), APP);

        let expected = if method == Method::GET { status } else { 403 };
        let answer = harness.send(request().header("origin", OTHER)).await.expect(expected);
        assert_eq!(cors_headers(&answer.headers), [""; 0], "{method} {path}");
        assert!(answer.header("vary").contains("origin"), "{method} {path}");
    }
    let refused = preflight(&harness, OTHER, "POST").await;
    assert_eq!(cors_headers(&refused.headers), [""; 0]);
}

#[tokio::test]
async fn it_is_off_by_default() {
    let harness = Harness::start(|_| {}).await;
    let answer = harness.send(harness.request(Method::GET, "/v1/topics").header("origin", APP)).await.expect(200);
    assert_eq!(cors_headers(&answer.headers), [""; 0]);
    let answer = preflight(&harness, APP, "GET").await;
    assert_eq!(cors_headers(&answer.headers), [""; 0]);
    let answer = harness.send(harness.request(Method::POST, "/v1/topics").header("origin", APP).json(&json!({}))).await;
    assert_eq!(answer.expect(403).code(), "cross-site");
}

#[tokio::test]
async fn swapped_and_wild_settings_stop_the_start() {
    for origin in ["GET, POST", "GET", "*", "http://app.example.test/page"] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut options = options(dir.path().to_owned());
        options.allowed_origins = vec![origin.to_owned()];
        match levada_server::start(options).await {
            Err(StartError::Option { name, value, .. }) => {
                assert_eq!((name, value.as_str()), ("--allowed-origins", origin))
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{origin} was taken"),
        }
    }
}
