//! Housekeeping, at every interval: logs roll by age, retention removes segments, `page-cache` topics are flushed so
//! that recovery stays short, and retiring partitions that are empty go.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{self, MissedTickBehavior};

use crate::engine::Core;
use crate::partition::blocking;

/// Starts the task, if there is a runtime. It ends when `stop` is notified or the engine is gone.
pub(crate) fn start(core: &Arc<Core>, interval: Duration, stop: Arc<Notify>) {
    let Ok(runtime) = Handle::try_current() else {
        tracing::debug!("no runtime, so housekeeping is only done on demand");
        return;
    };
    let core = Arc::downgrade(core);
    runtime.spawn(async move {
        let mut ticks = time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes at once; what was just opened needs no look.
        ticks.tick().await;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.notified() => return,
            }
            let Some(core) = Weak::upgrade(&core) else { return };
            blocking(move || run(&core)).await;
        }
    });
}

/// One round over all topics. Blocks.
pub(crate) fn run(core: &Core) {
    let now = core.directory.now();
    let topics: Vec<_> = core.catalog.topics().iter().cloned().collect();
    for topic in topics {
        let state = topic.state_full();
        for partition in state.partitions() {
            if core.is_closing() || core.directory.fenced().is_some() {
                return;
            }
            match partition.maintain(now) {
                // The next round does it; meanwhile others may let go of files.
                Err(error) if error.is_out_of_files() => {
                    tracing::warn!(path = %partition.path().display(), %error, "housekeeping is put off");
                }
                Err(error) => {
                    core.directory.fence(&error);
                    return;
                }
                Ok(_) => (),
            }
        }
        let retiring = state.partitions().any(|partition| partition.index().0 >= state.active_count);
        if retiring
            && let Ok(_changes) = core.begin_change()
            && !topic.is_deleted()
            && let Err(error) = core.drop_empty(&topic)
        {
            tracing::warn!(topic = %topic.name(), %error, "its empty partitions could not be dropped");
        }
    }
}
