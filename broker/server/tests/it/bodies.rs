//! Bodies: types, encodings, bombs, lies about their length, and bodies that stop coming.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use serde_json::json;

use crate::harness::{Answer, Harness};
use crate::raw::{Raw, exchange};

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(data).expect("in memory");
    encoder.finish().expect("in memory")
}

async fn create_packed(harness: &Harness, encoding: &str, body: Vec<u8>) -> Answer {
    let request = harness.request(Method::POST, "/v1/topics").header("content-type", "application/json");
    harness.send(request.header("content-encoding", encoding).body(body)).await
}

#[tokio::test]
async fn json_comes_under_several_names_and_all_else_is_told_what_is_taken() {
    let harness = Harness::start(|_| {}).await;
    for (n, media) in
        ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x.v2+json"].iter().enumerate()
    {
        let body = format!(r#"{{"name":"taken-{n}"}}"#);
        harness.body(Method::POST, "/v1/topics", media, body).await.expect(201);
    }
    for media in ["text/plain", "", "application/x-ndjson", "json"] {
        let answer = harness.body(Method::POST, "/v1/topics", media, r#"{"name":"refused"}"#).await.expect(415);
        assert_eq!(answer.json()["accepted"], json!(["application/json"]), "{media}");
    }
    let bare = harness.request(Method::POST, "/v1/topics").body(r#"{"name":"refused"}"#);
    assert_eq!(harness.send(bare).await.expect(415).header("accept"), "application/json");
    harness.get("/v1/topics/refused").await.expect(404);
}

#[tokio::test]
async fn packed_bodies_are_unpacked() {
    let harness = Harness::start(|_| {}).await;
    create_packed(&harness, "gzip", gzip(br#"{"name":"by-gzip"}"#)).await.expect(201);
    let zstd = zstd::encode_all(br#"{"name":"by-zstd"}"#.as_slice(), 3).expect("in memory");
    create_packed(&harness, "zstd", zstd).await.expect(201);
    create_packed(&harness, "identity", br#"{"name":"as-it-is"}"#.to_vec()).await.expect(201);
    for (encoding, body, status) in [
        ("gzip", b"{}".to_vec(), 400),
        ("gzip", gzip(br#"{"name":"cut"}"#)[..20].to_vec(), 400),
        ("zstd", b"{}".to_vec(), 400),
        ("gzip", Vec::new(), 400),
        ("br", b"{}".to_vec(), 415),
        ("gzip, gzip", gzip(&gzip(br#"{"name":"cut"}"#)), 415),
    ] {
        create_packed(&harness, encoding, body).await.expect(status);
    }
}

/// PC-49: the limit counts after unpacking, and a gigabyte is never unpacked.
#[tokio::test]
async fn a_bomb_is_refused_by_the_size_that_it_unpacks_to() {
    let harness = Harness::start(|_| {}).await;
    let gigabyte = gzip(&vec![0; 64 << 20]).repeat(16);
    assert!(gigabyte.len() < 2 << 20);
    assert_eq!(create_packed(&harness, "gzip", gigabyte).await.expect(413).code(), "body-too-large");
    let zstd = zstd::encode_all(vec![0; 64 << 20].as_slice(), 3).expect("in memory");
    assert_eq!(create_packed(&harness, "zstd", zstd.repeat(16)).await.expect(413).json()["limit"], "--max-body-bytes");
}

#[tokio::test]
async fn max_body_bytes_is_the_limit() {
    let harness = Harness::start(|options| options.max_body_bytes = 40).await;
    let body = |length: usize| format!("{:<length$}", r#"{"name":"fits"}"#);
    let media = "application/json";
    let answer = harness.body(Method::POST, "/v1/topics", media, body(41)).await.expect(413);
    assert_eq!((answer.json()["limit_value"].as_u64(), answer.json()["effect"].as_str()), (Some(40), Some("none")));
    create_packed(&harness, "gzip", gzip(body(41).as_bytes())).await.expect(413);
    create_packed(&harness, "zstd", zstd::encode_all(body(41).as_bytes(), 3).expect("in memory")).await.expect(413);
    harness.body(Method::POST, "/v1/topics", media, body(40)).await.expect(201);
}

#[tokio::test]
async fn a_declared_length_above_the_limit_is_refused_before_the_body_is_asked_for() {
    let harness = Harness::start(|_| {}).await;
    let head = "POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut raw = Raw::connect(harness.server.address()).await;
    raw.send(format!("{head}content-length: 9000000000000\r\nexpect: 100-continue\r\n\r\n")).await;
    assert_eq!(raw.answer().await.expect("an answer").expect(413).code(), "body-too-large");
    // One that fits is asked for.
    let mut raw = Raw::connect(harness.server.address()).await;
    raw.send(format!("{head}content-length: 15\r\nexpect: 100-continue\r\n\r\n")).await;
    raw.answer().await.expect("an answer").expect(100);
    raw.send(r#"{"name":"asks"}"#).await;
    raw.answer().await.expect("an answer").expect(201);
}

#[tokio::test]
async fn a_body_without_a_length_is_cut_at_the_limit() {
    let harness = Harness::start(|options| options.max_body_bytes = 1000).await;
    let head = "POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let chunk = format!("100\r\n{}\r\n", " ".repeat(256));
    let request = format!("{head}transfer-encoding: chunked\r\n\r\n{}", chunk.repeat(8));
    assert_eq!(
        exchange(harness.server.address(), request).await.expect("an answer").expect(413).code(),
        "body-too-large"
    );
}

#[tokio::test]
async fn a_client_that_sends_on_gets_to_read_why_it_was_refused() {
    let harness = Harness::start(|_| {}).await;
    let head = "POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut raw = Raw::connect(harness.server.address()).await;
    let body = " ".repeat(32 << 20);
    // Many clients read nothing once they could not write.
    assert!(raw.send(format!("{head}content-length: {}\r\n\r\n{body}", body.len())).await);
    assert_eq!(raw.answer().await.expect("an answer").expect(413).code(), "body-too-large");
}

#[tokio::test]
async fn a_body_that_is_shorter_than_declared_stores_nothing() {
    let harness = Harness::start(|options| options.body_timeout = Duration::from_millis(50)).await;
    let head = "POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let lie = format!("{head}content-length: 100\r\n\r\n{}", r#"{"name":"short"}"#);
    let answer = exchange(harness.server.address(), &lie).await.expect("an answer").expect(408);
    assert_eq!((answer.json()["retryable"].clone(), answer.json()["effect"].clone()), (json!(true), json!("none")));
    // The same, and gone.
    let mut raw = Raw::connect(harness.server.address()).await;
    raw.send(&lie).await;
    drop(raw);
    harness.get("/v1/topics/short").await.expect(404);
}

#[tokio::test]
async fn a_length_that_is_too_small_does_not_make_a_second_request_of_the_rest() {
    let harness = Harness::start(|_| {}).await;
    let body = r#"{"name":"first"}"#;
    let head = "POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut raw = Raw::connect(harness.server.address()).await;
    raw.send(format!("{head}content-length: {}\r\n\r\n{body}{{\"name\":\"second\"}}\r\n\r\n", body.len())).await;
    raw.answer().await.expect("an answer").expect(201);
    raw.answer().await.expect("an answer").expect(400);
    assert!(raw.is_closed().await);
    // A length and chunks together are how requests are smuggled.
    let both = format!("{head}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n");
    let answer = exchange(harness.server.address(), both).await;
    assert!(answer.is_none_or(|answer| answer.status == 400));
}
