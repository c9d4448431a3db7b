//! Instances that wait for their next call, of all modules. The one that waited longest makes way.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::instance::Instance;

/// Most instances that wait.
const IDLE_MAX: usize = 128;

/// For whom an instance is: a module version while it is loaded, and a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IdleKey {
    pub(crate) version: u64,
    pub(crate) config: Arc<str>,
}

/// The instances.
#[derive(Default)]
pub(crate) struct Idle {
    instances: Mutex<VecDeque<(IdleKey, Instance)>>,
}

impl Idle {
    /// The one that was used last, whose memory is warm.
    pub(crate) fn take(&self, key: &IdleKey) -> Option<Instance> {
        let mut instances = self.instances.lock();
        let at = instances.iter().rposition(|(of, _)| of == key)?;
        instances.remove(at).map(|(_, instance)| instance)
    }

    pub(crate) fn put(&self, key: IdleKey, instance: Instance) {
        let mut instances = self.instances.lock();
        instances.push_back((key, instance));
        let oldest = if instances.len() > IDLE_MAX { instances.pop_front() } else { None };
        drop(instances);
        drop(oldest);
    }

    /// Ends the one that waited longest; none is left if there is none.
    pub(crate) fn end_oldest(&self) -> bool {
        let oldest = self.instances.lock().pop_front();
        oldest.is_some()
    }

    /// Ends those of a version.
    pub(crate) fn forget(&self, version: u64) {
        let mut instances = self.instances.lock();
        let all = std::mem::take(&mut *instances).into_iter();
        let (gone, kept): (VecDeque<_>, VecDeque<_>) = all.partition(|(of, _)| of.version == version);
        *instances = kept;
        drop(instances);
        drop(gone);
    }

    /// Ends all.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.instances.lock());
        drop(all);
    }
}
