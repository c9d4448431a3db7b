//! Modules on a record's way in: the topic's partitioner, and its validator.
//!
//! A partitioner that fails is stood in for, and that is counted; a validator that fails lets nothing pass. Not here: where a
//! request went that came before (`earlier`).

use std::sync::Arc;

use levada_extension::{
    CallBatch, CallSection, KeyRecord, Keys, ModuleFault, Murmur2, Partitioner, Verdict, check_partitions,
};
use levada_model::{Offset, PartitionIndex, Timestamp, TopicName, limits};

use super::earlier::Earlier;
use super::{BatchBuf, Once, ProduceError, ProduceRecord, ProduceRequest, RecordFault, by_partition};
use crate::catalog::{Topic, TopicState};
use crate::engine::Core;
use crate::fetch::call_section;
use crate::modules::judge;

/// The partition of each record: the one it names, else the partitioner's choice. With an `Idempotency-Key` a record
/// without a key goes where that key goes, so that a retry meets its first try.
pub(super) async fn place(
    core: &Core,
    topic: &Topic,
    state: &TopicState,
    request: ProduceRequest,
    earlier: &Earlier,
    now: Timestamp,
) -> Result<(ProduceRequest, Vec<PartitionIndex>), ProduceError> {
    let (request, chosen) = match &state.partitioner {
        Some(_) if request.records.iter().any(|record| record.partition.is_none()) => {
            by_module(core, topic, state, request, earlier, now).await?
        }
        _ => (request, None),
    };
    let chosen = chosen.unwrap_or_else(|| built_in(topic.partitioner(), state, &request));
    let mut chosen = chosen.into_iter();
    let place = |record: &ProduceRecord| record.partition.or_else(|| chosen.next());
    let placed = request.records.iter().map(place);
    let placements = placed.map(|partition| partition.expect("one choice a record without one")).collect();
    Ok((request, placements))
}

/// That the topic's validator, if it has one, lets all records pass. It is not asked about what is stored already, since its
/// answer may be another by now.
pub(super) async fn validate(
    core: &Core,
    topic: &Topic,
    state: &TopicState,
    request: ProduceRequest,
    placements: &[PartitionIndex],
    earlier: &Earlier,
    now: Timestamp,
) -> Result<ProduceRequest, ProduceError> {
    let Some(validator) = &state.validator else { return Ok(request) };
    let moment = core.modules.moment(stand_in(&request.once));
    let mut parts = by_partition(placements);
    parts.retain(|(partition, _)| !earlier.is_held_by(*partition));
    if parts.is_empty() {
        return Ok(request);
    }
    let order: Vec<_> = parts.iter().flat_map(|(_, places)| places).copied().collect();
    let records = Arc::new(request.records);
    let (shared, name) = (records.clone(), topic.name().clone());
    let judged = validator.call(&core.modules, move |transform| {
        let section = |(partition, places): (PartitionIndex, Vec<usize>)| {
            let given = |place: usize| {
                let record: &ProduceRecord = &shared[place];
                (record.timestamp.unwrap_or(now), record.record.clone())
            };
            let records: Vec<_> = places.into_iter().map(given).collect();
            CallSection::unstored(name.clone(), partition, &records)
        };
        judge(transform, &CallBatch { moment, sections: parts.into_iter().map(section).collect() })
    });
    let failed = |fault| ProduceError::Validator { module: validator.module().clone(), fault };
    let verdicts = judged.await.map_err(failed)?;
    let mut faults = Vec::new();
    for (place, verdict) in order.into_iter().zip(verdicts) {
        if let Some(reason) = rejection(verdict).map_err(failed)? {
            faults.push((place, RecordFault::Rejected { module: validator.module().clone(), reason }));
        }
    }
    let records = Arc::unwrap_or_clone(records);
    if faults.is_empty() {
        return Ok(ProduceRequest { records, ..request });
    }
    core.directory.counters().records_rejected.add(faults.len() as u64);
    faults.sort_by_key(|(place, _)| *place);
    Err(ProduceError::Records(faults))
}

/// The same for batches that come built.
pub(super) async fn validate_batches(
    core: &Core,
    topic: &Topic,
    state: &TopicState,
    partition: PartitionIndex,
    sections: Vec<CallSection>,
) -> Result<(), ProduceError> {
    let Some(validator) = &state.validator else { return Ok(()) };
    let counts: Vec<_> = sections.iter().map(|section| section.record_count).collect();
    let batch = CallBatch { moment: core.modules.moment(None), sections };
    let judged = validator.call(&core.modules, move |transform| judge(transform, &batch)).await;
    let failed = |fault| ProduceError::Validator { module: validator.module().clone(), fault };
    let mut verdicts = judged.map_err(failed)?.into_iter();
    for (batch, count) in counts.into_iter().enumerate() {
        for (record, verdict) in (0..count).zip(verdicts.by_ref()) {
            if let Some(reason) = rejection(verdict).map_err(failed)? {
                core.directory.counters().records_rejected.add(1);
                tracing::debug!(topic = %topic.name(), %partition, batch, record, "a record was rejected");
                return Err(ProduceError::Rejected { batch, record, module: validator.module().clone(), reason });
            }
        }
    }
    Ok(())
}

