//! The bare servers that Levada is held against: axum handlers that do the least that the same answer needs, on the same
//! runtime settings and the same hyper connection settings.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs::File, os::unix::fs::FileExt, sync::Arc};

use axum::Router;
use axum::body::Bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::value::RawValue;
use tower_http::services::ServeFile;

#[derive(Deserialize)]
#[expect(dead_code, reason = "the fields are parsed, which is the work that is compared")]
struct Record<'a> {
    #[serde(borrow, default)]
    key: Option<&'a RawValue>,
    #[serde(borrow)]
    value: &'a RawValue,
}

#[derive(Deserialize)]
struct Records<'a> {
    #[serde(borrow)]
    records: Vec<Record<'a>>,
}

struct Sink {
    file: File,
    end: AtomicU64,
    lock: Mutex<()>,
}

/// Deserializes the body into the records' struct with raw values, and answers.
async fn json(body: Bytes) -> impl IntoResponse {
    match serde_json::from_slice::<Records<'_>>(&body) {
        Ok(parsed) => {
            let answer = format!("{{\"records\":{}}}", parsed.records.len());
            (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], answer)
        }
        Err(error) => (StatusCode::BAD_REQUEST, [(header::CONTENT_TYPE, "text/plain")], error.to_string()),
    }
}

/// Reads the body, takes its CRC-32C, writes it to the end of a file, and answers.
async fn batches(State(sink): State<Arc<Sink>>, body: Bytes) -> impl IntoResponse {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &body);
    let _one = sink.lock.lock().expect("nobody panics here");
    let end = sink.end.fetch_add(body.len() as u64, Ordering::Relaxed);
    sink.file.write_all_at(&body, end).expect("the disk takes it");
    format!("{{\"crc\":{crc}}}")
}

/// Sends the client's first message back to it, over and over.
async fn repeat(upgrade: WebSocketUpgrade) -> impl IntoResponse {
    upgrade.on_upgrade(|mut socket| async move {
        let Some(Ok(message)) = socket.recv().await else { return };
        while socket.send(message.clone()).await.is_ok() {}
    })
}

/// The bare server over a directory: `out` in it is what `GET /out` sends.
pub(crate) fn router(dir: PathBuf) -> Router {
    let file = File::options().create(true).truncate(true).read(true).write(true).open(dir.join("in")).expect("a file");
    let sink = Arc::new(Sink { file, end: AtomicU64::new(0), lock: Mutex::new(()) });
    Router::new()
        .route("/json", post(json))
        .route("/batches", post(batches))
        .route("/ws", get(repeat))
        .route_service("/out", ServeFile::new(dir.join("out")))
        .layer(DefaultBodyLimit::max(64 << 20))
        .with_state(sink)
}
