//! The opening handshake of the WebSocket: every answer to it.

use http::Method;

use crate::harness::{Answer, Harness};
use crate::raw;

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Runs the scenario.
pub(crate) async fn run(harness: &Harness) {
    let good = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", KEY),
    ];
    let answer = open(harness, &good).await.expect(101);
    // RFC 6455 §1.3 works this one out.
    assert_eq!(answer.header("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!(harness.get("/v1/ws").await.expect(426).code(), "upgrade-required");
    for (name, value, status, code) in [
        ("connection", "keep-alive", 426, "upgrade-required"),
        ("upgrade", "h2c", 426, "upgrade-required"),
        ("sec-websocket-version", "8", 426, "upgrade-required"),
        ("sec-websocket-key", "short", 400, "invalid-request"),
        ("origin", "http://evil.example.net", 403, "cross-site"),
        ("sec-websocket-protocol", "other.v1", 400, "invalid-request"),
    ] {
        let others = good.into_iter().filter(|(other, _)| *other != name);
        let headers: Vec<_> = others.chain([(name, value)]).collect();
        let answer = open(harness, &headers).await.expect(status);
        assert_eq!(answer.code(), code, "{name}: {value}");
        if status == 426 {
            assert_eq!((answer.header("upgrade"), answer.header("sec-websocket-version")), ("websocket", "13"));
        }
    }
    let twice = [good.as_slice(), &[("sec-websocket-key", KEY)]].concat();
    open(harness, &twice).await.expect(400);
}

async fn open(harness: &Harness, headers: &[(&str, &str)]) -> Answer {
    let mut request = "GET /v1/ws HTTP/1.1\r\nhost: localhost\r\n".to_owned();
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    let answer = raw::exchange(harness.server.address(), request).await.expect("an answer");
    harness.contract.check(&Method::GET, "/v1/ws", answer.status, &answer.headers, Some(&answer.body));
    answer
}
