//! A server that gives scripted answers, in order of arrival, and tells what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Answers with this status, media type and body.
    Body(u16, &'static str, String),
    /// Reads the request and closes the connection.
    HangUp,
    /// Reads the request and never answers.
    Silence,
    /// Answers with an event stream of this text, and closes it.
    Events(String),
}

impl Reply {
    pub(crate) fn json(body: impl Into<String>) -> Self {
        Self::Body(200, "application/json", body.into())
    }

    pub(crate) fn problem(problem: &levada_api::Problem) -> Self {
        let body = serde_json::to_string(problem).expect("a problem is JSON");
        Self::Body(problem.status, "application/problem+json", body)
    }
}

/// A request as it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The `value` of each record of a JSON produce.
    pub(crate) fn values(&self) -> Vec<String> {
        let body: serde_json::Value = serde_json::from_str(&self.body).expect("the body is JSON");
        body["records"]
            .as_array()
            .expect("there are records")
            .iter()
            .map(|record| record["value"].to_string())
            .collect()
    }
}

/// The server. A request beyond the script is answered by `otherwise`.
pub(crate) struct Script {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Script {
    pub(crate) async fn new(replies: Vec<Reply>, otherwise: fn(&Asked) -> Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let replies = Arc::new(Mutex::new(VecDeque::from(replies)));
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, Arc::clone(&log), Arc::clone(&replies), otherwise));
            }
        });
        Self { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no test panics with it").clone()
    }
}

async fn converse(
    stream: TcpStream,
    log: Arc<Mutex<Vec<Asked>>>,
    replies: Arc<Mutex<VecDeque<Reply>>>,
    otherwise: fn(&Asked) -> Reply,
) {
    let mut stream = BufReader::new(stream);
    while let Some(asked) = read(&mut stream).await {
        log.lock().expect("no test panics with it").push(asked.clone());
        let reply = replies.lock().expect("no test panics with it").pop_front();
        let (head, body) = match reply.unwrap_or_else(|| otherwise(&asked)) {
            Reply::HangUp => return,
            Reply::Silence => std::future::pending().await,
            Reply::Body(status, kind, body) => {
                (format!("{status} X\r\ncontent-type: {kind}\r\ncontent-length: {}", body.len()), body)
            }
            Reply::Events(body) => ("200 OK\r\ncontent-type: text/event-stream\r\nconnection: close".to_owned(), body),
        };
        let closes = head.contains("connection: close");
        let answer = format!("HTTP/1.1 {head}\r\n\r\n{body}");
        if stream.write_all(answer.as_bytes()).await.is_err() || closes {
            return;
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut asked = Asked::default();
    stream.read_line(&mut asked.line).await.ok().filter(|count| *count > 0)?;
    asked.line.truncate(asked.line.trim_end().len());
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        asked.headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    if let Some(length) = asked.header("content-length") {
        let mut body = vec![0; length.parse().expect("a length")];
        stream.read_exact(&mut body).await.ok()?;
        asked.body = String::from_utf8(body).expect("tests send text");
    } else if asked.header("transfer-encoding").is_some() {
        asked.body = read_chunks(stream).await?;
    }
    Some(asked)
}

async fn read_chunks(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        stream.read_line(&mut size).await.ok()?;
        let size = usize::from_str_radix(size.trim_end(), 16).expect("a chunk's size");
        let mut chunk = vec![0; size + 2];
        stream.read_exact(&mut chunk).await.ok()?;
        if size == 0 {
            return Some(String::from_utf8(body).expect("tests send text"));
        }
        body.extend_from_slice(&chunk[..size]);
    }
}
