//! The history as it is written, by many at once.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::event::{At, Event};
use crate::violation::Violation;

/// What happened so far, in order. A clone is another pen for the same history.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Vec<Event>>>);

impl History {
    /// Notes what is asked before it is asked, and an answer after it came.
    pub fn note(&self, event: Event) {
        self.0.lock().push(event);
    }

    /// The place of now.
    #[must_use]
    pub fn now(&self) -> At {
        At(self.0.lock().len())
    }

    /// All that was noted.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().clone()
    }

    /// What of it must not be.
    #[must_use]
    pub fn check(&self) -> Vec<Violation> {
        crate::check(&self.events())
    }
}
