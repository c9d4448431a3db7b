//! What a server is told at its start, with every default in one place.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use levada_model::limits::{BODY_BYTES_MAX, PRODUCER_EXPIRATION_MS};

/// What `levada serve` is told.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where everything is kept; made if it is not there.
    pub data_dir: PathBuf,
    /// Where to listen; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Names (`host` or `host:port`) that requests may name in `Host`, besides loopback and the listen address.
    pub allowed_hosts: Vec<String>,
    /// Origins (`scheme://host[:port]`) whose web pages may read and write.
    pub allowed_origins: Vec<String>,
    /// Largest request body after decompression, in bytes.
    pub max_body_bytes: usize,
    /// Most connections at a time; further ones wait to be accepted.
    pub max_connections: usize,
    /// Longest time for the head of a request to arrive.
    pub header_timeout: Duration,
    /// Longest wait for the next piece of a body.
    pub body_timeout: Duration,
    /// How long a connection may stay open between two requests.
    pub idle_timeout: Duration,
    /// Most headers of a request.
    pub max_headers: usize,
    /// Most bytes of a request's head: names and values of headers, and the path.
    pub max_header_bytes: usize,
    /// Whether the first produce to a topic creates it; none: on loopback only.
    pub auto_create_topics: Option<bool>,
    /// How long a partition remembers a producer after its last append.
    pub producer_expiration: Duration,
    /// How often retention, age rolls and checkpoints are looked after.
    pub maintenance_interval: Duration,
    /// How long a partition waits for company before it writes and syncs a group.
    pub linger: Duration,
    /// How often an event stream says that it is there.
    pub sse_heartbeat: Duration,
    /// How long a shutdown waits for running requests.
    pub shutdown_timeout: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("./levada-data"),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_body_bytes: BODY_BYTES_MAX,
            max_connections: 10_000,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            max_headers: 96,
            max_header_bytes: 32 << 10,
            auto_create_topics: None,
            producer_expiration: Duration::from_millis(PRODUCER_EXPIRATION_MS.unsigned_abs()),
            maintenance_interval: Duration::from_secs(30),
            linger: Duration::ZERO,
            sse_heartbeat: Duration::from_secs(15),
            shutdown_timeout: Duration::from_secs(30),
        }
    }
}

impl ServeOptions {
    /// Whether the first produce to a topic creates it.
    #[must_use]
    pub fn creates_topics(&self) -> bool {
        self.auto_create_topics.unwrap_or(self.listen.ip().is_loopback())
    }
}
