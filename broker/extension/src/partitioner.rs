//! Which partition a record goes to, for records that name none.

use std::sync::atomic::{AtomicU32, Ordering};

use levada_model::PartitionIndex;
use thiserror::Error;

use crate::{Keys, ModuleFault};

/// Places the records of one request.
///
/// Duties: an answer has one partition a key, in order, each below `partition_count`; equal keys go to equal partitions
/// as long as the count stays; the call returns promptly, since a producer waits. Whoever asks checks the answer with
/// [`check_partitions`] and falls back to [`Murmur2`].
pub trait Partitioner: Send + Sync {
    /// The partition of each key (none: a record without a key). `partition_count` is at least 1.
    fn partition(&self, keys: &[Option<&[u8]>], partition_count: u32) -> Vec<PartitionIndex>;

    /// The same for one that may read more than the keys, and may fail.
    ///
    /// # Errors
    /// When there is no usable answer.
    fn place(&self, keys: &Keys<'_>, partition_count: u32) -> Result<Vec<PartitionIndex>, ModuleFault> {
        let only_keys: Vec<_> = keys.records.iter().map(|record| record.key).collect();
        Ok(self.partition(&only_keys, partition_count))
    }
}

/// What is wrong with a partitioner's answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PartitionFault {
    /// Not one partition a key.
    #[error("{got} partitions for {expected} keys")]
    Length {
        /// Keys given.
        expected: usize,
        /// Partitions answered.
        got: usize,
    },
    /// A partition that does not exist.
    #[error("partition {partition} for key {index} of a topic with {partition_count}")]
    OutOfRange {
        /// Place of the key.
        index: usize,
        /// What was answered.
        partition: PartitionIndex,
        /// Partitions there are.
        partition_count: u32,
    },
}

/// Checks a partitioner's answer.
///
/// # Errors
/// What is wrong with it first.
pub fn check_partitions(answer: &[PartitionIndex], keys: usize, partition_count: u32) -> Result<(), PartitionFault> {
    if answer.len() != keys {
        return Err(PartitionFault::Length { expected: keys, got: answer.len() });
    }
    match answer.iter().position(|partition| partition.0 >= partition_count) {
        Some(index) => Err(PartitionFault::OutOfRange { index, partition: answer[index], partition_count }),
        None => Ok(()),
    }
}

/// Kafka's default: murmur2 of the key; records without a key of one call go to one partition, the next call's to the
/// next (the sticky partitioner of KIP-480, whose batch is our request).
#[derive(Debug, Default)]
pub struct Murmur2 {
    turn: AtomicU32,
}

impl Partitioner for Murmur2 {
    fn partition(&self, keys: &[Option<&[u8]>], partition_count: u32) -> Vec<PartitionIndex> {
        let mut keyless = None;
        let mut place = |key: Option<&[u8]>| match key {
            Some(key) => (murmur2(key) & 0x7fff_ffff) % partition_count,
            None => *keyless.get_or_insert_with(|| self.turn.fetch_add(1, Ordering::Relaxed) % partition_count),
        };
        keys.iter().map(|key| PartitionIndex(place(*key))).collect()
    }
}

/// The 32-bit `MurmurHash2` (Austin Appleby, public domain) with Kafka's seed 0x9747b28c. Kafka masks the top bit before
/// it takes the remainder.
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
