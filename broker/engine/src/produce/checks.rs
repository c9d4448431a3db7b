//! What can be wrong with records before their partitions judge them.
//!
//! Not here: batches that come built (`batches.rs`), and what a transaction asks for (`transaction.rs`).

use levada_model::{PartitionIndex, Timestamp, TimestampType, TopicConfig, limits};

use super::{Acks, ProduceError, ProduceRecord, RecordFault};
use crate::catalog::TopicState;

/// This node alone holds every partition.
const IN_SYNC_REPLICAS: u32 = 1;

/// Whether there are as many replicas as the topic asks for.
pub(crate) fn check_replicas(state: &TopicState, acks: Acks) -> Result<(), ProduceError> {
    let needed = state.config.min_insync_replicas;
    if acks == Acks::All && needed > IN_SYNC_REPLICAS {
        return Err(ProduceError::NotEnoughReplicas { in_sync: IN_SYNC_REPLICAS, needed });
    }
    Ok(())
}

/// Checks that all records name the same partition.
pub(super) fn one_partition(records: &[ProduceRecord], what: &'static str) -> Result<(), ProduceError> {
    let first = records[0].partition;
    let same = first.is_some() && records.iter().all(|record| record.partition == first);
    if same { Ok(()) } else { Err(ProduceError::OnePartition(what)) }
}

/// All that is wrong with the records, each at its place.
pub(super) fn check_records(
    state: &TopicState,
    records: &[ProduceRecord],
    now: Timestamp,
) -> Vec<(usize, RecordFault)> {
    let check = |record: &ProduceRecord| {
        if state.config.cleanup.compact && record.record.key.is_none() {
            return Err(RecordFault::NoKey);
        }
        let size_bytes = record.record.size_bytes();
        let time = record.timestamp.unwrap_or(now);
        check_record(&state.config, size_bytes, record.record.headers.len(), time, now)?;
        record.partition.map_or(Ok(()), |partition| check_partition(state, partition))
    };
    records.iter().enumerate().filter_map(|(place, record)| check(record).err().map(|fault| (place, fault))).collect()
}

pub(super) fn check_record(
    config: &TopicConfig,
    size_bytes: usize,
    headers: usize,
    timestamp: Timestamp,
    now: Timestamp,
) -> Result<(), RecordFault> {
    let limit_bytes = config.max_message_bytes;
    if size_bytes > limit_bytes {
        return Err(RecordFault::TooLarge { size_bytes, limit_bytes });
    }
    if headers > limits::RECORD_HEADERS_MAX {
        return Err(RecordFault::TooManyHeaders { count: headers, max: limits::RECORD_HEADERS_MAX });
    }
    let max = Timestamp(now.0.saturating_add(config.timestamp_after_max_ms));
    // The broker's time replaces what the producer says, so that is not judged then.
    let judged = config.timestamp_type == TimestampType::CreateTime;
    if judged && !(Timestamp(0)..=max).contains(&timestamp) {
        return Err(RecordFault::Timestamp { timestamp, max });
    }
    Ok(())
}

pub(super) fn check_partition(state: &TopicState, partition: PartitionIndex) -> Result<(), RecordFault> {
    if partition.0 < state.active_count {
        Ok(())
    } else if state.partition(partition).is_some() {
        Err(RecordFault::Retiring(partition))
    } else {
        Err(RecordFault::NoPartition(partition))
    }
}
