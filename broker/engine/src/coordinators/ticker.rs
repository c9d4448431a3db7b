//! The one task that does what is due in all coordinators of a kind, and what a change of topics means for them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_model::Tick;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::kind::Kind;
use super::places::Coordinators;

/// Shortest sleep, so that a clock that stands still is not asked all the time.
const SLEEP_MS_MIN: u64 = 1;

/// Starts the task, if there is a runtime. It ends with the engine.
pub(crate) fn start<K: Kind>(coordinators: &Arc<Coordinators<K>>) {
    let Ok(runtime) = Handle::try_current() else {
        tracing::debug!("no runtime, so {} are only looked after on demand", K::WHAT);
        return;
    };
    coordinators.load_all();
    let due = coordinators.due.clone();
    // Changes of topics are told to one task alone.
    let topics = if K::FOLLOWS_TOPICS { coordinators.catalog.changed().clone() } else { Arc::default() };
    runtime.spawn(run(Arc::downgrade(coordinators), due, topics));
}

async fn run<K: Kind>(coordinators: Weak<Coordinators<K>>, due: Arc<Notify>, topics: Arc<Notify>) {
    loop {
        // They are not held while the task sleeps: an engine that nobody holds ends.
        let there = coordinators.upgrade().filter(|coordinators| !coordinators.is_closing());
        let Some(next) = there.map(|coordinators| until_due(&coordinators)) else { return };
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
fn until_due<K: Kind>(coordinators: &Arc<Coordinators<K>>) -> Option<Duration> {
    let Tick(next) = coordinators.tick()?;
    let Tick(now) = coordinators.now().tick;
    Some(Duration::from_millis(next.saturating_sub(now).max(SLEEP_MS_MIN)))
}
