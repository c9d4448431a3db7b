//! `levada serve`: starts the server, says where it listens, and ends it with care. Not here: the settings (`config.rs`)
//! and the server itself (`levada-server`).

use std::io::{self, IsTerminal as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use levada_client::Client;
use levada_server::{ServeOptions, StartError};
use serde_json::json;
use tokio::task::AbortHandle;
use tracing::info;
use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, ServeConfig, ServeFlags};
use crate::demo;
use crate::failure::Usage;
use crate::host::{self, Limits};
use crate::output::{Format, Printer, note};
use crate::signals::Signals;

/// Run the server.
#[derive(Debug, Args)]
#[command(after_help = "Each setting can also be given by the environment variable named with it, or in the file of \
                        --config under its own name (max-body-bytes = 1048576). A flag wins over the environment, that \
                        over the file, and that over the default.\n\nSIGTERM and SIGINT (Ctrl-C) end it with care: what \
                        was accepted is answered and stored. A second one ends it at once; nothing that was \
                        acknowledged is lost then either.")]
pub(crate) struct ServeCommand {
    /// A TOML file with settings.
    #[arg(long, env = "LEVADA_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print all settings in force as TOML, ready to be read back by --config, and end.
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    flags: ServeFlags,
}

pub(crate) async fn run(command: ServeCommand, mut printer: Printer) -> anyhow::Result<ExitCode> {
    let config = ServeConfig::resolve(&command.flags, command.config.as_deref())?;
    if command.print_config {
        let text = toml::to_string(&config).context("the settings are TOML")?;
        printer.result(&config, text.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    start_log(&config)?;
    let mut signals = Signals::new().context("signals cannot be handled")?;
    let limits =
        Limits { memory_bytes: config.modules_memory_bytes, instance_memory_bytes: config.module_memory_bytes };
    limits.check()?;
    let started = match config.modules {
        true => {
            levada_server::start_with_modules(config.options(), move |data_dir| host::open(data_dir, &limits)).await
        }
        false => levada_server::start(config.options()).await,
    };
    let mut server = started.map_err(usage_or_failure)?;
    tokio::select! {
        opened = server.opened() => opened?,
        () = signals.next() => {
            note("ended before the data directory was open; nothing was taken in");
            return Ok(ExitCode::SUCCESS);
        }
    }
    let url = format!("http://{}", server.address());
    let ready = json!({ "url": url, "address": server.address().to_string(), "data_dir": config.data_dir });
    match printer.format() {
        Format::Text => printer.line(format!("levada serves {} at {url}", config.data_dir.display()))?,
        Format::Json | Format::Ndjson => printer.line(&ready)?,
    }
    printer.flush()?;
    let demo = config.demo.then(|| start_demo(&config, server.address())).transpose()?;

    signals.next().await;
    info!("shutting down; a second signal ends at once");
    if let Some(demo) = demo {
        demo.abort();
    }
    tokio::select! {
        result = server.shutdown() => result?,
        () = signals.next() => {
            note("ended at once; the next start recovers");
            return Ok(ExitCode::FAILURE);
        }
    }
    info!("shut down");
    Ok(ExitCode::SUCCESS)
}

impl ServeConfig {
    /// The same in the server's words.
    pub(crate) fn options(&self) -> ServeOptions {
        ServeOptions {
            data_dir: self.data_dir.clone(),
            listen: self.listen,
            allowed_hosts: self.allowed_hosts.clone(),
            allowed_origins: self.allowed_origins.clone(),
            max_body_bytes: self.max_body_bytes,
            max_module_bytes: self.max_module_bytes,
            max_connections: self.max_connections,
            header_timeout: Duration::from_millis(self.header_timeout_ms),
            body_timeout: Duration::from_millis(self.body_timeout_ms),
            idle_timeout: Duration::from_millis(self.idle_timeout_ms),
            max_headers: self.max_headers,
            max_header_bytes: self.max_header_bytes,
            auto_create_topics: self.auto_create_topics,
            producer_expiration: Duration::from_millis(self.producer_id_expiration_ms),
            maintenance_interval: Duration::from_millis(self.maintenance_interval_ms),
            compaction_memory_bytes: self.compaction_memory_bytes,
            linger: Duration::from_millis(self.linger_ms),
            group_initial_rebalance_delay: Duration::from_millis(self.group_initial_rebalance_delay_ms),
            offsets_retention: Duration::from_millis(self.offsets_retention_ms),
            shutdown_timeout: Duration::from_millis(self.shutdown_timeout_ms),
            sse_heartbeat: Duration::from_millis(self.sse_heartbeat_ms),
            ws_ping_interval: Duration::from_millis(self.ws_ping_interval_ms),
            ws_slow_reader_timeout: Duration::from_millis(self.ws_slow_reader_timeout_ms),
        }
    }
}

/// A wrong option is the command line's fault.
fn usage_or_failure(error: StartError) -> anyhow::Error {
    match error {
        StartError::Option { .. } => Usage(error.to_string()).into(),
        _ => error.into(),
    }
}

/// Log lines go to standard error, so that results can be piped.
fn start_log(config: &ServeConfig) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.log_level)
        .map_err(|error| Usage(format!("log-level {:?} is no level or filter: {error}", config.log_level)))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match config.log_format {
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

fn start_demo(config: &ServeConfig, address: SocketAddr) -> anyhow::Result<AbortHandle> {
    // "All addresses" is none that one can connect to.
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let client = Client::new(&format!("http://{}", SocketAddr::new(ip, address.port())))?;
    Ok(tokio::spawn(demo::run(client, Duration::from_millis(config.demo_pace_ms))).abort_handle())
}
