//! A server whose time is moved by the test.

use std::sync::{Arc, OnceLock};

use levada_engine::{Engine, EngineOptions};
use levada_model::{ManualClock, Timestamp};
use levada_server::ServeOptions;

use crate::contract::Contract;
use crate::harness::Harness;

/// A server with its clock.
pub(crate) struct Timed {
    pub(crate) harness: Harness,
    clock: Arc<ManualClock>,
    engine: Arc<OnceLock<Engine>>,
}

impl Timed {
    pub(crate) async fn start(change: impl FnOnce(&mut ServeOptions)) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
        let engine = Arc::new(OnceLock::new());
        let (own, opened) = (Arc::clone(&clock), Arc::clone(&engine));
        let open = move |options| {
            let engine = Engine::open(EngineOptions { clock: own, ..options })?;
            Ok(opened.get_or_init(|| engine).clone())
        };
        let mut harness = Harness::start_with(Arc::new(Contract::load()), change, open).await;
        harness.server.opened().await.expect("it opens");
        Self { harness, clock, engine }
    }

    /// Moves the time on, and has the coordinators do what is due then.
    pub(crate) async fn advance(&self, millis: i64) {
        self.clock.advance(millis);
        let engine = self.engine.get().expect("it is open").clone();
        tokio::task::spawn_blocking(move || engine.run_maintenance()).await.expect("it ends");
    }
}
