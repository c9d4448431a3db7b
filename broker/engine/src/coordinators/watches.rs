//! Requests that wait for news: of a member, or of a transactional id. No wake-up is lost: a request registers first and then
//! looks.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Who waits, by what is watched.
pub(crate) struct Watches<W>(Mutex<HashMap<W, Vec<Arc<Entry>>>>);

struct Entry {
    has_news: AtomicBool,
    reader: Arc<Notify>,
}

/// A place in the list; it is left when this is dropped.
pub(crate) struct Watch<W: Eq + Hash> {
    list: Arc<Watches<W>>,
    watched: W,
    entry: Arc<Entry>,
}

impl<W> Default for Watches<W> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<W: Clone + Eq + Hash> Watches<W> {
    /// Notifies `reader` of all news from now on.
    pub(crate) fn register(self: &Arc<Self>, watched: &W, reader: &Arc<Notify>) -> Watch<W> {
        let entry = Arc::new(Entry { has_news: AtomicBool::new(false), reader: reader.clone() });
        self.0.lock().entry(watched.clone()).or_default().push(entry.clone());
        Watch { list: self.clone(), watched: watched.clone(), entry }
    }

    /// Says that there is news.
    pub(super) fn wake(&self, watched: &W) {
        self.0.lock().get(watched).into_iter().flatten().for_each(|entry| entry.notify());
    }

    /// Says that there may be news of everything.
    pub(super) fn wake_all(&self) {
        self.0.lock().values().flatten().for_each(|entry| entry.notify());
    }
}

impl Entry {
    fn notify(&self) {
        self.has_news.store(true, Ordering::Release);
        self.reader.notify_one();
    }
}

impl<W: Eq + Hash> Watch<W> {
    /// Whether there was news since this was asked last.
    pub(crate) fn take_news(&self) -> bool {
        self.entry.has_news.swap(false, Ordering::AcqRel)
    }

    /// Whether there is news.
    pub(crate) fn has_news(&self) -> bool {
        self.entry.has_news.load(Ordering::Acquire)
    }
}

impl<W: Eq + Hash> Drop for Watch<W> {
    fn drop(&mut self) {
        let mut list = self.list.0.lock();
        if let Some(entries) = list.get_mut(&self.watched) {
            entries.retain(|entry| !Arc::ptr_eq(entry, &self.entry));
            if entries.is_empty() {
                list.remove(&self.watched);
            }
        }
    }
}
