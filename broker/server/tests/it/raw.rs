//! Requests as bytes on a socket, for what no proper client sends.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::Answer;

/// Longest wait before a test gives up; no promise of the server's.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A connection on which bytes are sent and answers read.
pub(crate) struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Raw {
    /// Connects.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.expect("a connection"), read: Vec::new() }
    }

    /// Sends bytes, and says whether the other side let all of them in.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Reads the next answer that has a Content-Length, or none at a close.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        timeout(PATIENCE, self.next_answer()).await.expect("an answer or a close in time")
    }

    async fn next_answer(&mut self) -> Option<Answer> {
        let head_end = loop {
            match self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None if self.more().await => {}
                None => return None,
            }
        };
        let head = String::from_utf8(self.read.drain(..head_end).collect()).expect("text");
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status line");
        let status: StatusCode = status.parse().expect("a status");
        let headers: HeaderMap = lines.filter_map(|line| line.split_once(':')).map(header).collect();
        let length = headers.get("content-length").map_or("0", |value| value.to_str().expect("text"));
        let length: usize = length.parse().expect("a number");
        while self.read.len() < length && self.more().await {}
        let body = Bytes::from(self.read.drain(..length.min(self.read.len())).collect::<Vec<_>>());
        Some(Answer { status, headers, body })
    }

    /// Whether the other side has closed (or closes in time) without sending more.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let more = timeout(PATIENCE, self.more()).await.expect("a close in time");
        !more && self.read.is_empty()
    }

    /// Whether the other side closes in time, whatever it sends before.
    pub(crate) async fn ends(&mut self) -> bool {
        timeout(PATIENCE, async { while self.more().await {} }).await.is_ok()
    }

    /// Whether nothing has come so far.
    pub(crate) fn has_nothing(&self) -> bool {
        let mut piece = [0; 1];
        matches!(self.stream.try_read(&mut piece), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    async fn more(&mut self) -> bool {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.read.extend_from_slice(&piece[..count]);
                true
            }
        }
    }
}

fn header((name, value): (&str, &str)) -> (HeaderName, HeaderValue) {
    (name.parse().expect("a name"), value.trim().parse().expect("a value"))
}

/// Sends one request on a fresh connection and reads its answer.
pub(crate) async fn exchange(address: SocketAddr, request: impl AsRef<[u8]>) -> Option<Answer> {
    let mut raw = Raw::connect(address).await;
    raw.send(request).await;
    raw.answer().await
}
