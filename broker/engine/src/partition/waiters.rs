//! Readers that wait for a partition's mark to pass an offset. No wake-up is lost: a reader registers first and then
//! looks again, and whoever moves a mark wakes after it has moved.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_model::Offset;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The mark that bounds a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Everything that cannot be taken back.
    HighWatermark,
    /// Everything that is also decided.
    LastStable,
}

/// Who waits.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    next_id: u64,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    bound: Bound,
    /// Woken when the bound is beyond this offset.
    position: Offset,
    reader: Arc<Notify>,
}

/// A place in the list; it is left when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    list: Arc<Waiters>,
    id: u64,
}

impl Waiters {
    /// Notifies `reader` once the bound is beyond `position`, or at [`wake_all`](Self::wake_all).
    pub(crate) fn register(self: &Arc<Self>, bound: Bound, position: Offset, reader: &Arc<Notify>) -> Waiter {
        let mut list = self.0.lock();
        let id = list.next_id;
        list.next_id += 1;
        list.waiting.insert(id, Waiting { bound, position, reader: reader.clone() });
        Waiter { list: self.clone(), id }
    }

    /// Wakes those whose bound has passed their position.
    pub(crate) fn wake(&self, high_watermark: Offset, last_stable: Offset) {
        self.0.lock().waiting.retain(|_, waiting| {
            let mark = match waiting.bound {
                Bound::HighWatermark => high_watermark,
                Bound::LastStable => last_stable,
            };
            let wakes = mark > waiting.position;
            if wakes {
                waiting.reader.notify_one();
            }
            !wakes
        });
    }

    /// Wakes everyone: something else than a mark has changed.
    pub(crate) fn wake_all(&self) {
        for waiting in std::mem::take(&mut self.0.lock().waiting).values() {
            waiting.reader.notify_one();
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().waiting.len()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.list.0.lock().waiting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_is_woken_only_by_the_mark_that_it_waits_for() {
        let waiters = Arc::new(Waiters::default());
        let (high, stable) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let _high = waiters.register(Bound::HighWatermark, Offset(5), &high);
        let _stable = waiters.register(Bound::LastStable, Offset(5), &stable);
        waiters.wake(Offset(5), Offset(5));
        assert_eq!(waiters.count(), 2, "a mark at the position shows nothing new");
        waiters.wake(Offset(6), Offset(5));
        high.notified().await;
        assert_eq!(waiters.count(), 1, "the other still waits");
        waiters.wake_all();
        stable.notified().await;
    }

    #[test]
    fn a_reader_that_goes_leaves_the_list() {
        let waiters = Arc::new(Waiters::default());
        drop(waiters.register(Bound::HighWatermark, Offset(0), &Arc::new(Notify::new())));
        assert_eq!(waiters.count(), 0);
    }
}
