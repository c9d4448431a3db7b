//! What may be done from a place whose machine has taken a step: look at it, run tasks, and come back to the same machine.

use std::sync::{Arc, Weak};
use std::time::Duration;

use levada_coordinator::Now;
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::kind::Kind;
use super::places::Coordinators;
use super::progress::{Progress, Receipt};
use super::slot::{Handing, Loaded, Slot};
use crate::catalog::Catalog;

/// How long what is deferred waits for company.
const DEFERRED_MS_MAX: u64 = 1_000;

/// A place whose machine has taken a step, for what follows from it.
pub(crate) struct Place<'a, K: Kind> {
    pub(super) coordinators: &'a Arc<Coordinators<K>>,
    pub(super) slot: &'a Arc<Slot<K>>,
    pub(super) loaded: &'a Loaded<K>,
}

/// A machine to come back to with what it has asked for, if it is still there then. It keeps nothing alive.
pub(crate) struct SameMachine<K: Kind> {
    coordinators: Weak<Coordinators<K>>,
    slot: Weak<Slot<K>>,
    progress: Arc<Progress>,
}

impl<K: Kind> Place<'_, K> {
    /// The coordinators of which it is one.
    pub(crate) fn coordinators(&self) -> &Arc<Coordinators<K>> {
        self.coordinators
    }

    /// The machine behind its step.
    pub(crate) fn machine(&self) -> &K::Machine {
        &self.loaded.machine
    }

    /// Where its tasks run.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.loaded.runtime
    }

    /// To wait until the step is durable.
    pub(crate) fn receipt(&self) -> Receipt {
        self.loaded.receipt()
    }

    /// To come back to the machine.
    pub(crate) fn same_machine(&self) -> SameMachine<K> {
        SameMachine {
            coordinators: Arc::downgrade(self.coordinators),
            slot: Arc::downgrade(self.slot),
            progress: self.loaded.progress.clone(),
        }
    }
}

impl<K: Kind> SameMachine<K> {
    /// Has the machine take a step once there is room for it; none if it is no longer there, or takes nothing any more.
    /// Waits for nothing else, and holds nothing while it does.
    pub(crate) async fn step<T>(&self, step: impl FnOnce(&mut K::Machine, Now, &Catalog) -> K::Step<T>) -> Option<T> {
        self.take(Handing::Now, step).await
    }

    /// The same with a step of which the records may wait: all that it does follows from what is durable.
    pub(crate) async fn step_deferred<T>(
        &self,
        step: impl FnOnce(&mut K::Machine, Now, &Catalog) -> K::Step<T>,
    ) -> Option<T> {
        self.take(Handing::Later, step).await
    }

    async fn take<T>(
        &self,
        handing: Handing,
        step: impl FnOnce(&mut K::Machine, Now, &Catalog) -> K::Step<T>,
    ) -> Option<T> {
        let mut step = Some(step);
        loop {
            let (coordinators, slot) = (self.coordinators.upgrade()?, self.slot.upgrade()?);
            let Some((answer, receipt)) = slot.step_of(&coordinators, &self.progress, handing, &mut step) else {
                // Whoever waits for what would have come of it hears why when he asks.
                slot.watches().wake_all();
                return None;
            };
            drop((coordinators, slot));
            if answer.is_some() {
                return answer;
            }
            // What was handed to the owner makes room.
            drop(receipt.durable().await);
        }
    }
}

/// Has what is deferred handed over after a while. It keeps nothing alive.
#[expect(clippy::disallowed_methods, reason = "what is deferred shall have time to find company")]
pub(super) async fn hand_over_later<K: Kind>(
    coordinators: Weak<Coordinators<K>>,
    slot: Weak<Slot<K>>,
    progress: Arc<Progress>,
) {
    loop {
        sleep(Duration::from_millis(DEFERRED_MS_MAX)).await;
        let (Some(coordinators), Some(slot)) = (coordinators.upgrade(), slot.upgrade()) else { return };
        if slot.timer_ran_out(&coordinators, &progress) {
            return;
        }
    }
}
