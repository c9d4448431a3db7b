//! The processors that run on this node, and the calls that change them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use levada_model::{ProcessorName, limits};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{OwnedMutexGuard, Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;

use super::runner::{Control, Runner};
use super::terms::ProcessorState;
use crate::engine::Core;

/// All that run.
pub(crate) struct Processors {
    list: Mutex<List>,
    /// Room for the batches that are worked on.
    room: Semaphore,
}

#[derive(Default)]
struct List {
    closing: bool,
    running: BTreeMap<ProcessorName, Running>,
    /// Held by whoever changes the processor of a name, also one that is not there.
    changing: BTreeMap<ProcessorName, Weak<tokio::sync::Mutex<()>>>,
}

struct Running {
    control: Arc<Control>,
    /// None where there is no runtime.
    runner: Option<JoinHandle<()>>,
}

impl Running {
    /// Whether nobody follows it any more.
    fn is_over(&self) -> bool {
        self.runner.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Default for Processors {
    fn default() -> Self {
        Self { list: Mutex::default(), room: Semaphore::new(limits::PROCESSOR_BATCHES_AT_ONCE_MAX) }
    }
}

impl Processors {
    /// How many stand still over a record or fault.
    pub(crate) fn failed_count(&self) -> u64 {
        let list = self.list.lock();
        let failed = |running: &&Running| matches!(running.control.state(), ProcessorState::Failed { .. });
        list.running.values().filter(failed).count() as u64
    }

    /// Ends all, wherever they are; what they have not committed does not count. Nothing runs afterwards.
    pub(crate) async fn stop(&self) {
        for runner in self.close() {
            // One that has panicked has ended too.
            let _ = runner.await;
        }
    }

    /// The same without waiting.
    pub(crate) fn abandon(&self) {
        self.close().iter().for_each(JoinHandle::abort);
    }

    /// Waits for room to work on a batch.
    pub(super) async fn room(&self) -> SemaphorePermit<'_> {
        self.room.acquire().await.expect("it is never closed")
    }

    /// Waits until nobody else changes the processor of this name.
    pub(super) async fn changing(&self, name: &ProcessorName) -> OwnedMutexGuard<()> {
        let changing = {
            let changing = &mut self.list.lock().changing;
            changing.retain(|_, lock| lock.strong_count() > 0);
            changing.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
                let new = Arc::default();
                changing.insert(name.clone(), Arc::downgrade(&new));
                new
            })
        };
        changing.lock_owned().await
    }

    /// The control of one that runs.
    pub(super) fn get(&self, name: &ProcessorName) -> Option<Arc<Control>> {
        self.list.lock().running.get(name).map(|running| running.control.clone())
    }

    /// The control of one that the metadata know, which runs from now on.
    pub(super) fn run(&self, core: &Arc<Core>, name: &ProcessorName, paused: bool) -> Arc<Control> {
        let mut list = self.list.lock();
        if let Some(running) = list.running.get(name).filter(|running| !running.is_over()) {
            return running.control.clone();
        }
        let control = Arc::new(Control::new(paused));
        let runner = Runner::new(name.clone(), control.clone(), Arc::downgrade(core));
        let runtime = Handle::try_current().ok().filter(|_| !list.closing);
        let runner = runtime.map(|runtime| runtime.spawn(runner.run()));
        if runner.is_none() {
            control.end();
        }
        list.running.insert(name.clone(), Running { control: control.clone(), runner });
        control
    }

    /// Forgets one that was deleted.
    pub(super) fn forget(&self, name: &ProcessorName) {
        self.list.lock().running.remove(name);
    }

    fn close(&self) -> Vec<JoinHandle<()>> {
        let mut list = self.list.lock();
        list.closing = true;
        let ended = list.running.values_mut().filter_map(|running| {
            running.control.close();
            running.runner.take()
        });
        ended.collect()
    }
}

/// Has those run that the metadata know, if there is a runtime.
pub(crate) fn start(core: &Arc<Core>) {
    for (name, image) in &core.metadata.image().processors {
        core.processors.run(core, name, image.paused);
    }
}
