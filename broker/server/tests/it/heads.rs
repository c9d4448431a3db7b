//! Heads of requests: floods, paths, methods, ids, and what every answer carries.

use http::Method;

use crate::harness::Harness;
use crate::raw::exchange;

#[tokio::test]
async fn too_many_headers_are_refused_and_named_up_to_a_point() {
    let harness = Harness::start(|options| options.max_headers = 20).await;
    let flood = |count: usize| {
        (0..count).fold(harness.request(Method::GET, "/healthz"), |r, n| r.header(format!("x-{n}"), "1"))
    };
    harness.send(flood(15)).await.expect(200);
    let answer = harness.send(flood(20)).await.expect(431);
    assert_eq!((answer.code().as_str(), answer.json()["limit"].as_str()), ("headers-too-large", Some("--max-headers")));
    // Beyond what is read at all there is but the status.
    let many = (0..5000).map(|n| format!("x-{n}: 1\r\n")).collect::<String>();
    let head = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{many}\r\n");
    exchange(harness.server.address(), head).await.expect("an answer").expect(431);
}

#[tokio::test]
async fn more_headers_than_hyper_takes_by_itself_can_be_allowed() {
    let harness = Harness::start(|options| options.max_headers = 300).await;
    let flood = (0..250).fold(harness.request(Method::GET, "/healthz"), |r, n| r.header(format!("x-{n}"), "1"));
    harness.send(flood).await.expect(200);
}

#[tokio::test]
async fn too_large_headers_and_paths_are_refused_and_named() {
    let harness = Harness::start(|options| options.max_header_bytes = 2000).await;
    let long = "a".repeat(2000);
    let answer = harness.send(harness.request(Method::GET, "/healthz").header("x-long", &long)).await.expect(431);
    assert_eq!(answer.json()["limit"], "--max-header-bytes");
    harness.get(&format!("/v1/topics?cursor={long}")).await.expect(431);
    harness.get("/healthz").await.expect(200);
    let endless = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-long: {}", "a".repeat(1 << 20));
    exchange(harness.server.address(), endless).await.expect("an answer").expect(431);
}

#[tokio::test]
async fn a_request_id_is_taken_over_or_made() {
    let harness = Harness::start(|_| {}).await;
    let with_id = |id: &str| harness.request(Method::GET, "/v1/topics/none").header("x-request-id", id);
    assert_eq!(harness.send(with_id("trace-7")).await.expect(404).header("x-request-id"), "trace-7");
    assert_ne!(harness.send(with_id("a b")).await.expect(404).header("x-request-id"), "a b");
    let (one, two) = (harness.get("/healthz").await, harness.get("/healthz").await);
    assert_ne!(one.header("x-request-id"), two.header("x-request-id"));
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems() {
    let harness = Harness::start(|_| {}).await;
    for path in ["/nowhere", "/v1", "/v1/", "/v1/topics/t/nothing", "/docs/nothing.js", "/v1/groups/g/nothing"] {
        let answer = harness.get(path).await.expect(404);
        assert_eq!((answer.code().as_str(), answer.header("content-type")), ("not-found", "application/problem+json"));
    }
    for (method, path, allow) in [
        (Method::PUT, "/v1/topics", vec!["GET", "HEAD", "POST"]),
        (Method::POST, "/v1/topics/t", vec!["DELETE", "GET", "HEAD", "PATCH"]),
        (Method::OPTIONS, "/healthz", vec!["GET", "HEAD"]),
        (Method::GET, "/v1/topics/t/truncate", vec!["POST"]),
        (Method::from_bytes(b"BREW").expect("a method"), "/", vec!["GET", "HEAD"]),
    ] {
        let answer = harness.send(harness.request(method, path)).await.expect(405);
        let mut told: Vec<_> = answer.header("allow").split(',').map(str::trim).collect();
        told.sort_unstable();
        assert_eq!((told, answer.code().as_str()), (allow, "method-not-allowed"), "{path}");
    }
}

#[tokio::test]
async fn head_is_answered_where_get_is() {
    let harness = Harness::start(|_| {}).await;
    for path in ["/", "/healthz", "/readyz", "/metrics", "/v1/cluster", "/v1/topics", "/openapi.json"] {
        let answer = harness.send(harness.request(Method::HEAD, path)).await.expect(200);
        assert!(answer.body.is_empty() && answer.header("content-length") != "0", "{path}");
    }
}

#[tokio::test]
async fn the_documentation_works_without_a_network() {
    let harness = Harness::start(|_| {}).await;
    let page = harness.get("/docs/").await.expect(200);
    assert!(page.header("content-security-policy").contains("default-src 'none'; script-src 'self'"));
    let text = String::from_utf8(page.body.to_vec()).expect("text");
    assert!(!text.contains("http://") && !text.contains("https://"), "{text}");
    assert!(!text.contains("<script>"), "an inline script would not run under the policy: {text}");
    for file in text.split('"').filter(|part| part.starts_with("./")) {
        harness.get(&format!("/docs/{}", &file[2..])).await.expect(200);
    }
    let initializer = harness.get("/docs/swagger-initializer.js").await.expect(200);
    assert!(String::from_utf8(initializer.body.to_vec()).expect("text").contains("/openapi.json"));
    assert_eq!(harness.get("/docs").await.expect(303).header("location"), "/docs/");
    assert!(String::from_utf8(harness.get("/").await.expect(200).body.to_vec()).expect("text").contains("/docs"));
}
