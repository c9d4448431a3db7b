//! The load: connections that each send one prepared request after another and wait for each answer.
//!
//! It works on raw bytes, so that the client costs as little as it can on the processors that it shares with the server,
//! and costs the same whichever server answers.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::process::Server;

/// What a load measured.
pub(crate) struct Measured {
    /// Requests answered with a 2xx.
    pub(crate) requests: u64,
    /// Wall time.
    pub(crate) seconds: f64,
    /// Processor time that the server spent on one request, in microseconds.
    pub(crate) server_cpu_us: f64,
    /// Latency of each request in microseconds, sorted.
    latencies_us: Vec<f64>,
}

impl Measured {
    /// Requests a second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// The latency that `percent` of the requests did not exceed, in microseconds.
    pub(crate) fn percentile_us(&self, percent: f64) -> f64 {
        let last = self.latencies_us.len() - 1;
        self.latencies_us[((last as f64) * percent / 100.0).round() as usize]
    }
}

/// A request as bytes.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// What one connection asks, request by request.
pub(crate) trait Script: Send {
    /// The next request.
    fn next(&mut self) -> Cow<'_, [u8]>;

    /// Takes in the body of its answer. Says whether this is one of the requests that are measured.
    fn answered(&mut self, body: &[u8]) -> bool;
}

/// The same request over and over.
struct Same(Vec<u8>);

impl Script for Same {
    fn next(&mut self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.0)
    }

    fn answered(&mut self, _: &[u8]) -> bool {
        true
    }
}

/// Sends `requests[i % len]` on connection `i`, over and over, for `duration` after a warm-up of a fifth of it.
pub(crate) fn run(server: &Server, requests: &[Vec<u8>], connections: usize, duration: Duration) -> Measured {
    let same = |i: usize| Box::new(Same(requests[i % requests.len()].clone())) as Box<dyn Script>;
    run_scripts(server, (0..connections).map(same).collect(), duration)
}

/// Lets each script have a connection, for `duration` after a warm-up of a fifth of it.
pub(crate) fn run_scripts(server: &Server, scripts: Vec<Box<dyn Script>>, duration: Duration) -> Measured {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let go = |scripts: Vec<Box<dyn Script>>, until: Instant| async move {
            let connection = |script| tokio::spawn(one_connection(server.port, script, until));
            let tasks: Vec<_> = scripts.into_iter().map(connection).collect();
            let (mut scripts, mut all) = (Vec::new(), Vec::new());
            for task in tasks {
                let (script, latencies) = task.await.expect("the task lives").expect("all is answered with 2xx");
                scripts.push(script);
                all.extend(latencies);
            }
            (scripts, all)
        };
        let (scripts, _) = go(scripts, Instant::now() + duration / 5).await;
        let (start, cpu) = (Instant::now(), server.cpu_seconds());
        let (_, mut latencies_us) = go(scripts, start + duration).await;
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), server.cpu_seconds() - cpu);
        latencies_us.sort_by(f64::total_cmp);
        let requests = latencies_us.len() as u64;
        Measured { requests, seconds, server_cpu_us: cpu * 1e6 / requests as f64, latencies_us }
    })
}

async fn one_connection(
    port: u16,
    mut script: Box<dyn Script>,
    until: Instant,
) -> io::Result<(Box<dyn Script>, Vec<f64>)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 256 << 10];
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let request = script.next();
        let sent = Instant::now();
        stream.write_all(&request).await?;
        let body = answer(&mut stream, &mut buffer).await?;
        let latency = sent.elapsed().as_secs_f64() * 1e6;
        drop(request);
        if script.answered(buffer.get(body).unwrap_or_default()) {
            latencies.push(latency);
        }
    }
    Ok((script, latencies))
}

/// Reads one answer with a Content-Length; where its body is in the buffer, if it fits into that.
///
/// # Errors
/// When the connection ends, or the status is not 2xx.
pub(crate) async fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<Range<usize>> {
    let mut have = 0;
    let (head, length) = loop {
        have += match stream.read(&mut buffer[have..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => n,
        };
        if let Some(end) = buffer[..have].windows(4).position(|four| four == b"\r\n\r\n") {
            let head = std::str::from_utf8(&buffer[..end]).map_err(io::Error::other)?;
            if !head.starts_with("HTTP/1.1 2") {
                return Err(io::Error::other(String::from_utf8_lossy(&buffer[..have]).into_owned()));
            }
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            break (end + 4, length.ok_or_else(|| io::Error::other("no Content-Length"))?);
        }
    };
    let mut missing = (head + length).saturating_sub(have);
    while missing > 0 {
        let most = missing.min(buffer.len());
        missing -= match stream.read(&mut buffer[..most]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => n,
        };
    }
    Ok(head..head + length)
}
