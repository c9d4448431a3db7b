//! The one task that does what is due in all coordinators: expired sessions, deadlines, rebalances, expired offsets, and
//! what a change of topics means for groups.

use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_model::Tick;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::coordinators::Groups;
use crate::engine::Core;

/// Shortest sleep, so that a clock that stands still is not asked all the time.
const SLEEP_MS_MIN: u64 = 1;

/// Starts the task, if there is a runtime. It ends with the engine.
pub(crate) fn start(core: &Arc<Core>) {
    let Ok(runtime) = Handle::try_current() else {
        tracing::debug!("no runtime, so consumer groups are only looked after on demand");
        return;
    };
    core.groups.load_all();
    let (due, topics) = (core.groups.due.clone(), core.catalog.changed().clone());
    runtime.spawn(run(Arc::downgrade(&core.groups), due, topics));
}

async fn run(groups: Weak<Groups>, due: Arc<Notify>, topics: Arc<Notify>) {
    loop {
        // They are not held while the task sleeps: an engine that nobody holds ends.
        let Some(next) = groups.upgrade().filter(|groups| !groups.is_closing()).map(|groups| until_due(&groups)) else {
            return;
        };
        let woken = async {
            tokio::select! {
                () = due.notified() => {}
                () = topics.notified() => {}
            }
        };
        match next {
            Some(sleep) => drop(timeout(sleep, woken).await),
            None => woken.await,
        }
    }
}

/// Does what is due; answers how long nothing is.
fn until_due(groups: &Arc<Groups>) -> Option<Duration> {
    let Tick(next) = groups.tick()?;
    let Tick(now) = groups.now().tick;
    Some(Duration::from_millis(next.saturating_sub(now).max(SLEEP_MS_MIN)))
}
