//! What a server is told at its start, with every default in one place.

use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use levada_engine::GroupOptions;
use levada_model::limits::{BODY_BYTES_MAX, COMPACTION_MEMORY_BYTES, MODULE_BYTES_MAX, PRODUCER_EXPIRATION_MS};
use tokio::sync::Semaphore;

use crate::start::StartError;

/// Most bytes of a body that may be allowed: batches count their bytes in 31 bits.
const BODY_BYTES_CEILING: usize = i32::MAX as usize;
/// Most headers that may be allowed. hyper is told a multiple of it, and the table of headers ends (with a panic) at
/// 24,576.
const HEADERS_CEILING: usize = 4_096;
/// Most bytes of a head that may be allowed: they are buffered for each connection.
const HEADER_BYTES_CEILING: usize = 16 << 20;
/// Least memory for compaction: some ten thousand keys a pass.
const COMPACTION_BYTES_FLOOR: usize = 1 << 20;
/// Longest linger: each produce waits so long.
const LINGER_CEILING: Duration = Duration::from_secs(60);
/// Longest first pause of a group: its members read nothing meanwhile.
const GROUP_DELAY_CEILING: Duration = Duration::from_secs(10 * 60);
/// Longest of the other times: a hundred years, which every clock can still count.
const TIME_CEILING: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// The smallest time that an option can name.
const MS: Duration = Duration::from_millis(1);

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
    /// Largest module, in bytes.
    pub max_module_bytes: usize,
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
    /// How often retention, age rolls, checkpoints and compaction are looked after.
    pub maintenance_interval: Duration,
    /// Most memory that compaction takes for the keys of the log that it is at; what does not fit takes further passes.
    pub compaction_memory_bytes: usize,
    /// How long a partition waits for company before it writes and syncs a group.
    pub linger: Duration,
    /// How long the first assignment of an empty group waits for more members.
    pub group_initial_rebalance_delay: Duration,
    /// How long committed offsets are kept after their group became empty.
    pub offsets_retention: Duration,
    /// How often an event stream says that it is there.
    pub sse_heartbeat: Duration,
    /// How often a WebSocket is pinged; a peer that misses two pings is dropped.
    pub ws_ping_interval: Duration,
    /// How long a WebSocket may take nothing of what is sent before its subscriptions end, and again before it is cut.
    pub ws_slow_reader_timeout: Duration,
    /// How long a shutdown waits for running requests.
    pub shutdown_timeout: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        let groups = GroupOptions::default();
        Self {
            data_dir: PathBuf::from("./levada-data"),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_body_bytes: BODY_BYTES_MAX,
            max_module_bytes: MODULE_BYTES_MAX,
            max_connections: 10_000,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            max_headers: 96,
            max_header_bytes: 32 << 10,
            auto_create_topics: None,
            producer_expiration: Duration::from_millis(PRODUCER_EXPIRATION_MS.unsigned_abs()),
            maintenance_interval: Duration::from_secs(30),
            compaction_memory_bytes: COMPACTION_MEMORY_BYTES,
            linger: Duration::ZERO,
            group_initial_rebalance_delay: groups.initial_rebalance_delay,
            offsets_retention: groups.offsets_retention,
            sse_heartbeat: Duration::from_secs(15),
            ws_ping_interval: Duration::from_secs(20),
            ws_slow_reader_timeout: Duration::from_secs(30),
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

    /// Refuses numbers and times that no server can run with. Names of hosts and origins are the gate's to read.
    ///
    /// # Errors
    /// The first option that is wrong, by its name.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        number("--max-body-bytes", self.max_body_bytes, 1..=BODY_BYTES_CEILING)?;
        number("--max-module-bytes", self.max_module_bytes, 1..=MODULE_BYTES_MAX)?;
        number("--max-connections", self.max_connections, 1..=Semaphore::MAX_PERMITS.min(u32::MAX as usize))?;
        number("--max-headers", self.max_headers, 1..=HEADERS_CEILING)?;
        number("--max-header-bytes", self.max_header_bytes, 1..=HEADER_BYTES_CEILING)?;
        time("--header-timeout-ms", self.header_timeout, MS..=TIME_CEILING)?;
        time("--body-timeout-ms", self.body_timeout, MS..=TIME_CEILING)?;
        time("--idle-timeout-ms", self.idle_timeout, MS..=TIME_CEILING)?;
        time("--producer-id-expiration-ms", self.producer_expiration, MS..=TIME_CEILING)?;
        time("--maintenance-interval-ms", self.maintenance_interval, MS..=TIME_CEILING)?;
        number("--compaction-memory-bytes", self.compaction_memory_bytes, COMPACTION_BYTES_FLOOR..=usize::MAX)?;
        time("--linger-ms", self.linger, Duration::ZERO..=LINGER_CEILING)?;
        let delay = self.group_initial_rebalance_delay;
        time("--group-initial-rebalance-delay-ms", delay, Duration::ZERO..=GROUP_DELAY_CEILING)?;
        time("--offsets-retention-ms", self.offsets_retention, MS..=TIME_CEILING)?;
        time("--sse-heartbeat-ms", self.sse_heartbeat, MS..=TIME_CEILING)?;
        time("--ws-ping-interval-ms", self.ws_ping_interval, MS..=TIME_CEILING)?;
        time("--ws-slow-reader-timeout-ms", self.ws_slow_reader_timeout, MS..=TIME_CEILING)?;
        time("--shutdown-timeout-ms", self.shutdown_timeout, MS..=TIME_CEILING)
    }
}

