//! Fetches that wait for news of their member. No wake-up is lost: a fetch registers first and then looks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use levada_model::MemberId;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Who waits, by member.
#[derive(Default)]
pub(super) struct Watches(Mutex<HashMap<MemberId, Vec<Arc<Entry>>>>);

struct Entry {
    has_news: AtomicBool,
    reader: Arc<Notify>,
}

/// A place in the list; it is left when this is dropped.
pub(super) struct Watch {
    list: Arc<Watches>,
    member: MemberId,
    entry: Arc<Entry>,
}

impl Watches {
    /// Notifies `reader` of every change of the member from now on.
    pub(super) fn register(self: &Arc<Self>, member: &MemberId, reader: &Arc<Notify>) -> Watch {
        let entry = Arc::new(Entry { has_news: AtomicBool::new(false), reader: reader.clone() });
        self.0.lock().entry(member.clone()).or_default().push(entry.clone());
        Watch { list: self.clone(), member: member.clone(), entry }
    }

    /// Says that a member has changed.
    pub(super) fn wake(&self, member: &MemberId) {
        self.0.lock().get(member).into_iter().flatten().for_each(|entry| entry.notify());
    }

    /// Says that all may have changed.
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

impl Watch {
    /// Whether there was news since this was asked last.
    pub(super) fn take_news(&self) -> bool {
        self.entry.has_news.swap(false, Ordering::AcqRel)
    }

    /// Whether there is news.
    pub(super) fn has_news(&self) -> bool {
        self.entry.has_news.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut list = self.list.0.lock();
        if let Some(entries) = list.get_mut(&self.member) {
            entries.retain(|entry| !Arc::ptr_eq(entry, &self.entry));
            if entries.is_empty() {
                list.remove(&self.member);
            }
        }
    }
}
