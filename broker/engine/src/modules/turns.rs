//! Turns of the reads through a filter: what is read for a module waits in memory until it is judged, so few do that at once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_extension::ModuleBusy;
use levada_model::{ModuleName, limits};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::RecordFilter;
use crate::FetchError;

/// Of all modules that are filters now: a slow one keeps no others waiting.
#[derive(Default)]
pub(crate) struct AllTurns(Mutex<HashMap<ModuleName, Weak<Semaphore>>>);

/// Of the reads through one module.
pub(crate) type Turns = Arc<Semaphore>;

/// One read's turn, until it is judged.
pub(crate) type Turn = OwnedSemaphorePermit;

impl AllTurns {
    /// Those of a module.
    pub(super) fn of(&self, module: &ModuleName) -> Turns {
        let mut all = self.0.lock();
        if let Some(turns) = all.get(module).and_then(Weak::upgrade) {
            return turns;
        }
        all.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Semaphore::new(limits::FILTERED_READS_AT_ONCE_MAX));
        all.insert(module.clone(), Arc::downgrade(&turns));
        turns
    }
}

impl RecordFilter {
    /// Waits for a turn to read.
    ///
    /// # Errors
    /// [`FetchError::Filter`] with [`ModuleFault::Busy`](levada_extension::ModuleFault::Busy) when none comes in `MODULE_WAIT_MS_MAX`.
    pub(crate) async fn turn(&self) -> Result<Turn, FetchError> {
        let wait = Duration::from_millis(limits::MODULE_WAIT_MS_MAX);
        match timeout(wait, self.turns.clone().acquire_owned()).await {
            Ok(turn) => Ok(turn.expect("it is never closed")),
            Err(_) => {
                let reason = format!("{} reads wait for it already", limits::FILTERED_READS_AT_ONCE_MAX);
                Err(FetchError::Filter { module: self.module.clone(), at: None, fault: ModuleBusy { reason }.into() })
            }
        }
    }
}
