//! What `levada serve` is told: by flag, by environment variable, by file, or by default, in this order. The names are
//! the same everywhere: `--max-body-bytes`, `LEVADA_MAX_BODY_BYTES`, `max-body-bytes`. Not here: what a setting does (the
//! server's), and starting it (`serve.rs`).

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use levada_server::ServeOptions;
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::failure::Usage;
use crate::host::Limits;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// Flags and environment variables; what is not given is none and left out when it is written down.
#[derive(Debug, Default, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct ServeFlags {
    /// Where the records are. [default: ./levada-data]
    #[arg(long, env = "LEVADA_DATA_DIR", value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    data_dir: Option<PathBuf>,
    /// Address and port to listen on; port 0 takes a free one. [default: 127.0.0.1:8080]
    #[arg(long, env = "LEVADA_LISTEN", value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<SocketAddr>,
    /// Replay a week of real earthquake reports into the topic `earthquakes`, over and over.
    #[arg(long, env = "LEVADA_DEMO", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    demo: Option<bool>,
    /// Milliseconds between two records of the demo; 0 is as fast as it goes. [default: 400]
    #[arg(long, env = "LEVADA_DEMO_PACE_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    demo_pace_ms: Option<u64>,
    /// Further names that clients may use in `Host`, beside loopback and the listen address; by comma.
    #[arg(long, env = "LEVADA_ALLOWED_HOSTS", value_name = "HOST", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_hosts: Option<Vec<String>>,
    /// Web sites that may read and write here, e.g. `https://app.example`; by comma.
    #[arg(long, env = "LEVADA_ALLOWED_ORIGINS", value_name = "ORIGIN", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_origins: Option<Vec<String>>,
    /// Largest request body, after decompression. [default: 16777216]
    #[arg(long, env = "LEVADA_MAX_BODY_BYTES", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_body_bytes: Option<usize>,
    /// Largest module. [default: 33554432]
    #[arg(long, env = "LEVADA_MAX_MODULE_BYTES", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_module_bytes: Option<usize>,
    /// Whether modules run; without it they are kept, and what needs one falls back or is refused. [default: true]
    #[arg(long, env = "LEVADA_MODULES", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    modules: Option<bool>,
    /// Most memory of one instance of a module. [default: 134217728]
    #[arg(long, env = "LEVADA_MODULE_MEMORY_BYTES", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    module_memory_bytes: Option<usize>,
    /// Most memory of all instances of modules together. [default: 1073741824]
    #[arg(long, env = "LEVADA_MODULES_MEMORY_BYTES", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    modules_memory_bytes: Option<usize>,
    /// Most connections at once; further ones wait. [default: 10000]
    #[arg(long, env = "LEVADA_MAX_CONNECTIONS", value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_connections: Option<usize>,
    /// Most headers of a request. [default: 96]
    #[arg(long, env = "LEVADA_MAX_HEADERS", value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_headers: Option<usize>,
    /// Most bytes of a request's line and headers. [default: 32768]
    #[arg(long, env = "LEVADA_MAX_HEADER_BYTES", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_header_bytes: Option<usize>,
    /// Longest wait for a request's headers. [default: 10000]
    #[arg(long, env = "LEVADA_HEADER_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    header_timeout_ms: Option<u64>,
    /// Longest wait for the next piece of a request's body. [default: 30000]
    #[arg(long, env = "LEVADA_BODY_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    body_timeout_ms: Option<u64>,
    /// How long a connection may be idle between requests. [default: 75000]
    #[arg(long, env = "LEVADA_IDLE_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_timeout_ms: Option<u64>,
    /// Whether a produce to an unknown topic creates it. [default: true on loopback, else false]
    #[arg(long, env = "LEVADA_AUTO_CREATE_TOPICS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_create_topics: Option<bool>,
    /// How long a partition remembers a producer after its last append. [default: 86400000]
    #[arg(long, env = "LEVADA_PRODUCER_ID_EXPIRATION_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    producer_id_expiration_ms: Option<u64>,
    /// How often retention, rolling by age, checkpoints and compaction are looked after. [default: 30000]
    #[arg(long, env = "LEVADA_MAINTENANCE_INTERVAL_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    maintenance_interval_ms: Option<u64>,
    /// Most memory that compaction takes for keys; what does not fit takes further passes. [default: 67108864]
    #[arg(long, env = "LEVADA_COMPACTION_MEMORY_BYTES", value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    compaction_memory_bytes: Option<usize>,
    /// How long the log waits for more appends before it writes a group. [default: 0]
    #[arg(long, env = "LEVADA_LINGER_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    linger_ms: Option<u64>,
    /// How long the first assignment of an empty consumer group waits for more members. [default: 500]
    #[arg(long, env = "LEVADA_GROUP_INITIAL_REBALANCE_DELAY_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    group_initial_rebalance_delay_ms: Option<u64>,
    /// How long committed offsets are kept after their consumer group became empty. [default: 604800000]
    #[arg(long, env = "LEVADA_OFFSETS_RETENTION_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    offsets_retention_ms: Option<u64>,
    /// How long requests under way may take once the server is asked to end. [default: 30000]
    #[arg(long, env = "LEVADA_SHUTDOWN_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    shutdown_timeout_ms: Option<u64>,
    /// How long a live stream (SSE) may be silent before a heartbeat is sent. [default: 15000]
    #[arg(long, env = "LEVADA_SSE_HEARTBEAT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    sse_heartbeat_ms: Option<u64>,
    /// How often a WebSocket is pinged; a peer that misses two pings is dropped. [default: 20000]
    #[arg(long, env = "LEVADA_WS_PING_INTERVAL_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ws_ping_interval_ms: Option<u64>,
    /// How long a WebSocket may take nothing of what is sent before it is closed. [default: 30000]
    #[arg(long, env = "LEVADA_WS_SLOW_READER_TIMEOUT_MS", value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    ws_slow_reader_timeout_ms: Option<u64>,
    /// How log lines are written. [default: text]
    #[arg(long, env = "LEVADA_LOG_FORMAT", value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    log_format: Option<LogFormat>,
    /// What is logged: a level, or levels by module such as `warn,levada_server=debug`. [default: info]
    #[arg(long, env = "LEVADA_LOG_LEVEL", value_name = "FILTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    log_level: Option<String>,
}

