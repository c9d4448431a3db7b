//! WebSockets under load. The client works on raw bytes, as the one of requests does: it costs little, and the same
//! whichever server it talks to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval};

use crate::process::Server;

/// What a push measured.
pub(crate) struct Pushed {
    /// Megabytes of messages a second, of all sockets together.
    pub(crate) megabytes_a_second: f64,
    /// Processor time of the server for a megabyte, in microseconds.
    pub(crate) server_cpu_us: f64,
}

/// What came through one socket.
pub(crate) struct Socket {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A client's text frame, masked with zeros.
fn frame(text: &str) -> Vec<u8> {
    let mut bytes = vec![0x81];
    match text.len() {
        short @ 0..=125 => bytes.push(0x80 | short as u8),
        middle @ 126..=0xffff => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

impl Socket {
    /// Opens a socket and reads up to the end of the handshake.
    ///
    /// # Errors
    /// When the server refuses it.
    pub(crate) async fn open(server: &Server, path: &str) -> io::Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).await?;
        stream.set_nodelay(true)?;
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        let mut read = Vec::new();
        let end = loop {
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        if !read.starts_with(b"HTTP/1.1 101") {
            return Err(io::Error::other(String::from_utf8_lossy(&read).into_owned()));
        }
        read.drain(..end);
        Ok(Self { stream, read })
    }

    /// Sends a text.
    ///
    /// # Errors
    /// When the server is gone.
    pub(crate) async fn send(&mut self, text: &str) -> io::Result<()> {
        self.stream.write_all(&frame(text)).await
    }

    /// The next message; pings are passed over.
    ///
    /// # Errors
    /// When the server is gone.
    pub(crate) async fn message(&mut self) -> io::Result<Vec<u8>> {
        let mut message = Vec::new();
        loop {
            let (head, length) = loop {
                if let Some(head) = head(&self.read) {
                    break head;
                }
                self.more().await?;
            };
            while self.read.len() < head + length {
                self.more().await?;
            }
            let (first, is_control) = (self.read[0], self.read[0] & 0x08 != 0);
            if !is_control {
                message.extend_from_slice(&self.read[head..head + length]);
            }
            self.read.drain(..head + length);
            if !is_control && first & 0x80 != 0 {
                return Ok(message);
            }
        }
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Reads and counts until the time is over or nothing more comes.
    async fn drain(mut self, until: Instant, counted: Arc<AtomicU64>) {
        let mut buffer = vec![0; 256 << 10];
        counted.fetch_add(self.read.len() as u64, Ordering::Relaxed);
        while Instant::now() < until {
            match self.stream.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(count) => counted.fetch_add(count as u64, Ordering::Relaxed),
            };
        }
    }
}

/// The length of a frame's head and of its payload, once they are there.
fn head(read: &[u8]) -> Option<(usize, usize)> {
    Some(match read.get(1)? & 0x7f {
        126 => (4, usize::from(u16::from_be_bytes(read.get(2..4)?.try_into().ok()?))),
        127 => (10, usize::try_from(u64::from_be_bytes(read.get(2..10)?.try_into().ok()?)).ok()?),
        short => (2, usize::from(short)),
    })
}

/// A `records` message of the server's, to be sent by the one that it is held against.
pub(crate) fn one_message(server: &Server, topic: &str) -> String {
    run(async {
        let mut socket = Socket::open(server, "/v1/ws").await.expect("it opens");
        subscribe(&mut socket, topic, "earliest").await;
        loop {
            let message = String::from_utf8(socket.message().await.expect("it goes on")).expect("text");
            if message.contains("\"type\":\"records\"") {
                return message;
            }
        }
    })
}

/// Pushes to so many sockets at once. `first` is what opens the flow on each.
pub(crate) fn push(server: &Server, path: &str, first: &[String], sockets: usize, duration: Duration) -> Pushed {
    run(async {
        let counted = Arc::new(AtomicU64::new(0));
        let mut open = Vec::new();
        for _ in 0..sockets {
            open.push(Socket::open(server, path).await.expect("it opens"));
        }
        let (start, cpu) = (Instant::now(), server.cpu_seconds());
        let tasks: Vec<_> = open
            .into_iter()
            .map(|mut socket| {
                let (counted, first) = (Arc::clone(&counted), first.to_vec());
                tokio::spawn(async move {
                    for text in first {
                        socket.send(&text).await.expect("it reads");
                    }
                    socket.drain(start + duration, counted).await;
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("the task lives");
        }
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), server.cpu_seconds() - cpu);
        let megabytes = counted.load(Ordering::Relaxed) as f64 / 1e6;
        Pushed { megabytes_a_second: megabytes / seconds, server_cpu_us: cpu * 1e6 / megabytes }
    })
}

/// Produces a record a millisecond through one socket and reads it through others; microseconds from the one to the
/// other, sorted.
pub(crate) fn latencies_us(server: &Server, topic: &str, subscribers: usize, duration: Duration) -> Vec<f64> {
    run(async {
        let start = Instant::now();
        let tasks: Vec<_> = {
            let mut tasks = Vec::new();
            for _ in 0..subscribers {
                let mut socket = Socket::open(server, "/v1/ws").await.expect("it opens");
                subscribe(&mut socket, topic, "latest").await;
                tasks.push(tokio::spawn(receive(socket, start)));
            }
            tasks
        };
        let mut producer = Socket::open(server, "/v1/ws").await.expect("it opens");
        let filler = "x".repeat(960);
        let mut pace = interval(Duration::from_millis(1));
        pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let began = Instant::now();
        while began.elapsed() < duration {
            pace.tick().await;
            let sent = start.elapsed().as_nanos();
            let text = format!(
                r#"{{"type":"produce","id":1,"topic":"{topic}","records":[{{"value":{{"sent":{sent},"text":"{filler}"}}}}]}}"#
            );
            producer.send(&text).await.expect("it reads");
        }
        let last = r#"{"type":"produce","id":2,"topic":"T","records":[{"value":"last"}]}"#.replace('T', topic);
        producer.send(&last).await.expect("it reads");
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.expect("the task lives"));
        }
        all.sort_by(f64::total_cmp);
        all
    })
}

async fn receive(mut socket: Socket, start: Instant) -> Vec<f64> {
    let mut latencies = Vec::new();
    loop {
        let message = socket.message().await.expect("it goes on");
        let now = start.elapsed().as_nanos() as f64;
        let text = std::str::from_utf8(&message).expect("text");
        for sent in text.split("\"sent\":").skip(1) {
            let digits = sent.split(',').next().expect("a number");
            latencies.push((now - digits.parse::<f64>().expect("a number")) / 1e3);
        }
        if text.contains("\"last\"") {
            return latencies;
        }
    }
}

/// Opens so many sockets that do nothing, each with a subscription if a topic is given; they live as long as the value.
pub(crate) fn idle(
    runtime: &tokio::runtime::Runtime,
    server: &Server,
    count: usize,
    topic: Option<&str>,
) -> Vec<Socket> {
    runtime.block_on(async {
        let mut sockets = Vec::with_capacity(count);
        for _ in 0..count {
            let mut socket = Socket::open(server, "/v1/ws").await.expect("it opens");
            match topic {
                Some(topic) => subscribe(&mut socket, topic, "latest").await,
                None => _ = socket.message().await.expect("a welcome"),
            }
            socket.read.shrink_to_fit();
            sockets.push(socket);
        }
        sockets
    })
}

/// The frames that begin an endless subscription.
pub(crate) fn begin(topic: &str, from: &str) -> [String; 2] {
    [
        format!(r#"{{"type":"subscribe","id":1,"topics":["{topic}"],"from":"{from}"}}"#),
        r#"{"type":"credit","id":1,"records":9007199254740991}"#.to_owned(),
    ]
}

async fn subscribe(socket: &mut Socket, topic: &str, from: &str) {
    for text in begin(topic, from) {
        socket.send(&text).await.expect("it reads");
    }
    loop {
        let message = socket.message().await.expect("it goes on");
        if message.starts_with(b"{\"type\":\"subscribed\"") {
            return;
        }
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}
