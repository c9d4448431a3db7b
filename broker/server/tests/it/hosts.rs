//! Who may talk to the server: `Host` (DNS rebinding) and other sites' pages. The rules themselves are tried in
//! `gate.rs`; here they are met over sockets.

use http::Method;
use serde_json::json;

use crate::harness::Harness;
use crate::raw::exchange;

#[tokio::test]
async fn a_name_that_was_rebound_to_loopback_gets_nothing() {
    let harness = Harness::start(|_| {}).await;
    for path in ["/", "/v1/topics", "/docs/", "/openapi.json", "/metrics", "/nowhere"] {
        let request = harness.request(Method::GET, path).header("host", "rebound.example.net:8080");
        assert_eq!(harness.send(request).await.expect(421).code(), "misdirected-request", "{path}");
    }
}

#[tokio::test]
async fn allowed_hosts_are_answered() {
    let harness = Harness::start(|options| options.allowed_hosts = vec!["broker.example.org".to_owned()]).await;
    let request = harness.request(Method::GET, "/v1/topics").header("host", "broker.example.org:8080");
    harness.send(request).await.expect(200);
}

#[tokio::test]
async fn requests_without_one_host_are_malformed() {
    let harness = Harness::start(|_| {}).await;
    let address = harness.server.address();
    for head in ["", "host: localhost\r\nhost: localhost\r\n", "host: a b\r\n"] {
        let answer = exchange(address, format!("GET /v1/topics HTTP/1.1\r\n{head}\r\n")).await.expect("an answer");
        assert_eq!(answer.expect(400).code(), "invalid-request", "{head:?}");
    }
    // The authority of an absolute target counts as well (RFC 9112 §3.2.2).
    let target = "GET http://rebound.example.net/v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n";
    exchange(address, target).await.expect("an answer").expect(421);
}

#[tokio::test]
async fn a_page_of_another_site_stores_nothing() {
    let harness = Harness::start(|options| options.allowed_origins = vec!["https://app.example.org".to_owned()]).await;
    let create = |origin: &'static str| {
        let request = harness.request(Method::POST, "/v1/topics").header("origin", origin);
        harness.send(request.json(&json!({ "name": "written" })))
    };
    for origin in ["http://evil.example.net", "null", "http://localhost:1"] {
        assert_eq!(create(origin).await.expect(403).code(), "cross-site", "{origin}");
    }
    let request = harness.request(Method::POST, "/v1/topics").header("sec-fetch-site", "cross-site");
    harness.send(request.json(&json!({ "name": "written" }))).await.expect(403);
    harness.get("/v1/topics/written").await.expect(404);
    create("https://app.example.org").await.expect(201);
    let own = format!("http://{}", harness.authority());
    harness.send(harness.request(Method::DELETE, "/v1/topics/written").header("origin", own)).await.expect(204);
}