/// All settings with the values in force. Written as TOML it is a file that sets the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct ServeConfig {
    pub(crate) data_dir: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) demo: bool,
    pub(crate) demo_pace_ms: u64,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) allowed_origins: Vec<String>,
    pub(crate) max_body_bytes: usize,
    pub(crate) max_module_bytes: usize,
    pub(crate) modules: bool,
    pub(crate) module_memory_bytes: usize,
    pub(crate) modules_memory_bytes: usize,
    pub(crate) max_connections: usize,
    pub(crate) max_headers: usize,
    pub(crate) max_header_bytes: usize,
    pub(crate) header_timeout_ms: u64,
    pub(crate) body_timeout_ms: u64,
    pub(crate) idle_timeout_ms: u64,
    /// None is by the listen address, until all is known.
    pub(crate) auto_create_topics: Option<bool>,
    pub(crate) producer_id_expiration_ms: u64,
    pub(crate) maintenance_interval_ms: u64,
    pub(crate) compaction_memory_bytes: usize,
    pub(crate) linger_ms: u64,
    pub(crate) group_initial_rebalance_delay_ms: u64,
    pub(crate) offsets_retention_ms: u64,
    pub(crate) shutdown_timeout_ms: u64,
    pub(crate) sse_heartbeat_ms: u64,
    pub(crate) ws_ping_interval_ms: u64,
    pub(crate) ws_slow_reader_timeout_ms: u64,
    pub(crate) log_format: LogFormat,
    pub(crate) log_level: String,
}

impl Default for ServeConfig {
    fn default() -> Self {
        let server = ServeOptions::default();
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).expect("defaults are short");
        Self {
            data_dir: server.data_dir,
            listen: server.listen,
            demo: false,
            demo_pace_ms: 400,
            allowed_hosts: server.allowed_hosts,
            allowed_origins: server.allowed_origins,
            max_body_bytes: server.max_body_bytes,
            max_module_bytes: server.max_module_bytes,
            modules: true,
            module_memory_bytes: Limits::default().instance_memory_bytes,
            modules_memory_bytes: Limits::default().memory_bytes,
            max_connections: server.max_connections,
            max_headers: server.max_headers,
            max_header_bytes: server.max_header_bytes,
            header_timeout_ms: ms(server.header_timeout),
            body_timeout_ms: ms(server.body_timeout),
            idle_timeout_ms: ms(server.idle_timeout),
            auto_create_topics: server.auto_create_topics,
            producer_id_expiration_ms: ms(server.producer_expiration),
            maintenance_interval_ms: ms(server.maintenance_interval),
            compaction_memory_bytes: server.compaction_memory_bytes,
            linger_ms: ms(server.linger),
            group_initial_rebalance_delay_ms: ms(server.group_initial_rebalance_delay),
            offsets_retention_ms: ms(server.offsets_retention),
            shutdown_timeout_ms: ms(server.shutdown_timeout),
            sse_heartbeat_ms: ms(server.sse_heartbeat),
            ws_ping_interval_ms: ms(server.ws_ping_interval),
            ws_slow_reader_timeout_ms: ms(server.ws_slow_reader_timeout),
            log_format: LogFormat::default(),
            log_level: "info".to_owned(),
        }
    }
}

impl ServeConfig {
    /// Lays flags and environment over the file, and both over the defaults.
    ///
    /// # Errors
    /// [`Usage`] when the file cannot be read, or holds what is unknown or has the wrong type.
    pub(crate) fn resolve(flags: &ServeFlags, file: Option<&Path>) -> anyhow::Result<Self> {
        let mut settings = match file {
            Some(path) => read(path).map_err(|error| Usage(format!("{}: {error:#}", path.display())))?,
            None => Table::new(),
        };
        settings.extend(Table::try_from(flags).map_err(|error| Usage(error.to_string()))?);
        let mut config: Self = settings.try_into().map_err(|error| Usage(error.to_string()))?;
        config.auto_create_topics = Some(config.options().creates_topics());
        Ok(config)
    }
}

/// The file's settings. They are checked here and not after the flags are laid over them, so that the message has the
/// line.
fn read(path: &Path) -> anyhow::Result<Table> {
    let text = fs::read_to_string(path).context("the configuration cannot be read")?;
    toml::from_str::<ServeConfig>(&text)?;
    Ok(toml::from_str(&text)?)
}
