//! Times at which something is due, in order.

use std::collections::{BTreeMap, BTreeSet};

use levada_model::{Tick, Timestamp};

use crate::terms::Now;

/// Bytes of records after which what is due is left to the next tick.
pub(crate) const TICK_BYTES: usize = 8 << 20;

/// At most one time for each `K`.
#[derive(Clone, Debug)]
pub(crate) struct Timers<K> {
    due: BTreeSet<(Tick, K)>,
    at: BTreeMap<K, Tick>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { due: BTreeSet::new(), at: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Timers<K> {
    /// Sets the time of `key`, or (none) takes it away.
    pub(crate) fn set(&mut self, key: &K, at: Option<Tick>) {
        let old = self.at.get(key).copied();
        if old == at {
            return;
        }
        if let Some(old) = old {
            self.due.remove(&(old, key.clone()));
        }
        match at {
            Some(at) => {
                self.due.insert((at, key.clone()));
                self.at.insert(key.clone(), at);
            }
            None => drop(self.at.remove(key)),
        }
    }

    /// The earliest time.
    pub(crate) fn next(&self) -> Option<Tick> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes out the first that is due at `now`.
    pub(crate) fn pop(&mut self, now: Tick) -> Option<K> {
        let (at, key) = self.due.first()?;
        if *at > now {
            return None;
        }
        let key = key.clone();
        let at = *at;
        self.due.remove(&(at, key.clone()));
        self.at.remove(&key);
        Some(key)
    }
}

/// `millis` after `now`; never, where that is too far to be counted.
pub(crate) fn after(now: Tick, millis: u64) -> Tick {
    Tick(now.0.saturating_add(millis))
}

/// `millis` after `since`, which was stored before a restart: what has passed is taken from the time of day, once. A clock
/// that was set back makes it longer, by no more than `millis`.
pub(crate) fn after_stored(now: Now, since: Timestamp, millis: u64) -> Tick {
    let passed = u64::try_from(now.wall.0.saturating_sub(since.0)).unwrap_or(0);
    after(now.tick, millis.saturating_sub(passed))
}
