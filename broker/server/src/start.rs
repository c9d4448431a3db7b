//! A server's life: lock the directory, listen, open the engine beside it, serve, shut down without losing anything.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use levada_engine::{CloseError, Engine, EngineOptions, GroupOptions, OpenError};
use levada_extension::ModuleHost;
use levada_log::DiskStorage;
use levada_model::{AllowAll, SystemClock};
use rustix::process::{Resource, getrlimit, setrlimit};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::connection::{Acceptor, Phase};
use crate::front::Front;
use crate::gate::Gate;
use crate::router::router;
use crate::{AppState, ServeOptions};

/// The file whose lock says that a broker uses the directory.
const LOCK_FILE: &str = "levada.lock";
/// Connections take at most one part in so many of the files that may be open: the rest is the logs'.
const CONNECTIONS_PART: u64 = 2;
/// How long a shutdown lets requests finish by themselves before it wakes the readers that wait.
const GRACE: Duration = Duration::from_millis(500);
/// What closing the logs gets of time at least, however long the requests took.
const CLOSE_AT_LEAST: Duration = Duration::from_secs(2);

/// Why a server did not start; nothing was changed.
#[derive(Debug, Error)]
pub enum StartError {
    /// An option has a value that it does not take.
    #[error("{name}: {value:?} {detail}")]
    Option {
        /// The option.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The data directory cannot be used.
    #[error("the data directory {path}: {source}")]
    DataDir {
        /// The directory.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Another broker uses the data directory.
    #[error("the data directory {path} is in use by another broker; stop it, or name another with --data-dir")]
    InUse {
        /// The directory.
        path: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

impl StartError {
    pub(crate) fn option(name: &'static str, value: &str, detail: &str) -> Self {
        Self::Option { name, value: value.to_owned(), detail: detail.to_owned() }
    }
}

/// Why a shutdown was not clean; the next start recovers.
#[derive(Debug, Error)]
pub enum ShutdownError {
    /// A log could not be closed.
    #[error(transparent)]
    Close(#[from] CloseError),
    /// The logs were not closed in time.
    #[error("the logs were not closed within --shutdown-timeout-ms")]
    TimedOut,
}

/// A running server. Dropping it cuts every connection and closes no log, so that the next start recovers; see
/// [`shutdown`](Self::shutdown).
pub struct Server {
    address: SocketAddr,
    state: AppState,
    phase: watch::Sender<Phase>,
    permits: Arc<Semaphore>,
    connections_max: u32,
    accepting: JoinHandle<()>,
    opening: Option<JoinHandle<Result<(), OpenError>>>,
    shutdown_timeout: Duration,
    /// Says that the directory is in use, until the logs are closed too.
    lock: Arc<File>,
}

/// Starts a server: it listens when this returns, and answers 503 `starting` until the engine is open.
///
/// # Errors
/// When an option is wrong, the directory cannot be used, or the address cannot be listened on.
pub async fn start(options: ServeOptions) -> Result<Server, StartError> {
    start_with(options, Engine::open).await
}

/// The same with a host for modules, which is opened once the directory is this server's. `open_host` is given the
/// directory that all is kept in, and may block.
///
/// # Errors
/// See [`start`]. What `open_host` refuses is told by [`Server::opened`].
pub async fn start_with_modules(
    options: ServeOptions,
    open_host: impl FnOnce(&Path) -> Result<Arc<dyn ModuleHost>, String> + Send + 'static,
) -> Result<Server, StartError> {
    let open = move |options: EngineOptions| {
        let host = open_host(&options.data_dir).map_err(|detail| OpenError::Modules { detail })?;
        Engine::open(EngineOptions { modules: Some(host), ..options })
    };
    start_with(options, open).await
}

/// The same with another way to open the engine, such as on another storage. `open` may block.
///
/// # Errors
/// See [`start`].
pub async fn start_with(
    options: ServeOptions,
    open: impl FnOnce(EngineOptions) -> Result<Engine, OpenError> + Send + 'static,
) -> Result<Server, StartError> {
    options.check()?;
    let gate = Gate::new(&options)?;
    let asked = u32::try_from(options.max_connections).expect("the options were checked");
    let lock = Arc::new(lock(&options.data_dir)?);
    let connections_max = affordable(asked, raise_file_limit());
    if connections_max < asked {
        tracing::warn!(asked, connections_max, "the limit of open files allows fewer connections than asked for");
    }
    let listen_error = |source| StartError::Listen { address: options.listen, source };
    let listener = TcpListener::bind(options.listen).await.map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;

    let state = AppState::new(&options, address.to_string());
    let front = Front::new(router(state.clone()), gate, state.clone());
    let (phase, watching) = watch::channel(Phase::Serving);
    let permits = Arc::new(Semaphore::new(connections_max as usize));
    let gauge = state.metrics().connections().clone();
    let acceptor = Acceptor::new(&options, front, watching, Arc::clone(&permits), gauge);
    let accepting = tokio::spawn(acceptor.run(listener));
    let opening = Some(tokio::spawn(open_engine(state.clone(), engine_options(&options), open)));
    let shutdown_timeout = options.shutdown_timeout;
    Ok(Server { address, state, phase, permits, connections_max, accepting, opening, shutdown_timeout, lock })
}

async fn open_engine(
    state: AppState,
    options: EngineOptions,
    open: impl FnOnce(EngineOptions) -> Result<Engine, OpenError> + Send + 'static,
) -> Result<(), OpenError> {
    let opened = tokio::task::spawn_blocking(move || open(options)).await;
    let engine = opened.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))?;
    state.open(engine);
    tracing::info!("ready");
    Ok(())
}

fn engine_options(options: &ServeOptions) -> EngineOptions {
    EngineOptions {
        storage: Arc::new(DiskStorage),
        data_dir: options.data_dir.clone(),
        clock: Arc::new(SystemClock),
        authorizer: Arc::new(AllowAll),
        auto_create_topics: options.creates_topics(),
        producer_expiration: options.producer_expiration,
        maintenance_interval: options.maintenance_interval,
        compaction_memory_bytes: options.compaction_memory_bytes,
        linger: options.linger,
        groups: GroupOptions {
            initial_rebalance_delay: options.group_initial_rebalance_delay,
            offsets_retention: options.offsets_retention,
            ..GroupOptions::default()
        },
        modules: None,
    }
}

impl Server {
    /// Where it listens, with the port that it was given.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the engine is open and has recovered.
    ///
    /// # Errors
    /// When it could not be opened; the server then goes on to answer 503 until it is shut down.
    pub async fn opened(&mut self) -> Result<(), OpenError> {
        match self.opening.take() {
            Some(opening) => opening.await.unwrap_or_else(|gone| std::panic::resume_unwind(gone.into_panic())),
            None => Ok(()),
        }
    }

    /// Stops accepting, lets running requests finish, wakes readers that wait, and closes the logs. What was accepted
    /// is stored and answered. Takes at most `shutdown_timeout`, and a little more where closing the logs needs it.
    ///
    /// # Errors
    /// When the logs could not be closed cleanly; the next start recovers.
    pub async fn shutdown(mut self) -> Result<(), ShutdownError> {
        let deadline = Instant::now() + self.shutdown_timeout;
        self.phase.send_replace(Phase::Draining);
        // Its listener goes with it.
        let _ = (&mut self.accepting).await;
        // An engine that cannot be opened has nothing to close; the error was the caller's to look at.
        let _ = self.opened().await;
        let grace = GRACE.min(self.shutdown_timeout / 4);
        let _ = timeout(grace, self.drained()).await;
        self.state.close();
        let closing = self.state.engine().ok().cloned().map(|engine| {
            // Where closing takes longer than this waits, the directory stays locked until it is done.
            let lock = Arc::clone(&self.lock);
            tokio::spawn(async move {
                let closed = engine.close().await;
                drop(lock);
                closed
            })
        });
        let _ = timeout_at(deadline, self.drained()).await;
        self.phase.send_replace(Phase::Aborting);
        self.drained().await;
        let Some(closing) = closing else { return Ok(()) };
        let until = deadline.max(Instant::now() + CLOSE_AT_LEAST);
        let closed = timeout_at(until, closing).await.map_err(|_| ShutdownError::TimedOut)?;
        Ok(closed.unwrap_or_else(|gone| std::panic::resume_unwind(gone.into_panic()))?)
    }

    /// Returns when no connection is left.
    async fn drained(&self) {
        let all = self.permits.acquire_many(self.connections_max).await;
        drop(all.expect("the semaphore is never closed"));
    }
}

fn lock(dir: &Path) -> Result<File, StartError> {
    let path = || dir.display().to_string();
    let data_dir = |source| StartError::DataDir { path: path(), source };
    std::fs::create_dir_all(dir).map_err(data_dir)?;
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(dir.join(LOCK_FILE));
    let file = opened.map_err(data_dir)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StartError::InUse { path: path() }),
        Err(TryLockError::Error(source)) => Err(data_dir(source)),
    }
}

/// How many of the connections asked for fit below the limit of open files beside the logs; none means no limit.
fn affordable(asked: u32, open_files_max: Option<u64>) -> u32 {
    let most = open_files_max.map_or(u64::MAX, |most| (most / CONNECTIONS_PART).max(1));
    u32::try_from(most).unwrap_or(u32::MAX).min(asked)
}

/// Takes as many file descriptors as the system allows without asking: every connection and segment needs one. Answers
/// how many may be open now; none means any number.
fn raise_file_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_half_of_the_files_to_the_logs() {
        assert_eq!(affordable(10_000, Some(1024)), 512);
        assert_eq!(affordable(100, Some(1024)), 100, "never more than asked for");
        assert_eq!(affordable(10_000, None), 10_000);
        assert_eq!(affordable(10_000, Some(1)), 1, "a server with no connection at all is of no use");
    }
}
