//! What holds for every operation that the document lists: refusals of the gate, of a starting server, of bodies.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use http::Method;
use levada_engine::OpenError;
use serde_json::Value;

use crate::harness::Harness;
use crate::raw;

/// Runs the scenario.
pub(crate) async fn run(harness: &Harness) {
    for (path, method, operation) in harness.contract.operations() {
        let (method, path) = (method_of(method), filled(path));
        refused_by_the_gate(harness, &method, &path).await;
        refused_for_its_query(harness, &method, &path).await;
        if operation["responses"].get("406").is_some() {
            let request = harness.request(method.clone(), &path).header("accept", "image/png");
            assert_eq!(harness.send(request).await.expect(406).code(), "not-acceptable");
        }
        if let Some(media) = media_of(operation) {
            refused_for_its_encoding(harness, &method, &path, media).await;
        }
    }
    while_it_starts(harness).await;
    with_small_limits(harness).await;
}

async fn refused_by_the_gate(harness: &Harness, method: &Method, path: &str) {
    let request = || harness.request(method.clone(), path);
    let answer = harness.send(request().header("host", "rebound.example.net")).await.expect(421);
    assert_eq!(answer.code(), "misdirected-request");
    let flood = (0..97).fold(request(), |request, n| request.header(format!("x-flood-{n}"), "1"));
    assert_eq!(harness.send(flood).await.expect(431).json()["limit"], "--max-headers");
    if *method != Method::GET {
        let answer = harness.send(request().header("origin", "http://evil.example.net")).await.expect(403);
        assert_eq!(answer.code(), "cross-site");
    }
}

async fn refused_for_its_query(harness: &Harness, method: &Method, path: &str) {
    let answer = harness.send(harness.request(method.clone(), &format!("{path}?no_such=1"))).await.expect(400);
    assert_eq!(answer.code(), "unknown-parameter");
    assert!(answer.json()["detail"].as_str().expect("text").contains("no_such"));
}

async fn refused_for_its_encoding(harness: &Harness, method: &Method, path: &str, media: &str) {
    let request = harness.request(method.clone(), path).header("content-type", media);
    let answer = harness.send(request.header("content-encoding", "br").body("{}")).await.expect(415);
    assert_eq!(answer.json()["accepted"], serde_json::json!(["gzip", "zstd"]));
    assert_eq!(answer.header("accept-encoding"), "gzip, zstd");
}

/// Every call of the interface is refused, and may be tried again, until the engine is open.
async fn while_it_starts(harness: &Harness) {
    let (release, held) = mpsc::channel::<()>();
    let contract = Arc::clone(&harness.contract);
    let starting = Harness::start_with(
        contract,
        |_| {},
        move |_| {
            let _ = held.recv();
            Err(OpenError::Metadata { path: "held".to_owned(), detail: "by the test".to_owned() })
        },
    )
    .await;
    for (path, method, operation) in harness.contract.operations() {
        if operation["responses"].get("503").is_none() {
            continue;
        }
        let mut request = starting.request(method_of(method), &filled(path));
        if let Some(media) = media_of(operation) {
            request = request.header("content-type", media).body("{}");
        }
        let answer = starting.send(request).await.expect(503);
        assert_eq!((answer.code().as_str(), answer.header("retry-after")), ("starting", "1"));
    }
    starting.get("/healthz").await.expect(200);
    starting.get("/metrics").await.expect(200);
    drop(release);
    starting.server.shutdown().await.expect("nothing was open");
}

/// Bodies that are too large are refused at once, and those that stop coming after a while.
async fn with_small_limits(harness: &Harness) {
    let small = Harness::start_under(Arc::clone(&harness.contract), |options| {
        (options.max_body_bytes, options.max_module_bytes) = (64, 64);
        options.body_timeout = Duration::from_millis(50);
    })
    .await;
    for (path, method, operation) in harness.contract.operations() {
        let (Some(media), method, path) = (media_of(operation), method_of(method), filled(path)) else { continue };
        let answer = small.body(method.clone(), &path, media, " ".repeat(65)).await.expect(413);
        let setting = if media == "application/wasm" { "--max-module-bytes" } else { "--max-body-bytes" };
        let told = answer.json();
        assert_eq!((told["limit"].as_str(), told["limit_value"].as_u64()), (Some(setting), Some(64)));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media}\r\ncontent-length: 60\r\n\r\n{{"
        );
        let answer = raw::exchange(small.server.address(), head).await.expect("an answer").expect(408);
        small.contract.check(&method, &path, answer.status, &answer.headers, Some(&answer.body));
        assert_eq!(answer.code(), "request-timeout");
    }
}

fn method_of(name: &str) -> Method {
    name.to_uppercase().parse().expect("a method")
}

/// A path with something valid in place of its parameters.
fn filled(template: &str) -> String {
    let fill = |segment: &str| match segment {
        "{partition}" | "{offset}" | "{version}" => "0".to_owned(),
        "{transaction}" => "0-0-0".to_owned(),
        parameter if parameter.starts_with('{') => "common".to_owned(),
        literal => literal.to_owned(),
    };
    template.split('/').map(fill).collect::<Vec<_>>().join("/")
}

/// The first media type of the operation's body, if it takes one.
fn media_of(operation: &Value) -> Option<&str> {
    let media = operation["requestBody"]["content"].as_object()?.keys().next()?;
    Some(if media == "*/*" { "application/octet-stream" } else { media })
}
