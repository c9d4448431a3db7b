//! What every handler shares: the engine once it is open, the limits, the numbers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;
use levada_api::{ErrorCode, Problem};
use levada_engine::{Engine, Health};
use levada_model::Principal;
use levada_model::limits::WS_ALL_MESSAGES_BYTES_MAX;
use tokio::sync::watch;

use crate::ServeOptions;
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::ws::Intake;

/// Limits on bodies, from the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    /// Largest body after decompression.
    pub(crate) bytes_max: usize,
    /// The option that says so.
    pub(crate) setting: &'static str,
    /// Longest wait for the next piece of a body.
    pub(crate) timeout: Duration,
}

/// Times of WebSockets, from the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WsTimes {
    /// How often they are pinged.
    pub(crate) ping_interval: Duration,
    /// How long one may take nothing.
    pub(crate) slow_reader_timeout: Duration,
}

/// The shared state; cheap to clone.
#[derive(Clone)]
pub(crate) struct AppState(Arc<Shared>);

struct Shared {
    engine: OnceLock<Engine>,
    limits: BodyLimits,
    module_limits: BodyLimits,
    metrics: Metrics,
    address: String,
    heartbeat: Duration,
    ws: WsTimes,
    intake: Intake,
    closing: watch::Sender<bool>,
}

impl AppState {
    pub(crate) fn new(options: &ServeOptions, address: String) -> Self {
        let heartbeat = options.sse_heartbeat;
        let ws =
            WsTimes { ping_interval: options.ws_ping_interval, slow_reader_timeout: options.ws_slow_reader_timeout };
        let limits = |setting, bytes_max| BodyLimits { bytes_max, setting, timeout: options.body_timeout };
        Self(Arc::new(Shared {
            engine: OnceLock::new(),
            limits: limits("--max-body-bytes", options.max_body_bytes),
            module_limits: limits("--max-module-bytes", options.max_module_bytes),
            metrics: Metrics::new(),
            address,
            heartbeat,
            ws,
            intake: Intake::new(WS_ALL_MESSAGES_BYTES_MAX),
            closing: watch::Sender::new(false),
        }))
    }

    /// Puts the opened engine in its place; done once.
    pub(crate) fn open(&self, engine: Engine) {
        assert!(self.0.engine.set(engine).is_ok(), "the engine is opened once");
    }

    /// Says that the engine closes.
    pub(crate) fn close(&self) {
        self.0.closing.send_replace(true);
    }

    /// Returns when the engine closes.
    pub(crate) async fn closing(&self) {
        let closing = self.0.closing.subscribe().wait_for(|closing| *closing).await.map(drop);
        closing.expect("this holds the sender");
    }

    /// The engine, or 503 while it opens.
    pub(crate) fn engine(&self) -> Result<&Engine, Problem> {
        self.0.engine.get().ok_or_else(|| {
            Problem::new(ErrorCode::Starting, "the broker is recovering its logs; /readyz tells when it is done")
        })
    }

    /// Whether writes are taken, or why not.
    pub(crate) fn ready(&self) -> Result<(), Problem> {
        match self.engine()?.health() {
            Health::Serving => Ok(()),
            Health::Fenced { reason } => Err(Problem::new(ErrorCode::LogFenced, reason)),
            Health::Closing => Err(Problem::new(ErrorCode::ShuttingDown, "the broker is shutting down")),
        }
    }

    pub(crate) fn limits(&self) -> BodyLimits {
        self.0.limits
    }

    /// The limits on modules.
    pub(crate) fn module_limits(&self) -> BodyLimits {
        self.0.module_limits
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// How often an event stream says that it is there.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.0.heartbeat
    }

    /// The times of WebSockets.
    pub(crate) fn ws(&self) -> WsTimes {
        self.0.ws
    }

    /// What all WebSockets together may hold of messages that have not ended.
    pub(crate) fn intake(&self) -> &Intake {
        &self.0.intake
    }

    /// The address that the broker listens on.
    pub(crate) fn address(&self) -> &str {
        &self.0.address
    }
}

/// Extracts the open engine; 503 `starting` while it opens.
pub(crate) struct OpenEngine(pub(crate) Engine);

impl FromRequestParts<AppState> for OpenEngine {
    type Rejection = Refusal;

    async fn from_request_parts(_: &mut Parts, state: &AppState) -> Result<Self, Refusal> {
        Ok(Self(state.engine()?.clone()))
    }
}

/// Extracts who asks. Everyone is anonymous until there are tokens.
pub(crate) struct Caller(pub(crate) Principal);

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(Principal::anonymous()))
    }
}
