//! The newest offset of each key, within a given memory.
//!
//! A key is known by 128 bits of two keyed hashes (SipHash with random keys, std's), which nobody can make collide who
//! does not know them. The table is cut into shards that grow one by one, so that growing needs little room beside it.

use std::hash::{BuildHasher, RandomState};

use levada_model::Offset;

/// Most shards; fewer where they would be tiny.
const SHARDS_MAX: usize = 64;
const SLOTS_PER_SHARD_MIN: usize = 256;
/// Slots that a shard begins with.
const SLOTS_FIRST: usize = 16;

/// Newest offsets by key.
pub(super) struct OffsetMap {
    hashers: [RandomState; 2],
    shards: Vec<Shard>,
    /// Most slots of one shard. There is room for one shard more, which is a shard that grows.
    slots_per_shard_max: usize,
}

#[derive(Default)]
struct Shard {
    slots: Vec<Slot>,
    used: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    hash: [u64; 2],
    /// [`FREE`] where there is no key.
    newest: u64,
}

const FREE: u64 = u64::MAX;

impl OffsetMap {
    /// An empty map that takes at most `memory_bytes`, or what one key needs if that is more.
    pub(super) fn new(memory_bytes: usize) -> Self {
        let slots = (memory_bytes / size_of::<Slot>()).max(4);
        let shards = (slots / SLOTS_PER_SHARD_MIN).clamp(1, SHARDS_MAX);
        Self {
            hashers: [RandomState::new(), RandomState::new()],
            shards: (0..shards).map(|_| Shard::default()).collect(),
            slots_per_shard_max: slots / (shards + 1),
        }
    }

    /// Notes that a record with this key lies at `offset`, which is beyond all before. False if there is no room for
    /// the key.
    pub(super) fn note(&mut self, key: &[u8], offset: Offset) -> bool {
        let hash = self.hash(key);
        let shard = self.shard(hash);
        self.shards[shard].note(Slot { hash, newest: offset.0 }, self.slots_per_shard_max)
    }

    /// The newest offset of a key, if there is one.
    pub(super) fn newest(&self, key: &[u8]) -> Option<Offset> {
        let hash = self.hash(key);
        let shard = &self.shards[self.shard(hash)];
        let slot = shard.slots.get(shard.find(hash)?)?;
        (slot.newest != FREE).then_some(Offset(slot.newest))
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        [self.hashers[0].hash_one(key), self.hashers[1].hash_one(key)]
    }

    fn shard(&self, hash: [u64; 2]) -> usize {
        place(hash[0], self.shards.len())
    }
}

impl Shard {
    fn note(&mut self, new: Slot, slots_max: usize) -> bool {
        if let Some(index) = self.find(new.hash)
            && self.slots[index].newest != FREE
        {
            self.slots[index].newest = new.newest;
            return true;
        }
        if self.used >= room(self.slots.len()) && !self.grow(slots_max) {
            return false;
        }
        self.insert(new);
        true
    }

    fn grow(&mut self, slots_max: usize) -> bool {
        let wanted = (self.slots.len() + self.slots.len() / 2).max(SLOTS_FIRST).min(slots_max);
        if room(wanted) <= self.used {
            return false;
        }
        let grown = vec![Slot { hash: [0; 2], newest: FREE }; wanted];
        let old = std::mem::replace(self, Self { slots: grown, used: 0 });
        old.slots.into_iter().filter(|slot| slot.newest != FREE).for_each(|slot| self.insert(slot));
        true
    }

    fn insert(&mut self, slot: Slot) {
        let index = self.find(slot.hash).expect("a shard grows before it is full");
        self.slots[index] = slot;
        self.used += 1;
    }

    /// Where a hash is, or else the free slot where it belongs; none in a shard without slots.
    fn find(&self, hash: [u64; 2]) -> Option<usize> {
        let slots = self.slots.len();
        let mut index = if slots == 0 { return None } else { place(hash[1], slots) };
        loop {
            let slot = &self.slots[index];
            if slot.newest == FREE || slot.hash == hash {
                return Some(index);
            }
            index = if index + 1 == slots { 0 } else { index + 1 };
        }
    }
}

/// How many of so many slots are used before a walk along them gets long.
fn room(slots: usize) -> usize {
    slots * 4 / 5
}

/// A place below `count` for a hash, all as likely (Lemire's multiplication instead of a remainder).
fn place(hash: u64, count: usize) -> usize {
    ((u128::from(hash) * count as u128) >> u64::BITS) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::{prop, proptest};
    use proptest::prop_assert_eq;

    use super::*;

    fn slots(map: &OffsetMap) -> usize {
        map.shards.iter().map(|shard| shard.slots.capacity()).sum()
    }

    proptest! {
        #[test]
        fn it_knows_what_a_naive_map_knows(keys in prop::collection::vec(0..4_000_u16, 0..3_000)) {
            let (mut map, mut naive) = (OffsetMap::new(1 << 20), HashMap::new());
            for (offset, key) in keys.iter().enumerate() {
                let offset = Offset(offset as u64);
                assert!(map.note(&key.to_be_bytes(), offset));
                naive.insert(*key, offset);
            }
            for key in 0..4_000_u16 {
                prop_assert_eq!(map.newest(&key.to_be_bytes()), naive.get(&key).copied());
            }
        }
    }

    #[test]
    fn it_takes_no_more_memory_than_it_may_and_no_more_than_it_needs() {
        for memory_bytes in [0, 100, 5_000, 100_000, 3 << 20] {
            let mut map = OffsetMap::new(memory_bytes);
            let mut keys = 0_u64;
            while map.note(&keys.to_be_bytes(), Offset(keys)) {
                keys += 1;
                assert!(slots(&map) <= 2 * SLOTS_FIRST * map.shards.len() + 2 * usize::try_from(keys).expect("few"));
            }
            // A shard that grows is there twice.
            let most = (slots(&map) + map.slots_per_shard_max) * size_of::<Slot>();
            assert!(most <= memory_bytes.max(4 * size_of::<Slot>()), "{most} of {memory_bytes}");
            assert!(keys >= 1, "a pass takes a key at least");
            assert!(memory_bytes < 50_000 || keys * 40 > memory_bytes as u64, "{keys} keys in {memory_bytes}");
            // Full is not blind: what it knows may get newer, and what it did not take it does not know.
            assert!(map.note(&0_u64.to_be_bytes(), Offset(keys)));
            assert_eq!(map.newest(&0_u64.to_be_bytes()), Some(Offset(keys)));
            assert_eq!(map.newest(&keys.to_be_bytes()), None);
        }
    }
}