/// A batch that comes built, as a validator is given it: not stored yet, so its offsets count from 0.
pub(super) fn section(topic: &TopicName, partition: PartitionIndex, batch: &BatchBuf) -> Option<CallSection> {
    let section = call_section(topic, partition, batch.header(), batch.section().ok()?);
    Some(CallSection { base_offset: Offset(0), ..section })
}

/// What stands in for the key of a record that has none.
fn stand_in(once: &Once) -> Option<&[u8]> {
    match once {
        Once::Key { key, .. } => Some(key.as_bytes()),
        Once::No | Once::Producer { .. } | Once::Transaction { .. } => None,
    }
}

fn built_in(partitioner: &Murmur2, state: &TopicState, request: &ProduceRequest) -> Vec<PartitionIndex> {
    let stand_in = stand_in(&request.once);
    let unplaced = request.records.iter().filter(|record| record.partition.is_none());
    let keys: Vec<_> = unplaced.map(|record| record.record.key.as_deref().or(stand_in)).collect();
    let mut chosen = if keys.is_empty() { Vec::new() } else { partitioner.partition(&keys, state.active_count) };
    check_partitions(&chosen, keys.len(), state.active_count).expect("murmur2 keeps the partitioner's duties");
    if let Some(follows) = request.keyless_to.filter(|partition| partition.0 < state.active_count) {
        let keyless = keys.iter().zip(&mut chosen).filter(|(key, _)| key.is_none());
        keyless.for_each(|(_, chosen)| *chosen = follows);
    }
    chosen
}

/// The module's choices; none where it has no usable answer, which is counted.
async fn by_module(
    core: &Core,
    topic: &Topic,
    state: &TopicState,
    request: ProduceRequest,
    earlier: &Earlier,
    now: Timestamp,
) -> Result<(ProduceRequest, Option<Vec<PartitionIndex>>), ProduceError> {
    let Some(partitioner) = &state.partitioner else { return Ok((request, None)) };
    let stand_in = stand_in(&request.once);
    let (moment, partition_count) = (core.modules.moment(stand_in), state.active_count);
    let (name, stand_in) = (topic.name().clone(), stand_in.map(<[u8]>::to_vec));
    let records = Arc::new(request.records);
    let shared = records.clone();
    let chosen = partitioner.call(&core.modules, move |module| {
        let unplaced = shared.iter().filter(|record| record.partition.is_none());
        let unplaced = unplaced.map(|ProduceRecord { record, timestamp, .. }| KeyRecord {
            timestamp: timestamp.unwrap_or(now),
            key: record.key.as_deref().or(stand_in.as_deref()),
            value: record.value.as_deref(),
            headers: &record.headers,
        });
        let unplaced: Vec<_> = unplaced.collect();
        let mut chosen = Vec::with_capacity(unplaced.len());
        for records in unplaced.chunks(limits::MODULE_CALL_RECORDS_MAX) {
            chosen.extend(choose(module, &Keys { topic: &name, moment, records }, partition_count)?);
        }
        Ok(chosen)
    });
    let chosen = match chosen.await {
        Ok(chosen) => Some(chosen),
        // Who comes again finds room, and then its records go where they belong.
        Err(ModuleFault::Busy(busy)) => {
            return Err(ProduceError::PartitionerBusy { module: partitioner.module().clone(), busy });
        }
        Err(fault) if !earlier.lets_stand_in() => {
            return Err(ProduceError::Partitioner { module: partitioner.module().clone(), fault });
        }
        Err(fault) => {
            core.directory.counters().partitioner_fallbacks.add(1);
            topic.fallbacks().note(partitioner.module(), &fault);
            None
        }
    };
    Ok((ProduceRequest { records: Arc::unwrap_or_clone(records), ..request }, chosen))
}

/// Asks the module; in halves where the keys are too many for it.
pub(crate) fn choose(
    module: &dyn Partitioner,
    keys: &Keys<'_>,
    partition_count: u32,
) -> Result<Vec<PartitionIndex>, ModuleFault> {
    match module.place(keys, partition_count) {
        Err(ModuleFault::TooLarge { .. }) if keys.records.len() > 1 => {
            let (front, back) = keys.records.split_at(keys.records.len() / 2);
            let mut chosen = choose(module, &Keys { records: front, ..*keys }, partition_count)?;
            chosen.extend(choose(module, &Keys { records: back, ..*keys }, partition_count)?);
            Ok(chosen)
        }
        answer => {
            let chosen = answer?;
            check_partitions(&chosen, keys.records.len(), partition_count)?;
            Ok(chosen)
        }
    }
}

/// Why a record is not taken, if so.
fn rejection(verdict: Verdict) -> Result<Option<String>, ModuleFault> {
    match verdict {
        Verdict::Pass => Ok(None),
        Verdict::Reject(reason) => Ok(Some(reason)),
        Verdict::Drop => Ok(Some("it drops the record, and what a validator drops is not stored".to_owned())),
        Verdict::Emit(_) => {
            let reason = "it wants to store another record, and a validator changes none".to_owned();
            Err(ModuleFault::Failed { reason })
        }
    }
}
