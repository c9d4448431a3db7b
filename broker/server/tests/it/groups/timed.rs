//! A server whose time is moved by the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use levada_engine::{Engine, EngineOptions};
use levada_model::{ManualClock, Timestamp};
use levada_server::ServeOptions;

use crate::contract::Contract;
use crate::harness::Harness;

/// A server with its clock.
pub(crate) struct Timed {
    pub(crate) harness: Harness,
    clock: Arc<ManualClock>,
    moves: AtomicUsize,
}

impl Timed {
    pub(crate) async fn start(change: impl FnOnce(&mut ServeOptions)) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
        let own = Arc::clone(&clock);
        let open = move |options| Engine::open(EngineOptions { clock: own, ..options });
        let mut harness = Harness::start_with(Arc::new(Contract::load()), change, open).await;
        harness.server.opened().await.expect("it opens");
        Self { harness, clock, moves: AtomicUsize::new(0) }
    }

    /// Moves the time on, and has the coordinators look at it: a new topic makes them.
    pub(crate) async fn advance(&self, millis: i64) {
        self.clock.advance(millis);
        let nudge = format!("nudge-{}", self.moves.fetch_add(1, Ordering::Relaxed));
        self.harness.topic(&nudge).await;
        self.harness.delete(&format!("/v1/topics/{nudge}")).await.expect(204);
    }
}
