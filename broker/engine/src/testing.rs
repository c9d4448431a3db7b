//! The engine that unit tests stand in the middle of.

use std::sync::Arc;
use std::time::Duration;

use levada_log::{SimStorage, Storage};
use levada_model::{AllowAll, ManualClock, Timestamp};

use crate::{Engine, EngineOptions, GroupOptions};

/// An engine on a simulated disk of its own, with a clock that stands still.
pub(crate) fn open() -> Engine {
    let clock = Arc::new(ManualClock::at(Timestamp(1)));
    open_on(Arc::new(SimStorage::new(clock.clone())), clock)
}

/// An engine on this disk, with this clock.
pub(crate) fn open_on(storage: Arc<dyn Storage>, clock: Arc<ManualClock>) -> Engine {
    let options = EngineOptions {
        storage,
        data_dir: "data".into(),
        clock,
        authorizer: Arc::new(AllowAll),
        auto_create_topics: false,
        producer_expiration: Duration::from_secs(60),
        maintenance_interval: Duration::from_secs(60),
        compaction_memory_bytes: 1 << 20,
        linger: Duration::ZERO,
        groups: GroupOptions::default(),
        modules: None,
    };
    Engine::open(options).expect("it opens")
}
