//! The one task that does what is due in all coordinators: expired sessions, deadlines, rebalances, expired offsets, and
//! what a change of topics means for groups.

use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_model::Tick;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::engine::Core;

/// Shortest sleep, so that a clock that stands still is not asked all the time.
const SLEEP_MS_MIN: u64 = 1;

/// Starts the task, if there is a runtime. It ends with the engine.
pub(crate) fn start(core: &Arc<Core>) {
    let Ok(runtime) = Handle::try_current() else {
        tracing::debug!("no runtime, so consumer groups are only looked after on demand");
        return;
    };
    core.load_groups();
    let (due, topics) = (core.groups.due().clone(), core.catalog.changed().clone());
    runtime.spawn(run(Arc::downgrade(core), due, topics));
}

async fn run(core: Weak<Core>, due: Arc<Notify>, topics: Arc<Notify>) {
    loop {
        // It is not held while the task sleeps: an engine that nobody holds ends.
        let Some(next) = core.upgrade().filter(|core| !core.is_closing()).map(|core| until_due(&core)) else { return };
        tokio::select! {
            () = due.notified() => {}
            () = topics.notified() => {}
            () = sleep(next) => {}
        }
    }
}

/// Does what is due; answers how long nothing is.
fn until_due(core: &Arc<Core>) -> Option<Duration> {
    let Tick(next) = core.tick_groups()?;
    let Tick(now) = core.directory.tick();
    Some(Duration::from_millis(next.saturating_sub(now).max(SLEEP_MS_MIN)))
}

async fn sleep(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}
