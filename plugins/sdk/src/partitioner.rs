//! Partitioners, and what the broker would do itself.

use crate::{KeyRecord, Module};

/// Places records that name no partition.
pub trait Partitioner: Module {
    /// The record's partition, below `partition_count`, which is at least 1. Equal keys go to equal partitions for as long
    /// as the count stays.
    fn partition(&self, record: &KeyRecord<'_>, partition_count: u32) -> u32;
}

/// Where the broker would place a record itself, and every Kafka client: murmur2 of the key. Records without a key of one
/// call go to one partition, drawn from the call's seed.
#[must_use]
pub fn default_partition(record: &KeyRecord<'_>, partition_count: u32) -> u32 {
    match record.key {
        Some(key) => (murmur2(key) & 0x7fff_ffff) % partition_count,
        None => u32::try_from(record.call.seed % u64::from(partition_count)).expect("it is below the count"),
    }
}

/// The 32-bit `MurmurHash2` (Austin Appleby, public domain) with Kafka's seed 0x9747b28c. Kafka masks the top bit before it
/// takes the remainder.
#[must_use]
pub fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    #[expect(clippy::cast_possible_truncation, reason = "the algorithm takes the length modulo 2^32")]
    let mut hash = SEED ^ key.len() as u32;
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    if !rest.is_empty() {
        for (i, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * i);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}
