//! A map that remembers which of its entries changed, so that a step stores exactly those.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, btree_map};

/// A map whose every change is noted until [`take_changed`](Self::take_changed).
#[derive(Clone, Debug)]
pub(crate) struct Tracked<K, V> {
    map: BTreeMap<K, V>,
    changed: BTreeSet<K>,
}

impl<K, V> Default for Tracked<K, V> {
    fn default() -> Self {
        Self { map: BTreeMap::new(), changed: BTreeSet::new() }
    }
}

impl<K: Ord + Clone, V> Tracked<K, V> {
    /// Puts in what was read from the log: no change.
    pub(crate) fn load(&mut self, key: K, value: Option<V>) {
        match value {
            Some(value) => self.map.insert(key, value),
            None => self.map.remove(&key),
        };
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.changed.insert(key.clone());
        self.map.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let value = self.map.remove(key)?;
        self.changed.insert(key.clone());
        Some(value)
    }

    /// Notes a key as changed whose value, or want of one, stays what it is.
    pub(crate) fn touch(&mut self, key: K) {
        self.changed.insert(key);
    }

    /// The value, to be changed.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let value = self.map.get_mut(key)?;
        if !self.changed.contains(key) {
            self.changed.insert(key.clone());
        }
        Some(value)
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.map.get(key)
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.map.contains_key(key)
    }

    pub(crate) fn iter(&self) -> btree_map::Iter<'_, K, V> {
        self.map.iter()
    }

    pub(crate) fn keys(&self) -> btree_map::Keys<'_, K, V> {
        self.map.keys()
    }

    /// The first key at or after `from`.
    pub(crate) fn key_from(&self, from: &K) -> Option<&K> {
        self.map.range(from..).next().map(|(key, _)| key)
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The keys of all that was put in, changed or removed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<K> {
        std::mem::take(&mut self.changed)
    }
}