fn number(name: &'static str, value: usize, taken: RangeInclusive<usize>) -> Result<(), StartError> {
    if taken.contains(&value) { Ok(()) } else { Err(outside(name, value, taken.start(), taken.end())) }
}

fn time(name: &'static str, value: Duration, taken: RangeInclusive<Duration>) -> Result<(), StartError> {
    let ms = Duration::as_millis;
    if taken.contains(&value) { Ok(()) } else { Err(outside(name, ms(&value), ms(taken.start()), ms(taken.end()))) }
}

fn outside(name: &'static str, value: impl Display, least: impl Display, most: impl Display) -> StartError {
    StartError::option(name, &value.to_string(), &format!("is not a number from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut ServeOptions);

    #[test]
    fn the_defaults_and_the_edges_are_taken() {
        let taken: [Change; 8] = [
            |_| {},
            |o| o.compaction_memory_bytes = COMPACTION_BYTES_FLOOR,
            |o| (o.max_body_bytes, o.max_connections, o.max_headers, o.max_header_bytes) = (1, 1, 1, 1),
            |o| (o.max_headers, o.max_body_bytes) = (HEADERS_CEILING, BODY_BYTES_CEILING),
            |o| (o.linger, o.maintenance_interval, o.shutdown_timeout) = (LINGER_CEILING, MS, MS),
            |o| (o.header_timeout, o.producer_expiration) = (TIME_CEILING, TIME_CEILING),
            |o| (o.group_initial_rebalance_delay, o.offsets_retention) = (Duration::ZERO, MS),
            |o| (o.group_initial_rebalance_delay, o.offsets_retention) = (GROUP_DELAY_CEILING, TIME_CEILING),
        ];
        for change in taken {
            let mut options = ServeOptions::default();
            change(&mut options);
            options.check().expect("it is taken");
        }
    }

    #[test]
    fn each_nonsense_number_or_time_is_refused_by_its_name() {
        let refused: [(&str, Change, Change); 18] = [
            (
                "--compaction-memory-bytes",
                |o| o.compaction_memory_bytes = 0,
                |o| o.compaction_memory_bytes = COMPACTION_BYTES_FLOOR - 1,
            ),
            ("--max-body-bytes", |o| o.max_body_bytes = 0, |o| o.max_body_bytes = usize::MAX),
            ("--max-module-bytes", |o| o.max_module_bytes = 0, |o| o.max_module_bytes = MODULE_BYTES_MAX + 1),
            ("--max-connections", |o| o.max_connections = 0, |o| o.max_connections = usize::MAX),
            ("--max-headers", |o| o.max_headers = 0, |o| o.max_headers = 4_097),
            ("--max-header-bytes", |o| o.max_header_bytes = 0, |o| o.max_header_bytes = usize::MAX),
            ("--header-timeout-ms", |o| o.header_timeout = Duration::ZERO, |o| o.header_timeout = Duration::MAX),
            ("--body-timeout-ms", |o| o.body_timeout = Duration::ZERO, |o| o.body_timeout = Duration::MAX),
            ("--idle-timeout-ms", |o| o.idle_timeout = Duration::ZERO, |o| o.idle_timeout = Duration::MAX),
            (
                "--producer-id-expiration-ms",
                |o| o.producer_expiration = Duration::ZERO,
                |o| o.producer_expiration = Duration::MAX,
            ),
            (
                "--maintenance-interval-ms",
                |o| o.maintenance_interval = Duration::ZERO,
                |o| o.maintenance_interval = Duration::MAX,
            ),
            ("--linger-ms", |o| o.linger = Duration::from_secs(61), |o| o.linger = Duration::MAX),
            (
                "--group-initial-rebalance-delay-ms",
                |o| o.group_initial_rebalance_delay = GROUP_DELAY_CEILING + MS,
                |o| o.group_initial_rebalance_delay = Duration::MAX,
            ),
            (
                "--offsets-retention-ms",
                |o| o.offsets_retention = Duration::ZERO,
                |o| o.offsets_retention = Duration::MAX,
            ),
            ("--sse-heartbeat-ms", |o| o.sse_heartbeat = Duration::ZERO, |o| o.sse_heartbeat = Duration::MAX),
            ("--ws-ping-interval-ms", |o| o.ws_ping_interval = Duration::ZERO, |o| o.ws_ping_interval = Duration::MAX),
            (
                "--ws-slow-reader-timeout-ms",
                |o| o.ws_slow_reader_timeout = Duration::ZERO,
                |o| o.ws_slow_reader_timeout = Duration::MAX,
            ),
            ("--shutdown-timeout-ms", |o| o.shutdown_timeout = Duration::ZERO, |o| o.shutdown_timeout = Duration::MAX),
        ];
        for (option, small, large) in refused {
            for change in [small, large] {
                let mut options = ServeOptions::default();
                change(&mut options);
                let error = options.check().expect_err(option).to_string();
                assert!(error.starts_with(&format!("{option}: ")), "{option}: {error}");
            }
        }
    }
}
